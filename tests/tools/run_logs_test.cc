#include "tools/run_logs.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "executor/storage/sim_storage.h"

namespace longhaul {
namespace {

/// Step 7 of a run whose clock was at 0 at 1000 s: committed at 1012 s.
StepRecord step_record() {
  StepRecord step;
  step.entry = {.term = 1, .step = 7, .decision = Decision::kApply, .norm = 1.5, .loss = 2.5};
  step.when = Seconds(12);
  step.learning_rate = 0.25;
  step.step_s = 2;
  step.tokens_per_s = 64;
  step.tokens = 128;
  step.tokens_seen = 1024;
  step.links = {{"oslo", "new york", 8000, 16000}};
  step.parts = {.compute = 1, .wait = 0.5, .reduce = 0.25, .commit = 0.125, .update = 0.0625};
  return step;
}

class RunLogsTest : public testing::Test {
 protected:
  RunLogsTest() { EXPECT_TRUE(make_folders(storage_, "run")); }
  Result<RunLogs> open(std::uint32_t term = 1, std::uint64_t first_step = 0) {
    return RunLogs::open(storage_, {.folder = "run",
                                    .host = "host",
                                    .term = term,
                                    .first_step = first_step,
                                    .unix_start = 1000,
                                    .now = Seconds(0.5 + term)});
  }

  SimStorage storage_;
};

TEST_F(RunLogsTest, a_record_is_in_both_logs_at_once) {
  auto logs = open().value();
  ASSERT_TRUE(logs.write(step_record()));
  ASSERT_TRUE(logs.write(ValidationRecord{8, 3.5, Seconds(13)}));
  ASSERT_TRUE(logs.write(CheckpointRecord{{1, 8}, Seconds(14)}));        // has no curve
  ASSERT_TRUE(logs.write(CodecRecord{.step = 8, .when = Seconds(15)}));  // nor has this
  const std::vector<TensorboardScalar> validation = {{"loss/validation", 3.5}};
  EXPECT_EQ(storage_.bytes("run/tensorboard/events.out.tfevents.1001.host.term-1"),
            tensorboard_start(1001.5) +
                tensorboard_scalars(1012, 8, tensorboard_scalars_of(step_record())) +
                tensorboard_scalars(1013, 8, validation));
  EXPECT_EQ(storage_.bytes("run/metrics.jsonl"),
            metrics_line(step_record()) + metrics_line(ValidationRecord{8, 3.5, Seconds(13)}) +
                metrics_line(CheckpointRecord{{1, 8}, Seconds(14)}) +
                metrics_line(CodecRecord{.step = 8, .when = Seconds(15)}));
}

TEST_F(RunLogsTest, curves_have_the_names_that_people_look_for) {
  std::map<std::string, double> curves;
  for (const auto& [tag, value] : tensorboard_scalars_of(step_record())) curves[tag] = value;
  EXPECT_EQ(curves, (std::map<std::string, double>{{"loss/train", 2.5},
                                                   {"grad_norm", 1.5},
                                                   {"learning_rate", 0.25},
                                                   {"tokens_seen", 1024},
                                                   {"step_seconds", 2},
                                                   {"tokens_per_second", 64},
                                                   {"time/compute", 1},
                                                   {"time/wait", 0.5},
                                                   {"time/reduce", 0.25},
                                                   {"time/commit", 0.125},
                                                   {"time/update", 0.0625},
                                                   {"bytes/oslo to new york", 8000}}));
  // What is not known has no point.
  StepRecord first = step_record();
  first.step_s = first.tokens_per_s = std::nullopt;
  first.parts = std::nullopt;
  first.links.clear();
  EXPECT_EQ(tensorboard_scalars_of(first).size(), 4u);
}

TEST_F(RunLogsTest, a_resumed_run_voids_what_is_after_its_checkpoint) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(open(2, 100));
  EXPECT_TRUE(storage_.has("run/tensorboard/events.out.tfevents.1001.host.term-1"));
  // It begins with 100 steps done, so its first point stands at 101.
  EXPECT_EQ(storage_.bytes("run/tensorboard/events.out.tfevents.1002.host.term-2"),
            tensorboard_start(1002.5) + tensorboard_restart(1002.5, 101));
}

TEST_F(RunLogsTest, a_log_that_cannot_be_written_is_given_up_and_said_once) {
  auto logs = open().value();
  storage_.fail_at(storage_.operations() + 1);  // metrics.jsonl
  const auto failed = logs.write(ValidationRecord{1, 3.5, Seconds(1)});
  ASSERT_FALSE(failed);
  EXPECT_TRUE(failed.error().text().contains("metrics.jsonl")) << failed.error().text();
  EXPECT_TRUE(logs.write(ValidationRecord{2, 3.5, Seconds(2)}));
  // A failed write leaves some prefix, and nothing comes after it.
  const std::string whole = metrics_line(ValidationRecord{1, 3.5, Seconds(1)});
  EXPECT_TRUE(whole.starts_with(storage_.bytes("run/metrics.jsonl")));
  EXPECT_LT(storage_.bytes("run/metrics.jsonl").size(), whole.size());
  const std::vector<TensorboardScalar> loss = {{"loss/validation", 3.5}};
  EXPECT_EQ(storage_.bytes("run/tensorboard/events.out.tfevents.1001.host.term-1"),
            tensorboard_start(1001.5) + tensorboard_scalars(1001, 1, loss) +
                tensorboard_scalars(1002, 2, loss));
}

}  // namespace
}  // namespace longhaul
