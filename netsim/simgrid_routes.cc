// Routes through a platform that was read (simgrid_platform.cc).

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "netsim/simgrid_platform.h"

namespace longhaul {
int SimGridPlatform::find_host(std::string_view name) const {
  const auto found = host_by_name_.find(name);
  return found == host_by_name_.end() ? -1 : found->second;
}

int SimGridPlatform::find_link(std::string_view name) const {
  const auto found = link_by_name_.find(name);
  return found == link_by_name_.end() ? -1 : found->second;
}

Result<SimGridRoute> SimGridPlatform::route(std::string_view from_host,
                                            std::string_view to_host) const {
  for (const std::string_view name : {from_host, to_host}) {
    if (find_host(name) < 0) return failed(fmt::format("the platform has no host `{}`", name));
  }
  SimGridRoute route;
  LH_TRY(append_route(point_by_name_.find(from_host)->second, point_by_name_.find(to_host)->second,
                      route.links));
  for (const int link : route.links) route.latency += links[static_cast<std::size_t>(link)].latency;
  return route;
}

BytesPerSecond SimGridPlatform::bottleneck(const SimGridRoute& route) const {
  BytesPerSecond least = BytesPerSecond::infinity();
  for (const int link : route.links) {
    least = std::min(least, links[static_cast<std::size_t>(link)].bandwidth);
  }
  return least;
}

std::vector<int> SimGridPlatform::zones_of(int point) const {
  std::vector<int> zones;
  for (int zone = points_[static_cast<std::size_t>(point)].zone; zone >= 0;) {
    zones.push_back(zone);
    zone = points_[static_cast<std::size_t>(zones_[static_cast<std::size_t>(zone)].point)].zone;
  }
  std::ranges::reverse(zones);
  return zones;
}

std::unexpected<Error> SimGridPlatform::no_route(int from, int to) const {
  return failed(fmt::format("no route from `{}` to `{}`",
                            points_[static_cast<std::size_t>(from)].name,
                            points_[static_cast<std::size_t>(to)].name));
}

/// Finds the innermost zone that holds both points, and there the way between what they are in it:
/// themselves, or the zones around them, which are left and entered through gateways. A gateway
/// lies in the same of these zones as the point before it, so each call is about a zone further in.
Result<void> SimGridPlatform::append_route(int from, int to, std::vector<int>& route) const {
  const std::vector<int> zones_from = zones_of(from);
  const std::vector<int> zones_to = zones_of(to);
  std::size_t common = 0;
  while (common < zones_from.size() && common < zones_to.size() &&
         zones_from[common] == zones_to[common]) {
    ++common;
  }
  if (common == 0) return no_route(from, to);
  const Zone& zone = zones_[static_cast<std::size_t>(zones_from[common - 1])];
  const auto seen_as = [&](const std::vector<int>& zones, int point) {
    return common < zones.size() ? zones_[static_cast<std::size_t>(zones[common])].point : point;
  };
  const int start = seen_as(zones_from, from);
  const int end = seen_as(zones_to, to);
  if (start == end && !zone.edge_between.contains({start, end})) return {};
  LH_ASSIGN(const std::vector<const Edge*> edges, edges_between(zone, start, end));
  int at = from;
  for (const Edge* edge : edges) {
    if (edge->gateway_from != at) LH_TRY(append_route(at, edge->gateway_from, route));
    route.insert(route.end(), edge->links.begin(), edge->links.end());
    at = edge->gateway_to;
  }
  if (at != to) LH_TRY(append_route(at, to, route));
  return {};
}

/// The declared route in a Full zone; else the edges with the fewest links (SimGrid's cost in both
/// Floyd and Dijkstra zones), the first declared among equals.
Result<std::vector<const SimGridPlatform::Edge*>> SimGridPlatform::edges_between(const Zone& zone,
                                                                                 int from,
                                                                                 int to) const {
  const auto direct = zone.edge_between.find({from, to});
  if (direct != zone.edge_between.end() && (zone.routing == Routing::kFull || from == to)) {
    return std::vector<const Edge*>{&zone.edges[static_cast<std::size_t>(direct->second)]};
  }
  if (zone.routing == Routing::kFull) return no_route(from, to);
  struct Label {
    std::size_t links = 0;
    const Edge* last = nullptr;
  };
  std::map<int, Label> labels = {{from, {}}};
  std::map<int, std::vector<const Edge*>> leaving;
  for (const Edge& edge : zone.edges) leaving[edge.from].push_back(&edge);
  std::set<std::pair<std::size_t, int>> open = {{0, from}};
  while (!open.empty()) {
    const int point = open.begin()->second;
    open.erase(open.begin());
    if (point == to) break;
    const std::size_t links_here = labels[point].links;
    for (const Edge* edge : leaving[point]) {
      const std::size_t cost = links_here + edge->links.size();
      const auto [label, is_new] = labels.try_emplace(edge->to);
      if (!is_new && label->second.links <= cost) continue;
      if (!is_new) open.erase({label->second.links, edge->to});
      label->second = {cost, edge};
      open.emplace(cost, edge->to);
    }
  }
  if (!labels.contains(to)) return no_route(from, to);
  std::vector<const Edge*> edges;
  for (int at = to; at != from; at = edges.back()->from) edges.push_back(labels[at].last);
  std::ranges::reverse(edges);
  return edges;
}

}  // namespace longhaul
