#include "netsim/cluster_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "netsim/known_links.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

const std::string kSource = LONGHAUL_SOURCE_DIR;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A folder of its own for each test.
class ClusterFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("cluster_file_") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Result<Topology> parse(std::string_view text) const {
    return parse_cluster(text, "c.yaml", folder_.string());
  }
  Topology parsed(std::string_view text) const {
    Result<Topology> topology = parse(text);
    EXPECT_TRUE(topology) << topology.error().text();
    return std::move(topology).value();  // throws, which ends the test
  }
  std::string error_of(std::string_view text) const {
    const Result<Topology> topology = parse(text);
    EXPECT_FALSE(topology) << text;
    if (topology) return "";
    EXPECT_EQ(topology.error().code, ErrorCode::kInvalid);
    return topology.error().text();
  }

  fs::path folder_;
};

std::string cluster(std::string_view sites, std::string_view network) {
  return "schema: longhaul/cluster/1\nname: c\nsites:\n" + std::string(sites) +
         "network: " + std::string(network) + "\n";
}

constexpr std::string_view kTwoSites =
    "  - {name: tokyo, nodes: [{devices: v100, nic: 10 Gbit/s}]}\n"
    "  - {name: oregon, nodes: [{devices: t4, nic: 5 Gbit/s}]}\n";

bool assumes(const Topology& topology, std::string_view part) {
  return std::ranges::any_of(topology.assumptions,
                             [&](const std::string& text) { return text.contains(part); });
}

// ---- Sites, nodes and devices.

TEST_F(ClusterFile, everything_that_is_said_is_read) {
  const Topology topology = parsed(
      "schema: longhaul/cluster/1\n"
      "name: two\n"
      "description: for people\n"
      "sites:\n"
      "  - name: tokyo\n"
      "    location: Tokyo, JP\n"
      "    uplink: 2 Gbit/s\n"
      "    downlink: 4 Gbit/s\n"
      "    egress: 0.09 USD/GB\n"
      "    nodes:\n"
      "      - {name: big, devices: 2xv100, nic: 10 Gbit/s, address: \"10.0.0.1:4000\",\n"
      "         inside: {bandwidth: 20 GB/s, latency: 5 us}}\n"
      "  - {name: oregon, nodes: [{devices: t4}]}\n"
      "network:\n"
      "  tcp: {window: 1 MB, streams: 3, congestion: cubic, wire_factor: 1.05}\n"
      "  links:\n"
      "    - {from: tokyo, to: oregon, latency: 50 ms, bandwidth: 100 Mbit/s, loss: 0.0001,\n"
      "       scope: site_pair}\n"
      "    - {from: oregon, to: tokyo, latency: 50 ms, bandwidth: 1 Gbit/s}\n"
      "    - {inside: oregon, latency: 1 ms, bandwidth: 9 Gbit/s}\n");
  EXPECT_EQ(topology.name, "two");
  ASSERT_EQ(topology.site_count(), 2);
  const Site& tokyo = topology.sites[0];
  EXPECT_EQ(tokyo.location, "Tokyo, JP");
  EXPECT_EQ(tokyo.uplink, gigabits_per_second(2));
  EXPECT_EQ(tokyo.downlink, gigabits_per_second(4));
  EXPECT_EQ(tokyo.egress_usd_per_byte, 0.09 / 1e9);
  EXPECT_EQ(topology.sites[1].uplink, BytesPerSecond::infinity());
  const Node& big = topology.nodes[0];
  EXPECT_EQ(big.name, "big");
  EXPECT_EQ(big.nic, gigabits_per_second(10));
  EXPECT_EQ(big.address, "10.0.0.1:4000");
  EXPECT_EQ(big.inside_rate, bytes_per_second(20e9));
  EXPECT_EQ(big.inside_latency, microseconds(5));
  EXPECT_EQ(topology.nodes[1].nic, BytesPerSecond::infinity());
  ASSERT_EQ(topology.device_count(), 3);
  EXPECT_EQ(topology.devices[1].name, "big/1");
  EXPECT_EQ(topology.devices[2].name, "oregon-1/0");
  EXPECT_EQ(topology.kind_of(1).name, "v100");
  EXPECT_EQ(topology.kind_of(2).name, "t4");
  EXPECT_EQ(topology.tcp.window, bytes(1e6));
  EXPECT_EQ(topology.tcp.streams, 3);
  EXPECT_EQ(topology.tcp.congestion, CongestionControl::kCubic);
  EXPECT_EQ(topology.tcp.wire_factor, 1.05);
  // 100 Mbit/s = 12.5 MB/s; 3 x 1 MB / 0.1 s = 30; cubic 3 x 1.22 x 1448 / (0.1 x 0.01) = 5.29968.
  EXPECT_NEAR(topology.link(0, 1).rate.value(), 5'299'680, 1e-3);
  EXPECT_EQ(topology.link(0, 1).scope, LinkScope::kSitePair);
  EXPECT_EQ(topology.link(0, 1).loss, 0.0001);
  EXPECT_NEAR(topology.link(1, 0).rate.value(), 30e6, 1e-3);  // 1 Gbit/s, less by the window
  EXPECT_EQ(topology.link(1, 0).scope, LinkScope::kNode);
  EXPECT_EQ(topology.link(1, 1).latency, milliseconds(1));
  EXPECT_EQ(topology.link(1, 1).rate_origin, Origin::kGiven);
  EXPECT_TRUE(topology.assumptions.empty());
}

TEST_F(ClusterFile, counts_make_nodes_and_devices_in_the_order_of_the_file) {
  const Topology topology =
      parsed(cluster("  - name: a\n"
                     "    nodes:\n"
                     "      - {devices: v100, count: 2}\n"
                     "      - {devices: [2xt4, a100]}\n"
                     "      - {name: rack, devices: v100, count: 2}\n",
                     "{}"));
  std::vector<std::string> names;
  for (const Device& device : topology.devices) names.push_back(device.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a-1/0", "a-2/0", "a-3/0", "a-3/1", "a-3/2",
                                             "rack-1/0", "rack-2/0"}));
  EXPECT_EQ(topology.kind_of(3).name, "t4");
  EXPECT_EQ(topology.kind_of(4).name, "a100");
  ASSERT_EQ(topology.kinds.size(), 3u);  // each kind once, in order of first use
  EXPECT_EQ(topology.kinds[1].name, "t4");
  EXPECT_EQ(topology.node_of(4), 2);
}

struct BadCluster {
  std::string_view sites;
  std::string_view network;
  std::string_view says;
};

TEST_F(ClusterFile, what_is_wrong_is_refused_with_the_reason) {
  write("short.csv", "from,to,latency_ms,basis\ntokyo,osaka,10,rtt\n");
  const BadCluster cases[] = {
      {"  - {name: tokyo, nodes: [{devices: v10}]}\n", "{}", "unknown device kind `v10`"},
      {"  - {name: tokyo, nodes: [{devices: v10}]}\n", "{}",
       "shipped kinds: a100, h100, h200, l4, l40s, mi300x, rtx3090, rtx4090, t4, v100"},
      {"  - {name: tokyo, nodes: [{devices: 0xv100}]}\n", "{}", "`0xv100` is not a number"},
      {"  - {name: tokyo, coordinates: 35.69, nodes: [{devices: t4}]}\n", "{}", "coordinates"},
      {"  - {name: tokyo, coordinates: [35.69], nodes: [{devices: t4}]}\n", "{}",
       "takes a latitude and a longitude, not 1 numbers"},
      {"  - {name: tokyo, coordinates: [1, 2, 3], nodes: [{devices: t4}]}\n", "{}",
       "not 3 numbers"},
      {"  - {name: tokyo, coordinates: [90.1, 0], nodes: [{devices: t4}]}\n", "{}",
       "coordinates[0]"},
      {"  - {name: tokyo, coordinates: [0, -180.1], nodes: [{devices: t4}]}\n", "{}",
       "coordinates[1]"},
      {"  - {name: tokyo, coordinates: [north, 0], nodes: [{devices: t4}]}\n", "{}",
       "coordinates[0]"},
      {"  - {name: tokyo, nodes: [{devices: 1025xv100}]}\n", "{}", "is not a number of devices"},
      {"  - {name: tokyo, nodes: [{devices: v100, count: 4097}]}\n", "{}", "4096"},
      {"  - {name: tokyo, nodes: []}\n", "{}", "at least one item"},
      {"  - {name: tokyo, nodes: [{count: 1}]}\n", "{}", "missing key `devices`"},
      {"  - {name: a/b, nodes: [{devices: v100}]}\n", "{}", "may not contain `/`"},
      {"  - {name: a, nodes: [{name: b/c, devices: v100}]}\n", "{}", "may not contain `/`"},
      {"  - {name: a, nodes: [{devices: v100}]}\n  - {name: a, nodes: [{devices: v100}]}\n", "{}",
       "site `a` appears twice"},
      {"  - {name: a, nodes: [{name: n, devices: v100}, {name: n, devices: v100}]}\n", "{}",
       "node `n` appears twice"},
      {"  - {name: a, nodes: [{devices: v100, count: 2, address: h}]}\n", "{}",
       "2 nodes cannot share one address"},
      {kTwoSites, "{}", "the network has neither a `trace` nor `links`"},
      {kTwoSites, "{links: [{between: [tokyo], latency: 1 ms}]}", "takes two sites, not 1"},
      {kTwoSites, "{links: [{between: [tokyo, oregen], latency: 1 ms}]}", "did you mean `oregon`?"},
      {kTwoSites, "{links: [{between: [tokyo, x], latency: 1 ms}]}", "sites: oregon, tokyo"},
      {kTwoSites, "{links: [{latency: 1 ms}]}", "a link needs `between: [a, b]`"},
      {kTwoSites, "{links: [{between: [tokyo, oregon]}]}", "needs `latency` or `bandwidth`"},
      {kTwoSites, "{links: [{between: [tokyo, oregon], latency: 48}]}", "`48` has no unit"},
      {kTwoSites, "{links: [{between: [tokyo, oregon], bandwidth: 1 Gbit/s}]}",
       "nothing says how far tokyo and oregon are apart"},
      {kTwoSites, "{links: [{inside: tokyo, latency: 1 ms}]}",
       "nothing says how far tokyo and oregon are apart"},
      {"  - {name: a, nodes: [{devices: v100}]}\n  - {name: b, nodes: [{devices: v100}]}\n",
       "{tcp: {window: unlimited}, links: [{between: [a, b], latency: 1 ms}]}",
       "nothing limits the rate between a and b"},
      {kTwoSites, "{trace: short.csv}", "the trace has no place `oregon`, the site's name"},
      {kTwoSites, "{trace: absent.csv}", "absent.csv"},
      {kTwoSites, "{tcp: {window: 0 B}}", "lets nothing through"},
      {kTwoSites, "{tcp: {streams: 65}}", "64"},
      {kTwoSites, "{tcp: {wire_factor: 0.9}}", "wire_factor"},
      {kTwoSites, "{tcp: {congestion: reno}}", "cubic"},
      {kTwoSites, "{lnks: []}", "did you mean `links`?"},
  };
  for (const BadCluster& bad : cases) {
    const std::string error = error_of(cluster(bad.sites, bad.network));
    EXPECT_TRUE(error.contains(bad.says)) << bad.says << "\n" << error;
  }
}

// ---- Coordinates.

TEST_F(ClusterFile, coordinates_are_read_where_they_are_given) {
  const Topology topology =
      parsed(cluster("  - {name: tokyo, coordinates: [-12.5, 180], nodes: [{devices: v100}]}\n"
                     "  - {name: oregon, coordinates: [90, -180.0], nodes: [{devices: t4}]}\n",
                     "{links: [{between: [tokyo, oregon], latency: 1 ms, bandwidth: 1 Gbit/s}]}"));
  EXPECT_EQ(topology.sites[0].coordinates, (Coordinates{-12.5, 180}));
  EXPECT_EQ(topology.sites[1].coordinates, (Coordinates{90, -180}));
}

TEST_F(ClusterFile, sites_without_coordinates_get_those_of_a_place_that_is_clear) {
  write("t.csv", "from,to,latency_ms,basis\nus-west-2,paris,10,rtt\n");
  const auto coordinates = [&](const std::string& site) {
    return parsed(cluster("  - {" + site + ", nodes: [{devices: t4}]}\n", "{}"))
        .sites[0]
        .coordinates;
  };
  const Coordinates boardman{45.84, -119.7};
  EXPECT_EQ(coordinates("name: oregon"), boardman);
  EXPECT_EQ(coordinates("name: us-west-2"), boardman);
  EXPECT_EQ(coordinates("name: mine, location: \"Boardman, US\""), boardman);
  // The location says more than the name does.
  EXPECT_EQ(coordinates("name: london, location: \"London, CA\""), (Coordinates{42.98, -81.23}));
  EXPECT_EQ(coordinates("name: mine, location: a cellar"), std::nullopt);
  EXPECT_EQ(coordinates("name: cambridge"), std::nullopt);  // in England, or Massachusetts?
  EXPECT_EQ(parsed(cluster("  - {name: mine, trace_name: us-west-2, nodes: [{devices: t4}]}\n",
                           "{trace: t.csv}"))
                .sites[0]
                .coordinates,
            boardman);
}

TEST_F(ClusterFile, every_site_of_the_shipped_clusters_of_cities_has_coordinates) {
  for (const std::string name : {"eight-cities", "eight-servers", "ten-cities"}) {
    const Result<Topology> topology = load_cluster(kSource + "/configs/clusters/" + name + ".yaml");
    ASSERT_TRUE(topology);
    for (const Site& site : topology->sites) EXPECT_TRUE(site.coordinates) << site.name;
  }
}

TEST_F(ClusterFile, one_site_needs_no_network_and_two_do) {
  const std::string one =
      "schema: longhaul/cluster/1\nname: c\nsites:\n  - {name: tokyo, nodes: [{devices: 2xt4}]}\n";
  EXPECT_EQ(parsed(one).device_count(), 2);
  EXPECT_NE(
      error_of(one + "  - {name: oregon, nodes: [{devices: t4}]}\n").find("missing key `network`"),
      std::string::npos);
}

TEST_F(ClusterFile, an_unknown_kind_is_one_error_where_it_stands_whatever_the_count) {
  const Result<Topology> topology =
      parse(cluster("  - {name: a, nodes: [{devices: [2xv100, 3xv10], count: 4096}]}\n", "{}"));
  ASSERT_FALSE(topology);
  EXPECT_EQ(topology.error().count(), 1u) << topology.error().text();
  EXPECT_EQ(topology.error().place.text(), "c.yaml:4:42");
}

TEST_F(ClusterFile, at_most_1024_sites) {
  const auto with_sites = [](int count) {
    std::string sites;
    for (int i = 0; i < count; ++i) {
      sites += "  - {name: s" + std::to_string(i) + ", nodes: [{devices: v100}]}\n";
    }
    return cluster(sites, "{links: [{between: [s0, s1], latency: 1 ms}]}");
  };
  // 1024 sites are taken, and then lack links: 1024 x 1023 / 2 pairs less one.
  EXPECT_TRUE(error_of(with_sites(1024)).contains("nothing says how far s0 and s2 are apart"));
  EXPECT_TRUE(error_of(with_sites(1025)).contains("more than 1024 sites"));
}

TEST_F(ClusterFile, at_most_100000_devices) {
  // 97 x 1024 + 672 = 100,000.
  const std::string sites = "  - {name: a, nodes: [{devices: 1024xv100, count: 97}, {devices: ";
  EXPECT_EQ(parsed(cluster(sites + "672xv100}]}\n", "{}")).device_count(), 100'000);
  EXPECT_TRUE(
      error_of(cluster(sites + "673xv100}]}\n", "{}")).contains("more than 100000 devices"));
}

TEST_F(ClusterFile, errors_of_different_sites_are_reported_together) {
  const Result<Topology> topology =
      parse(cluster("  - {name: a, nodes: [{devices: v10}], uplink: 5}\n"
                    "  - {name: b, nodes: [{devices: v100, count: 0}]}\n",
                    "{tcp: {streams: none}, links: [{between: [a, b], latency: 1 ms}]}"));
  ASSERT_FALSE(topology);
  EXPECT_EQ(topology.error().count(), 4u) << topology.error().text();
}

// ---- Links.

TEST_F(ClusterFile, a_link_keeps_the_streams_that_its_rate_takes) {
  // 400 Mbit/s = 50 MB/s over 0.1 s: ceil(1.5 x 5 MB / 1 MB) = 8, also where loss makes the rate
  // less; 100 Mbit/s back: ceil(1.875) = 2.
  const Topology topology = parsed(cluster(
      kTwoSites,
      "{tcp: {window: 1 MB, congestion: cubic},\n"
      "  links: [{from: tokyo, to: oregon, latency: 50 ms, bandwidth: 400 Mbit/s, loss: 0.0001},\n"
      "          {from: oregon, to: tokyo, latency: 50 ms, bandwidth: 100 Mbit/s}]}"));
  EXPECT_EQ(topology.link(0, 1).streams, 8);
  EXPECT_EQ(topology.link(1, 0).streams, 2);
  EXPECT_EQ(topology.link(0, 0).streams, 1);
}

TEST_F(ClusterFile, between_writes_both_directions_and_from_to_one) {
  const Topology topology = parsed(cluster(
      kTwoSites,
      "{tcp: {window: unlimited}, links: [{between: [tokyo, oregon], latency: 48 ms, bandwidth: "
      "1 Gbit/s}, {from: tokyo, to: oregon, bandwidth: 2 Gbit/s}]}"));
  EXPECT_EQ(topology.link(0, 1).latency, milliseconds(48));
  EXPECT_EQ(topology.link(0, 1).rate, gigabits_per_second(2));  // the later link overrides
  EXPECT_EQ(topology.link(1, 0).rate, gigabits_per_second(1));
  EXPECT_EQ(topology.link(0, 1).latency_origin, Origin::kGiven);
}

TEST_F(ClusterFile, a_missing_direction_mirrors_the_other_and_says_so) {
  const Topology topology =
      parsed(cluster(kTwoSites,
                     "{tcp: {window: unlimited}, links: [{from: tokyo, to: oregon, latency: 48 ms, "
                     "bandwidth: 1 Gbit/s, scope: site_pair, loss: 0.01}]}"));
  const Link& back = topology.link(1, 0);
  EXPECT_EQ(back.latency, milliseconds(48));
  EXPECT_EQ(back.rate, gigabits_per_second(1));
  EXPECT_EQ(back.scope, LinkScope::kSitePair);
  EXPECT_EQ(back.loss, 0.01);
  EXPECT_EQ(back.latency_origin, Origin::kMirrored);
  EXPECT_EQ(back.rate_origin, Origin::kMirrored);
  EXPECT_EQ(topology.link(0, 1).latency_origin, Origin::kGiven);
  EXPECT_TRUE(assumes(topology, "1 directions without a measurement mirror"));
}

TEST_F(ClusterFile, a_missing_rate_is_what_window_and_nic_allow) {
  // RTT 0.1 s; the default window is 3,355,443.2 bytes: 64 streams 2.147e9 bytes/s, one 33.55e6.
  // The slower NIC has 5 Gbit/s = 625e6 bytes/s.
  const auto rate_with = [&](std::string_view tcp) {
    const Topology topology =
        parsed(cluster(kTwoSites, "{" + std::string(tcp) +
                                      "links: [{between: [tokyo, oregon], latency: 50 ms}]}"));
    EXPECT_EQ(topology.link(0, 1).rate_origin, Origin::kAssumed);
    EXPECT_TRUE(assumes(topology, "2 links without a rate"));
    return topology.link(0, 1).rate.value();
  };
  EXPECT_EQ(rate_with(""), 625e6);
  EXPECT_NEAR(rate_with("tcp: {streams: 1}, "), 33'554'432, 1e-3);
  EXPECT_EQ(rate_with("tcp: {window: unlimited}, "), 625e6);
}

TEST_F(ClusterFile, the_window_limits_what_was_measured) {
  // One stream over 2 x 48 ms: 3,355,443.2 / 0.096 = 34.95e6 of 125e6 bytes/s; four reach it.
  const auto rate_with = [&](std::string_view streams) {
    return parsed(cluster(kTwoSites, "{tcp: {streams: " + std::string(streams) +
                                         "}, links: [{between: [tokyo, oregon], latency: 48 ms, "
                                         "bandwidth: 1 Gbit/s}]}"))
        .link(0, 1)
        .rate.value();
  };
  EXPECT_NEAR(rate_with("1"), 3'355'443.2 / 0.096, 1e-3);
  EXPECT_EQ(rate_with("4"), 125e6);
  EXPECT_EQ(rate_with("auto"), 125e6);
}

TEST_F(ClusterFile, a_rate_is_made_anew_from_what_was_measured) {
  // A window of 1 MB and one stream: 25e6 B/s at 40 ms, 50e6 at 20 ms, all of 62.5e6 at 8 ms.
  Topology topology =
      parsed(cluster(kTwoSites,
                     "{tcp: {window: 1 MB, streams: 1}, links: [{between: [tokyo, oregon], "
                     "latency: 20 ms, bandwidth: 500 Mbit/s}]}"));
  EXPECT_EQ(topology.link(0, 1).rate, bytes_per_second(25e6));
  EXPECT_EQ(topology.link(0, 1).measured, bytes_per_second(62.5e6));
  const auto rate_at = [&](Seconds latency) {
    topology.links[1].latency = topology.links[2].latency = latency;
    EXPECT_EQ(limit_by_tcp(topology, 0, 1), bytes_per_second(62.5e6));
    return topology.link(0, 1).rate;
  };
  EXPECT_EQ(rate_at(milliseconds(10)), bytes_per_second(50e6));
  EXPECT_EQ(rate_at(milliseconds(4)), bytes_per_second(62.5e6));
  topology.links[1].streams_wanted = 2;
  EXPECT_EQ(rate_at(milliseconds(20)), bytes_per_second(50e6));
  EXPECT_EQ(topology.link(0, 1).streams, 2);
}

TEST_F(ClusterFile, the_round_trip_is_the_sum_of_both_ways) {
  // 30 ms there and 70 ms back: one window per 0.1 s in either direction.
  const Topology topology = parsed(
      cluster(kTwoSites,
              "{tcp: {streams: 1}, links: [{from: tokyo, to: oregon, latency: 30 ms, bandwidth: "
              "1 Gbit/s}, {from: oregon, to: tokyo, latency: 70 ms}]}"));
  EXPECT_NEAR(topology.link(0, 1).rate.value(), 33'554'432, 1e-3);
  EXPECT_NEAR(topology.link(1, 0).rate.value(), 33'554'432, 1e-3);
  EXPECT_EQ(topology.link(1, 0).latency, milliseconds(70));
}

TEST_F(ClusterFile, the_inside_of_a_site_is_assumed_where_nothing_is_said) {
  const Topology topology =
      parsed(cluster("  - {name: a, nodes: [{devices: v100, count: 2}]}\n", "{}"));
  EXPECT_EQ(topology.link(0, 0).latency, milliseconds(0.25));
  EXPECT_EQ(topology.link(0, 0).rate, gigabits_per_second(10));
  EXPECT_EQ(topology.link(0, 0).latency_origin, Origin::kAssumed);
  EXPECT_TRUE(assumes(topology, "1 sites without an inside link"));
  // Where only one node stands the assumption is of no matter and is not mentioned.
  EXPECT_TRUE(
      parsed(cluster("  - {name: a, nodes: [{devices: v100}]}\n", "{}")).assumptions.empty());
}

TEST_F(ClusterFile, half_an_inside_link_keeps_what_was_given) {
  const Topology topology = parsed(cluster("  - {name: a, nodes: [{devices: v100, count: 2}]}\n",
                                           "{links: [{inside: a, latency: 1 ms}]}"));
  EXPECT_EQ(topology.link(0, 0).latency, milliseconds(1));
  EXPECT_EQ(topology.link(0, 0).latency_origin, Origin::kGiven);
  EXPECT_EQ(topology.link(0, 0).rate, gigabits_per_second(10));
  EXPECT_EQ(topology.link(0, 0).rate_origin, Origin::kAssumed);
}

TEST_F(ClusterFile, the_inside_of_a_node_is_assumed_where_it_has_several_devices) {
  const Topology topology = parsed(cluster("  - {name: a, nodes: [{devices: 2xv100}]}\n", "{}"));
  EXPECT_EQ(topology.rate(0, 1), bytes_per_second(10e9));
  EXPECT_EQ(topology.latency(0, 1), microseconds(10));
  EXPECT_TRUE(assumes(topology, "10 GB/s and 10 us"));
}

// ---- Traces.

constexpr std::string_view kTrace =
    "from,to,scope,latency_ms,basis,gbit_per_s,loss,jitter_ms\n"
    "tokyo,oregon,site_pair,90,rtt,1,0.01,2\n"
    "tokyo,oregon,site_pair,100,rtt,3,0.03,4\n";

TEST_F(ClusterFile, a_trace_fills_the_links) {
  write("t.csv", kTrace);
  const Topology topology = parsed(cluster(kTwoSites, "{trace: t.csv, tcp: {window: unlimited}}"));
  // The median of two rows is their mean.
  const Link& there = topology.link(0, 1);
  EXPECT_EQ(there.latency, milliseconds(47.5));
  EXPECT_EQ(there.rate, gigabits_per_second(2));
  EXPECT_EQ(there.scope, LinkScope::kSitePair);
  EXPECT_NEAR(there.loss, 0.02, 1e-15);
  EXPECT_EQ(there.jitter, milliseconds(3));
  EXPECT_EQ(there.latency_origin, Origin::kMeasured);
  const Link& back = topology.link(1, 0);
  EXPECT_EQ(back.latency, milliseconds(47.5));
  EXPECT_EQ(back.rate, gigabits_per_second(2));
  EXPECT_EQ(back.scope, LinkScope::kSitePair);
  EXPECT_NEAR(back.loss, 0.02, 1e-15);
  EXPECT_EQ(back.jitter, milliseconds(3));
  EXPECT_EQ(back.rate_origin, Origin::kMirrored);
}

TEST_F(ClusterFile, the_percentile_chooses_the_day) {
  write("t.csv", kTrace);
  const Topology bad =
      parsed(cluster(kTwoSites, "{trace: t.csv, percentile: 100, tcp: {window: unlimited}}"));
  EXPECT_EQ(bad.link(0, 1).latency, milliseconds(50));
  EXPECT_EQ(bad.link(0, 1).rate, gigabits_per_second(1));
  EXPECT_TRUE(error_of(cluster(kTwoSites, "{trace: t.csv, percentile: 101}")).contains("100"));
}

TEST_F(ClusterFile, inline_links_override_only_what_they_say) {
  write("t.csv", kTrace);
  const Topology topology =
      parsed(cluster(kTwoSites,
                     "{trace: t.csv, tcp: {window: unlimited}, links: [{from: tokyo, to: oregon, "
                     "latency: 10 ms}]}"));
  const Link& there = topology.link(0, 1);
  EXPECT_EQ(there.latency, milliseconds(10));
  EXPECT_EQ(there.latency_origin, Origin::kGiven);
  EXPECT_EQ(there.rate, gigabits_per_second(2));
  EXPECT_EQ(there.rate_origin, Origin::kMeasured);
  EXPECT_EQ(there.scope, LinkScope::kSitePair);
  EXPECT_NEAR(there.loss, 0.02, 1e-15);
}

TEST_F(ClusterFile, trace_name_maps_a_site_to_a_place) {
  write("t.csv", "from,to,latency_ms,basis,gbit_per_s\nap-northeast-1,us-west-2,96,rtt,1\n");
  const Topology topology =
      parsed(cluster("  - {name: tokyo, trace_name: ap-northeast-1, nodes: [{devices: v100}]}\n"
                     "  - {name: oregon, trace_name: us-west-2, nodes: [{devices: v100}]}\n",
                     "{trace: t.csv, tcp: {window: unlimited}}"));
  EXPECT_EQ(topology.link(0, 1).latency, milliseconds(48));
  EXPECT_EQ(topology.link(0, 1).rate, gigabits_per_second(1));
}

TEST_F(ClusterFile, a_pair_that_the_trace_lacks_is_refused_with_both_names) {
  write("t.csv",
        "from,to,latency_ms,basis,gbit_per_s\ntokyo,oregon,96,rtt,1\ntokyo,london,210,rtt,1\n");
  const std::string three =
      std::string(kTwoSites) + "  - {name: london, nodes: [{devices: v100}]}\n";
  const std::string error = error_of(cluster(three, "{trace: t.csv}"));
  EXPECT_TRUE(error.contains("nothing says how far oregon and london are apart")) << error;
  EXPECT_FALSE(error.contains("tokyo and")) << error;
  EXPECT_EQ(parsed(cluster(three,
                           "{trace: t.csv, links: [{between: [london, oregon], latency: 70 ms, "
                           "bandwidth: 1 Gbit/s}]}"))
                .link(1, 2)
                .latency,
            milliseconds(70));
}

TEST_F(ClusterFile, an_error_in_the_trace_names_the_trace) {
  write("t.csv", "from,to,gbit_per_s\ntokyo,oregon,fast\n");
  EXPECT_TRUE(error_of(cluster(kTwoSites, "{trace: t.csv}")).contains("t.csv:2:14: error"));
}

// ---- The hash of the inputs.

TEST_F(ClusterFile, the_hash_changes_with_every_file_that_was_read) {
  write("t.csv", kTrace);
  const std::string device = contents(kSource + "/configs/devices/v100.yaml");
  write("v100.yaml", device);
  const std::string text =
      "schema: longhaul/cluster/1\nname: c\ndevice_files: {v100: v100.yaml}\nsites:\n"
      "  - {name: tokyo, nodes: [{devices: v100}]}\n"
      "  - {name: oregon, nodes: [{devices: v100}]}\n"
      "network: {trace: t.csv}\n";
  const std::uint64_t hash = parsed(text).hash;
  EXPECT_EQ(parsed(text).hash, hash);

  EXPECT_NE(parsed(text + "# a comment\n").hash, hash);
  write("t.csv", std::string(kTrace) + "oregon,tokyo,,90,rtt,1,,\n");
  EXPECT_NE(parsed(text).hash, hash);
  write("t.csv", kTrace);
  EXPECT_EQ(parsed(text).hash, hash);
  write("v100.yaml", device + "# another driver\n");
  EXPECT_NE(parsed(text).hash, hash);
  write("v100.yaml", device);
  EXPECT_EQ(parsed(text).hash, hash);
}

// ---- Device files.

TEST_F(ClusterFile, the_shipped_devices_load_with_efficiency_applied) {
  const Result<DeviceKind> v100 = load_device_kind(kSource + "/configs/devices/v100.yaml");
  ASSERT_TRUE(v100) << v100.error().text();
  EXPECT_EQ(v100->name, "v100");
  EXPECT_EQ(v100->memory, gibibytes(16));
  EXPECT_EQ(v100->reserved, gibibytes(1));
  EXPECT_NEAR(v100->rate_at(Precision::kFp16).value(), 50e12, 1);    // 0.4 x 125 TFLOP/s
  EXPECT_NEAR(v100->rate_at(Precision::kFp32).value(), 9.42e12, 1);  // 0.6 x 15.7
  EXPECT_EQ(v100->rate_at(Precision::kBf16), flops_per_second(0));   // has none
  EXPECT_NEAR(v100->memory_rate.value(), 675e9, 1);                  // 0.75 x 900 GB/s
  EXPECT_EQ(v100->overhead, microseconds(50));
  EXPECT_EQ(v100->usd_per_hour, 3.06);
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource + "/configs/devices")) {
    const Result<DeviceKind> kind = load_device_kind(entry.path().string());
    ASSERT_TRUE(kind) << kind.error().text();
    EXPECT_EQ(kind->name, entry.path().stem().string());
    EXPECT_FALSE(kind->source.empty());
  }
}

TEST_F(ClusterFile, a_wrong_device_file_is_refused) {
  const std::string good = contents(kSource + "/configs/devices/a100.yaml");
  const auto error_with = [&](std::string_view old, std::string_view replacement) {
    std::string text = good;
    text.replace(text.find(old), old.size(), replacement);
    write("d.yaml", text);
    const Result<DeviceKind> kind = load_device_kind((folder_ / "d.yaml").string());
    return kind ? std::string() : kind.error().text();
  };
  EXPECT_EQ(error_with("reserved: 1 GiB", "reserved: 39 GiB"), "");
  EXPECT_TRUE(error_with("reserved: 1 GiB", "reserved: 40 GiB").contains("leaves no memory"));
  EXPECT_EQ(error_with("efficiency: 0.45", "efficiency: 1"), "");
  EXPECT_TRUE(error_with("efficiency: 0.45", "efficiency: 1.1").contains("efficiency"));
  EXPECT_TRUE(error_with("efficiency: 0.45", "efficiency: 0").contains("efficiency"));
  EXPECT_TRUE(error_with("memory: 40 GiB", "memory: 40").contains("has no unit"));
  EXPECT_TRUE(error_with("origin: assumed", "origin: dreamt").contains("measured"));
}

TEST_F(ClusterFile, an_own_device_file_goes_before_the_shipped_one) {
  std::string text = contents(kSource + "/configs/devices/v100.yaml");
  text.replace(text.find("16 GiB"), 6, "32 GiB");
  write("mine.yaml", text);
  const Topology topology = parsed(
      "schema: longhaul/cluster/1\nname: c\ndevice_files: {v100: mine.yaml}\n"
      "sites: [{name: a, nodes: [{devices: [v100, t4]}]}]\nnetwork: {}\n");
  EXPECT_EQ(topology.kind_of(0).memory, gibibytes(32));
  EXPECT_EQ(topology.kind_of(1).memory, gibibytes(16));
  EXPECT_TRUE(error_of("schema: longhaul/cluster/1\nname: c\ndevice_files: {x: absent.yaml}\n"
                       "sites: [{name: a, nodes: [{devices: x}]}]\nnetwork: {}\n")
                  .contains("absent.yaml"));
}

struct CountCase {
  std::string_view text;
  int count;  // 0: refused
  std::string_view kind;
};

TEST(DeviceCount, is_a_number_an_x_and_a_kind) {
  for (const CountCase& c : {
           CountCase{"v100", 1, "v100"},
           {"8xv100", 8, "v100"},
           {"1024xt4", 1024, "t4"},
           {"1025xt4", 0, ""},
           {"0xt4", 0, ""},
           {"1234567xt4", 0, ""},
           {"99999999999999999999xt4", 0, ""},
           {"8x", 0, ""},
           {"", 0, ""},
           {"xavier", 1, "xavier"},    // an x without a number before it is part of the name
           {"rtx4090", 1, "rtx4090"},  // so is one after letters
           {"2xrtx4090", 2, "rtx4090"},
       }) {
    const Result<DeviceCount> parsed = parse_device_count(c.text);
    EXPECT_EQ(parsed.has_value(), c.count > 0) << c.text;
    if (!parsed) continue;
    EXPECT_EQ(parsed->count, c.count) << c.text;
    EXPECT_EQ(parsed->kind, c.kind);
  }
}

// ---- --trace and --devices.

TEST_F(ClusterFile, the_text_for_a_list_of_devices_reads_back) {
  write("my links, new.csv",
        "from,to,latency_ms,basis,gbit_per_s\ntokyo,oregon,96,rtt,1\noregon,\"St: John's "
        "#1\",20,rtt,2\ntokyo,\"St: John's #1\",99,rtt,2\n");
  const Result<Trace> trace = load_trace((folder_ / "my links, new.csv").string());
  ASSERT_TRUE(trace) << trace.error().text();
  const Result<std::string> text =
      cluster_text(*trace, "my links, new.csv", "oregon:8xv100,tokyo:a100");
  ASSERT_TRUE(text) << text.error().text();
  const Topology topology = parsed(*text);
  ASSERT_EQ(topology.site_count(), 2);
  EXPECT_EQ(topology.sites[0].name, "oregon");
  ASSERT_EQ(topology.device_count(), 9);
  EXPECT_EQ(topology.devices[7].name, "oregon-1/7");
  EXPECT_EQ(topology.devices[8].name, "tokyo-1/0");
  EXPECT_EQ(topology.kind_of(8).name, "a100");
  EXPECT_EQ(topology.link(1, 0).latency, milliseconds(48));
  EXPECT_EQ(topology.link(0, 1).latency_origin, Origin::kMirrored);
}

TEST_F(ClusterFile, a_wrong_list_of_devices_is_refused) {
  write("t.csv", kTrace);
  const Result<Trace> trace = load_trace((folder_ / "t.csv").string());
  ASSERT_TRUE(trace);
  const auto error_with = [&](std::string_view devices) {
    const Result<std::string> text = cluster_text(*trace, "t.csv", devices);
    return text ? std::string() : text.error().text();
  };
  EXPECT_EQ(error_with("tokyo:v100,oregon:2xt4"), "");
  EXPECT_TRUE(error_with("").contains("names no device"));
  EXPECT_TRUE(error_with("tokyo").contains("`tokyo` has no colon"));
  EXPECT_TRUE(error_with("tokio:v100").contains("did you mean `tokyo`?"));
  EXPECT_TRUE(error_with("paris:v100").contains("places: tokyo, oregon"));
  EXPECT_TRUE(error_with("tokyo:v100,tokyo:t4").contains("`tokyo` appears twice"));
  EXPECT_TRUE(error_with("tokyo:0xv100").contains("not a number of devices"));
  EXPECT_TRUE(error_with("tokyo:v100,,oregon:t4").contains("has no colon"));
}

// ---- The clusters that are shipped.

TEST(ShippedClusters, every_cluster_loads) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource + "/configs/clusters")) {
    const Result<Topology> topology = load_cluster(entry.path().string());
    ASSERT_TRUE(topology) << topology.error().text();
    EXPECT_EQ(topology->name, entry.path().stem().string());
    EXPECT_EQ(topology->links.size(), topology->sites.size() * topology->sites.size());
    for (const Link& link : topology->links) {
      EXPECT_GT(link.rate, bytes_per_second(0));
      EXPECT_TRUE(link.rate.finite());
    }
    ++count;
  }
  EXPECT_GE(count, 7);
}

Topology shipped(const std::string& name) {
  Result<Topology> topology = load_cluster(kSource + "/configs/clusters/" + name + ".yaml");
  EXPECT_TRUE(topology) << topology.error().text();
  return std::move(topology).value();  // throws, which ends the test
}

std::vector<std::vector<double>> golden_matrix(const std::string& name) {
  std::ifstream file(kSource + "/tests/golden/dtfm/" + name);
  EXPECT_TRUE(file) << name;
  std::vector<std::vector<double>> matrix;
  for (std::string line; std::getline(file, line);) {
    matrix.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) {
      matrix.back().push_back(std::stod(field));
    }
  }
  return matrix;
}

struct DtfmCase {
  const char* cluster;
  const char* golden;
};

// The matrices are those that DT-FM's own code made; its device order is that of our files.
TEST(ShippedClusters, dtfm_cases_are_dtfms_matrices_to_the_digit) {
  for (const DtfmCase& c : {DtfmCase{"dtfm-1-datacenter", "case0_datacenter"},
                            {"dtfm-2-spot", "case1_spot"},
                            {"dtfm-3-multi-datacenter", "case2_multidc"},
                            {"dtfm-4-regional", "case3_regional"},
                            {"dtfm-5-worldwide", "case4_worldwide"}}) {
    const Topology topology = shipped(c.cluster);
    const auto delays = golden_matrix(std::string(c.golden) + ".delay_ms.csv");
    const auto rates = golden_matrix(std::string(c.golden) + ".bandwidth_gbps.csv");
    ASSERT_EQ(topology.device_count(), 64) << c.cluster;
    ASSERT_EQ(delays.size(), 64u);
    ASSERT_EQ(rates.size(), 64u);
    EXPECT_EQ(topology.tcp.wire_factor, 1);
    for (int i = 0; i < 64; ++i) {
      ASSERT_EQ(delays[static_cast<std::size_t>(i)].size(), 64u);
      for (int j = 0; j < 64; ++j) {
        if (i == j) continue;
        const auto row = static_cast<std::size_t>(i);
        const auto column = static_cast<std::size_t>(j);
        ASSERT_EQ(topology.latency(i, j), milliseconds(delays[row][column]))
            << c.cluster << " " << i << " " << j;
        ASSERT_EQ(topology.rate(i, j), gigabits_per_second(rates[row][column]))
            << c.cluster << " " << i << " " << j;
      }
    }
  }
}

TEST(ShippedClusters, the_city_clusters_halve_round_trips) {
  for (const char* name : {"eight-cities", "ten-cities"}) {
    const Topology topology = shipped(name);
    const int oregon = topology.find_site("oregon");
    const int virginia = topology.find_site("virginia");
    const int tokyo = topology.find_site("tokyo");
    const int frankfurt = topology.find_site("frankfurt");
    // Oregon - Virginia 67 ms of round trip, Tokyo - Frankfurt 223 ms.
    EXPECT_EQ(topology.link(oregon, virginia).latency, milliseconds(33.5));
    EXPECT_EQ(topology.link(virginia, oregon).latency, milliseconds(33.5));
    EXPECT_EQ(topology.link(frankfurt, tokyo).latency, milliseconds(111.5));
    EXPECT_EQ(topology.link(oregon, oregon).latency, milliseconds(0.25));
    EXPECT_EQ(topology.link(oregon, virginia).rate, gigabits_per_second(0.79));
    EXPECT_EQ(topology.link(oregon, virginia).rate_origin, Origin::kMeasured);
    EXPECT_EQ(topology.link(virginia, oregon).rate_origin, Origin::kMirrored);
    EXPECT_GE(topology.kinds.size(), 2u);
  }
}

TEST(ShippedClusters, the_city_clusters_hold_what_their_descriptions_say) {
  const auto count = [](const Topology& topology, std::string_view kind) {
    int devices = 0;
    for (int d = 0; d < topology.device_count(); ++d) {
      devices += topology.kind_of(d).name == kind ? 1 : 0;
    }
    return devices;
  };
  const Topology eight = shipped("eight-cities");
  EXPECT_EQ(eight.site_count(), 8);
  EXPECT_EQ(count(eight, "v100"), 8);
  EXPECT_EQ(count(eight, "a100"), 4);
  EXPECT_EQ(count(eight, "t4"), 4);
  EXPECT_EQ(eight.device_count(), 16);
  const Topology ten = shipped("ten-cities");
  EXPECT_EQ(ten.site_count(), 10);
  EXPECT_EQ(count(ten, "v100"), 36);
  EXPECT_EQ(count(ten, "a100"), 12);
  EXPECT_EQ(count(ten, "t4"), 16);
  EXPECT_EQ(ten.device_count(), 64);
}

TEST(ShippedClusters, a_missing_file_is_refused_by_name) {
  const Result<Topology> topology = load_cluster("/nonexistent/c.yaml");
  ASSERT_FALSE(topology);
  EXPECT_TRUE(topology.error().text().contains("/nonexistent/c.yaml"));
}

}  // namespace
}  // namespace longhaul
