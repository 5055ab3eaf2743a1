#include "tools/simgrid_flows.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace longhaul {
namespace {

// By hand, in bytes and seconds: shares of a link in inverse proportion to the latency of the flow.

TEST(SimgridFlows, flow_of_a_quarter_of_the_latency_takes_four_times_the_share) {
  // The link (1000 bytes/s) is shared, the far flow has 30 ms more: 10 and 40 ms. The near flow is
  // alone from 0.01 to 0.04 s: 30 bytes. Then 4/5 of the link are its own, 800 bytes/s, for the
  // 800 bytes that are left: it ends at 1.04 s. The far one has sent 200 of its 1200 bytes by then
  // and has the link to itself: 2.04 s.
  FlowScene scene;
  scene.hosts = 3;
  scene.links = {{1000, 0.01}, {1e6, 0.03}};
  scene.routes = {{0, 1, {0}}, {0, 2, {0, 1}}};
  scene.flows = {{0, 0, 830}, {0, 1, 1200}};
  const FlowRun run = run_flows(scene);
  EXPECT_NEAR(run.end_s[0], 1.04, 1e-11);
  EXPECT_NEAR(run.end_s[1], 2.04, 1e-11);
}

TEST(SimgridFlows, latencies_pass_in_parallel_and_take_no_bandwidth) {
  // Both start at 5 s and wait for the same 0.1 s, then each has half of 100 bytes/s for its 50
  // bytes: 6.1 s. The third starts its wait at 6.05 s, while they still run, and finds the link
  // free at 6.15 s: 7.15 s for 100 bytes.
  FlowScene scene;
  scene.hosts = 2;
  scene.links = {{100, 0.1}};
  scene.routes = {{0, 1, {0}}};
  scene.flows = {{5, 0, 50}, {5, 0, 50}, {6.05, 0, 100}};
  const FlowRun run = run_flows(scene);
  EXPECT_NEAR(run.end_s[0], 6.1, 1e-11);
  EXPECT_NEAR(run.end_s[1], 6.1, 1e-11);
  EXPECT_NEAR(run.end_s[2], 7.15, 1e-11);
}

TEST(SimgridFlows, what_a_far_flow_cannot_use_goes_to_the_near_one) {
  // A: link 0 alone, 20 ms, weight 50. B: links 0 and 1, 20 + 80 = 100 ms, weight 10. On link 0
  // (600 bytes/s) B would have 1/6, 100 bytes/s, but link 1 gives it no more than 60. So A has 540.
  // A starts when B does (its start is 80 ms later): 1080 bytes by 2.1 s. B has sent 120 of 180
  // bytes by then; link 1 still holds it to 60: 3.1 s.
  FlowScene scene;
  scene.hosts = 3;
  scene.links = {{600, 0.02}, {60, 0.08}};
  scene.routes = {{0, 1, {0}}, {0, 2, {0, 1}}};
  scene.flows = {{0, 1, 180}, {0.08, 0, 1080}};
  const FlowRun run = run_flows(scene);
  EXPECT_NEAR(run.end_s[1], 2.1, 1e-11);
  EXPECT_NEAR(run.end_s[0], 3.1, 1e-11);
}

TEST(SimgridFlows, random_scene_is_the_same_for_a_seed_and_loads_links_together) {
  const FlowScene scene = small_random_scene(7);
  const FlowScene again = small_random_scene(7);
  EXPECT_EQ(run_flows(scene).end_s, run_flows(again).end_s);
  EXPECT_NE(run_flows(scene).end_s, run_flows(small_random_scene(8)).end_s);
  EXPECT_TRUE(std::ranges::is_sorted(scene.flows, {}, &FlowScene::Flow::start_s));
  std::vector<int> flows(scene.links.size());
  for (const FlowScene::Flow& flow : scene.flows) {
    for (const int link : scene.routes[static_cast<std::size_t>(flow.route)].links) {
      ++flows[static_cast<std::size_t>(link)];
    }
  }
  EXPECT_GE(std::ranges::max(flows), 10);
}

TEST(SimgridFlows, runs_differ_where_a_flow_has_no_end) {
  FlowScene scene;
  scene.flows = {{1, 0, 1}, {1, 0, 1}};
  const FlowRun ended{{2, 3}, 0};
  EXPECT_EQ(worst_relative_difference(scene, ended, {{2, 3}, 0}), 0);
  // |3 - 5| / (5 - 1)
  EXPECT_EQ(worst_relative_difference(scene, ended, {{2, 5}, 0}), 0.5);
  EXPECT_GT(worst_relative_difference(scene, ended, {{std::nan(""), 3}, 0}), 1e300);
}

TEST(SimgridSlow, flows_end_as_in_simgrid_on_fifty_random_platforms) {
  const std::string root = LONGHAUL_SOURCE_DIR;
  const int status = std::system(("'" + root + "/tools/simgrid' >&2").c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "SimGrid's packages cannot be had here";
  }
  ASSERT_EQ(status, 0);
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const FlowScene scene = small_random_scene(seed);
    const Result<SimgridRun> theirs = run_flows_in_simgrid(scene, {.root = root});
    ASSERT_TRUE(theirs) << theirs.error().text();
    EXPECT_LE(worst_relative_difference(scene, run_flows(scene), *theirs), 1e-6)
        << "seed " << seed << " in SimGrid " << theirs->version;
  }
}

}  // namespace
}  // namespace longhaul
