#include "core/history_budget.h"

#include <gtest/gtest.h>

#include "core/plan.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Three stages; a history is of 10 x 13 numbers, 260 bytes.
struct Case {
  Case() : job(unit_job(3, 4)), plan(unit_plan(ScheduleFamily::kOneForwardOneBackward, 3, {4})) {
    job.model.context = 10;
    job.model.width = 13;
    job.activations = Codec::kAqInt3;
    job.history.emplace();
    job.history->memory = bytes(4 * 260);
    job.history->disk = bytes(6 * 260);
  }
  std::vector<BoundaryHistory> histories(const std::vector<int>& sites, std::int64_t samples) {
    return boundary_histories(plan, job, 0, sites, samples);
  }
  Job job;
  Plan plan;
};

TEST(HistoryBudget, a_stage_shares_its_room_among_its_boundaries) {
  Case c;
  EXPECT_EQ(history_bytes(c.job.model), bytes(260));
  // The middle stage has two: room for 5 of each, 2 in memory. The others could keep 10 and 4.
  const BoundaryHistory first = {100, 5, {4, 2}};
  const BoundaryHistory second = {100, 5, {2, 4}};
  EXPECT_EQ(c.histories({0, 1, 2}, 100), (std::vector{first, second}));
  // One of them inside a site.
  const BoundaryHistory alone = {100, 10, {4, 4}};
  EXPECT_EQ(c.histories({0, 0, 1}, 100), (std::vector{BoundaryHistory{}, alone}));
  const HistoryUse use = history_use(c.job.model, {first, second}, 1);
  EXPECT_EQ(use.memory, bytes(4 * 260));
  EXPECT_EQ(use.disk, bytes(6 * 260));
  EXPECT_EQ(history_use(c.job.model, {first, second}, 2).disk, bytes(260));
}

TEST(HistoryBudget, no_more_is_kept_than_comes) {
  Case c;
  EXPECT_EQ(c.histories({0, 1, 1}, 3)[0], (BoundaryHistory{3, 3, {3, 3}}));
  // Of 9 samples in batches of 4, three rows; a pipeline with one of the four slots sees one of
  // each.
  c.plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 3, {1, 3});
  EXPECT_EQ(c.histories({0, 1, 1}, 9)[0].samples, 3);
  EXPECT_EQ(boundary_histories(c.plan, c.job, 1, {0, 1, 1}, 9)[0].samples, 9);
  EXPECT_EQ(c.histories({0, 1, 1}, kUnknownSamples)[0].capacity, 10);
}

TEST(HistoryBudget, codecs_without_a_history_keep_none) {
  Case c;
  c.job.activations = Codec::kInt8;
  EXPECT_EQ(c.histories({0, 1, 2}, 100), (std::vector<BoundaryHistory>(2)));
  c.plan.activation_codecs = {{1, 2, Codec::kAqInt2}};
  EXPECT_EQ(c.histories({0, 1, 2}, 100)[0], BoundaryHistory{});
  EXPECT_EQ(c.histories({0, 1, 2}, 100)[1].capacity, 10);
  EXPECT_TRUE(
      boundary_histories(unit_plan(ScheduleFamily::kGpipe, 1, {4}), c.job, 0, {0}, 9).empty());
}

TEST(HistoryBudget, samples_are_what_the_job_says_or_its_steps_can_see) {
  Case c;
  EXPECT_EQ(samples_at_most(c.job), kUnknownSamples);
  c.job.training.emplace();
  c.job.training->steps = 7;
  EXPECT_EQ(samples_at_most(c.job), 28);
  EXPECT_EQ(hit_rate(c.job, {28, 10, {}}), 1);  // 28 may be three visits of each
  c.job.history->samples = 20;
  EXPECT_EQ(samples_at_most(c.job), 20);
  EXPECT_EQ(hit_rate(c.job, {20, 10, {}}), 0.5);
  EXPECT_EQ(hit_rate(c.job, {}), 1);
}

TEST(HistoryBudget, memory_counts_what_lies_in_ram) {
  Case c;
  const Topology topology = unit_topology({0, 1, 2});
  const auto memory = memory_of(c.plan, topology, c.job);
  EXPECT_EQ(memory[0].history, bytes(4 * 260));
  EXPECT_EQ(memory[0].history_on_disk, bytes(1 * 260));
  EXPECT_EQ(memory[1].history_on_disk, bytes(6 * 260));
  c.job.history.reset();
  c.job.activations = Codec::kInt8;
  const auto without = memory_of(c.plan, topology, c.job);
  EXPECT_EQ(memory[0].total() - memory[0].buffers,
            without[0].total() - without[0].buffers + bytes(4 * 260));
}

TEST(HistoryBudget, a_device_without_room_is_told_so) {
  Case c;
  Topology topology = unit_topology({0, 1, 2});
  const auto memory = memory_of(c.plan, topology, c.job);
  topology.kinds[1].memory = memory[1].total();
  EXPECT_TRUE(check_memory(c.plan, topology, c.job));
  topology.kinds[1].memory = memory[1].total() - bytes(1);
  const Result<void> checked = check_memory(c.plan, topology, c.job);
  ASSERT_FALSE(checked);
  EXPECT_TRUE(checked.error().text().contains("histories")) << checked.error().text();
}

}  // namespace
}  // namespace longhaul
