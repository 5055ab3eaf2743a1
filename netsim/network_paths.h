// Which shared resources a transfer between two devices crosses: the bridge from a Topology to a
// FlowNetwork. Only finite capacities become resources. Belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/topology.h"
#include "netsim/flow_network.h"

namespace longhaul {

struct NetworkPath {
  std::vector<ResourceId> resources;
  BytesPerSecond cap;     // what one flow can get alone
  Seconds latency;        // one way
  std::int32_t lane = 0;  // its number among the paths
};

class NetworkPaths {
 public:
  /// Both must outlive this. Without `capped`, rates of links may change: then a flow's cap does
  /// not hold what its link gives, which the link's own resource limits.
  NetworkPaths(const Topology& topology, FlowNetwork& network, bool capped = true);

  /// The path between two different devices; made on first use, stable afterwards.
  const NetworkPath& path(int from_device, int to_device);
  /// What all traffic from one site to another shares.
  std::vector<ResourceId> between_sites(int from_site, int to_site);
  Seconds round_trip(int site, int other) const;

  /// Another rate for a link between sites or inside one, from now on.
  void set_rate(SimTime now, int from_site, int to_site, BytesPerSecond rate);

 private:
  /// The resource of a capacity, or -1 when it is infinite; `known` remembers it.
  ResourceId resource(std::map<std::pair<int, int>, ResourceId>& known, std::pair<int, int> key,
                      BytesPerSecond capacity);
  ResourceId link_resource(int from_node, int to_node, int from_site, int to_site);

  const Topology& topology_;
  FlowNetwork& network_;
  bool capped_;
  std::map<std::pair<int, int>, ResourceId> nic_out_, nic_in_, uplink_, downlink_;
  std::map<std::pair<int, int>, ResourceId> link_;          // by node pair or site pair, see scope
  std::vector<BytesPerSecond> rates_;                       // of links, sites x sites
  std::vector<std::vector<ResourceId>> resources_of_link_;  // sites x sites
  std::unordered_map<std::uint64_t, NetworkPath> paths_;    // by node pair; never iterated
};

}  // namespace longhaul
