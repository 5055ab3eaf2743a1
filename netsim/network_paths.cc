#include "netsim/network_paths.h"

#include <algorithm>

#include "core/result.h"

namespace longhaul {

NetworkPaths::NetworkPaths(const Topology& topology, FlowNetwork& network, bool capped)
    : topology_(topology), network_(network), capped_(capped) {
  for (const Link& link : topology.links) {
    rates_.push_back(link.scope == LinkScope::kSitePair ? link.pipe() : link.rate);
  }
  resources_of_link_.resize(rates_.size());
}

ResourceId NetworkPaths::resource(std::map<std::pair<int, int>, ResourceId>& known,
                                  std::pair<int, int> key, BytesPerSecond capacity) {
  if (!capacity.finite()) return -1;
  const auto [entry, is_new] = known.try_emplace(key, -1);
  if (is_new) entry->second = network_.add_resource(capacity);
  return entry->second;
}

ResourceId NetworkPaths::link_resource(int from_node, int to_node, int from_site, int to_site) {
  const bool is_pipe = topology_.link(from_site, to_site).scope == LinkScope::kSitePair;
  // Site pairs are keyed apart from node pairs by negative numbers.
  const std::pair key =
      is_pipe ? std::pair(-1 - from_site, -1 - to_site) : std::pair(from_node, to_node);
  const auto pair = static_cast<std::size_t>(from_site * topology_.site_count() + to_site);
  const std::size_t before = link_.size();
  const ResourceId id = resource(link_, key, rates_[pair]);
  if (link_.size() > before) resources_of_link_[pair].push_back(id);
  return id;
}

const NetworkPath& NetworkPaths::path(int from_device, int to_device) {
  LH_CHECK(from_device != to_device, "a device sends nothing to itself");
  const int from = topology_.node_of(from_device);
  const int to = topology_.node_of(to_device);
  const auto key = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  const auto [entry, is_new] = paths_.try_emplace(key);
  NetworkPath& path = entry->second;
  if (!is_new) return path;
  path.lane = static_cast<std::int32_t>(paths_.size()) - 1;
  path.cap = topology_.rate(from_device, to_device);
  path.latency = topology_.latency(from_device, to_device);
  // Devices of one node talk over PCIe or NVLink, whose sharing is not modelled: the cap is all.
  if (from == to) return path;
  if (!capped_) path.cap = BytesPerSecond::infinity();
  const Node& sender = topology_.nodes[static_cast<std::size_t>(from)];
  const Node& receiver = topology_.nodes[static_cast<std::size_t>(to)];
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
  add(link_resource(from, to, sender.site, receiver.site));
  return path;
}

std::vector<ResourceId> NetworkPaths::between_sites(int from_site, int to_site) {
  std::vector<ResourceId> resources;
  const auto add = [&](ResourceId id) {
    if (id >= 0) resources.push_back(id);
  };
  add(resource(uplink_, {from_site, 0},
               topology_.sites[static_cast<std::size_t>(from_site)].uplink));
  add(resource(downlink_, {to_site, 0},
               topology_.sites[static_cast<std::size_t>(to_site)].downlink));
  if (topology_.link(from_site, to_site).scope == LinkScope::kSitePair) {
    add(link_resource(-1, -1, from_site, to_site));
  }
  return resources;
}

Seconds NetworkPaths::round_trip(int site, int other) const {
  return topology_.link(site, other).latency + topology_.link(other, site).latency;
}

void NetworkPaths::set_rate(SimTime now, int from_site, int to_site, BytesPerSecond rate) {
  const auto pair = static_cast<std::size_t>(from_site * topology_.site_count() + to_site);
  if (!rates_[pair].finite() || !rate.finite()) return;
  rates_[pair] = rate;
  for (const ResourceId id : resources_of_link_[pair]) network_.set_capacity(now, id, rate);
}

}  // namespace longhaul
