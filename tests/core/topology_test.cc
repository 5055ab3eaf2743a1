#include "core/topology.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::unit_topology;

// ---- TCP. A window of 1 MB over 100 ms of round trip lets one stream have 10 MB/s.

TcpModel tcp_of(int streams, CongestionControl congestion = CongestionControl::kBbr) {
  TcpModel tcp;
  tcp.window = bytes(1e6);
  tcp.streams = streams;
  tcp.congestion = congestion;
  return tcp;
}

struct TcpCase {
  const char* what;
  TcpModel tcp;
  double measured;  // bytes/s
  double round_trip;
  double loss;
  double expected;
};

TEST(TcpRate, is_the_least_of_link_window_and_loss) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const TcpCase cases[] = {
      {"one stream: window / RTT = 1e6 / 0.1", tcp_of(1), 50e6, 0.1, 0, 10e6},
      {"one stream on a slower link: the link", tcp_of(1), 9e6, 0.1, 0, 9e6},
      {"three streams: 3 windows / RTT", tcp_of(3), 50e6, 0.1, 0, 30e6},
      {"three streams reach the link", tcp_of(3), 30e6, 0.1, 0, 30e6},
      // ceil(1.5 x 50e6 x 0.1 / 1e6) = ceil(7.5) = 8 streams could do 80 MB/s.
      {"as many streams as the path needs", tcp_of(0), 50e6, 0.1, 0, 50e6},
      // 1.5 x 1e9 x 0.1 / 1e6 = 150 streams would be needed; 64 windows / 0.1 s.
      {"at most 64 streams", tcp_of(0), 1e9, 0.1, 0, 640e6},
      {"64 streams just reach 640 MB/s", tcp_of(0), 640e6, 0.1, 0, 640e6},
      {"no link limit: 64 windows / RTT", tcp_of(0), kInfinite, 0.1, 0, 640e6},
      {"at no distance a window limits nothing", tcp_of(1), 50e6, 0, 0, 50e6},
      // 1.22 x 1448 / (0.1 x sqrt(1e-4)) = 1,766,560 bytes/s a stream.
      {"cubic with loss: Mathis et al.", tcp_of(1, CongestionControl::kCubic), 50e6, 0.1, 1e-4,
       1'766'560},
      {"cubic with loss, 3 streams", tcp_of(3, CongestionControl::kCubic), 50e6, 0.1, 1e-4,
       5'299'680},
      // 8 streams, see above: 8 x 1,766,560.
      {"cubic with loss, streams by the window", tcp_of(0, CongestionControl::kCubic), 50e6, 0.1,
       1e-4, 14'132'480},
      {"cubic with next to no loss: the window", tcp_of(1, CongestionControl::kCubic), 50e6, 0.1,
       1e-12, 10e6},
      {"cubic without loss", tcp_of(1, CongestionControl::kCubic), 50e6, 0.1, 0, 10e6},
      {"bbr does not mind loss", tcp_of(1), 50e6, 0.1, 1e-2, 10e6},
      {"cubic with loss at no distance", tcp_of(1, CongestionControl::kCubic), 50e6, 0, 0.1, 50e6},
  };
  for (const TcpCase& c : cases) {
    const BytesPerSecond rate =
        tcp_rate(c.tcp, bytes_per_second(c.measured), seconds(c.round_trip), c.loss);
    EXPECT_NEAR(rate.value() / c.expected, 1, 1e-12) << c.what;
  }
}

TEST(TcpStreams, are_as_many_as_fill_the_path_with_half_as_many_again) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  struct Case {
    int fixed;
    double rate;  // bytes/s
    double round_trip;
    int expected;
  };
  const Case cases[] = {
      {0, 50e6, 0.1, 8},             // ceil(1.5 x 50e6 x 0.1 / 1e6) = ceil(7.5)
      {0, 6.6e6, 0.1, 1},            // ceil(0.99)
      {0, 6.7e6, 0.1, 2},            // 1.005
      {0, 640e6, 0.1, kMaxStreams},  // 96
      {0, kInfinite, 0.1, kMaxStreams},
      {0, 50e6, 0, 1},
      {3, 50e6, 0.1, 3},
      {3, 1e3, 0.1, 3},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(tcp_streams(tcp_of(c.fixed), bytes_per_second(c.rate), seconds(c.round_trip)),
              c.expected)
        << c.rate;
  }
  TcpModel unlimited = tcp_of(0);
  unlimited.window = Bytes::infinity();
  EXPECT_EQ(tcp_streams(unlimited, bytes_per_second(1e9), seconds(0.1)), 1);
  EXPECT_EQ(tcp_streams(unlimited, BytesPerSecond::infinity(), seconds(0.1)), 1);
}

TEST(TcpRate, an_unlimited_window_leaves_the_link_as_measured) {
  TcpModel tcp = tcp_of(1);
  tcp.window = Bytes::infinity();
  for (const int streams : {0, 1, 64}) {
    tcp.streams = streams;
    EXPECT_EQ(tcp_rate(tcp, bytes_per_second(1e9), seconds(0.1), 0), bytes_per_second(1e9));
    EXPECT_EQ(tcp_rate(tcp, BytesPerSecond::infinity(), seconds(0.1), 0),
              BytesPerSecond::infinity());
  }
}

TEST(TcpRate, the_default_window_is_that_of_an_untuned_linux) {
  // 0.8 x 4 MiB = 3,355,443.2 bytes over 67 ms: 50.08 MB/s, 0.4 Gbit/s a stream.
  TcpModel tcp;
  tcp.streams = 1;
  EXPECT_NEAR(tcp_rate(tcp, gigabits_per_second(10), milliseconds(67), 0).value(),
              3355443.2 / 0.067, 1e-3);
}

// ---- Between devices.

TEST(Topology, rate_is_the_least_of_everything_on_the_path) {
  // Device 0 at site a, device 1 at site b. Each row lowers one limit below all others.
  const auto rate_with = [](auto&& limit) {
    Topology topology = unit_topology({0, 1});
    limit(topology);
    return topology.rate(0, 1);
  };
  const BytesPerSecond low = bytes_per_second(7);
  EXPECT_EQ(rate_with([](Topology&) {}), BytesPerSecond::infinity());
  EXPECT_EQ(rate_with([&](Topology& t) { link_of(t, 0, 1).rate = low; }), low);
  EXPECT_EQ(rate_with([&](Topology& t) { t.nodes[0].nic = low; }), low);
  EXPECT_EQ(rate_with([&](Topology& t) { t.nodes[1].nic = low; }), low);
  EXPECT_EQ(rate_with([&](Topology& t) { t.sites[0].uplink = low; }), low);
  EXPECT_EQ(rate_with([&](Topology& t) { t.sites[1].downlink = low; }), low);
  // What is on the way back does not matter.
  const BytesPerSecond free = BytesPerSecond::infinity();
  EXPECT_EQ(rate_with([&](Topology& t) { link_of(t, 1, 0).rate = low; }), free);
  EXPECT_EQ(rate_with([&](Topology& t) { t.sites[0].downlink = low; }), free);
  EXPECT_EQ(rate_with([&](Topology& t) { t.sites[1].uplink = low; }), free);
  // Nor does a node's inside when the other device is elsewhere.
  EXPECT_EQ(rate_with([&](Topology& t) { t.nodes[0].inside_rate = low; }), free);
}

TEST(Topology, inside_a_site_uplink_and_downlink_do_not_count) {
  Topology topology = unit_topology({0, 0});
  topology.sites[0].uplink = topology.sites[0].downlink = bytes_per_second(1);
  link_of(topology, 0, 0).rate = bytes_per_second(9);
  link_of(topology, 0, 0).latency = milliseconds(2);
  EXPECT_EQ(topology.rate(0, 1), bytes_per_second(9));
  EXPECT_EQ(topology.latency(0, 1), milliseconds(2));
  topology.nodes[1].nic = bytes_per_second(8);
  EXPECT_EQ(topology.rate(0, 1), bytes_per_second(8));
}

TEST(Topology, devices_of_one_node_talk_inside_it) {
  Topology topology = unit_topology({0, 0});
  topology.devices[1].node = 0;
  topology.nodes[0].inside_rate = bytes_per_second(100);
  topology.nodes[0].inside_latency = microseconds(10);
  topology.nodes[0].nic = bytes_per_second(1);
  link_of(topology, 0, 0).latency = milliseconds(2);
  EXPECT_EQ(topology.rate(0, 1), bytes_per_second(100));
  EXPECT_EQ(topology.latency(0, 1), microseconds(10));
}

TEST(Topology, latency_is_directed) {
  Topology topology = unit_topology({0, 1});
  link_of(topology, 0, 1).latency = milliseconds(30);
  link_of(topology, 1, 0).latency = milliseconds(40);
  EXPECT_EQ(topology.latency(0, 1), milliseconds(30));
  EXPECT_EQ(topology.latency(1, 0), milliseconds(40));
}

TEST(Topology, a_device_reaches_itself_at_once) {
  Topology topology = unit_topology({0});
  link_of(topology, 0, 0).latency = milliseconds(2);
  EXPECT_EQ(topology.latency(0, 0), seconds(0));
  EXPECT_EQ(topology.rate(0, 0), BytesPerSecond::infinity());
}

TEST(Topology, finds_by_name) {
  const Topology topology = unit_topology({0, 1, 1});
  EXPECT_EQ(topology.find_site("b"), 1);
  EXPECT_EQ(topology.find_site("c"), -1);
  EXPECT_EQ(topology.find_device("b-2/0"), 2);
  EXPECT_EQ(topology.find_device("b-3/0"), -1);
  EXPECT_EQ(topology.site_of(2), 1);
  EXPECT_EQ(topology.node_of(2), 2);
  EXPECT_EQ(topology.kind_of(2).name, "kind-2");
}

TEST(Precision, has_a_name_and_a_size) {
  EXPECT_EQ(name_of(Precision::kFp32), "fp32");
  EXPECT_EQ(name_of(Precision::kFp16), "fp16");
  EXPECT_EQ(name_of(Precision::kBf16), "bf16");
  EXPECT_EQ(element_bytes(Precision::kFp32), 4);
  EXPECT_EQ(element_bytes(Precision::kFp16), 2);
  EXPECT_EQ(element_bytes(Precision::kBf16), 2);
}

TEST(Origin, has_a_name) {
  EXPECT_EQ(name_of(Origin::kMeasured), "measured");
  EXPECT_EQ(name_of(Origin::kMirrored), "mirrored");
  EXPECT_EQ(name_of(Origin::kAssumed), "assumed");
  EXPECT_EQ(name_of(Origin::kModelled), "modelled");
  EXPECT_EQ(name_of(Origin::kGiven), "given");
}

}  // namespace
}  // namespace longhaul
