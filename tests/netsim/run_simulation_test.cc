#include "netsim/run_simulation.h"

#include <gtest/gtest.h>

#include "tests/core/fixtures.h"

// Two sites as in step_conditions_test: an undisturbed step takes 7.75 s, one with device b-1/0 at
// half its speed 11.125 s.

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::two_sites;
using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

Result<RunForecast> run_of(const Conditions& conditions, const RunLimits& limits,
                           const Topology& topology = two_sites(), const RunWatch& watch = {}) {
  return simulate_run(topology, unit_job(2, 1),
                      unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1}), conditions, limits,
                      watch);
}

void expect_whole(const RunForecast& run) {
  EXPECT_NEAR((run.productive + run.lost + run.waiting + run.checkpoints).value(), run.time.value(),
              1e-9 * run.time.value());
}

TEST(RunSimulation, calm_days_are_one_step_many_times) {
  const RunForecast run = run_of({}, {.steps = 10}).value();
  EXPECT_EQ(run.steps, 10u);
  EXPECT_EQ(run.tokens, 10);  // a sequence of one token a step
  EXPECT_DOUBLE_EQ(run.time.value(), 77.5);
  EXPECT_DOUBLE_EQ(run.step_p50.value(), 7.75);
  EXPECT_DOUBLE_EQ(run.step_p99.value(), 7.75);
  EXPECT_EQ(run.effective(), 1);
  EXPECT_EQ(run.simulated, 1u);
  expect_whole(run);
}

/// Two samples, a step of one each. A unit tensor's first visit takes 192 bytes, a later one 256
/// (step_simulation_test): on a link of 64 bytes/s 3 s and 4 s.
RunForecast histories(const Conditions& conditions, bool in_checkpoints) {
  Topology topology = unit_topology({0, 1});
  link_of(topology, 0, 1).rate = bytes_per_second(64);
  Job job = unit_job(2, 1);
  job.activations = Codec::kAqInt3;
  job.activation_gradients = Codec::kNone;
  job.history.emplace();
  job.history->samples = 2;
  job.history->in_checkpoints = in_checkpoints;
  return simulate_run(topology, job, unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1}),
                      conditions, {.steps = 5})
      .value();
}

TEST(RunSimulation, the_first_epoch_has_first_visits) {
  // A step computes 1 + 1.125 + 2.25 + 2 = 6.375 s. Its message takes 3 s in the first two steps, 4
  // s in the three others.
  const RunForecast run = histories({}, false);
  EXPECT_DOUBLE_EQ(run.step_undisturbed.value(), 10.375);
  EXPECT_DOUBLE_EQ(run.time.value(), 2 * 9.375 + 3 * 10.375);
  EXPECT_EQ(run.simulated, 2u);
}

TEST(RunSimulation, a_failure_costs_the_histories_that_no_checkpoint_has) {
  // The third step is lost at 20 s; both before it are kept. Then the next two are first visits.
  Conditions conditions;
  conditions.checkpoints.every = 1;
  conditions.failures.planned = {{1, seconds(20)}};
  EXPECT_DOUBLE_EQ(histories(conditions, false).productive.value(), 4 * 9.375 + 10.375);
  EXPECT_DOUBLE_EQ(histories(conditions, true).productive.value(), 2 * 9.375 + 3 * 10.375);
}

TEST(RunSimulation, ends_with_the_step_that_reaches_the_time) {
  EXPECT_EQ(run_of({}, {.time = seconds(20)}).value().steps, 3u);
  EXPECT_FALSE(run_of({}, {}));
}

TEST(RunSimulation, a_failure_without_checkpoints_begins_again) {
  // Two steps and 4.5 s of the third are lost; 3 + 300 + 30 s pass; then ten steps.
  Conditions conditions;
  conditions.failures.planned = {{1, seconds(20)}};
  const RunForecast run = run_of(conditions, {.steps = 10}).value();
  EXPECT_EQ(run.failures, 1u);
  EXPECT_DOUBLE_EQ(run.lost.value(), 20);
  EXPECT_DOUBLE_EQ(run.waiting.value(), 333);
  EXPECT_DOUBLE_EQ(run.productive.value(), 77.5);
  EXPECT_DOUBLE_EQ(run.time.value(), 430.5);
  EXPECT_NEAR(run.effective(), 77.5 / 430.5, 1e-12);
  expect_whole(run);
}

TEST(RunSimulation, a_failure_costs_what_was_done_since_the_checkpoint) {
  // Steps end at 7.75 and 15.5, a checkpoint at 16.5, the failure at 20: 3.5 s are lost. At 353 s
  // eight steps follow, with four checkpoints: 62 + 4 s.
  Conditions conditions;
  conditions.failures.planned = {{0, seconds(20)}};
  conditions.checkpoints = {2, seconds(1)};
  const RunForecast run = run_of(conditions, {.steps = 10}).value();
  EXPECT_DOUBLE_EQ(run.lost.value(), 3.5);
  EXPECT_DOUBLE_EQ(run.checkpoints.value(), 5);
  EXPECT_DOUBLE_EQ(run.productive.value(), 77.5);
  EXPECT_DOUBLE_EQ(run.time.value(), 419);
  expect_whole(run);
}

TEST(RunSimulation, devices_that_the_plan_leaves_out_may_fail) {
  Topology topology = unit_topology({0, 1, 1});
  Conditions conditions;
  conditions.failures.planned = {{2, seconds(5)}};
  EXPECT_EQ(run_of(conditions, {.steps = 10}, topology).value().failures, 0u);
}

TEST(RunSimulation, percentiles_are_of_steps) {
  // Five steps begin in the window, the last at 44.5 s; all that it slows begins before 50 s there,
  // too. 15 are undisturbed.
  Conditions conditions;
  conditions.slowdowns.push_back({{1}, 2, {.end = seconds(50)}});
  const RunForecast run = run_of(conditions, {.steps = 20}).value();
  EXPECT_NEAR(run.time.value(), 5 * 11.125 + 15 * 7.75, 1e-9);
  EXPECT_NEAR(run.step_mean.value(), (5 * 11.125 + 15 * 7.75) / 20, 1e-9);
  EXPECT_DOUBLE_EQ(run.step_p50.value(), 7.75);
  EXPECT_DOUBLE_EQ(run.step_p95.value(), 11.125);
  EXPECT_DOUBLE_EQ(run.step_longest.value(), 11.125);
  EXPECT_DOUBLE_EQ(run.step_undisturbed.value(), 7.75);
  // One of the slow ones, the one across the change, and one of the others.
  EXPECT_EQ(run.simulated, 3u);
}

TEST(RunSimulation, a_step_across_a_change_is_simulated_where_it_stands) {
  // From 2 s on device b-1/0 is slow: only B1 begins later, 10 s in all (step_conditions_test).
  Conditions conditions;
  conditions.slowdowns.push_back({{1}, 2, {.begin = seconds(2)}});
  const RunForecast run = run_of(conditions, {.steps = 2}).value();
  EXPECT_NEAR(run.time.value(), 10 + 11.125, 1e-9);
}

TEST(RunSimulation, failures_come_at_the_rate_of_the_devices) {
  // Two devices with one failure in 100 h each: in 20,000 h 400 are expected, with a deviation of
  // 20. A failure costs 333 s, so the hours in which devices run are 0.2 % fewer.
  Topology topology = two_sites();
  for (DeviceKind& kind : topology.kinds) kind.failures_per_hour = 0.01;
  Conditions conditions;
  conditions.failures.by_rate = true;
  conditions.checkpoints.every = 100;
  const RunLimits limits{.time = seconds(20000.0 * 3600)};
  const RunForecast run = run_of(conditions, limits, topology).value();
  EXPECT_NEAR(static_cast<double>(run.failures), 400, 70);
  EXPECT_EQ(run.simulated, 1u);
  expect_whole(run);
  EXPECT_EQ(run_of(conditions, limits, topology).value().time, run.time);
  // Said for all kinds at once.
  for (DeviceKind& kind : topology.kinds) kind.failures_per_hour = 0;
  conditions.failures.per_hour = 0.01;
  EXPECT_EQ(run_of(conditions, limits, topology).value().failures, run.failures);
  conditions.seed = 2;
  EXPECT_NE(run_of(conditions, limits, topology).value().failures, run.failures);
}

TEST(RunSimulation, a_run_that_never_gets_anywhere_is_given_up) {
  Topology topology = two_sites();
  topology.kinds[0].failures_per_hour = 10 * 3600;  // one in 0.1 s
  Conditions conditions;
  conditions.failures.by_rate = true;
  const Result<RunForecast> run = run_of(conditions, {.steps = 10}, topology);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(run.error().message.find("no further checkpoint"), std::string::npos);
}

TEST(RunSimulation, money_runs_while_the_run_waits) {
  // 7.2 USD an hour: 430.5 s are 0.861 USD. Egress: 0.01 USD a byte, 4 bytes a step out of each
  // site; the lost steps were sent, too: the two that ended.
  Topology topology = two_sites();
  for (DeviceKind& kind : topology.kinds) kind.usd_per_hour = 3.6;
  for (Site& site : topology.sites) site.egress_usd_per_byte = 0.01;
  Conditions conditions;
  conditions.failures.planned = {{1, seconds(20)}};
  const RunForecast run = run_of(conditions, {.steps = 10}, topology).value();
  EXPECT_NEAR(run.usd, 0.861 + 12 * 8 * 0.01, 1e-9);
}

TEST(RunSimulation, jitter_is_sampled) {
  Topology topology = two_sites();
  link_of(topology, 0, 1).jitter = seconds(0.1);
  Conditions conditions;
  conditions.jitter = true;
  const RunForecast run = run_of(conditions, {.steps = 1000}, topology).value();
  EXPECT_EQ(run.simulated, 64u);
  // Two messages a step that vary: the tensor there and the commit. Their means are unchanged.
  EXPECT_NEAR(run.step_mean.value(), 7.75, 0.08);
  EXPECT_GT(run.step_p95, run.step_p50);
}

TEST(RunSimulation, points_are_few_and_miss_nothing) {
  Conditions conditions;
  conditions.failures.planned = {{1, seconds(200)}};
  conditions.checkpoints.every = 10;
  const RunForecast run = run_of(conditions, {.steps = 5000}).value();
  EXPECT_LE(run.points.size(), kRunPoints);
  EXPECT_GT(run.points.size(), kRunPoints / 4);
  std::uint64_t steps = 0;
  std::uint64_t failures = 0;
  for (const RunPoint& point : run.points) {
    steps += point.steps;
    failures += point.failures;
  }
  EXPECT_EQ(failures, 1u);
  // 25 steps end by 193.75 s; the checkpoint has 20 of them.
  EXPECT_EQ(steps, 5005u);
}

TEST(RunSimulation, stops_when_asked) {
  int asked = 0;
  const RunForecast run =
      run_of({}, {.steps = 10}, two_sites(), {.should_stop = [&] { return ++asked == 4; }}).value();
  EXPECT_TRUE(run.interrupted);
  EXPECT_EQ(run.steps, 3u);
}

}  // namespace
}  // namespace longhaul
