#include "planner/refinement.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/schedule_choice.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Two stages on devices of unequal speed, and a fast device that stands idle.
struct Case {
  Case() : topology(unit_topology({0, 0, 0})), job(unit_job(4, 8)) {
    topology.kinds[0].rate.fill(flops_per_second(8));
    topology.kinds[2].rate.fill(flops_per_second(64));
    plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {8});
    plan.layers = {2, 2};
  }
  JudgedPlan judged() const { return {plan, *simulate_step(topology, job, plan), 0}; }

  Topology topology;
  Job job;
  Plan plan;
};

TEST(Refinement, takes_the_idle_device_and_gives_it_most_layers) {
  const Case here;
  const Problem problem(here.topology, here.job);
  const JudgedPlan refined = refine(problem, here.judged(), {.name = "test"}).best;
  EXPECT_LT(refined.step.step, here.judged().step.step);
  // One layer on the unit device, three on the one that is four times as fast.
  const std::size_t fast = refined.plan.devices[0][0] == 2 ? 0 : 1;
  EXPECT_EQ(refined.plan.devices[0][fast], 2);
  EXPECT_EQ(refined.plan.devices[0][1 - fast], 1);
  EXPECT_EQ(refined.plan.layers[fast], 3);
}

TEST(Refinement, is_the_same_on_any_number_of_threads) {
  const Case here;
  const Problem problem(here.topology, here.job);
  const JudgedPlan one = refine(problem, here.judged(), {.name = "test", .threads = 1}).best;
  const JudgedPlan three = refine(problem, here.judged(), {.name = "test", .threads = 3}).best;
  EXPECT_EQ(one.step.step, three.step.step);
  EXPECT_EQ(one.plan.devices, three.plan.devices);
  EXPECT_EQ(one.plan.in_flight, three.plan.in_flight);
}

TEST(Refinement, greedy_schedules_hide_a_hop_that_1f1b_waits_for) {
  // Two equal stages, a hop that takes a stage's forward and backward each way, and memory for two
  // micro-batches at the first stage: 1F1B waits a round trip for every two of them.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(3), BytesPerSecond::infinity());
  const Job job = unit_job(2, 8);
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {8});
  const Problem problem(topology, job);
  const JudgedPlan start{plan, *simulate_step(topology, job, plan), 0};
  const JudgedPlan refined = refine(problem, start, {.name = "test"}).best;
  const JudgedPlan in_order = refine(problem, start, {.name = "test", .greedy = false}).best;
  EXPECT_NE(in_order.plan.family, ScheduleFamily::kGreedy);
  EXPECT_EQ(refined.plan.family, ScheduleFamily::kGreedy);
  EXPECT_LT(refined.step.step, 0.99 * in_order.step.step);
  EXPECT_TRUE(check_memory(refined.plan, topology, job));
}

TEST(Refinement, who_ends_late_owns_more_of_the_gradient) {
  // Replica 0 takes twice as long. At 42 bytes/s it then sends its part of the other's shard and
  // the sum of its own, 84 bytes in 2 s. With a share s the other's sum leaves once that part is
  // there, after 2 (1 - s) s, and comes back at 21 bytes/s in 4 (1 - s) s: together 3 s of equal
  // shares, and no more than 2 s where s is two thirds or more.
  Topology topology = unit_topology({0, 1});
  topology.kinds[0].rate.fill(flops_per_second(8));
  set_link(topology, 0, 1, Seconds(0), BytesPerSecond(42));
  link_of(topology, 1, 0).rate = BytesPerSecond(21);
  const Job job = unit_job(1, 2);
  const Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 1, {1, 1});
  const Problem problem(topology, job);
  const JudgedPlan start{plan, *simulate_step(topology, job, plan), 0};
  const JudgedPlan refined = refine(problem, start, {.name = "test"}).best;
  EXPECT_NEAR((start.step.step - refined.step.step).value(), 1, 1e-3);
  ASSERT_EQ(refined.plan.reductions.size(), 1u);
  const std::vector<double>& shares = refined.plan.reductions[0].shares;
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_GE(shares[refined.plan.devices[0][0] == 0 ? 0 : 1], 2.0 / 3 - 1e-3);
}

TEST(Refinement, a_shared_pipe_asks_for_hierarchical_exchanges_where_any_are_allowed) {
  // Four replicas in each of two sites with one pipe between: sharded, each of them sends half of
  // the gradient through it twice; hierarchical, each site does.
  Topology topology = unit_topology({0, 0, 0, 0, 1, 1, 1, 1});
  set_link(topology, 0, 1, Seconds(0), BytesPerSecond(42));
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    link_of(topology, from, to).scope = LinkScope::kSitePair;
  }
  const Job job = unit_job(1, 8);
  const Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 1, std::vector<int>(8, 1));
  const JudgedPlan start{plan, *simulate_step(topology, job, plan), 0};
  const auto refined = [&](bool any) {
    const Problem problem(topology, job, {}, {}, {.any_all_reduce = any});
    return refine(problem, start, {.name = "test"}).best;
  };
  const JudgedPlan sharded = refined(false);
  for (const Reduction& reduction : sharded.plan.reductions) {
    EXPECT_EQ(reduction.shape, ReduceShape::kSharded);
  }
  const JudgedPlan hierarchical = refined(true);
  ASSERT_EQ(hierarchical.plan.reductions.size(), 1u);
  EXPECT_EQ(hierarchical.plan.reductions[0].shape, ReduceShape::kHierarchical);
  // 8 s of 84 bytes through the pipe, and 2 s.
  EXPECT_NEAR((sharded.step.step - hierarchical.step.step).value(), 6, 0.1);
}

TEST(ScheduleChoice, what_takes_for_ever_gets_no_orders) {
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(0), bytes_per_second(1e-300));
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {8});
  const Job job = unit_job(2, 8);
  EXPECT_FALSE(make_greedy(Problem(topology, job), plan, {2, 2}, 1));
  EXPECT_TRUE(plan.orders.empty());
}

}  // namespace
}  // namespace longhaul
