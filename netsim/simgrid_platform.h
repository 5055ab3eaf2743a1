// SimGrid platform files (version 4 and 4.1): hosts, links, and the routes between hosts.
//
//   LH_ASSIGN(SimGridPlatform platform, parse_simgrid_platform(text, "two_sites.xml"));
//   LH_ASSIGN(SimGridRoute route, platform.route("oregon0", "virginia0"));
//
// Zones may be nested; their routing is Full, Floyd or Dijkstra (both: fewest links, the route that
// was declared first among equals, where SimGrid may take another). A zoneRoute goes from gateway
// to gateway, and what lies between a host and its gateway is found inside the zone. Everything
// that is not understood (clusters, bypasses, profiles, Wi-Fi, ...) is refused by name, so that a
// platform that was read is the platform that SimGrid would simulate. What SimGrid's network models
// then do to a flow (LV08: 0.97 of the bandwidth, 13.01 times the latency) is not in a platform.
//
// A SPLITDUPLEX link is two entries of `links`, ID_UP and ID_DOWN, as in SimGrid. A platform is a
// value; any thread may read it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

enum class SimGridPolicy {
  kShared,   // all flows share the bandwidth
  kFatPipe,  // each flow may have all of it
};

struct SimGridHost {
  std::string name;
  FlopsPerSecond speed;  // of the first pstate
};

struct SimGridLink {
  std::string name;
  BytesPerSecond bandwidth;
  Seconds latency;  // one way
  SimGridPolicy policy = SimGridPolicy::kShared;
};

/// What a transfer crosses, in order.
struct SimGridRoute {
  std::vector<int> links;  // indices into SimGridPlatform::links
  Seconds latency;         // sum over the links
};

class SimGridPlatform {
 public:
  std::vector<SimGridHost> hosts;  // in order of the file
  std::vector<SimGridLink> links;

  int find_host(std::string_view name) const;  // -1 if absent
  int find_link(std::string_view name) const;

  /// The route between two hosts. From a host to itself it is empty unless one is declared. kFailed
  /// when the file has no route or names no such host.
  Result<SimGridRoute> route(std::string_view from_host, std::string_view to_host) const;
  /// The least bandwidth on the route; infinite when it is empty.
  BytesPerSecond bottleneck(const SimGridRoute& route) const;

 private:
  friend class SimGridReader;
  enum class Routing { kFull, kShortest };
  /// Hosts, routers and zones are points; zones are also containers of points.
  struct Point {
    std::string name;
    int zone = -1;   // the zone that holds it; -1: the outermost
    int inner = -1;  // index into zones_ when the point is a zone
  };
  /// One direction of a declared route.
  struct Edge {
    int from = 0;  // points of the zone
    int to = 0;
    int gateway_from = 0;  // points at or inside `from` and `to`
    int gateway_to = 0;
    std::vector<int> links;
  };
  struct Zone {
    int point = 0;
    Routing routing = Routing::kFull;
    std::vector<Edge> edges;
    std::map<std::pair<int, int>, int> edge_between;  // index of the first one
  };

  Result<void> append_route(int from, int to, std::vector<int>& links) const;
  Result<std::vector<const Edge*>> edges_between(const Zone& zone, int from, int to) const;
  std::vector<int> zones_of(int point) const;  // outermost first
  std::unexpected<Error> no_route(int from, int to) const;

  std::vector<Point> points_;
  std::vector<Zone> zones_;
  std::map<std::string, int, std::less<>> point_by_name_;
  std::map<std::string, int, std::less<>> link_by_name_;
  std::map<std::string, int, std::less<>> host_by_name_;
};

/// Errors are kInvalid with line and column; the first one ends the reading.
Result<SimGridPlatform> parse_simgrid_platform(std::string_view text, const std::string& name);

}  // namespace longhaul
