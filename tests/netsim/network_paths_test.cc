#include "netsim/network_paths.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::set_link;
using fixtures::unit_topology;

/// Number of resources that both paths cross.
int shared(const NetworkPath& a, const NetworkPath& b) {
  return static_cast<int>(std::ranges::count_if(a.resources, [&](ResourceId id) {
    return std::ranges::find(b.resources, id) != b.resources.end();
  }));
}

/// Sites a and b of two nodes each, every limit finite: links 9, NICs 8, uplinks 7, downlinks 6.
Topology limited() {
  Topology topology = unit_topology({0, 0, 1, 1});
  for (Link& link : topology.links) {
    link.rate = bytes_per_second(9);
    link.latency = milliseconds(5);
  }
  for (Node& node : topology.nodes) node.nic = bytes_per_second(8);
  for (Site& site : topology.sites) {
    site.uplink = bytes_per_second(7);
    site.downlink = bytes_per_second(6);
  }
  return topology;
}

TEST(NetworkPaths, between_sites_crosses_nics_uplink_downlink_and_link) {
  const Topology topology = limited();
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  const NetworkPath& path = paths.path(0, 2);
  EXPECT_EQ(path.resources.size(), 5u);
  EXPECT_EQ(path.cap, bytes_per_second(6));
  EXPECT_EQ(path.latency, milliseconds(5));
}

TEST(NetworkPaths, inside_a_site_crosses_nics_and_link) {
  const Topology topology = limited();
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  EXPECT_EQ(paths.path(0, 1).resources.size(), 3u);
  EXPECT_EQ(paths.path(0, 1).cap, bytes_per_second(8));
}

TEST(NetworkPaths, inside_a_node_crosses_nothing_shared) {
  Topology topology = limited();
  topology.devices[1].node = 0;
  topology.nodes[0].inside_rate = bytes_per_second(50);
  topology.nodes[0].inside_latency = microseconds(10);
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  EXPECT_TRUE(paths.path(0, 1).resources.empty());
  EXPECT_EQ(paths.path(0, 1).cap, bytes_per_second(50));
  EXPECT_EQ(paths.path(0, 1).latency, microseconds(10));
}

TEST(NetworkPaths, what_has_no_limit_is_no_resource) {
  Topology topology = unit_topology({0, 1});
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  EXPECT_TRUE(paths.path(0, 1).resources.empty());
  EXPECT_EQ(paths.path(0, 1).cap, BytesPerSecond::infinity());
}

TEST(NetworkPaths, pairs_share_exactly_what_they_have_in_common) {
  const Topology topology = limited();  // devices 0, 1 at site a; 2, 3 at site b
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  // Node links are of each pair alone.
  EXPECT_EQ(shared(paths.path(0, 2), paths.path(1, 3)), 2);  // uplink, downlink
  EXPECT_EQ(shared(paths.path(0, 2), paths.path(0, 3)), 3);  // NIC out, uplink, downlink
  EXPECT_EQ(shared(paths.path(0, 2), paths.path(1, 2)), 3);  // uplink, downlink, NIC in
  EXPECT_EQ(shared(paths.path(0, 2), paths.path(0, 1)), 1);  // NIC out
  EXPECT_EQ(shared(paths.path(0, 2), paths.path(2, 0)), 0);  // each direction is its own
  EXPECT_EQ(shared(paths.path(0, 1), paths.path(1, 0)), 0);
}

TEST(NetworkPaths, a_site_pair_link_is_one_pipe_for_all_nodes) {
  Topology topology = limited();
  link_of(topology, 0, 1).scope = LinkScope::kSitePair;
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  EXPECT_EQ(shared(paths.path(0, 2), paths.path(1, 3)), 3);  // and the link
  EXPECT_EQ(shared(paths.path(2, 0), paths.path(3, 1)), 2);  // the way back is of nodes still
}

TEST(NetworkPaths, a_site_pair_and_a_node_pair_of_equal_numbers_are_different_links) {
  // Node 0 is at site b (1), node 1 at site c (2), node 2 at site a (0). Sites 0 to 1 are one pipe,
  // used from node 2 to node 0; nodes 0 to 1 have a link of their own, from site 1 to site 2.
  Topology topology = unit_topology({1, 2, 0});
  set_link(topology, 0, 1, seconds(0), bytes_per_second(9));
  set_link(topology, 1, 2, seconds(0), bytes_per_second(9));
  link_of(topology, 0, 1).scope = LinkScope::kSitePair;
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  EXPECT_EQ(paths.path(2, 0).resources.size(), 1u);
  EXPECT_EQ(paths.path(0, 1).resources.size(), 1u);
  EXPECT_EQ(shared(paths.path(2, 0), paths.path(0, 1)), 0);
}

TEST(NetworkPaths, a_path_is_made_once) {
  const Topology topology = limited();
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  const NetworkPath* const first = &paths.path(0, 2);
  const std::vector<ResourceId> resources = first->resources;
  paths.path(1, 3);
  paths.path(2, 0);
  EXPECT_EQ(&paths.path(0, 2), first);
  EXPECT_EQ(first->resources, resources);
}

TEST(NetworkPaths, two_flows_through_a_downlink_get_half_each) {
  // Alone 6, the downlink, which is tighter than the uplink's 7; together 3 each.
  const Topology topology = limited();
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  const auto start = [&](int from, int to) {
    const NetworkPath& path = paths.path(from, to);
    return network.start(SimTime(), path.resources, bytes(100), path.cap);
  };
  const FlowId first = start(0, 2);
  EXPECT_EQ(network.rate(first), bytes_per_second(6));
  const FlowId second = start(1, 3);
  EXPECT_EQ(network.rate(first), bytes_per_second(3));
  EXPECT_EQ(network.rate(second), bytes_per_second(3));
}

TEST(NetworkPathsDeathTest, a_device_sends_nothing_to_itself) {
  const Topology topology = limited();
  FlowNetwork network;
  NetworkPaths paths(topology, network);
  EXPECT_DEATH(paths.path(1, 1), "nothing to itself");
}

}  // namespace
}  // namespace longhaul
