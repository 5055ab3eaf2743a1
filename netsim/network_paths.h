// Which shared resources a transfer between two devices crosses: the bridge from a Topology to a
// FlowNetwork. Only finite capacities become resources. Belongs to one thread.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/topology.h"
#include "netsim/flow_network.h"

namespace longhaul {

struct NetworkPath {
  std::vector<ResourceId> resources;
  BytesPerSecond cap;  // what one flow can get alone
  Seconds latency;     // one way
};

class NetworkPaths {
 public:
  /// Both must outlive this.
  NetworkPaths(const Topology& topology, FlowNetwork& network);

  /// The path between two different devices; made on first use, stable afterwards.
  const NetworkPath& path(int from_device, int to_device);

 private:
  /// The resource of a capacity, or -1 when it is infinite; `known` remembers it.
  ResourceId resource(std::map<std::pair<int, int>, ResourceId>& known, std::pair<int, int> key,
                      BytesPerSecond capacity);

  const Topology& topology_;
  FlowNetwork& network_;
  std::map<std::pair<int, int>, ResourceId> nic_out_, nic_in_, uplink_, downlink_;
  std::map<std::pair<int, int>, ResourceId> link_;    // by node pair or site pair, see scope
  std::map<std::pair<int, int>, NetworkPath> paths_;  // by node pair
};

}  // namespace longhaul
