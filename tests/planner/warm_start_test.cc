#include "planner/warm_start.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Two equal devices at site a, one at b, 10 s and 100 B/s apart.
Topology two_near_one_far() {
  Topology topology = unit_topology({0, 0, 1});
  for (Device& device : topology.devices) device.kind = 0;
  set_link(topology, 0, 1, Seconds(10), bytes_per_second(100));
  set_link(topology, 0, 0, Seconds(0.01), bytes_per_second(1000));
  return topology;
}

OldPlan across() {
  OldPlan old{unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {8}), {}, true};
  old.plan.devices = {{0, 2}};
  old.plan.coordinator_site = 0;
  return old;
}

const SearchOptions kOptions{.effort = 0.05};

TEST(WarmStart, a_better_plan_is_taken_where_it_pays_within_the_horizon) {
  const Topology topology = two_near_one_far();
  const Job job = unit_job(2, 8);
  const Result<WarmStart> moved = search_from(topology, job, kOptions, across(), Seconds(86400));
  ASSERT_TRUE(moved) << moved.error().text();
  ASSERT_TRUE(moved->old);
  EXPECT_FALSE(moved->kept);
  EXPECT_TRUE(moved->old_move.moves.empty());
  EXPECT_GT(moved->move.time, Seconds(0));
  const double step = moved->found.best.step.step.value();
  const double old_step = moved->old->step.step.value();
  EXPECT_LT(step * (1 + moved->move.time.value() / 86400), old_step);
  EXPECT_EQ(moved->pays_after, std::ceil(moved->move.time.value() / (old_step - step)));
  // A day is long: hardly worse than the best plan found by a search from scratch.
  const Result<SearchResult> fresh = search_plan(topology, job, kOptions);
  ASSERT_TRUE(fresh);
  EXPECT_LE(step, fresh->best.step.step.value() * 1.001);

  // In a microsecond nothing pays that takes longer.
  const Result<WarmStart> kept = search_from(topology, job, kOptions, across(), Seconds(1e-6));
  ASSERT_TRUE(kept) << kept.error().text();
  EXPECT_TRUE(kept->kept || kept->move.moves.empty());
  if (kept->kept) EXPECT_EQ(kept->found.best.plan.devices, across().plan.devices);
}

TEST(WarmStart, the_best_plan_itself_is_kept) {
  const Topology topology = two_near_one_far();
  const Job job = unit_job(2, 8);
  const Result<SearchResult> best = search_plan(topology, job, {.effort = 0.2});
  ASSERT_TRUE(best);
  const Result<WarmStart> from =
      search_from(topology, job, {.effort = 0.2}, {best->best.plan, {}, true}, Seconds(3600));
  ASSERT_TRUE(from) << from.error().text();
  EXPECT_LE(from->found.best.step.step, best->best.step.step);
  EXPECT_TRUE(from->kept || from->found.best.step.step < best->best.step.step);
}

TEST(WarmStart, a_plan_that_limits_forbid_is_not_kept) {
  const Topology topology = two_near_one_far();
  const Job job = unit_job(2, 8);
  SearchOptions options = kOptions;
  options.limits.stages = 1;
  const Result<WarmStart> from = search_from(topology, job, options, across(), Seconds(1e-6));
  ASSERT_TRUE(from) << from.error().text();
  EXPECT_TRUE(from->old);
  EXPECT_FALSE(from->kept);
  EXPECT_EQ(from->found.best.plan.stages(), 1);
}

TEST(WarmStart, devices_that_are_gone_are_replaced_by_the_best_idle_one) {
  Topology topology = unit_topology({0, 0, 1, 0});
  topology.devices[3].kind = 0;
  topology.devices[1].kind = 1;
  topology.kinds[1].rate.fill(flops_per_second(4));  // four times slower than the others
  set_link(topology, 0, 1, Seconds(10), bytes_per_second(100));
  const Job job = unit_job(2, 8);
  const Problem problem(topology, job);
  Plan old = across().plan;
  old.devices = {{0, kGone}};
  // Devices 1 (slow), 2 (far) and 3 are idle.
  const std::optional<Plan> plan = repaired(problem, old);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->devices, (std::vector<std::vector<int>>{{0, 3}}));
  EXPECT_EQ(plan->layers, old.layers);
  // One that is left out counts as gone, too.
  const Problem without(topology, job, {0, 1, 1, 1});
  const std::optional<Plan> other = repaired(without, old);
  ASSERT_TRUE(other);
  for (const int device : other->devices[0]) EXPECT_NE(device, 0);
}

TEST(WarmStart, pipelines_are_given_up_where_too_few_devices_are_idle) {
  const Topology topology = unit_topology({0, 0, 0});
  const Job job = unit_job(2, 8);
  const Problem problem(topology, job);
  Plan old = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {4, 4});
  old.devices = {{0, 1}, {2, kGone}};
  const std::optional<Plan> plan = repaired(problem, old);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->devices, (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_EQ(plan->micro_batches, (std::vector<int>{8}));
  // The first of both hit pipelines goes; what was left of it fills the other.
  old.devices = {{0, kGone}, {kGone, 1}};
  const std::optional<Plan> both = repaired(Problem(topology, job, {1, 1, 0}), old);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->devices, (std::vector<std::vector<int>>{{0, 1}}));
  old.devices = {{0, kGone}, {kGone, kGone}};
  EXPECT_FALSE(repaired(Problem(topology, job, {1, 0, 0}), old));
}

TEST(WarmStart, a_plan_file_may_name_devices_and_sites_that_are_gone) {
  const Topology before = unit_topology({0, 1, 2});
  const Job job = unit_job(2, 8);
  PlanFile file;
  file.plan = across().plan;
  file.plan.coordinator_site = 2;
  file.cluster_path = "cluster.yaml";
  file.job_path = "job.yaml";
  const std::string text = plan_text(file, before, job);
  const Topology after = unit_topology({0, 1});  // site c and its device are gone
  const Result<OldPlan> old = parse_old_plan(text, "old.yaml", after, job);
  ASSERT_TRUE(old) << old.error().text();
  EXPECT_EQ(old->gone, (std::vector<std::string>{"c-1/0"}));
  EXPECT_EQ(old->plan.devices, (std::vector<std::vector<int>>{{0, kGone}}));
  EXPECT_EQ(old->plan.coordinator_site, 0);
  const Result<WarmStart> from = search_from(after, job, kOptions, *old, Seconds(3600));
  ASSERT_TRUE(from) << from.error().text();
  ASSERT_TRUE(from->old);
  EXPECT_EQ(from->old->plan.devices, (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_FALSE(from->old_move.moves.empty());

  // What is wrong with the file is said as ever.
  const Result<OldPlan> other = parse_old_plan(text, "old.yaml", after, unit_job(3, 8));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInvalid);
  for (const char* bad : {"", "a", "pipelines: 3", "pipelines: [[[]]]", "- a", "coordinator: [a]"})
    EXPECT_FALSE(parse_old_plan(bad, "bad.yaml", after, job)) << bad;
}

}  // namespace
}  // namespace longhaul
