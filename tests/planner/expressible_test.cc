#include "planner/expressible.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/search.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

TEST(Expressible, a_grid_must_divide_what_is_to_be_equal) {
  const Job job = unit_job(6, 24);
  // 24 sequences in micro-batches of 2 are 12: over 3 pipelines 4 each, over 5 not.
  const Expressible shares{.equal_shares = true};
  EXPECT_TRUE(allows(shares, {2, 3, 2}, job));
  EXPECT_FALSE(allows(shares, {2, 5, 2}, job));
  const Expressible layers{.equal_layers = true};
  EXPECT_TRUE(allows(layers, {3, 1, 1}, job));
  EXPECT_FALSE(allows(layers, {4, 1, 1}, job));
  // 12 micro-batches over 4 pipelines are 3: enough for 3 stages, not for 4; one stage needs none.
  const Expressible one_each{.micro_batch_a_stage = true};
  EXPECT_TRUE(allows(one_each, {3, 4, 2}, job));
  EXPECT_FALSE(allows(one_each, {4, 4, 2}, job));
  EXPECT_TRUE(allows(one_each, {1, 24, 1}, job));
  const Expressible alone{.one_stage = true};
  EXPECT_TRUE(allows(alone, {1, 4, 1}, job));
  EXPECT_FALSE(allows(alone, {2, 4, 1}, job));
  EXPECT_TRUE(allows(Expressible{}, {4, 5, 1}, job));
}

TEST(Expressible, a_restricted_plan_keeps_its_devices_and_grid) {
  const Job job = unit_job(6, 12);
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 3, {5, 7});
  plan.layers = {1, 3, 2};
  plan.in_flight = {6, 4, 1};
  const Plan even =
      restricted({.equal_shares = true, .equal_layers = true, .own_depths = true}, plan, job);
  EXPECT_EQ(even.devices, plan.devices);
  EXPECT_EQ(even.micro_batches, (std::vector<int>{6, 6}));
  EXPECT_EQ(even.layers, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(even.in_flight, (std::vector<int>{3, 2, 1}));
  const Plan same = restricted({}, plan, job);
  EXPECT_EQ(same.layers, plan.layers);
  EXPECT_EQ(same.micro_batches, plan.micro_batches);
  EXPECT_EQ(same.in_flight, plan.in_flight);
}

TEST(Expressible, every_plan_that_the_search_judges_is_as_wanted) {
  // Five devices of three speeds: without limits, pipelines share unevenly.
  Topology topology = unit_topology({0, 0, 1, 1, 2});
  topology.kinds[1].rate.fill(flops_per_second(11));
  topology.kinds[4].rate.fill(flops_per_second(30));
  for (const int other : {1, 2}) set_link(topology, 0, other, Seconds(1), bytes_per_second(50));
  set_link(topology, 1, 2, Seconds(0.5), bytes_per_second(80));
  const Job job = unit_job(6, 12);
  const Expressible wanted{.equal_shares = true, .equal_layers = true, .own_depths = true};
  const Result<SearchResult> found =
      search_plan(topology, job, {.seed = 3, .effort = 0.05, .rules = {.expressible = wanted}});
  ASSERT_TRUE(found) << found.error().text();
  for (const JudgedPlan& judged : found->judged) {
    const Plan& plan = judged.plan;
    const auto [fewest, most] = std::ranges::minmax(plan.micro_batches);
    EXPECT_EQ(fewest, most);
    EXPECT_TRUE(std::ranges::all_of(plan.layers, [&](int n) { return n == plan.layers[0]; }));
    EXPECT_EQ(plan.in_flight, default_in_flight(plan.family, plan.stages(), most));
    EXPECT_TRUE(check_memory(plan, topology, job));
    EXPECT_LE(found->best.step.step, judged.step.step);
  }
  EXPECT_LE(found->bound.seconds, found->best.step.step.value());
}

TEST(Expressible, what_fits_only_with_other_layers_is_infeasible) {
  // Two devices, one with room for the large part alone: equal layers cannot be.
  Topology topology = unit_topology({0, 0});
  topology.kinds[0].memory = bytes(10);
  const Job job = unit_job(2, 4);
  const Result<SearchResult> found = search_plan(
      topology, job,
      {.effort = 0.05, .limits = {.stages = 2}, .rules = {.expressible = {.equal_layers = true}}});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInfeasible);
  // A grid that no limit admits.
  const Result<SearchResult> none = search_plan(
      topology, job,
      {.effort = 0.05, .limits = {.stages = 2}, .rules = {.expressible = {.one_stage = true}}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInfeasible);
}

}  // namespace
}  // namespace longhaul
