#include "tools/simgrid_flows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "core/rng.h"
#include "netsim/flow_network.h"

namespace longhaul {
namespace {

constexpr std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

double log_uniform(Rng& rng, double low, double high) {
  return low * std::pow(high / low, rng.uniform());
}

}  // namespace

double FlowScene::latency_s(const Route& route) const {
  double sum = 0;
  for (const int link : route.links) sum += links[at(link)].latency_s;
  return sum;
}

// ---- Scenes ------------------------------------------------------

namespace {

/// The links of a scene in their order: two of each host, two of each site, the trunks.
class Ground {
 public:
  Ground(const SceneSize& size, FlowScene& scene, Rng& rng) : size_(size) {
    const auto add = [&](double rate_low, double rate_high, double ms_low, double ms_high) {
      const double rate = log_uniform(rng, rate_low, rate_high);
      scene.links.push_back({rate, log_uniform(rng, ms_low, ms_high) / 1e3});
    };
    for (int i = 0; i < 2 * size.hosts; ++i) add(1e8, 3e9, 0.05, 0.5);
    for (int i = 0; i < 2 * size.sites; ++i) add(5e8, 5e9, 0.1, 2);
    for (int i = 0; i < trunks(); ++i) add(2e8, 2e9, 1, 48);
    for (int a = 0; a < size.sites; ++a) {
      for (int b = 0; b < size.sites; ++b) {
        const int first = static_cast<int>(rng.below(at(trunks())));
        const int second = static_cast<int>(rng.below(at(trunks())));
        trunks_of_[{a, b}] = {first};
        if (second != first && rng.chance(0.5)) trunks_of_[{a, b}].push_back(second);
      }
    }
  }

  std::vector<int> links(int from, int to) const {
    std::vector<int> path = {2 * from};
    const int a = from % size_.sites;
    const int b = to % size_.sites;
    if (a != b) {
      path.push_back(2 * (size_.hosts + a));
      for (const int trunk : trunks_of_.at({a, b})) {
        path.push_back(2 * (size_.hosts + size_.sites) + trunk);
      }
      path.push_back(2 * (size_.hosts + b) + 1);
    }
    path.push_back(2 * to + 1);
    return path;
  }

 private:
  int trunks() const { return 2 * size_.sites; }

  SceneSize size_;
  std::map<std::pair<int, int>, std::vector<int>> trunks_of_;
};

}  // namespace

FlowScene random_scene(const SceneSize& size, std::uint64_t seed) {
  Rng rng("simgrid scene", seed);
  FlowScene scene;
  scene.hosts = size.hosts;
  const Ground ground(size, scene, rng);
  std::map<std::pair<int, int>, int> routes;
  for (int i = 0; i < size.flows; ++i) {
    const int from = static_cast<int>(rng.below(at(size.hosts)));
    const int other = static_cast<int>(rng.below(at(size.hosts - 1)));
    const int to = other < from ? other : other + 1;
    const auto [route, is_new] = routes.emplace(std::pair(from, to), routes.size());
    if (is_new) scene.routes.push_back({from, to, ground.links(from, to)});
    const double start = size.window_s * rng.uniform();
    const auto amount = static_cast<std::uint64_t>(log_uniform(rng, 1e6, 1e9));
    scene.flows.push_back({start, route->second, amount});
  }
  std::ranges::stable_sort(scene.flows, {}, &FlowScene::Flow::start_s);
  return scene;
}

FlowScene small_random_scene(std::uint64_t seed) {
  Rng rng("size of a simgrid scene", seed);
  SceneSize size;
  size.hosts = 4 + static_cast<int>(rng.below(21));
  size.sites = std::min(size.hosts, 2 + static_cast<int>(rng.below(5)));
  size.flows = 100 + static_cast<int>(rng.below(301));
  size.window_s = log_uniform(rng, 0.1, 100);
  return random_scene(size, seed);
}

// ---- Ours --------------------------------------------------------

FlowRun run_flows(const FlowScene& scene) {
  FlowNetwork network;
  for (const FlowScene::Link& link : scene.links) {
    network.add_resource(bytes_per_second(link.rate));
  }
  const std::size_t flows = scene.flows.size();
  FlowRun run;
  run.end_s.resize(flows);
  const std::clock_t start = std::clock();

  struct Entry {  // of a flow into the network, once its latency is over
    SimTime time;
    std::size_t flow;
  };
  std::vector<Entry> entries(flows);
  std::vector<double> latencies;
  for (const FlowScene::Route& route : scene.routes) latencies.push_back(scene.latency_s(route));
  for (std::size_t i = 0; i < flows; ++i) {
    const FlowScene::Flow& flow = scene.flows[i];
    entries[i] = {SimTime::from(seconds(flow.start_s + latencies[at(flow.route)])), i};
  }
  std::ranges::stable_sort(entries, {}, &Entry::time);
  std::vector<std::size_t> running;  // the flow of an id of the network
  const auto pop_until = [&](SimTime limit) {
    for (SimTime time; (time = network.next_completion()) != SimTime::never() && time <= limit;) {
      run.end_s[running[at(network.pop_completed())]] = time.seconds().value();
    }
  };
  for (const Entry& entry : entries) {
    pop_until(entry.time);
    const FlowScene::Flow& flow = scene.flows[entry.flow];
    const FlowId id = network.start(entry.time, scene.routes[at(flow.route)].links,
                                    bytes(static_cast<double>(flow.bytes)),
                                    BytesPerSecond::infinity(), 1 / latencies[at(flow.route)]);
    if (at(id) >= running.size()) running.resize(at(id) + 1);
    running[at(id)] = entry.flow;
  }
  pop_until(SimTime::never());
  run.processor_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return run;
}

// ---- SimGrid's ---------------------------------------------------

namespace {

Result<void> write_scene(const FlowScene& scene, const std::string& folder) {
  std::ofstream platform(folder + "/platform.xml");
  platform << "<?xml version=\"1.0\"?>\n"
              "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
              "<platform version=\"4.1\">\n<zone id=\"all\" routing=\"Full\">\n";
  for (int host = 0; host < scene.hosts; ++host) {
    platform << fmt::format("<host id=\"h{}\" speed=\"1Gf\"/>\n", host);
  }
  for (std::size_t i = 0; i < scene.links.size(); ++i) {
    platform << fmt::format("<link id=\"l{}\" bandwidth=\"{}Bps\" latency=\"{}s\"/>\n", i,
                            scene.links[i].rate, scene.links[i].latency_s);
  }
  for (const FlowScene::Route& route : scene.routes) {
    platform << fmt::format("<route src=\"h{}\" dst=\"h{}\" symmetrical=\"NO\">", route.from,
                            route.to);
    for (const int link : route.links) platform << fmt::format("<link_ctn id=\"l{}\"/>", link);
    platform << "</route>\n";
  }
  platform << "</zone>\n</platform>\n";
  std::ofstream list(folder + "/flows.txt");
  for (const FlowScene::Flow& flow : scene.flows) {
    const FlowScene::Route& route = scene.routes[at(flow.route)];
    list << fmt::format("{} h{} h{} {}\n", flow.start_s, route.from, route.to, flow.bytes);
  }
  platform.close();
  list.close();
  if (!platform || !list) return failed("platform and flows cannot be written to " + folder);
  return {};
}

}  // namespace

Result<SimgridRun> run_flows_in_simgrid(const FlowScene& scene, const SimgridCall& call) {
  const std::string folder = call.root + "/build/simgrid";
  LH_TRY(write_scene(scene, folder));
  // Its other defaults: shares are exact to 1e-5 bytes/s and times to 1e-9 s.
  const std::string command = fmt::format(
      "'{}/judge' --cfg=network/model:CM02 --cfg=network/TCP-gamma:0 --cfg=network/crosstraffic:0 "
      "--cfg=network/optim:{} --log=root.thres:error '{}/platform.xml' '{}/flows.txt'",
      folder, call.updates_all ? "Full" : "Lazy", folder, folder);
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return failed("SimGrid's judge does not start");
  std::string text;
  std::array<char, 65536> buffer;
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), got);
  }
  if (::pclose(pipe) != 0) return failed(command + " failed", "tools/simgrid makes it");

  SimgridRun run;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) {
      run.end_s.push_back(std::stod(line));
    } else if (line.starts_with("simgrid ")) {
      run.version = line.substr(space + 1);
    } else if (line.starts_with("option ")) {
      run.options.push_back(line.substr(space + 1));
    } else if (line.starts_with("processor_s ")) {
      run.processor_s = std::stod(line.substr(space));
    }
  }
  if (run.end_s.size() != scene.flows.size()) return failed(command + " lost flows");
  return run;
}

// ---- Comparison --------------------------------------------------

double worst_relative_difference(const FlowScene& scene, const FlowRun& ours,
                                 const FlowRun& other) {
  double worst = 0;
  for (std::size_t i = 0; i < scene.flows.size(); ++i) {
    const double time = other.end_s[i] - scene.flows[i].start_s;
    const double difference = std::abs(ours.end_s[i] - other.end_s[i]) / time;
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

double mean_flows_at_once(const FlowScene& scene, const FlowRun& run) {
  double last = 0;
  double sum = 0;
  for (std::size_t i = 0; i < scene.flows.size(); ++i) {
    sum += run.end_s[i] - scene.flows[i].start_s;
    last = std::max(last, run.end_s[i]);
  }
  return sum / last;
}

}  // namespace longhaul
