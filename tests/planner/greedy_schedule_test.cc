#include "planner/greedy_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "core/model_math.h"
#include "core/rng.h"
#include "core/schedule.h"
#include "netsim/step_simulation.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

struct Pipeline {
  std::vector<SplitStageTime> stages;
  std::vector<HopTime> hops;
  std::vector<int> caps;
  int micro_batches = 1;

  GreedySchedule best() const { return greedy_schedule(stages, hops, caps, micro_batches); }
  double bound() const { return greedy_lower_bound(stages, hops, caps, micro_batches); }
};

/// Eight stages, 32 micro-batches, F = B = W = 1, 0.05 of serialisation on every hop each way and a
/// latency of 3, a stage's time for a micro-batch, each way between stages 3 and 4.
Pipeline slow_middle(int cap) {
  Pipeline p;
  p.stages.assign(8, {1, 1, 1});
  p.hops.assign(7, {0.05, 0, 0.05, 0});
  p.hops[3] = {0.05, 3, 0.05, 3};
  p.caps.assign(8, cap);
  p.micro_batches = 32;
  return p;
}

double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

/// Every order keeps the rules of a plan, and together they do not dead-lock.
void expect_sound(const GreedySchedule& schedule, const std::vector<int>& caps, int micro_batches) {
  ASSERT_EQ(schedule.orders.size(), caps.size());
  for (std::size_t i = 0; i < caps.size(); ++i) {
    const auto checked = check_order(schedule.orders[i], micro_batches, caps[i]);
    EXPECT_TRUE(checked) << checked.error().text();
  }
  Plan plan = unit_plan(ScheduleFamily::kGreedy, static_cast<int>(caps.size()), {micro_batches});
  plan.orders = schedule.orders;
  const auto graph =
      build_graph(make_schedule(plan, unit_job(static_cast<int>(caps.size()), micro_batches)));
  EXPECT_TRUE(graph) << graph.error().text();
}

// One stage: nothing to wait for, 3 x 3 = 9.
TEST(GreedySchedule, a_lone_stage_is_always_busy) {
  const Pipeline p = {{{1, 1, 1}}, {}, {1}, 3};
  const GreedySchedule best = p.best();
  EXPECT_EQ(best.makespan, 9);
  EXPECT_EQ(best.lower_bound, 9);
  EXPECT_EQ(order_text(best.orders[0]), "F0 B0 W0 F1 B1 W1 F2 B2 W2");
}

// Two stages, one micro-batch, f = 1, b = 2, w = 4, send 0.5 and latency 1 forward, send 0.25 and
// latency 2 back. Stage 1: F from 2.5, B from 3.5 to 5.5, W to 9.5. Its gradient is at stage 0 at
// 5.5 + 2.25 = 7.75; B to 9.75, W to 13.75.
TEST(GreedySchedule, a_single_micro_batch_goes_down_and_up) {
  const Pipeline p = {{{1, 2, 4}, {1, 2, 4}}, {{0.5, 1, 0.25, 2}}, {1, 1}, 1};
  const GreedySchedule best = p.best();
  EXPECT_DOUBLE_EQ(best.makespan, 13.75);
  EXPECT_DOUBLE_EQ(best.lower_bound, 13.75);
  const std::vector<double> ends = order_recursion(p.stages, p.hops, best.orders);
  EXPECT_DOUBLE_EQ(ends[0], 13.75);
  EXPECT_DOUBLE_EQ(ends[1], 9.5);
}

// 1F1B at the same stages, the whole backward in one, takes 209.4 s with a peak of 8 micro-batches
// at stage 0. With the same peak the greedy family takes 118.8 s: 43 % less. No schedule with that
// peak takes less than 116.4 s: until B0 is back at stage 0, at 1 + 20.7 s (stages 1 to 7 take 7 x
// 2 and the hops 0.7 + 6), it runs 8 forwards, so 13.7 s are idle; and 20.7 s pass after its last
// forward, in which it has only the B and W of 7 others: 6.7 s idle. 96 + 13.7 + 6.7 = 116.4.
TEST(GreedySchedule, takes_far_less_than_1f1b_at_equal_peak_memory) {
  const Pipeline p = slow_middle(8);
  const std::vector<StageTime> whole(8, {1, 2});
  const std::vector<int> depths =
      default_in_flight(ScheduleFamily::kOneForwardOneBackward, 8, p.micro_batches);
  EXPECT_EQ(depths[0], 8);
  const double in_order = largest(pipeline_recursion(whole, p.hops, depths, p.micro_batches));
  EXPECT_NEAR(in_order, 209.4, 1e-9);

  const GreedySchedule best = p.best();
  expect_sound(best, p.caps, p.micro_batches);
  EXPECT_NEAR(best.lower_bound, 116.4, 1e-9);
  EXPECT_NEAR(best.makespan, 118.8, 1e-9);
  EXPECT_LT(best.makespan, (1 - 0.43) * in_order);
  for (const StageOrder& order : best.orders) EXPECT_LE(peaks_of(order).in_flight, 8);
}

// Twice the memory: stage 7 gets its first input after 7 forwards and hops, 7 x 1.05 + 3 = 10.35,
// and is busy for 96 s from there. That cannot be beaten.
TEST(GreedySchedule, reaches_the_bound_at_twice_the_memory) {
  const Pipeline p = slow_middle(16);
  const GreedySchedule best = p.best();
  expect_sound(best, p.caps, p.micro_batches);
  EXPECT_NEAR(best.lower_bound, 106.35, 1e-9);
  EXPECT_NEAR(best.makespan, 106.35, 1e-9);
}

TEST(GreedySchedule, more_room_never_hurts_much_and_half_as_much_again_is_near_the_bound) {
  const double at_8 = slow_middle(8).best().makespan;
  const double at_12 = slow_middle(12).best().makespan;
  const double at_32 = slow_middle(32).best().makespan;
  EXPECT_LT(at_12, at_8);
  EXPECT_LE(at_12, 1.035 * 106.35);
  EXPECT_NEAR(at_32, 106.35, 1e-9);
}

TEST(GreedySchedule, is_the_same_every_time) {
  const Pipeline p = slow_middle(8);
  EXPECT_EQ(p.best().orders, p.best().orders);
}

TEST(GreedySchedule, fewer_variants_are_no_better) {
  const Pipeline p = slow_middle(8);
  double before = std::numeric_limits<double>::infinity();
  for (const int variants : {1, 4, 8, 16}) {
    const double makespan =
        greedy_schedule(p.stages, p.hops, p.caps, p.micro_batches, variants).makespan;
    EXPECT_LE(makespan, before);
    before = makespan;
  }
  EXPECT_LE(p.best().makespan, before);
}

Pipeline random_pipeline(Rng& rng, int stages_max, int micro_batches_max) {
  Pipeline p;
  const auto stages = 1 + rng.below(static_cast<std::uint64_t>(stages_max));
  p.micro_batches = static_cast<int>(1 + rng.below(static_cast<std::uint64_t>(micro_batches_max)));
  for (std::uint64_t i = 0; i < stages; ++i) {
    p.stages.push_back({0.2 + rng.uniform(), 0.2 + rng.uniform(), 0.2 + rng.uniform()});
    p.caps.push_back(static_cast<int>(1 + rng.below(stages + 3)));
    if (i > 0) {
      p.hops.push_back(
          {0.5 * rng.uniform(), 3 * rng.uniform(), 0.5 * rng.uniform(), 3 * rng.uniform()});
    }
  }
  return p;
}

TEST(GreedySchedule, orders_are_sound_and_above_the_bound_whatever_the_caps) {
  Rng rng("greedy schedules", 1);
  for (int i = 0; i < 300; ++i) {
    const Pipeline p = random_pipeline(rng, 7, 20);
    const GreedySchedule best = p.best();
    expect_sound(best, p.caps, p.micro_batches);
    EXPECT_GE(best.makespan, best.lower_bound * (1 - 1e-9));
    EXPECT_EQ(best.makespan, largest(order_recursion(p.stages, p.hops, best.orders)));
    if (HasFailure()) return;
  }
}

/// All orders of F, B and W with these caps.
std::vector<StageOrder> all_orders(int micro_batches, int cap) {
  std::vector<StageOrder> all;
  StageOrder order;
  std::array<int, 3> done = {};
  const std::function<void()> extend = [&] {
    if (done[2] == micro_batches) return all.push_back(order);
    const bool allowed[] = {done[0] < micro_batches && done[0] - done[2] < cap, done[1] < done[0],
                            done[2] < done[1]};
    for (std::size_t kind = 0; kind < 3; ++kind) {
      if (!allowed[kind]) continue;
      order.push_back(static_cast<Pass>(kind));
      ++done[kind];
      extend();
      --done[kind];
      order.pop_back();
    }
  };
  extend();
  return all;
}

TEST(GreedySchedule, is_near_the_best_of_all_orders_and_the_bound_is_below_them) {
  Rng rng("all orders", 1);
  double worst = 1;
  for (int i = 0; i < 40; ++i) {
    Pipeline p = random_pipeline(rng, 1, 1);
    p.micro_batches = 3;
    p.stages.push_back({0.2 + rng.uniform(), 0.2 + rng.uniform(), 0.2 + rng.uniform()});
    p.hops = {{0.3 * rng.uniform(), 2 * rng.uniform(), 0.3 * rng.uniform(), 2 * rng.uniform()}};
    p.caps = {static_cast<int>(1 + rng.below(3)), static_cast<int>(1 + rng.below(3))};
    double optimum = std::numeric_limits<double>::infinity();
    Plan plan = unit_plan(ScheduleFamily::kGreedy, 2, {3});
    const Job job = unit_job(2, 3);
    for (const StageOrder& first : all_orders(3, p.caps[0])) {
      for (const StageOrder& second : all_orders(3, p.caps[1])) {
        plan.orders = {first, second};
        if (!build_graph(make_schedule(plan, job))) continue;
        optimum = std::min(optimum, largest(order_recursion(p.stages, p.hops, plan.orders)));
      }
    }
    const GreedySchedule best = p.best();
    EXPECT_GE(optimum, best.lower_bound * (1 - 1e-9));
    EXPECT_GE(best.makespan, optimum * (1 - 1e-9));
    worst = std::max(worst, best.makespan / optimum);
  }
  EXPECT_LT(worst, 1.1);
}

/// When a tasklet ends its last weight gradient in a simulated step.
double weight_end(const StepResult& step, std::size_t cell) {
  const TaskletTimes& times = step.tasklets[cell];
  return (times.compute + times.transfer + times.bubble).value();
}

TEST(GreedySchedule, the_simulator_takes_the_time_that_was_promised) {
  // The same pipeline as a topology: one site a stage, whose device has its own speed, and links
  // with their own latency and rate each way.
  Rng rng("simulated greedy schedule", 1);
  for (int i = 0; i < 60; ++i) {
    Pipeline p;
    const auto stages = static_cast<int>(1 + rng.below(6));
    p.micro_batches = static_cast<int>(1 + rng.below(12));
    std::vector<int> sites;
    for (int s = 0; s < stages; ++s) sites.push_back(s);
    Topology topology = unit_topology(sites);
    const Job job = unit_job(stages, p.micro_batches);
    Plan plan = unit_plan(ScheduleFamily::kGreedy, stages, {p.micro_batches});
    const std::vector<StageShape> shapes = stage_shapes(plan.layers);
    for (int s = 0; s < stages; ++s) {
      DeviceKind& kind = topology.kinds[static_cast<std::size_t>(s)];
      kind.rate.fill(flops_per_second(4 + 40 * rng.uniform()));
      kind.overhead = Seconds(0.1 * rng.uniform());
      const StageWork work = stage_work(job.model, shapes[static_cast<std::size_t>(s)], 1);
      p.stages.push_back({compute_time(kind, job.precision, work.forward).value(),
                          compute_time(kind, job.precision, work.backward_input).value(),
                          compute_time(kind, job.precision, work.backward_weight).value()});
      p.caps.push_back(static_cast<int>(1 + rng.below(static_cast<std::uint64_t>(stages) + 2)));
      if (s == 0) continue;
      HopTime hop;
      for (const bool forward : {true, false}) {
        Link& link = forward ? link_of(topology, s - 1, s) : link_of(topology, s, s - 1);
        link.rate = bytes_per_second(4 / (0.01 + rng.uniform()));  // 4 bytes a boundary tensor
        link.latency = Seconds(3 * rng.uniform());
        (forward ? hop.forward_send : hop.backward_send) = (Bytes(4) / link.rate).value();
        (forward ? hop.forward_latency : hop.backward_latency) = link.latency.value();
      }
      p.hops.push_back(hop);
    }
    const GreedySchedule best = p.best();
    plan.orders = best.orders;
    plan.in_flight = p.caps;
    const Result<StepResult> step = simulate_step(topology, job, plan);
    ASSERT_TRUE(step) << step.error().text();
    const std::vector<double> exact = order_recursion(p.stages, p.hops, best.orders);
    for (std::size_t s = 0; s < exact.size(); ++s) {
      EXPECT_NEAR(weight_end(*step, s), exact[s], 1e-9);
    }
  }
}

}  // namespace
}  // namespace longhaul
