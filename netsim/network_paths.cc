#include "netsim/network_paths.h"

#include "core/result.h"

namespace longhaul {

NetworkPaths::NetworkPaths(const Topology& topology, FlowNetwork& network)
    : topology_(topology), network_(network) {}

ResourceId NetworkPaths::resource(std::map<std::pair<int, int>, ResourceId>& known,
                                  std::pair<int, int> key, BytesPerSecond capacity) {
  if (!capacity.finite()) return -1;
  const auto [entry, is_new] = known.try_emplace(key, -1);
  if (is_new) entry->second = network_.add_resource(capacity);
  return entry->second;
}

const NetworkPath& NetworkPaths::path(int from_device, int to_device) {
  LH_CHECK(from_device != to_device, "a device sends nothing to itself");
  const int from = topology_.node_of(from_device);
  const int to = topology_.node_of(to_device);
  const auto [entry, is_new] = paths_.try_emplace({from, to});
  NetworkPath& path = entry->second;
  if (!is_new) return path;
  path.cap = topology_.rate(from_device, to_device);
  path.latency = topology_.latency(from_device, to_device);
  // Devices of one node talk over PCIe or NVLink, whose sharing is not modelled: the cap is all.
  if (from == to) return path;
  const Node& sender = topology_.nodes[static_cast<std::size_t>(from)];
  const Node& receiver = topology_.nodes[static_cast<std::size_t>(to)];
  const Link& link = topology_.link(sender.site, receiver.site);
  const auto add = [&](ResourceId id) {
    if (id >= 0) path.resources.push_back(id);
  };
  add(resource(nic_out_, {from, 0}, sender.nic));
  if (sender.site != receiver.site) {
    add(resource(uplink_, {sender.site, 0},
                 topology_.sites[static_cast<std::size_t>(sender.site)].uplink));
    add(resource(downlink_, {receiver.site, 0},
                 topology_.sites[static_cast<std::size_t>(receiver.site)].downlink));
  }
  add(resource(nic_in_, {to, 0}, receiver.nic));
  // Site pairs are keyed apart from node pairs by negative numbers.
  const bool shared = link.scope == LinkScope::kSitePair;
  add(resource(link_,
               shared ? std::pair(-1 - sender.site, -1 - receiver.site) : std::pair(from, to),
               link.rate));
  return path;
}

}  // namespace longhaul
