// Reads configs/conditions/*.yaml.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "core/config_cursor.h"
#include "netsim/conditions.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

class ConditionsReader {
 public:
  ConditionsReader(ConfigFile& file, std::string folder, const Topology& topology)
      : file_(file), folder_(std::move(folder)), topology_(topology) {}

  Result<Conditions> read() {
    file_.expect_schema("longhaul/conditions/1");
    const Cursor root = file_.root();
    root.optional("description").text();
    constexpr Sharing sharings[] = {Sharing::kFair, Sharing::kRtt, Sharing::kTurns};
    out_.sharing = sharings[root.optional("sharing").choice({"fair", "rtt", "turns"})];
    out_.jitter = root.optional("jitter").boolean();
    out_.seed = static_cast<std::uint64_t>(root.optional("seed").integer({.min = 0}, 1));
    if (const Cursor all = root.optional("background"); all.present()) {
      for (const Cursor& one : all.items()) read_background(one);
    }
    if (const Cursor all = root.optional("slowdowns"); all.present()) {
      for (const Cursor& one : all.items()) read_slowdown(one);
    }
    read_failures(root.optional("failures"));
    const Cursor checkpoints = root.optional("checkpoints");
    if (checkpoints.present()) {
      out_.checkpoints.every = static_cast<int>(checkpoints.key("every").integer({1, 1 << 28}, 1));
      out_.checkpoints.time = checkpoints.optional("time").duration();
    }
    const Cursor replay = root.optional("replay");
    const std::string path = replay.present() ? replay.key("trace").text() : "";
    const bool loop = replay.present() && replay.optional("loop").boolean();
    LH_TRY(file_.finish());
    if (replay.present()) LH_TRY(read_replay(replay.key("trace"), path, loop));
    return std::move(out_);
  }

 private:
  Result<void> read_replay(const Cursor& at, const std::string& path, bool loop) {
    const bool is_absolute = fs::path(path).is_absolute() || folder_.empty();
    LH_ASSIGN(const Trace trace,
              load_trace(is_absolute ? path : (fs::path(folder_) / path).string()));
    Result<LinkReplay> replay = LinkReplay::make(topology_, trace, loop);
    if (!replay) {
      at.fail(replay.error().message, replay.error().hint);
      return file_.finish();
    }
    out_.replay = std::move(*replay);
    return {};
  }

  int read_site(const Cursor& at) {
    const int index = topology_.find_site(at.text());
    if (index >= 0 || !at.present()) return index;
    std::vector<std::string> names;
    for (const Site& site : topology_.sites) names.push_back(site.name);
    at.fail(fmt::format("no site is named `{}`", at.text()),
            did_you_mean(at.text(), names, fmt::format("sites: {}", fmt::join(names, ", "))));
    return index;
  }

  /// Indices of the devices that a site, node, kind or device name means; `*` is all of them.
  std::vector<int> read_devices(const Cursor& at) {
    const std::string name = at.text();
    std::vector<int> devices;
    std::vector<std::string> names;
    for (int d = 0; d < topology_.device_count(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      const std::string of_it[] = {
          topology_.devices[i].name,
          topology_.nodes[static_cast<std::size_t>(topology_.node_of(d))].name,
          topology_.sites[static_cast<std::size_t>(topology_.site_of(d))].name,
          topology_.kind_of(d).name};
      if (name == "*" || std::find(std::begin(of_it), std::end(of_it), name) != std::end(of_it)) {
        devices.push_back(d);
      }
      names.insert(names.end(), std::begin(of_it), std::end(of_it));
    }
    if (devices.empty() && at.is_scalar()) {
      at.fail(fmt::format("no device, node, site or kind is named `{}`", name),
              did_you_mean(name, names, "`*` means every device"));
    }
    return devices;
  }

  Window read_window(const Cursor& at) {
    Window window;
    window.begin = at.optional("begin").duration();
    window.end = at.optional("end").duration(window.end);
    if (window.end <= window.begin) at.key("end").fail("it ends before it begins");
    const Cursor every = at.optional("every");
    const Cursor lasts = at.optional("for");
    if (!every.present() && !lasts.present()) return window;
    window.every = at.key("every").duration(seconds(2));
    window.lasts = at.key("for").duration(seconds(1));
    if (every.present() && window.every < milliseconds(1)) {
      every.fail("a period is at least 1 ms long");
    } else if (lasts.present() && (window.lasts <= Seconds(0) || window.lasts > window.every)) {
      lasts.fail("`for` is a part of `every`", "every: 10 min, for: 1 min");
    }
    return window;
  }

  void read_background(const Cursor& at) {
    Background traffic;
    traffic.from_site = read_site(at.key("from"));
    traffic.to_site = read_site(at.key("to"));
    traffic.rate = at.optional("rate").rate(BytesPerSecond::infinity());
    traffic.flows = static_cast<int>(at.optional("flows").integer({.min = 1, .max = 10000}, 1));
    traffic.window = read_window(at);
    if (traffic.from_site < 0 || traffic.to_site < 0) return;
    if (traffic.from_site == traffic.to_site) {
      at.key("to").fail("background traffic goes from one site to another");
      return;
    }
    const Site& from = topology_.sites[static_cast<std::size_t>(traffic.from_site)];
    const Site& to = topology_.sites[static_cast<std::size_t>(traffic.to_site)];
    const bool is_pipe =
        topology_.link(traffic.from_site, traffic.to_site).scope == LinkScope::kSitePair;
    if (!is_pipe && !from.uplink.finite() && !to.downlink.finite()) {
      at.fail(fmt::format("traffic from {} to {} meets nobody: nothing there is shared", from.name,
                          to.name),
              "give the cluster an `uplink`, a `downlink` or a link of scope site_pair");
      return;
    }
    out_.background.push_back(traffic);
  }

  void read_slowdown(const Cursor& at) {
    Slowdown slowdown;
    slowdown.devices = read_devices(at.key("devices"));
    slowdown.factor = at.key("factor").number({.min = 0.01, .max = 1000}, 1);
    slowdown.window = read_window(at);
    out_.slowdowns.push_back(std::move(slowdown));
  }

  void read_failures(const Cursor& at) {
    if (!at.present()) return;
    Failures& failures = out_.failures;
    failures.per_hour = at.optional("per_hour").number({.min = 0, .max = 1});
    failures.by_rate = at.optional("by_rate").boolean() || failures.per_hour > 0;
    failures.notice = at.optional("notice").duration(failures.notice);
    failures.repair = at.optional("repair").duration(failures.repair);
    failures.restart = at.optional("restart").duration(failures.restart);
    if (const Cursor all = at.optional("planned"); all.present()) {
      for (const Cursor& one : all.items()) {
        const Cursor device = one.key("device");
        const int index = topology_.find_device(device.text());
        std::vector<std::string> names;
        for (const Device& known : topology_.devices) names.push_back(known.name);
        if (index < 0 && device.present()) {
          device.fail(fmt::format("no device is named `{}`", device.text()),
                      did_you_mean(device.text(), names, "devices are called node/index"));
        }
        failures.planned.push_back({index, one.key("at").duration()});
      }
    }
    std::stable_sort(failures.planned.begin(), failures.planned.end(),
                     [](const auto& a, const auto& b) { return a.time < b.time; });
    if (failures.by_rate && failures.per_hour == 0 &&
        std::none_of(topology_.kinds.begin(), topology_.kinds.end(),
                     [](const DeviceKind& kind) { return kind.failures_per_hour > 0; })) {
      at.key("by_rate").fail("no device kind of the cluster has failures_per_hour",
                             "say `per_hour` for all of them, or list failures under `planned`");
    }
  }

  ConfigFile& file_;
  std::string folder_;
  const Topology& topology_;
  Conditions out_;
};

}  // namespace

Result<Conditions> load_conditions(const std::string& path, const Topology& topology) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(path));
  return ConditionsReader(file, fs::path(path).parent_path().string(), topology).read();
}

Result<Conditions> parse_conditions(std::string_view text, const std::string& name,
                                    const std::string& folder, const Topology& topology) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  return ConditionsReader(file, folder, topology).read();
}

}  // namespace longhaul
