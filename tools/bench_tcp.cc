// Suite `tcp`: whether real TCP takes as long as the link model says. Ranks in network namespaces
// are joined by a user-space bridge with latency, rate and a finite queue (tools/tun_bridge.h);
// messages and all-reduces go over the executor's own transport, on connections that are warm, and
// their times are held against the simulator's. Emulated runs share the simulator's link model, so
// this is the only suite that says something about that.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/median.h"
#include "core/model_math.h"
#include "core/plan.h"
#include "netsim/step_simulation.h"
#include "tools/bench.h"
#include "tools/tcp_members.h"

namespace longhaul {
namespace {

constexpr double kErrorMax = 0.15;  // of measured to predicted
constexpr double kBusyMax = 0.5;    // of what the bridge can forward, all links together
constexpr int kWarmUps = 6, kRepetitions = 7;
constexpr double kMiB = 1024 * 1024;

/// Links between all members are equal, but for uplinks.
struct Setting {
  int members;
  double mbit_per_s;
  double latency_ms;
  double mib;                         // of a message; 0: an all-reduce of kModel's gradient
  double slow_uplink_mbit_per_s = 0;  // of the last member, shared by its links; 0: none
};
constexpr Setting kSettings[] = {
    {2, 50, 10, 1},    {2, 200, 80, 16}, {2, 50, 50, 4},   {2, 200, 10, 4}, {2, 50, 150, 4},
    {2, 200, 150, 16}, {2, 400, 10, 16}, {2, 400, 50, 16}, {2, 100, 40, 0}, {3, 60, 30, 0, 30},
};

// On some of the above the transport's constants were chosen; on these nothing was.
constexpr Setting kHeldOut[] = {
    {2, 30, 20, 2},    {2, 100, 25, 1},   {2, 100, 75, 8}, {2, 200, 50, 4}, {2, 300, 30, 8},
    {2, 300, 100, 32}, {2, 150, 120, 16}, {2, 450, 20, 4}, {2, 200, 20, 0}, {3, 50, 60, 0},
};

// One stage on each member, all equally fast, so that all begin at once.
constexpr const char* kModel =
    "family: gpt2, layers: 2, width: 256, heads: 4, context: 64, vocabulary: 256, tied_embedding: "
    "false";

BridgeOptions bridge_of(const Setting& setting) {
  constexpr double kPackets = 64 * 1500;
  const BytesPerSecond rate(setting.mbit_per_s * 1e6 / 8);
  const Seconds latency(setting.latency_ms / 1e3);
  // A router's rule of thumb: one bandwidth-delay product.
  const Bytes queue = std::max(Bytes(kPackets), rate * (2 * latency));
  BridgeOptions options;
  options.places = setting.members;
  options.links.assign(static_cast<std::size_t>(setting.members * setting.members),
                       {.latency = latency, .rate = rate, .queue = queue});
  if (setting.slow_uplink_mbit_per_s > 0) {
    options.uplinks.assign(static_cast<std::size_t>(setting.members), BytesPerSecond::infinity());
    options.uplinks.back() = BytesPerSecond(setting.slow_uplink_mbit_per_s * 1e6 / 8);
  }
  return options;
}

struct Exchange {
  std::size_t elements = 0;
  Seconds time;
};

/// The exchange of a step of replicas that are equally fast.
Result<Exchange> predicted_exchange(const Topology& topology) {
  const int members = topology.site_count();
  LH_ASSIGN(const Job job,
            parse_job(fmt::format("schema: longhaul/job/1\nname: tcp\nmodel: {{{}}}\nbatch: "
                                  "{{global: {}, micro_batch: 1}}\nprecision: fp32\n",
                                  kModel, members),
                      "tcp"));
  Plan plan;
  plan.layers = {job.model.layers};
  for (int i = 0; i < members; ++i) plan.devices.push_back({i});
  plan.micro_batches.assign(static_cast<std::size_t>(members), 1);
  plan.in_flight = {1};
  LH_ASSIGN(const StepResult step, simulate_step(topology, job, plan, {.timeline = true}));
  Exchange exchange;
  exchange.elements =
      static_cast<std::size_t>(stage_parameters(job.model, {job.model.layers, true, true}));
  for (const TimelineSlice& slice : step.timeline) {
    if (slice.op == Op::kReduce) {
      exchange.time = std::max(exchange.time, (slice.end - slice.start).seconds());
    }
  }
  return exchange;
}

/// What the bridge forwards, with nothing else to wait for.
Result<BytesPerSecond> bridge_rate() {
  BridgeOptions options;
  options.links.assign(4, {.latency = Seconds(1e-3), .queue = Bytes(1e9)});
  LH_ASSIGN(const auto bridge, TunBridge::create(options));
  LH_ASSIGN(const auto members, TcpMembers::connect(*bridge, topology_of(options)));
  std::vector<double> times;
  constexpr Bytes kSize(32 * kMiB);
  for (int i = 0; i < 5; ++i) {
    LH_ASSIGN(const Seconds time, members->message(kSize));
    times.push_back(time.value());
  }
  return kSize / Seconds(median(times));
}

struct Row {
  Setting setting;
  int streams = 0;
  double predicted_s = 0;
  double measured_s = 0;
  double least_s = 0;
  double most_s = 0;
  std::uint64_t dropped = 0;
  double ratio() const { return measured_s / predicted_s; }
  std::string name() const {
    const std::string what = setting.mib > 0 ? fmt::format("{:.0f} MiB", setting.mib)
                                             : fmt::format("all-reduce of {}", setting.members);
    const std::string uplink =
        setting.slow_uplink_mbit_per_s > 0
            ? fmt::format(", an uplink of {:.0f}", setting.slow_uplink_mbit_per_s)
            : "";
    return fmt::format("{}, {:.0f} Mbit/s{}, {:.0f} ms", what, setting.mbit_per_s, uplink,
                       setting.latency_ms);
  }
};

Result<Row> measure_setting(const Setting& setting) {
  const BridgeOptions options = bridge_of(setting);
  const Topology topology = topology_of(options);
  Row row{.setting = setting, .streams = topology.link(0, 1).streams};
  const bool is_message = setting.mib > 0;
  const Bytes size(setting.mib * kMiB);
  Exchange exchange;
  if (is_message) {
    const Seconds sending = size * topology.tcp.wire_factor / topology.rate(0, 1);
    row.predicted_s = (topology.latency(0, 1) + sending).value();
  } else {
    LH_ASSIGN(exchange, predicted_exchange(topology));
    row.predicted_s = exchange.time.value();
  }
  LH_ASSIGN(const auto bridge, TunBridge::create(options));
  LH_ASSIGN(const auto members, TcpMembers::connect(*bridge, topology));
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kRepetitions; ++i) {
    LH_ASSIGN(const Seconds time,
              is_message ? members->message(size) : members->all_reduce(exchange.elements, {}));
    if (i >= kWarmUps) times.push_back(time.value());
  }
  row.measured_s = median(times);
  row.least_s = *std::ranges::min_element(times);
  row.most_s = *std::ranges::max_element(times);
  row.dropped = bridge->dropped();
  return row;
}

/// `bbr` where connections have it, else what the system gives them.
std::string congestion_control() {
  const auto words_of = [](const char* file) {
    std::ifstream in(std::string("/proc/sys/net/ipv4/") + file);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
  };
  const std::vector<std::string> available = words_of("tcp_available_congestion_control");
  if (std::ranges::find(available, "bbr") != available.end()) return "bbr";
  const std::vector<std::string> used = words_of("tcp_congestion_control");
  return used.empty() ? "unknown" : used.front();
}

Result<std::vector<BenchFigure>> measure(std::span<const Setting> settings,
                                         const std::string& command) {
  const std::string congestion = congestion_control();
  LH_ASSIGN(const BytesPerSecond most, bridge_rate());
  const double most_mbit = most.value() * 8 / 1e6;
  fmt::print("the bridge forwards {:.0f} Mbit/s; congestion control {}\n", most_mbit, congestion);
  fmt::print("{:<52}{:>8}{:>12}{:>11}{:>19}{:>8}{:>9}\n", "warm, one way", "streams", "predicted",
             "measured", "least, most", "ratio", "dropped");
  std::vector<BenchFigure> figures;
  int refused = 0;
  for (const Setting& setting : settings) {
    // In an all-reduce every member sends to every other.
    const int links = setting.mib > 0 ? 1 : setting.members * (setting.members - 1);
    if (links * setting.mbit_per_s > kBusyMax * most_mbit) {
      ++refused;
      continue;
    }
    LH_ASSIGN(const Row row, measure_setting(setting));
    fmt::print("{:<52}{:>8}{:>10.1f} ms{:>8.1f} ms{:>8.1f} {:>7.1f} ms{:>8.3f}{:>9}\n", row.name(),
               row.streams, 1e3 * row.predicted_s, 1e3 * row.measured_s, 1e3 * row.least_s,
               1e3 * row.most_s, row.ratio(), row.dropped);
    std::fflush(stdout);
    const double error = std::abs(row.ratio() - 1);
    figures.push_back({row.name() + ": |measured / predicted - 1|", error, "ratio", kErrorMax,
                       "lower", error <= kErrorMax, congestion, command});
  }
  figures.push_back({"settings beyond half of what the bridge forwards",
                     static_cast<double>(refused), "", 0, "lower", refused == 0,
                     fmt::format("{:.0f} Mbit/s", most_mbit), command});
  return figures;
}

int run(std::span<const Setting> settings, const std::string& command) {
  BridgeOptions two;
  two.links.resize(4);
  if (const auto bridge = TunBridge::create(two); !bridge) {
    fmt::print("tcp is skipped: {}\n", bridge.error().message);
    return 0;
  }
  const auto figures = measure(settings, command);
  if (figures) return report("tcp", *figures);
  fmt::print(stderr, "{}\n", figures.error().text());
  return 1;
}

}  // namespace

int bench_tcp(bool quick, int /*threads*/) {
  const std::span<const Setting> all(kSettings);
  return quick ? run(all.first(2), "tools/bench tcp --quick") : run(all, "tools/bench tcp");
}

int bench_tcp_full(int /*threads*/) {
  return run(kHeldOut, "tools/bench tcp --full");
}

}  // namespace longhaul
