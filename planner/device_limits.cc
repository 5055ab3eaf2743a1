#include "planner/device_limits.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/config_cursor.h"

namespace longhaul {
namespace {

/// Choices that are all tried: 5 of 10 sites are 252.
constexpr std::size_t kMaxChoices = 256;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Sites with usable devices, the highest joint speed first, equal ones in file order.
std::vector<int> sites_by_speed(const Problem& problem) {
  std::vector<double> speed(problem.topology().sites.size(), 0);
  for (const int device : problem.usable())
    speed[at(problem.site(device))] += 1 / problem.seconds_per_flop(device);
  std::vector<int> sites;
  for (int s = 0; s < problem.topology().site_count(); ++s) {
    if (speed[at(s)] > 0) sites.push_back(s);
  }
  std::stable_sort(sites.begin(), sites.end(),
                   [&](int a, int b) { return speed[at(a)] > speed[at(b)]; });
  return sites;
}

/// All subsets of `count` sites in lexicographic order; empty when they are more than kMaxChoices.
std::vector<std::vector<int>> all_subsets(const std::vector<int>& sites, std::size_t count) {
  std::vector<std::vector<int>> subsets;
  std::vector<std::size_t> picked(count);
  for (std::size_t i = 0; i < count; ++i) picked[i] = i;
  while (subsets.size() <= kMaxChoices) {
    subsets.emplace_back();
    for (const std::size_t i : picked) subsets.back().push_back(sites[i]);
    std::size_t last = count;
    while (last > 0 && picked[last - 1] == sites.size() - count + last - 1) --last;
    if (last == 0) return subsets;
    ++picked[last - 1];
    for (std::size_t i = last; i < count; ++i) picked[i] = picked[i - 1] + 1;
  }
  return {};
}

/// `start` and the `count` - 1 other sites with the least round trip to it.
std::vector<int> nearest_sites(const Topology& topology, const std::vector<int>& sites, int start,
                               std::size_t count) {
  std::vector<int> near = sites;
  const auto round_trip = [&](int site) {
    return site == start ? -1.0
                         : topology.link(start, site).latency.value() +
                               topology.link(site, start).latency.value();
  };
  std::stable_sort(near.begin(), near.end(),
                   [&](int a, int b) { return round_trip(a) < round_trip(b); });
  near.resize(count);
  return near;
}

}  // namespace

Result<std::vector<char>> admitted_devices(const Topology& topology, const DeviceLimits& limits) {
  std::vector<char> admitted(topology.devices.size(), 1);
  for (const std::string& name : limits.excluded) {
    bool known = std::any_of(topology.sites.begin(), topology.sites.end(),
                             [&](const Site& site) { return site.name == name; }) ||
                 std::any_of(topology.kinds.begin(), topology.kinds.end(),
                             [&](const DeviceKind& kind) { return kind.name == name; });
    for (int d = 0; d < topology.device_count(); ++d) {
      const Device& device = topology.devices[at(d)];
      const bool meant = device.name == name || topology.kind_of(d).name == name ||
                         topology.nodes[at(device.node)].name == name ||
                         topology.sites[at(device.site)].name == name;
      if (!meant) continue;
      admitted[at(d)] = 0;
      known = true;
    }
    if (known) continue;
    std::vector<std::string> names;
    for (const Site& site : topology.sites) names.push_back(site.name);
    for (const Node& node : topology.nodes) names.push_back(node.name);
    for (const DeviceKind& kind : topology.kinds) names.push_back(kind.name);
    for (const Device& device : topology.devices) names.push_back(device.name);
    return invalid(
        fmt::format("cluster `{}` has no site, node, device kind or device `{}` to exclude",
                    topology.name, name),
        did_you_mean(name, names));
  }
  return admitted;
}

std::vector<std::vector<char>> site_choices(const Problem& problem, int sites_max) {
  const Topology& topology = problem.topology();
  const std::vector<int> sites = sites_by_speed(problem);
  const auto count = at(sites_max);
  std::vector<std::vector<int>> subsets;
  if (sites_max == 0 || count >= sites.size()) {
    subsets.push_back(sites);
  } else {
    subsets = all_subsets(sites, count);
    if (subsets.empty()) {
      subsets.emplace_back(sites.begin(), sites.begin() + sites_max);
      for (const int start : sites) subsets.push_back(nearest_sites(topology, sites, start, count));
    }
  }
  std::vector<std::vector<char>> choices;
  for (const std::vector<int>& subset : subsets) {
    std::vector<char> admitted(topology.devices.size(), 0);
    for (const int device : problem.usable()) {
      const bool inside =
          std::find(subset.begin(), subset.end(), problem.site(device)) != subset.end();
      admitted[at(device)] = inside ? 1 : 0;
    }
    if (std::find(choices.begin(), choices.end(), admitted) == choices.end())
      choices.push_back(std::move(admitted));
  }
  return choices;
}

std::string text_of(const DeviceLimits& limits) {
  std::string text;
  if (!limits.excluded.empty()) text = fmt::format(" without {}", fmt::join(limits.excluded, ", "));
  if (limits.sites_max > 0) {
    text += fmt::format("{} in at most {} site{}", text.empty() ? "" : " and", limits.sites_max,
                        limits.sites_max == 1 ? "" : "s");
  }
  return text;
}

}  // namespace longhaul
