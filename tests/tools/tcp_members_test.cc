#include "tools/tcp_members.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tools/tun_bridge.h"

// Real TCP in network namespaces of this test's own. Times are the wall's, on a machine that may be
// busy, so the shortest of several counts, and the limits are wide; `tools/bench tcp` measures.

namespace longhaul {
namespace {

BridgeOptions bridge_of(int places, double mbit_per_s, Seconds latency) {
  const BytesPerSecond rate(mbit_per_s * 1e6 / 8);
  BridgeOptions options;
  options.places = places;
  options.links.assign(
      static_cast<std::size_t>(places * places),
      {.latency = latency, .rate = rate, .queue = std::max(Bytes(96000), rate * (2 * latency))});
  return options;
}

TEST(TcpMembers, their_topology_is_the_bridge_as_the_link_model_sees_it) {
  // 200 Mbit/s x 0.3 s = 7.5 MB in flight, windows of 3.355 MB: ceil(1.5 x 2.24) = 4 streams.
  BridgeOptions bridge = bridge_of(3, 200, seconds(0.15));
  const Topology wide = topology_of(bridge);
  EXPECT_EQ(wide.site_count(), 3);
  EXPECT_EQ(wide.device_count(), 3);
  EXPECT_EQ(wide.link(0, 1).streams, 4);
  EXPECT_EQ(wide.rate(0, 1), BytesPerSecond(25e6));
  EXPECT_EQ(wide.latency(2, 0), seconds(0.15));
  // Through an uplink of 50 Mbit/s: 1.875 MB, one stream.
  const auto infinite = BytesPerSecond::infinity();
  bridge.uplinks = {infinite, infinite, BytesPerSecond(6.25e6)};
  const Topology slow = topology_of(bridge);
  EXPECT_EQ(slow.link(2, 0).streams, 1);
  EXPECT_EQ(slow.rate(2, 0), BytesPerSecond(6.25e6));
  EXPECT_EQ(slow.rate(0, 2), BytesPerSecond(25e6));
}

TEST(TcpSlowRelease, warm_messages_take_what_the_link_model_says) {
  const BridgeOptions options = bridge_of(2, 50, milliseconds(10));
  const auto bridge = TunBridge::create(options);
  if (!bridge) GTEST_SKIP() << bridge.error().text();
  const Topology topology = topology_of(options);
  const auto members = TcpMembers::connect(**bridge, topology);
  ASSERT_TRUE(members) << members.error().text();
  // 2 MiB at 50 Mbit/s less headers, and 10 ms: some 350 ms.
  const Bytes size = bytes(2 * 1048576.0);
  const Seconds predicted =
      topology.latency(0, 1) + size * topology.tcp.wire_factor / topology.rate(0, 1);
  Seconds least = seconds(60);
  for (int i = 0; i < 8; ++i) {
    const Result<Seconds> time = (*members)->message(size);
    ASSERT_TRUE(time) << time.error().text();
    least = std::min(least, *time);
  }
  EXPECT_GT(least / predicted, 0.85);
  EXPECT_LT(least / predicted, 1.3);
}

TEST(TcpSlowRelease, an_all_reduce_ends_with_the_sum_on_every_rank) {
  const BridgeOptions options = bridge_of(3, 50, milliseconds(5));
  const auto bridge = TunBridge::create(options);
  if (!bridge) GTEST_SKIP() << bridge.error().text();
  const Topology topology = topology_of(options);
  const auto members = TcpMembers::connect(**bridge, topology);
  ASSERT_TRUE(members) << members.error().text();
  // Two phases of two thirds of 1.2 MB each way: no link is done before 2 x 0.4 MB / 6.25 MB/s, and
  // no phase before a latency.
  const Result<Seconds> time = (*members)->all_reduce(300000, {});
  ASSERT_TRUE(time) << time.error().text();  // it compares the sums
  EXPECT_GT(*time, seconds(0.128 + 0.01));
}

}  // namespace
}  // namespace longhaul
