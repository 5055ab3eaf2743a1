#include "netsim/cluster_file.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/config_cursor.h"
#include "core/hash.h"
#include "core/quantity.h"
#include "netsim/cities.h"
#include "netsim/known_links.h"
#include "netsim/shipped.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSites = 1024;  // links are kept for every pair
constexpr std::int64_t kMaxNodesOfEntry = 4096;
constexpr std::size_t kMaxDevices = 100000;
// Taken when a file does not say (origin: assumed).
constexpr double kAssumedInsideNodeBytesPerSecond = 10e9;  // PCIe 3.0 x16 as NCCL sees it
constexpr double kAssumedInsideNodeLatency = 10e-6;

std::string join_path(const std::string& folder, const std::string& path) {
  const fs::path given(path);
  return given.is_absolute() || folder.empty()
             ? path
             : (fs::path(folder) / given).lexically_normal().string();
}

class ClusterReader {
 public:
  ClusterReader(ConfigFile& file, std::string folder) : file_(file), folder_(std::move(folder)) {}

  Result<Topology> read() {
    topology_.hash = hash_text(file_.text());
    file_.expect_schema("longhaul/cluster/1");
    const Cursor root = file_.root();
    topology_.name = root.key("name").text();
    root.optional("description").text();
    read_device_files(root.optional("device_files"));
    const std::vector<Cursor> sites = root.key("sites").items();
    // One site needs no links.
    const Cursor network = sites.size() == 1 ? root.optional("network") : root.key("network");
    if (sites.size() > kMaxSites) {
      root.key("sites").fail(fmt::format("more than {} sites", kMaxSites));
      LH_TRY(file_.finish());
    }
    for (const Cursor& site : sites) read_site(site);
    if (topology_.devices.size() > kMaxDevices) {
      root.key("sites").fail(fmt::format("more than {} devices", kMaxDevices));
    }
    read_tcp(network.optional("tcp"));
    known_.resize(topology_.sites.size() * topology_.sites.size());
    const Cursor trace = network.optional("trace");
    const Cursor links = network.optional("links");  // asked for before read_trace calls finish()
    if (trace.present()) {
      LH_TRY(read_trace(trace, network.optional("percentile").number({.min = 0, .max = 100}, 50)));
    }
    if (links.present()) {
      for (const Cursor& link : links.items()) read_link(link);
    }
    if (!trace.present() && !links.present() && topology_.sites.size() > 1) {
      network.fail("the network has neither a `trace` nor `links`");
    }
    LH_TRY(file_.finish());
    for (const LinkProblem& problem : complete_links(topology_, known_)) {
      network.fail(problem.message, problem.hint);
    }
    if (assume_inside_node_) {
      topology_.assumptions.push_back(
          "devices of one node talk at 10 GB/s and 10 us (PCIe 3.0 x16)");
    }
    LH_TRY(file_.finish());
    find_coordinates();
    return std::move(topology_);
  }

 private:
  void read_device_files(const Cursor& at) {
    if (!at.present()) return;
    for (const auto& [kind, path] : at.entries()) {
      device_files_[kind] = join_path(folder_, path.text());
    }
  }

  /// Index of a kind in the topology, read from its file when first named; -1 after an error.
  int kind_index(const std::string& kind, const Cursor& at) {
    for (std::size_t i = 0; i < topology_.kinds.size(); ++i) {
      if (topology_.kinds[i].name == kind) return static_cast<int>(i);
    }
    const auto own = device_files_.find(kind);
    const std::string path = own != device_files_.end()
                                 ? own->second
                                 : join_path(shipped_configs(), "devices/" + kind + ".yaml");
    std::error_code ignored;  // a name that no file can have is as unknown as any other
    if (own == device_files_.end() && !fs::exists(path, ignored)) {
      at.fail(fmt::format("unknown device kind `{}`", kind),
              fmt::format("shipped kinds: {}; others are named under `device_files`",
                          fmt::join(shipped_device_kinds(), ", ")));
      return -1;
    }
    Result<ConfigFile> file = ConfigFile::load(path);
    Result<DeviceKind> loaded = file ? read_device_kind(*file) : std::unexpected(file.error());
    if (!loaded) {
      // Said once, although many nodes may name the kind.
      if (broken_kinds_.insert(kind).second) fail_with(at, kind, loaded.error());
      return -1;
    }
    topology_.hash = hash_text(file->text(), topology_.hash);
    loaded->name = kind;
    topology_.kinds.push_back(std::move(*loaded));
    return static_cast<int>(topology_.kinds.size()) - 1;
  }

  /// The errors of a device file, as errors of the place that needs it.
  static void fail_with(const Cursor& at, const std::string& kind, const Error& error) {
    const std::string place = error.place.file.empty() ? "" : error.place.text() + ": ";
    at.fail(fmt::format("device kind `{}`: {}{}", kind, place, error.message), error.hint);
    for (const Error& other : error.others) fail_with(at, kind, other);
  }

  void read_site(const Cursor& at) {
    Site site;
    site.name = at.key("name").text();
    if (!names_.insert(site.name).second) {
      at.key("name").fail(fmt::format("site `{}` appears twice", site.name));
    }
    if (site.name.find('/') != std::string::npos) {
      at.key("name").fail("a site's name may not contain `/`");
    }
    site.location = at.optional("location").text();
    site.coordinates = read_coordinates(at.optional("coordinates"));
    site.uplink = at.optional("uplink").rate(BytesPerSecond::infinity());
    site.downlink = at.optional("downlink").rate(BytesPerSecond::infinity());
    site.egress_usd_per_byte = at.optional("egress").usd_per_byte();
    site.trace_name = at.optional("trace_name").text(site.name);
    topology_.sites.push_back(site);
    for (const Cursor& node : at.key("nodes").items()) read_nodes(node, site.name);
  }

  static std::optional<Coordinates> read_coordinates(const Cursor& at) {
    if (!at.present()) return std::nullopt;
    const std::vector<Cursor> pair = at.items();
    if (pair.size() != 2) {
      at.fail(fmt::format("`coordinates` takes a latitude and a longitude, not {} numbers",
                          pair.size()),
              "coordinates: [35.69, 139.69]");
      return std::nullopt;
    }
    return Coordinates{pair[0].number({.min = -90, .max = 90}),
                       pair[1].number({.min = -180, .max = 180})};
  }

  /// Where sites lie that do not say it, for maps: nothing else rests on it, so a place that the
  /// table does not know, or a table that cannot be read, is no error.
  void find_coordinates() {
    const auto lacks = [](const Site& site) { return !site.coordinates; };
    if (std::ranges::none_of(topology_.sites, lacks)) return;
    const Result<CityTable> cities = CityTable::load();
    if (!cities) return;
    for (Site& site : topology_.sites) {
      if (site.coordinates) continue;
      const Place* place = cities->find_location(site.location);
      if (place == nullptr) place = cities->find_if_clear(site.name);
      if (place == nullptr) place = cities->find_if_clear(site.trace_name);
      if (place != nullptr) site.coordinates = place->end.at;
    }
  }

  struct KindCount {
    int kind;  // index in the topology
    int count;
  };

  void read_nodes(const Cursor& at, const std::string& site_name) {
    Node node;
    node.site = topology_.site_count() - 1;
    node.nic = at.optional("nic").rate(BytesPerSecond::infinity());
    node.address = at.optional("address").text();
    const Cursor inside = at.optional("inside");
    node.inside_rate = inside.present() ? inside.key("bandwidth").rate(BytesPerSecond(1))
                                        : BytesPerSecond(kAssumedInsideNodeBytesPerSecond);
    node.inside_latency =
        inside.present() ? inside.key("latency").duration() : Seconds(kAssumedInsideNodeLatency);
    const auto count =
        static_cast<int>(at.optional("count").integer({.min = 1, .max = kMaxNodesOfEntry}, 1));
    if (count > 1 && !node.address.empty()) {
      at.key("address").fail(fmt::format("{} nodes cannot share one address", count));
    }
    const Cursor devices = at.key("devices");
    std::vector<KindCount> counts;
    for (const Cursor& item : devices.is_list() ? devices.items() : std::vector{devices}) {
      if (!item.present()) continue;
      Result<DeviceCount> parsed = parse_device_count(item.text());
      if (!parsed) {
        item.fail(parsed.error().message, parsed.error().hint);
      } else if (const int kind = kind_index(parsed->kind, item); kind >= 0) {
        counts.push_back({kind, parsed->count});
      }
    }
    const std::string base = at.optional("name").text();
    for (int n = 0; n < count && topology_.devices.size() <= kMaxDevices; ++n) {
      node.name = base.empty() ? fmt::format("{}-{}", site_name, ++unnamed_[site_name])
                  : count == 1 ? base
                               : fmt::format("{}-{}", base, n + 1);
      if (node.name.find('/') != std::string::npos) at.fail("a node's name may not contain `/`");
      if (!node_names_.insert(node.name).second) {
        at.fail(fmt::format("node `{}` appears twice", node.name));
        return;
      }
      topology_.nodes.push_back(node);
      add_devices(counts);
    }
    int on_node = 0;
    for (const KindCount& item : counts) on_node += item.count;
    if (!inside.present() && on_node > 1) assume_inside_node_ = true;
  }

  /// Adds devices to the last node.
  void add_devices(const std::vector<KindCount>& counts) {
    int index = 0;
    for (const KindCount& count : counts) {
      for (int i = 0; i < count.count && topology_.devices.size() <= kMaxDevices; ++i) {
        topology_.devices.push_back({fmt::format("{}/{}", topology_.nodes.back().name, index++),
                                     static_cast<int>(topology_.nodes.size()) - 1,
                                     topology_.nodes.back().site, count.kind});
      }
    }
  }

  void read_tcp(const Cursor& at) {
    TcpModel& tcp = topology_.tcp;
    if (!at.present()) return;
    const Cursor window = at.optional("window");
    if (window.is_scalar() && window.text() == "unlimited") {
      tcp.window = Bytes::infinity();
    } else {
      tcp.window = window.size(tcp.window);
      if (tcp.window <= Bytes(0)) window.fail("a window of no bytes lets nothing through");
    }
    const Cursor streams = at.optional("streams");
    if (streams.is_scalar() && streams.text() == "auto") {
      tcp.streams = 0;
    } else {
      tcp.streams = static_cast<int>(streams.integer({.min = 1, .max = kMaxStreams}, 0));
    }
    tcp.congestion = at.optional("congestion").choice({"bbr", "cubic"}) == 0
                         ? CongestionControl::kBbr
                         : CongestionControl::kCubic;
    tcp.wire_factor = at.optional("wire_factor").number({.min = 1, .max = 2}, tcp.wire_factor);
  }

  KnownLink& known(int from, int to) {
    return known_[static_cast<std::size_t>(from * topology_.site_count() + to)];
  }

  Result<void> read_trace(const Cursor& at, double percentile) {
    const std::string path = at.text();
    if (at.is_scalar() && path.empty()) at.fail("`trace` names no file");
    if (path.empty()) return file_.finish();
    Result<Trace> trace = load_trace(join_path(folder_, path));
    if (!trace && trace.error().place.file.empty()) {
      at.fail(trace.error().message);
      return file_.finish();
    }
    if (!trace) return std::unexpected(std::move(trace).error());
    topology_.hash = hash_text(fmt::format("{:x} {}", trace->hash, percentile), topology_.hash);
    const std::vector<PairSummary> summaries = summarise(*trace, percentile);
    std::vector<int> places;
    for (const Site& site : topology_.sites) {
      places.push_back(trace->find_place(site.trace_name));
      if (places.back() >= 0) continue;
      at.fail(fmt::format("the trace has no place `{}`, the site's name", site.trace_name),
              did_you_mean(site.trace_name, trace->places,
                           fmt::format("places: {}", fmt::join(trace->places, ", "))) +
                  " (`trace_name` maps a site to a place)");
    }
    LH_TRY(file_.finish());
    for (int from = 0; from < topology_.site_count(); ++from) {
      for (int to = 0; to < topology_.site_count(); ++to) {
        const auto row = static_cast<std::size_t>(places[static_cast<std::size_t>(from)]);
        const auto column = static_cast<std::size_t>(places[static_cast<std::size_t>(to)]);
        const PairSummary& pair = summaries[row * trace->places.size() + column];
        if (pair.rows == 0) continue;
        known(from, to) = {pair.latency, pair.rate,           pair.scope,      pair.loss,
                           pair.jitter,  pair.latency_origin, pair.rate_origin};
      }
    }
    return {};
  }

  int site_index(const Cursor& at) {
    const int index = topology_.find_site(at.text());
    if (index < 0 && at.present()) {
      at.fail(fmt::format("no site is named `{}`", at.text()),
              did_you_mean(at.text(), {names_.begin(), names_.end()},
                           fmt::format("sites: {}", fmt::join(names_, ", "))));
    }
    return index;
  }

  void read_link(const Cursor& at) {
    std::vector<std::pair<int, int>> ends;
    if (const Cursor between = at.optional("between"); between.present()) {
      const std::vector<Cursor> pair = between.items();
      if (pair.size() != 2) {
        between.fail(fmt::format("`between` takes two sites, not {}", pair.size()));
      } else {
        const int a = site_index(pair[0]);
        const int b = site_index(pair[1]);
        ends = {{a, b}, {b, a}};
      }
    } else if (const Cursor inside = at.optional("inside"); inside.present()) {
      const int site = site_index(inside);
      ends = {{site, site}};
    } else if (at.has("from") || at.has("to")) {
      ends = {{site_index(at.key("from")), site_index(at.key("to"))}};
    } else {
      at.fail("a link needs `between: [a, b]`, `from` and `to`, or `inside: a`");
    }
    const Cursor latency = at.optional("latency");
    const Cursor bandwidth = at.optional("bandwidth");
    const Cursor scope = at.optional("scope");
    const Cursor loss = at.optional("loss");
    constexpr LinkScope scopes[] = {LinkScope::kNode, LinkScope::kSitePair};
    const LinkScope given_scope = scopes[scope.choice({"node", "site_pair"})];
    const double given_loss = loss.number({.min = 0, .max = 0.999});
    const Seconds one_way = latency.duration();
    const BytesPerSecond rate = bandwidth.rate(BytesPerSecond(1));
    if (!latency.present() && !bandwidth.present())
      at.fail("a link needs `latency` or `bandwidth`");
    for (const auto& [from, to] : ends) {
      if (from < 0 || to < 0) continue;
      KnownLink& link = known(from, to);
      if (latency.present()) {
        link.latency = one_way;
        link.latency_origin = Origin::kGiven;
      }
      if (bandwidth.present()) {
        link.rate = rate;
        link.rate_origin = Origin::kGiven;
      }
      if (scope.present()) link.scope = given_scope;
      if (loss.present()) link.loss = given_loss;
    }
  }

  ConfigFile& file_;
  std::string folder_;
  Topology topology_;
  std::map<std::string, std::string> device_files_;
  std::set<std::string> names_;
  std::set<std::string> node_names_;
  std::set<std::string> broken_kinds_;
  std::map<std::string, int> unnamed_;
  std::vector<KnownLink> known_;
  bool assume_inside_node_ = false;
};

}  // namespace

Result<Topology> load_cluster(const std::string& path) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  return ClusterReader(file, fs::path(path).parent_path().string()).read();
}

Result<Topology> parse_cluster(std::string_view text, const std::string& name,
                               const std::string& folder) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  return ClusterReader(file, folder).read();
}

Result<std::string> cluster_text(const Trace& trace, const std::string& trace_path,
                                 std::string_view devices) {
  std::string out = "schema: longhaul/cluster/1\nname: assumed\n";
  out += fmt::format(
      "description: {}\n",
      yaml_text(fmt::format("one node a site, from --trace and --devices {}", devices)));
  out += fmt::format("network: {{trace: {}}}\nsites:\n", yaml_text(trace_path));
  std::set<std::string> seen;
  while (!devices.empty()) {
    const std::size_t comma = std::min(devices.find(','), devices.size());
    const std::string_view item = devices.substr(0, comma);
    devices.remove_prefix(std::min(comma + 1, devices.size()));
    const std::size_t colon = item.find(':');
    const std::string place(item.substr(0, std::min(colon, item.size())));
    if (colon == std::string_view::npos) {
      return invalid(fmt::format("--devices: `{}` has no colon", item),
                     "write site:8xv100,site:4xa100");
    }
    if (trace.find_place(place) < 0) {
      return invalid(fmt::format("--devices: the trace has no place `{}`", place),
                     did_you_mean(place, trace.places,
                                  fmt::format("places: {}", fmt::join(trace.places, ", "))));
    }
    if (!seen.insert(place).second)
      return invalid(fmt::format("--devices: `{}` appears twice", place));
    LH_ASSIGN(const DeviceCount count, parse_device_count(item.substr(colon + 1)));
    out += fmt::format("  - name: {}\n    nodes: [{{devices: {}}}]\n", yaml_text(place),
                       yaml_text(fmt::format("{}x{}", count.count, count.kind)));
  }
  if (seen.empty()) return invalid("--devices names no device", "write site:8xv100,site:4xa100");
  return out;
}

}  // namespace longhaul
