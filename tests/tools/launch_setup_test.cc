#include "tools/launch_setup.h"

#include <gtest/gtest.h>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

TEST(LaunchStreams, are_those_of_the_links_that_the_plan_uses) {
  // Sites 0 to 3; the plan has no device in site 2.
  Topology topology = fixtures::unit_topology({0, 1, 2, 3});
  fixtures::link_of(topology, 0, 1).streams = 3;
  fixtures::link_of(topology, 1, 0).streams = 5;  // one set of connections serves both directions
  fixtures::link_of(topology, 0, 2).streams = 7;
  fixtures::link_of(topology, 1, 3).streams = 9;
  fixtures::link_of(topology, 1, 1).streams = 4;  // inside a site one is enough
  RunSpec spec;
  spec.plan.layers = {1, 1, 1, 1};
  spec.plan.devices = {{0, 0, 0, 0}};
  spec.ranks = {{"coordinator", "coordinator", 2}};
  for (const int site : {1, 3, 0, 1}) spec.ranks.push_back({"", "", site});
  const std::vector<StreamCount> streams = streams_between_sites(topology, spec);
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0].site, 0);
  EXPECT_EQ(streams[0].other, 1);
  EXPECT_EQ(streams[0].streams, 5);
  EXPECT_EQ(streams[1].site, 1);
  EXPECT_EQ(streams[1].other, 3);
  EXPECT_EQ(streams[1].streams, 9);
}

TEST(LaunchStreams, have_the_rates_that_are_known) {
  Topology topology = fixtures::unit_topology({0, 1, 2});
  const auto set = [&](int from, int to, double rate, Origin origin) {
    fixtures::link_of(topology, from, to).rate = BytesPerSecond(rate);
    fixtures::link_of(topology, from, to).rate_origin = origin;
  };
  set(0, 1, 100, Origin::kMeasured);
  set(1, 0, 70, Origin::kAssumed);
  set(0, 2, 50, Origin::kModelled);
  set(2, 1, 30, Origin::kGiven);
  RunSpec spec;
  spec.plan.layers = {1, 1, 1};
  spec.plan.devices = {{0, 0, 0}};
  spec.ranks = {{"coordinator", "coordinator", 0}};
  for (const int site : {0, 1, 2}) spec.ranks.push_back({"", "", site});
  const std::vector<StreamCount> paths = streams_between_sites(topology, spec);
  ASSERT_EQ(paths.size(), 2u);  // of 0 and 2 nothing is known
  EXPECT_EQ(paths[0].rate, BytesPerSecond(100));
  EXPECT_FALSE(paths[0].rate_back.finite());
  EXPECT_FALSE(paths[1].rate.finite());
  EXPECT_EQ(paths[1].rate_back, BytesPerSecond(30));
}

}  // namespace
}  // namespace longhaul
