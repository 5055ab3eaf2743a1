// The tree of regions; see bounds.h.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/bounds.h"

namespace longhaul {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

Bounds::Distance Bounds::Distance::endless() {
  return {kEndless, kEndless, kEndless, kEndless, kEndless};
}

void Bounds::Distance::shorten(const Distance& other) {
  round_trip_per_byte = std::min(round_trip_per_byte, other.round_trip_per_byte);
  slower_per_byte = std::min(slower_per_byte, other.slower_per_byte);
  faster_per_byte = std::min(faster_per_byte, other.faster_per_byte);
  latency = std::min(latency, other.latency);
  round_trip_latency = std::min(round_trip_latency, other.round_trip_latency);
}

void Bounds::add_sites() {
  std::map<std::tuple<double, double, double>, int> kind_of;
  const auto key = [&](int device) {
    return std::tuple(problem_.seconds_per_flop(device), problem_.overhead(device),
                      -problem_.memory(device));
  };
  for (const int device : problem_.usable()) kind_of.try_emplace(key(device), 0);
  for (auto& [figures, kind] : kind_of) {
    kind = static_cast<int>(kinds_.size());
    kinds_.push_back({std::get<0>(figures), std::get<1>(figures), -std::get<2>(figures)});
  }
  const Topology& topology = problem_.topology();
  std::vector<int> region_of(topology.sites.size(), -1);
  std::vector<int> on_node(topology.nodes.size(), 0);
  for (const int device : problem_.usable()) {
    const int site = problem_.site(device);
    if (region_of[at(site)] < 0) {
      region_of[at(site)] = static_cast<int>(regions_.size());
      Region region;
      region.devices.assign(kinds_.size(), 0);
      region.near_latency = problem_.site_latency(site, site);
      region.across = Distance::endless();
      region.sites = {site};
      regions_.push_back(std::move(region));
    }
    Region& region = regions_[at(region_of[at(site)])];
    ++region.devices[at(kind_of.at(key(device)))];
    const int node = problem_.node(device);
    const double nic = problem_.nic(node);
    if (++on_node[at(node)] == 2) {
      const double latency = topology.nodes[at(node)].inside_latency.value();
      const double per_byte = 1 / problem_.inside_rate(node);
      region.across.shorten({2 * per_byte, per_byte, per_byte, latency, 2 * latency});
    }
    if (on_node[at(node)] == 1 && region.nic > 0) {  // not the first node
      const double per_byte =
          1 / std::min(problem_.site_rate(site, site), std::max(nic, region.nic));
      const double latency = problem_.site_latency(site, site);
      region.across.shorten({2 * per_byte, per_byte, per_byte, latency, 2 * latency});
    }
    region.nic = std::max(region.nic, nic);
    region.most_on_node = std::max(region.most_on_node, on_node[at(node)]);
  }
  for (Region& region : regions_) {
    std::partial_sum(region.devices.begin(), region.devices.end(), region.devices.begin());
    region.most_in_site = region.size();
    region.anywhere = region.across;
  }
}

/// As Kruskal's minimum spanning tree: the nearest pair of sites that are apart is merged next.
void Bounds::merge_sites() {
  struct Pair {
    double round_trip;
    int a, b;
  };
  const auto sites = static_cast<int>(regions_.size());
  std::vector<Distance> distances(at(sites * sites), Distance::endless());
  std::vector<Pair> pairs;
  for (int a = 0; a < sites; ++a) {
    for (int b = a + 1; b < sites; ++b) {
      const int s = regions_[at(a)].sites.front();
      const int t = regions_[at(b)].sites.front();
      const double nic = std::min(regions_[at(a)].nic, regions_[at(b)].nic);
      const double there = 1 / std::min(problem_.site_rate(s, t), nic);
      const double back = 1 / std::min(problem_.site_rate(t, s), nic);
      const double latency_there = problem_.site_latency(s, t);
      const double latency_back = problem_.site_latency(t, s);
      distances[at(a * sites + b)] = distances[at(b * sites + a)] = {
          there + back, std::max(there, back), std::min(there, back),
          std::min(latency_there, latency_back), latency_there + latency_back};
      pairs.push_back({there + back, a, b});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.round_trip < b.round_trip; });
  std::vector<int> region_of(at(sites));
  std::iota(region_of.begin(), region_of.end(), 0);
  std::vector<std::vector<int>> members;  // of each region, by their own number
  for (int a = 0; a < sites; ++a) members.push_back({a});
  for (const Pair& pair : pairs) {
    const int first = region_of[at(pair.a)];
    const int second = region_of[at(pair.b)];
    if (first == second) continue;
    Region region;
    region.halves[0] = first;
    region.halves[1] = second;
    const Region& a = regions_[at(first)];
    const Region& b = regions_[at(second)];
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      region.devices.push_back(a.devices[k] + b.devices[k]);
    }
    region.most_in_site = std::max(a.most_in_site, b.most_in_site);
    region.most_on_node = std::max(a.most_on_node, b.most_on_node);
    region.nic = std::max(a.nic, b.nic);
    region.across = Distance::endless();
    for (const int s : members[at(first)]) {
      for (const int t : members[at(second)]) {
        region.across.shorten(distances[at(s * sites + t)]);
      }
    }
    region.near_latency = std::min({a.near_latency, b.near_latency, region.across.latency});
    region.anywhere = region.across;
    region.anywhere.shorten(a.anywhere);
    region.anywhere.shorten(b.anywhere);
    region.sites = a.sites;
    region.sites.insert(region.sites.end(), b.sites.begin(), b.sites.end());
    std::vector<int> both = members[at(first)];
    both.insert(both.end(), members[at(second)].begin(), members[at(second)].end());
    for (const int s : both) region_of[at(s)] = static_cast<int>(regions_.size());
    members.push_back(std::move(both));
    regions_.push_back(std::move(region));
    measure_cut(static_cast<int>(regions_.size()) - 1, members, distances);
  }
}

void Bounds::measure_cut(int r, const std::vector<std::vector<int>>& members,
                         const std::vector<Distance>& distances) {
  constexpr double kAlike = 1.3;  // what is nearer than that is taken together, as its nearest
  Region& here = regions_[at(r)];
  const auto sites = static_cast<int>(std::sqrt(static_cast<double>(distances.size())) + 0.5);
  const auto between = [&](int s, int t) -> const Distance& {
    return distances[at(s * sites + t)];
  };

  std::vector<std::tuple<double, int, int>> pairs;
  for (const int s : members[at(here.halves[0])]) {
    for (const int t : members[at(here.halves[1])]) {
      pairs.emplace_back(between(s, t).slower_per_byte, s, t);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  std::vector<char> seen(at(sites), 0);
  std::array<int, 2> devices = {};
  for (const auto& [slower, s, t] : pairs) {
    if (std::exchange(seen[at(s)], 1) == 0) devices[0] += regions_[at(s)].size();
    if (std::exchange(seen[at(t)], 1) == 0) devices[1] += regions_[at(t)].size();
    const int pipelines = std::min(devices[0], devices[1]);
    if (!here.crossings.empty() && slower <= kAlike * here.crossings.back().slower_per_byte) {
      here.crossings.back().pipelines = pipelines;
    } else if (here.crossings.empty() || pipelines > here.crossings.back().pipelines) {
      here.crossings.push_back({slower, pipelines});
    }
  }

  std::vector<int> zone_of(at(sites), -1);
  for (const int side : {0, 1}) {
    std::vector<std::pair<double, int>> nearest;  // round trip, site
    for (const int s : members[at(here.halves[side])]) {
      double least = kEndless;
      for (const int t : members[at(here.halves[1 - side])]) {
        least = std::min(least, between(s, t).round_trip_per_byte);
      }
      nearest.emplace_back(least, s);
    }
    std::sort(nearest.begin(), nearest.end());
    double zone = -1;
    for (const auto& [round_trip, s] : nearest) {
      if (zone < 0 || round_trip > kAlike * zone) {
        zone = round_trip;
        here.zones.push_back({side, zone});
      }
      zone_of[at(s)] = static_cast<int>(here.zones.size()) - 1;
    }
  }
  here.in_zones.resize(at(r + 1));
  const auto count = [&](const auto& self, int inside) -> void {
    std::vector<int>& counts = here.in_zones[at(inside)];
    counts.assign(here.zones.size() * kinds_.size(), 0);
    const Region& part = regions_[at(inside)];
    if (part.is_site()) {
      const std::size_t first = at(zone_of[at(inside)]) * kinds_.size();
      for (std::size_t k = 0; k < kinds_.size(); ++k) {
        counts[first + k] = part.devices[k] - (k > 0 ? part.devices[k - 1] : 0);
      }
      return;
    }
    for (const int half : part.halves) {
      self(self, half);
      const std::vector<int>& of_half = here.in_zones[at(half)];
      for (std::size_t c = 0; c < counts.size(); ++c) counts[c] += of_half[c];
    }
  };
  count(count, r);
}

std::string Bounds::name_of(const std::vector<int>& sites) const {
  constexpr std::size_t kNamed = 3;
  if (sites.size() > kNamed) return fmt::format("{} sites", sites.size());
  std::vector<std::string> names;
  for (const int site : sites) names.push_back(problem_.topology().sites[at(site)].name);
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, " and "));
}

}  // namespace longhaul
