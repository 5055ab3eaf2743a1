#include "netsim/cluster_build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "netsim/cluster_file.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

const CityTable& cities() {
  static const CityTable table = std::move(CityTable::load()).value();
  return table;
}

std::vector<BuiltSite> parsed(std::string_view list) {
  Result<std::vector<BuiltSite>> sites = parse_sites(list, cities());
  EXPECT_TRUE(sites) << sites.error().text();
  return std::move(sites).value();
}

Trace trace_of(std::string_view rows, const std::string& name = "/somewhere/mine.csv") {
  Result<Trace> trace = parse_trace(rows, name);
  EXPECT_TRUE(trace) << trace.error().text();
  return std::move(trace).value();
}

const BuiltLink& link_of(const BuiltCluster& built, int from, int to) {
  const auto found = std::ranges::find_if(
      built.links, [&](const BuiltLink& link) { return link.from == from && link.to == to; });
  EXPECT_NE(found, built.links.end());
  return *found;
}

/// What `plan` reads: both files in a folder, loaded.
Topology loaded(const BuiltCluster& built, const BuildOptions& options) {
  const fs::path folder = fs::path(testing::TempDir()) /
                          (std::string("cluster_build_") +
                           testing::UnitTest::GetInstance()->current_test_info()->name());
  fs::create_directories(folder);
  if (!built.trace_text.empty()) {
    std::ofstream(folder / options.trace_path, std::ios::binary) << built.trace_text;
  }
  Result<Topology> topology = parse_cluster(built.cluster_text, "c.yaml", folder.string());
  EXPECT_TRUE(topology) << topology.error().text() << built.cluster_text << built.trace_text;
  fs::remove_all(folder);
  return std::move(topology).value();
}

// ---- The list of sites.

TEST(BuildSites, places_are_cities_regions_or_coordinates) {
  const std::vector<BuiltSite> sites = parsed(
      "tokyo:8xh100,aws/us-west-2:4xv100,50.11,8.68:2x8xa100,-33.9,18.4:t4,lab=gb/cambridge"
      ":a100+2xt4");
  ASSERT_EQ(sites.size(), 5u);
  EXPECT_EQ(sites[0].name, "tokyo");
  EXPECT_EQ(sites[0].location, "Tokyo, JP");
  EXPECT_EQ(sites[0].end.at, (Coordinates{35.69, 139.69}));
  EXPECT_EQ(sites[1].name, "us-west-2");
  EXPECT_EQ(sites[1].location, "Boardman, US");
  // A region is also what traces call it by its aliases.
  EXPECT_EQ(sites[1].trace_names, (std::vector<std::string>{"us-west-2", "us-west-2", "oregon"}));
  EXPECT_EQ(sites[2].name, "50.11n-8.68e");
  EXPECT_EQ(sites[2].location, "near Frankfurt am Main, DE");
  EXPECT_EQ(sites[2].end.zone, RouteZone::kEurope);
  EXPECT_EQ(sites[2].nodes[0].count, 2);
  EXPECT_EQ(sites[2].nodes[0].devices.count, 8);
  EXPECT_EQ(sites[3].name, "33.9s-18.4e");
  EXPECT_EQ(sites[3].end.zone, RouteZone::kAfrica);
  EXPECT_EQ(sites[4].name, "lab");
  ASSERT_EQ(sites[4].nodes.size(), 2u);
  EXPECT_EQ(sites[4].nodes[1].devices.kind, "t4");
}

TEST(BuildSites, coordinates_may_have_a_name) {
  const std::vector<BuiltSite> sites = parsed("home=50.11,8.68:t4, tokyo:t4 ");
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].name, "home");
  EXPECT_EQ(sites[0].end.at, (Coordinates{50.11, 8.68}));
}

TEST(BuildSites, kinds_with_an_x_are_no_counts) {
  const std::vector<BuiltSite> sites = parsed("tokyo:rtx4090,osaka:2xrtx3090,kyoto:3x2xrtx4090");
  EXPECT_EQ(sites[0].nodes[0].devices.count, 1);
  EXPECT_EQ(sites[1].nodes[0].devices.count, 2);
  EXPECT_EQ(sites[2].nodes[0].count, 3);
  EXPECT_EQ(sites[2].nodes[0].devices.kind, "rtx4090");
}

TEST(BuildSites, a_wrong_list_is_refused_with_the_reason) {
  const struct {
    std::string list;
    std::string_view says;
  } cases[] = {
      {"", "`` says no devices"},
      {"tokyo", "`tokyo` says no devices"},
      {"   ", "`` says no devices"},
      {"tokyo:v100,", "`` says no devices"},
      {"tokyo:v100,,osaka:v100", "`` says no devices"},
      {"tokyo:", "`` is not a number of devices"},
      {"tokyo:v100+", "`` is not a number of devices"},
      {"tokyo:0xv100", "`0xv100` is not a number of devices"},
      {"tokyo:8x", "`8x` is not a number of devices"},
      {"tokyo:0x8xv100", "`0x8xv100` is not a number of nodes"},
      {"tokyo:4097x8xv100", "`4097x8xv100` is not a number of nodes"},
      {"tokyo:99999999x8xv100", "is not a number of nodes"},
      {"tokyo:8xv1000", "unknown device kind `v1000`"},
      {"tokyo:8xv1000", "did you mean `v100`?"},
      {":v100", "no city or cloud region is named ``"},
      {"tokio:v100", "did you mean `tokyo`?"},
      {"cambridge:v100", "gb/cambridge or us/cambridge"},
      {"de/tokyo:v100", "no city or cloud region is named `de/tokyo`"},
      {"50:v100", "`50` is no place"},
      {"50,8", "`50,8` says no devices"},
      {"50,east:v100", "`50,east` are no coordinates"},
      {"50,8,9:v100", "`50,8` says no devices"},
      {"90.1,8:v100", "`90.1,8` is not on the globe"},
      {"50,-180.1:v100", "is not on the globe"},
      {"a b=tokyo:v100", "`a b` cannot name a site"},
      {"a/b=tokyo:v100", "`a/b` cannot name a site"},
      {"=tokyo:v100", "`` cannot name a site"},
      {"tokyo:v100,jp/tokyo:v100", "two sites are named `tokyo`"},
      {"tokyo:v100,jp/tokyo:v100", "tokyo-2=jp/tokyo:v100"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.list);
    const auto sites = parse_sites(bad.list, cities());
    ASSERT_FALSE(sites);
    EXPECT_EQ(sites.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(sites.error().text().contains(bad.says)) << sites.error().text();
  }
}

TEST(BuildSites, at_most_256) {
  const auto list = [](int count) {
    std::string out;
    for (int i = 0; i < count; ++i) {
      out += (i == 0 ? "" : ",") + ("s" + std::to_string(i)) + "=tokyo:t4";
    }
    return out;
  };
  EXPECT_TRUE(parse_sites(list(256), cities()));
  const auto more = parse_sites(list(257), cities());
  ASSERT_FALSE(more);
  EXPECT_TRUE(more.error().text().contains("257 sites are more than 256"));
}

// ---- Links.

TEST(BuildCluster, what_nobody_measured_is_modelled_both_ways) {
  const BuiltCluster built = build_cluster(parsed("pittsburgh:t4,grenoble:t4"), {}, {});
  ASSERT_EQ(built.links.size(), 2u);
  for (const BuiltLink& link : built.links) {
    EXPECT_EQ(link.round_trip.origin, Origin::kModelled);
    EXPECT_EQ(link.rate.origin, Origin::kModelled);
    EXPECT_EQ(link.round_trip.value, modelled_round_trip(built.sites[0].end, built.sites[1].end));
    EXPECT_EQ(link.rate.value, modelled_rate(link.round_trip.value));
  }
}

TEST(BuildCluster, measured_pairs_win_figure_by_figure) {
  const Trace mine = trace_of(
      "from,to,latency_ms,basis,loss,jitter_ms\n"
      "pittsburgh,grenoble,111,rtt,0.01,3\n");
  const Trace other = trace_of(
      "from,to,latency_ms,basis,gbit_per_s,scope\npittsburgh,grenoble,50,rtt,2,site_pair\n",
      "/elsewhere/other.csv");
  const std::vector<Trace> traces = {mine, other};
  const BuiltCluster built = build_cluster(parsed("pittsburgh:t4,grenoble:t4"), traces, {});
  const BuiltLink& there = link_of(built, 0, 1);
  EXPECT_NEAR(there.round_trip.value.value(), 0.111, 1e-12);  // the first trace is believed
  EXPECT_EQ(there.round_trip.origin, Origin::kMeasured);
  EXPECT_EQ(there.round_trip.source, "mine.csv");
  EXPECT_EQ(there.loss, 0.01);
  EXPECT_EQ(there.jitter, milliseconds(3));
  EXPECT_EQ(there.rate.value, gigabits_per_second(2));  // which says nothing of rates
  EXPECT_EQ(there.rate.source, "other.csv");
  EXPECT_EQ(there.scope, LinkScope::kSitePair);
  const BuiltLink& back = link_of(built, 1, 0);
  EXPECT_EQ(back.round_trip.value, there.round_trip.value);
  EXPECT_EQ(back.round_trip.origin, Origin::kMirrored);
  EXPECT_EQ(back.rate.origin, Origin::kMirrored);
}

TEST(BuildCluster, a_modelled_rate_follows_the_measured_round_trip) {
  const Trace mine = trace_of(
      "from,to,latency_ms,basis\npittsburgh,grenoble,206,rtt\ngrenoble,pittsburgh,206,rtt\n");
  const BuiltCluster built =
      build_cluster(parsed("pittsburgh:t4,grenoble:t4"), std::span(&mine, 1), {});
  const BuiltLink& link = link_of(built, 0, 1);
  EXPECT_EQ(link.rate.origin, Origin::kModelled);
  EXPECT_NEAR(link.rate.value.value(), 50e6, 1);  // 10.3 MB / 206 ms
}

TEST(BuildCluster, the_cap_of_modelled_rates_can_be_given) {
  BuildOptions options;
  options.rate.cap = gigabits_per_second(5);
  const BuiltCluster built = build_cluster(parsed("delft:t4,leuven:t4"), {}, options);
  EXPECT_EQ(link_of(built, 0, 1).rate.value, gigabits_per_second(5));
}

TEST(BuildCluster, rows_that_were_not_measured_do_not_win) {
  const Trace mine = trace_of(
      "from,to,latency_ms,basis,origin\n"
      "pittsburgh,grenoble,50,rtt,assumed\n"
      "grenoble,pittsburgh,50,rtt,modelled\n");
  const std::vector<BuiltSite> sites = parsed("pittsburgh:t4,grenoble:t4");
  EXPECT_FALSE(has_pair_of(mine, sites));
  const BuiltCluster built = build_cluster(sites, std::span(&mine, 1), {});
  EXPECT_EQ(link_of(built, 0, 1).round_trip.origin, Origin::kModelled);
}

TEST(BuildCluster, a_trace_is_asked_for_a_sites_own_name_first) {
  const Trace mine = trace_of("from,to,latency_ms,basis\noregon,tokyo,90,rtt\nlab,tokyo,70,rtt\n");
  const BuiltCluster built = build_cluster(parsed("aws/us-west-2:t4,lab=aws/us-west-2:t4,tokyo:t4"),
                                           std::span(&mine, 1), {});
  EXPECT_NEAR(link_of(built, 0, 2).round_trip.value.value(), 0.090, 1e-12);  // by its alias
  EXPECT_NEAR(link_of(built, 1, 2).round_trip.value.value(), 0.070, 1e-12);
  EXPECT_TRUE(has_pair_of(mine, built.sites));
}

TEST(BuildCluster, the_inside_of_a_place_is_not_the_link_of_two_sites_there) {
  const Trace mine = trace_of(
      "from,to,latency_ms,basis,gbit_per_s\ntokyo,tokyo,0.5,rtt,20\ntokyo,osaka,9,rtt,1\n");
  const BuiltCluster built =
      build_cluster(parsed("tokyo:t4,b=tokyo:2xt4"), std::span(&mine, 1), {});
  const BuiltLink& between = link_of(built, 0, 1);
  EXPECT_EQ(between.round_trip.origin, Origin::kModelled);
  EXPECT_NEAR(between.round_trip.value.value() * 1e3, kLatencyModel.base_ms, 1e-9);
  EXPECT_EQ(link_of(built, 0, 0).rate.value, gigabits_per_second(20));  // measured inside
}

// ---- Files.

TEST(BuildCluster, the_files_read_back_with_every_origin) {
  const Trace mine = trace_of("from,to,latency_ms,basis\npittsburgh,grenoble,111.25,rtt\n",
                              "/a, \"b\"/odd, \"name\".csv");
  BuildOptions options;
  options.name = "two: labs";
  options.list = "the list";
  options.trace_path = "c.links.csv";
  options.nic = "25 Gbit/s";
  options.uplink = "10 Gbit/s";
  const BuiltCluster built = build_cluster(
      parsed("pittsburgh:8xh100,grenoble:2x4xa100+t4,tokyo:v100"), std::span(&mine, 1), options);
  const Topology topology = loaded(built, options);
  EXPECT_EQ(topology.name, "two: labs");
  ASSERT_EQ(topology.site_count(), 3);
  EXPECT_EQ(topology.device_count(), 8 + 2 * 4 + 1 + 1);
  EXPECT_EQ(topology.nodes.size(), 1u + 3u + 1u);
  EXPECT_EQ(topology.sites[1].location, "Grenoble, FR");
  EXPECT_EQ(topology.sites[1].coordinates, built.sites[1].end.at);
  EXPECT_EQ(topology.sites[2].uplink, gigabits_per_second(10));
  EXPECT_EQ(topology.sites[2].downlink, gigabits_per_second(10));
  EXPECT_EQ(topology.nodes[0].nic, gigabits_per_second(25));
  const Link& measured = topology.link(0, 1);
  EXPECT_NEAR(measured.latency.value(), 0.111250 / 2, 1e-9);
  EXPECT_EQ(measured.latency_origin, Origin::kMeasured);
  EXPECT_EQ(measured.rate_origin, Origin::kModelled);
  EXPECT_EQ(topology.link(1, 0).latency_origin, Origin::kMirrored);
  const Link& modelled = topology.link(0, 2);
  EXPECT_EQ(modelled.latency_origin, Origin::kModelled);
  EXPECT_EQ(modelled.rate_origin, Origin::kModelled);
  // Four of the six latencies and all rates: said where `plan` prints what it assumes.
  const auto assumes = [&](std::string_view text) {
    return std::ranges::find(topology.assumptions, text) != topology.assumptions.end();
  };
  EXPECT_TRUE(assumes("4 latencies are modelled, not measured"));
  EXPECT_TRUE(assumes("6 rates are modelled, not measured"));
}

TEST(BuildCluster, one_site_has_no_links_and_names_no_trace) {
  BuildOptions options;
  options.trace_path = "c.links.csv";
  const BuiltCluster built = build_cluster(parsed("tokyo:8xh100"), {}, options);
  EXPECT_EQ(built.trace_text, "");
  EXPECT_EQ(loaded(built, options).device_count(), 8);
}

TEST(BuildCluster, the_same_list_gives_the_same_bytes) {
  const auto once = [] {
    return build_cluster(parsed("tokyo:8xh100,london:t4,eastus:t4,-12.5,131:t4"), {}, {});
  };
  EXPECT_EQ(once().cluster_text, once().cluster_text);
  EXPECT_EQ(once().trace_text, once().trace_text);
}

}  // namespace
}  // namespace longhaul
