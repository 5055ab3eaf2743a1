#include "netsim/simgrid_platform.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace longhaul {
namespace {

SimGridPlatform parsed(const std::string& text) {
  Result<SimGridPlatform> platform = parse_simgrid_platform(text, "p.xml");
  EXPECT_TRUE(platform) << platform.error().text();
  return std::move(platform).value();  // throws, which ends the test
}

SimGridPlatform sample(const std::string& name) {
  std::ifstream file(std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/net/" + name);
  return parsed({std::istreambuf_iterator<char>(file), {}});
}

std::string platform_of(const std::string& content, const std::string& routing = "Full") {
  return "<platform version=\"4.1\">\n<zone id=\"z\" routing=\"" + routing + "\">\n" + content +
         "\n</zone></platform>\n";
}

SimGridRoute route(const SimGridPlatform& platform, const std::string& from,
                   const std::string& to) {
  Result<SimGridRoute> found = platform.route(from, to);
  EXPECT_TRUE(found) << found.error().text();
  return std::move(found).value();
}

std::vector<std::string> names(const SimGridPlatform& platform, const SimGridRoute& of) {
  std::vector<std::string> out;
  for (const int link : of.links)
    out.push_back(platform.links[static_cast<std::size_t>(link)].name);
  return out;
}

TEST(SimGridPlatform, two_sites_as_simgrid_reads_them) {
  // 20 us + 33.5 ms + 20 us = 33.54 ms; the least of 1.25 GB/s, 98.75 MB/s, 1.25 GB/s. SimGrid 3.32
  // says the same of this file; its default model then lets a flow have 0.97 of the bandwidth
  // (95.7875 MB/s) and takes 13.01 times the latency, which are the model's and not the platform's.
  const SimGridPlatform platform = sample("simgrid_platform_2sites.xml");
  ASSERT_EQ(platform.hosts.size(), 3u);
  EXPECT_EQ(platform.hosts[2].name, "virginia0");
  EXPECT_EQ(platform.hosts[2].speed, flops_per_second(65e9));
  EXPECT_EQ(platform.links.size(), 8u);  // four SPLITDUPLEX ones
  const SimGridRoute there = route(platform, "oregon0", "virginia0");
  EXPECT_NEAR(there.latency.value(), 33.54e-3, 1e-15);
  EXPECT_EQ(platform.bottleneck(there), bytes_per_second(98.75e6));
  EXPECT_EQ(names(platform, there),
            (std::vector<std::string>{"nic_oregon0_UP", "wan_or_va_UP", "nic_virginia0_DOWN"}));
  // The way back crosses the other direction of each, in reverse.
  EXPECT_EQ(names(platform, route(platform, "virginia0", "oregon0")),
            (std::vector<std::string>{"nic_virginia0_UP", "wan_or_va_DOWN", "nic_oregon0_DOWN"}));
  EXPECT_TRUE(route(platform, "oregon0", "oregon0").links.empty());
}

TEST(SimGridPlatform, nested_zones_are_left_and_entered_through_gateways) {
  // 1 ms + 2 ms inside the left zone, 30 ms between, 0.5 ms inside the right one.
  const SimGridPlatform platform = sample("simgrid_nested_zones.xml");
  const SimGridRoute there = route(platform, "l0", "r0");
  EXPECT_EQ(names(platform, there),
            (std::vector<std::string>{"l0_mid", "mid_gate", "wan_UP", "r0_gate"}));
  EXPECT_NEAR(there.latency.value(), 33.5e-3, 1e-15);
  EXPECT_EQ(platform.bottleneck(there), bytes_per_second(50e6));
  EXPECT_EQ(names(platform, route(platform, "r0", "l0")),
            (std::vector<std::string>{"r0_gate", "wan_DOWN", "mid_gate", "l0_mid"}));
  EXPECT_EQ(platform.links[static_cast<std::size_t>(platform.find_link("r0_gate"))].policy,
            SimGridPolicy::kFatPipe);
}

TEST(SimGridPlatform, the_way_with_the_fewest_links_is_taken_in_floyd_and_dijkstra_zones) {
  // a - b directly is three links; by way of c it is two.
  const std::string content =
      R"(<host id="a" speed="1f"/><host id="b" speed="1f"/><host id="c" speed="1f"/>
<link id="1" bandwidth="1Bps" latency="1s"/><link id="2" bandwidth="8bps" latency="2s"/>
<route src="a" dst="b"><link_ctn id="1"/><link_ctn id="1"/><link_ctn id="1"/></route>
<route src="a" dst="c"><link_ctn id="1"/></route><route src="c" dst="b"><link_ctn id="2"/></route>)";
  for (const std::string routing : {"Floyd", "Dijkstra", "DijkstraCache"}) {
    const SimGridPlatform platform = parsed(platform_of(content, routing));
    EXPECT_EQ(route(platform, "a", "b").latency, seconds(3));
    EXPECT_EQ(names(platform, route(platform, "b", "a")), (std::vector<std::string>{"2", "1"}));
  }
  EXPECT_EQ(route(parsed(platform_of(content)), "a", "b").links.size(), 3u);  // Full: as declared
}

TEST(SimGridPlatform, units_of_bits_bytes_and_times) {
  struct Case {
    std::string bandwidth, latency;
    double bytes_per_second, seconds;
  };
  for (const Case& c : {Case{"1GBps", "1ms", 1e9, 1e-3}, Case{"8Gbps", "5us", 1e9, 5e-6},
                        Case{"1KiBps", "2ns", 1024, 2e-9}, Case{"8kbps", "0", 1000, -1},
                        Case{"2.5MBps", "1s", 2.5e6, 1}}) {
    const std::string text =
        platform_of("<host id=\"a\" speed=\"1Gf\"/><link id=\"l\" bandwidth=\"" + c.bandwidth +
                    "\" latency=\"" + c.latency + "\"/>");
    if (c.seconds < 0) {
      EXPECT_FALSE(parse_simgrid_platform(text, "p.xml"));  // 0 without a unit
      continue;
    }
    const SimGridPlatform platform = parsed(text);
    EXPECT_DOUBLE_EQ(platform.links.at(0).bandwidth.value(), c.bytes_per_second);
    EXPECT_DOUBLE_EQ(platform.links[0].latency.value(), c.seconds);
  }
}

TEST(SimGridPlatform, a_route_may_hold_one_way_only) {
  const SimGridPlatform platform = parsed(platform_of(
      R"(<host id="a" speed="1f"/><host id="b" speed="1f"/><link id="l" bandwidth="1Bps"/>
<route src="a" dst="b" symmetrical="NO"><link_ctn id="l"/></route>)"));
  EXPECT_EQ(route(platform, "a", "b").links.size(), 1u);
  const Result<SimGridRoute> back = platform.route("b", "a");
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().message, "no route from `b` to `a`");
  EXPECT_FALSE(platform.route("a", "x"));
}

TEST(SimGridPlatform, what_it_does_not_know_is_refused_by_name) {
  const std::string hosts = "<host id=\"a\" speed=\"1f\"/><host id=\"b\" speed=\"1f\"/>\n";
  const std::string link = "<link id=\"l\" bandwidth=\"1Bps\"/>\n";
  const std::string split = "<link id=\"s\" bandwidth=\"1Bps\" sharing_policy=\"SPLITDUPLEX\"/>\n";
  struct Bad {
    std::string text;
    std::string says;
  };
  const Bad cases[] = {
      {"<platform", "p.xml:1:"},
      {"<a/>", "`a` is not SimGrid's `platform`"},
      {"<platform version=\"3\"/>", "platform version `3` is not read"},
      {"<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\"/></platform>", "has no host"},
      {"<platform version=\"4.1\"><zone id=\"y\" routing=\"Full\"/><zone id=\"z\" "
       "routing=\"Full\"/></platform>",
       "one outermost zone"},
      {platform_of(hosts, "Vivaldi"), "p.xml:2:1: error: routing `Vivaldi` is not read"},
      {platform_of(hosts + "<cluster id=\"c\"/>"), "p.xml:4:1: error: `cluster` in a zone"},
      {platform_of(hosts + "<bypassRoute/>"), "bypasses change routes"},
      {platform_of(hosts + "<peer/>"), "`peer` in a zone is not read"},
      {platform_of("<host id=\"a\" speed=\"1f\" state_file=\"x\"/>"), "attribute `state_file`"},
      {platform_of("<host id=\"a\" speed=\"fast\"/>"), "`fast` is not a value of `speed`"},
      {platform_of("<host id=\"a\"/>"), "`host` needs `speed`"},
      {platform_of(hosts + "<host id=\"a\" speed=\"1f\"/>"), "the name `a` appears twice"},
      {platform_of(hosts + link + link), "link `l` appears twice"},
      {platform_of(hosts + "<link id=\"l\" bandwidth=\"1\"/>"),
       "`1` is not a value of `bandwidth`"},
      {platform_of(hosts + "<link id=\"l\" bandwidth=\"0Bps\"/>"), "more than 0"},
      {platform_of(hosts + "<link id=\"l\" bandwidth=\"1Bps\" sharing_policy=\"WIFI\"/>"),
       "sharing policy `WIFI` is not read"},
      {platform_of(hosts + link + "<route src=\"a\" dst=\"c\"/>"), "`c` names no host"},
      {platform_of(hosts + "<route src=\"a\" dst=\"b\"><link_ctn id=\"l\"/></route>"),
       "no link above is named `l`"},
      {platform_of(hosts + split + "<route src=\"a\" dst=\"b\"><link_ctn id=\"s\"/></route>"),
       "its `direction` is UP or DOWN"},
      {platform_of(hosts + link +
                   "<route src=\"a\" dst=\"b\"><link_ctn id=\"l\" direction=\"UP\"/></route>"),
       "link `l` has no directions"},
      {platform_of(hosts + "<route src=\"a\" dst=\"b\"/><route src=\"b\" dst=\"a\"/>"),
       "a route from `b` to `a` is already there"},
      {platform_of(hosts + "<route src=\"a\" dst=\"b\" symmetrical=\"maybe\"/>"),
       "`maybe` is not a value of `symmetrical`"},
      {platform_of(hosts + "<zone id=\"y\" routing=\"Full\"><host id=\"c\" speed=\"1f\"/></zone>"
                           "<zoneRoute src=\"a\" dst=\"y\" gw_dst=\"b\"/>"),
       "`b` is no host or router inside `y`"},
      {platform_of(hosts + "<zone id=\"y\" routing=\"Full\"><host id=\"c\" speed=\"1f\"/></zone>"
                           "<route src=\"a\" dst=\"y\"/>"),
       "between zones write `zoneRoute`"},
      {platform_of(hosts + "<zone id=\"y\" routing=\"Full\"><host id=\"c\" speed=\"1f\"/></zone>"
                           "<route src=\"a\" dst=\"c\"/>"),
       "does not lie directly in this zone"},
  };
  for (const Bad& bad : cases) {
    const Result<SimGridPlatform> platform = parse_simgrid_platform(bad.text, "p.xml");
    ASSERT_FALSE(platform) << bad.text;
    EXPECT_EQ(platform.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(platform.error().text().contains(bad.says)) << bad.text << "\n"
                                                            << platform.error().text();
  }
}

TEST(SimGridPlatform, zones_nest_32_deep_and_no_deeper) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) {
      text += "<zone id=\"z" + std::to_string(i) + "\" routing=\"Full\">";
    }
    text += "<host id=\"a\" speed=\"1f\"/>";
    for (int i = 0; i < depth; ++i) text += "</zone>";
    return "<platform version=\"4\">" + text + "</platform>";
  };
  EXPECT_TRUE(parse_simgrid_platform(nested(32), "p.xml"));
  EXPECT_FALSE(parse_simgrid_platform(nested(33), "p.xml"));
}

}  // namespace
}  // namespace longhaul
