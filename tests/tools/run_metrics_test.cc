#include "tools/run_metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

/// Two stages, on sites a and b. Steps 10 to 99; the clock was at 0 at 1000 s.
RunSpec two_stages() {
  RunSpec spec;
  spec.id = 0xabc;
  spec.term = 2;
  spec.plan = fixtures::unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {2});
  spec.job = fixtures::unit_job(2, 4);
  spec.ranks = {{"coordinator", "n", 0}, {"n-1/0", "n-1", 0}, {"n-2/0", "n-2", 1}};
  spec.first_step = 10;
  spec.last_step = 100;
  return spec;
}
RunMetrics two_stage_metrics() {
  return RunMetrics(two_stages(),
                    {.run = "gpt-1", .unix_start = 1000, .now = Seconds(2.5), .sites = {"a", "b"}});
}

StepRecord step_record(std::uint64_t step) {
  StepRecord record;
  record.entry = {.term = 2, .step = step, .decision = Decision::kApply, .norm = 1.5, .loss = 2.5};
  record.learning_rate = 0.25;
  record.step_s = 0.75;
  record.tokens_per_s = 64;
  record.tokens = 48;
  record.links = {{"a", "b", 8000, 16000}};
  record.bytes_by_cell = {7000, 1000};
  record.parts = {.compute = 0.5, .wait = 0.25};
  return record;
}

void expect_lines(const RunMetrics& metrics, std::initializer_list<const char*> lines) {
  const std::string text = "\n" + metrics.text(MetricFormat::kPrometheus);
  for (const std::string line : lines) {
    EXPECT_TRUE(text.contains("\n" + line + "\n")) << line << text;
  }
}

TEST(RunMetrics, before_the_first_step_only_what_is_known_is_there) {
  const RunMetrics metrics = two_stage_metrics();
  expect_lines(metrics, {"longhaul_run_info{job=\"unit\",run=\"gpt-1\",run_id=\"0000000000000abc\","
                         "term=\"2\",pipelines=\"1\",stages=\"2\"} 1",
                         "longhaul_start_time_seconds 1002.5", "longhaul_step 10",
                         "longhaul_last_step 100", "longhaul_steps_total 0",
                         "longhaul_tokens_total 0", "longhaul_step_seconds_count 0",
                         "longhaul_workers 2", "longhaul_connected_workers 0"});
  const std::string text = metrics.text(MetricFormat::kPrometheus);
  for (const char* unknown :
       {"loss", "norm", "learning_rate", "checkpoint", "link_sent", "sequences_total"}) {
    EXPECT_FALSE(text.contains(unknown)) << unknown;
  }
}

TEST(RunMetrics, steps_are_counted_and_the_last_is_shown) {
  RunMetrics metrics = two_stage_metrics();
  metrics.set_connected(2);
  metrics.record(step_record(10));
  StepRecord skipped = step_record(11);
  skipped.entry.decision = Decision::kSkip;
  skipped.entry.loss = std::numeric_limits<double>::quiet_NaN();
  skipped.step_s = 1.5;
  skipped.histories = HistoryVisits{11, 1, 30, 2, 4};
  metrics.record(skipped);
  metrics.record(ValidationRecord{12, 3.5, Seconds(13)});
  metrics.record(CheckpointRecord{{2, 12}, Seconds(14)});
  for (int i = 0; i < 2; ++i) metrics.record(CodecRecord{.from_site = "a", .to_site = "b"});
  expect_lines(
      metrics,
      {"longhaul_step 12", "longhaul_steps_total 2", "longhaul_skipped_steps_total 1",
       "longhaul_tokens_total 96", "longhaul_train_loss NaN", "longhaul_validation_loss 3.5",
       "longhaul_gradient_norm 1.5", "longhaul_learning_rate 0.25", "longhaul_tokens_per_second 64",
       // 0.75 and 1.5 s
       "longhaul_step_seconds_bucket{le=\"0.5\"} 0", "longhaul_step_seconds_bucket{le=\"1.0\"} 1",
       "longhaul_step_seconds_bucket{le=\"2.5\"} 2", "longhaul_step_seconds_sum 2.25",
       "longhaul_part_seconds_total{part=\"compute\"} 1",
       "longhaul_part_seconds_total{part=\"wait\"} 0.5",
       "longhaul_part_seconds_total{part=\"update\"} 0", "longhaul_checkpoint_step 12",
       "longhaul_checkpoint_time_seconds 1014",
       "longhaul_link_sent_bytes_total{from=\"a\",to=\"b\"} 16000",
       "longhaul_worker_sent_bytes_total{rank=\"1\",device=\"n-1/0\",site=\"a\"} 14000",
       "longhaul_worker_sent_bytes_total{rank=\"2\",device=\"n-2/0\",site=\"b\"} 2000",
       "longhaul_history_sequences_total{sent=\"first\"} 1",
       "longhaul_history_sequences_total{sent=\"delta\"} 30",
       "longhaul_history_sequences_total{sent=\"whole\"} 2",
       "longhaul_history_sequences_total{sent=\"healed\"} 4",
       "longhaul_codec_changes_total{from=\"a\",to=\"b\"} 2", "longhaul_connected_workers 2"});
}

}  // namespace
}  // namespace longhaul
