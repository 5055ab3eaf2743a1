// The scene: two stages, one on site a and one on site b, 2000 tokens a step, 37 steps. Commits
// come 10, 11, 13, 15 and 17 s after the start, so the steps from the third on, which are typical,
// take 2 s.

#include "tools/run_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/core/fixtures.h"
#include "tools/run_result.h"

namespace longhaul {
namespace {

using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

RunReportInputs scene() {
  RunReportInputs in;
  in.topology = unit_topology({0, 1});
  in.plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {2});
  in.spec.plan = in.plan;
  in.spec.plan.devices = {{0, 0}};  // they mean nothing there
  in.spec.job = unit_job(2, 2000);
  in.spec.job.training.emplace();
  in.spec.job.training->decay = RateDecay::kConstant;
  in.spec.job.training->rate_max = 0.5;
  in.spec.validation.emplace();
  in.spec.last_step = 37;
  in.spec.train = {.fingerprint = 1, .tokens = 5001, .vocabulary = 2, .context = 1};
  in.start = Seconds(100);
  const auto tasklet = [](double compute, double transfer, double bubble, double reduce) {
    return TaskletTimes{.compute = Seconds(compute),
                        .transfer = Seconds(transfer),
                        .bubble = Seconds(bubble),
                        .reduce = Seconds(reduce),
                        .commit = Seconds(0.1),
                        .update = Seconds(0.2)};
  };
  in.predicted.step = Seconds(1.6);
  in.predicted.tasklets = {tasklet(0.5, 0.2, 0.3, 0.3), tasklet(0.9, 0.1, 0.1, 0.3)};
  return in;
}

JournalEntry entry(std::uint64_t step, double loss = 2.913) {
  return {.term = 1, .step = step, .decision = Decision::kApply, .norm = 1.5, .loss = loss};
}

/// Of the worker on a: 0.8 s of work. It sends 8 MB to b, 16 MB without codec.
Measured of_a(std::uint64_t step) {
  Measured m;
  m.step = step;
  m.compute = 0.6, m.wait = 0.3, m.reduce = 0.4, m.commit = 0.2, m.update = 0.2;
  m.sent = {{2, 8000000, 16000000}};
  return m;
}
/// Of the worker on b: 1.2 s of work. It sends 2 MB to a.
Measured of_b(std::uint64_t step) {
  Measured m;
  m.step = step;
  m.compute = 1.0, m.wait = 0.1, m.reduce = 0.4, m.commit = 0.1, m.update = 0.2;
  m.sent = {{1, 2000000, 2000000}};
  return m;
}

void run_five_steps(RunReport& report) {
  constexpr double kCommits[] = {110, 111, 113, 115, 117};
  for (std::uint64_t step = 0; step < 5; ++step) {
    report.committed(entry(step, step == 0 ? 5.5452 : 2.913), Seconds(kCommits[step]));
    report.measured(0, of_a(step));
    report.measured(1, of_b(step));
  }
}

std::string metrics_of(RunReport& report) {
  std::string lines;
  for (const RunRecord& record : report.take_records()) lines += metrics_line(record);
  return lines;
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    EXPECT_NE(end, std::string::npos) << "half a line";
    lines.push_back(json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

// ---- progress

TEST(RunReportProgress, a_line_says_where_the_run_stands) {
  // 2000 tokens in 2 s; 8 MB in 2 s; both workers work 1 s of 2 on average; four steps took 7 s, so
  // the 32 that are left take 56 s.
  RunReport report(scene());
  run_five_steps(report);
  EXPECT_EQ(report.progress_line(),
            "step 5/37  loss 2.913  1.0k tokens/s  4.0 MB/s a>b  exposed comm 50 %  ETA 56 s");
}

TEST(RunReportProgress, what_is_not_known_yet_is_left_out) {
  RunReport report(scene());
  EXPECT_EQ(report.progress_line(), "step 0/37");
  report.committed(entry(0), Seconds(110));
  EXPECT_EQ(report.progress_line(), "step 1/37  loss 2.913");
  // The second step warms up, but it is all there is: 2000 tokens in 1 s, 35 steps left.
  report.committed(entry(1), Seconds(111));
  EXPECT_EQ(report.progress_line(), "step 2/37  loss 2.913  2.0k tokens/s  ETA 35 s");
}

TEST(RunReportProgress, rates_of_an_emulated_run_are_emulated_and_the_eta_is_not) {
  // Dilation 4: a step of 2 s on the wall is 0.5 s.
  RunReportInputs in = scene();
  in.spec.emulation.emplace();
  in.spec.emulation->dilation = 4;
  RunReport report(std::move(in));
  run_five_steps(report);
  EXPECT_EQ(report.progress_line(),
            "step 5/37  loss 2.913  4.0k tokens/s  16.0 MB/s a>b  exposed comm 50 %  ETA 56 s");
}

TEST(RunReportProgress, a_skipped_step_says_so) {
  RunReport report(scene());
  JournalEntry skipped = entry(0, kNan);
  skipped.decision = Decision::kSkip;
  report.committed(skipped, Seconds(110));
  EXPECT_EQ(report.progress_line(), "step 1/37  loss nan (skipped)");
}

TEST(RunReportProgress, a_run_inside_one_site_has_no_busiest_link) {
  RunReportInputs in = scene();
  in.topology = unit_topology({0, 0});
  RunReport report(std::move(in));
  run_five_steps(report);
  EXPECT_EQ(report.progress_line(),
            "step 5/37  loss 2.913  1.0k tokens/s  exposed comm 50 %  ETA 56 s");
}

TEST(RunReportProgress, the_time_left_is_told_in_two_units) {
  const struct {
    double step_s;  // 35 steps are left
    std::string_view text;
  } cases[] = {
      {1, "ETA 35 s"},
      {130.0 / 35, "ETA 2 min 10 s"},
      {11100.0 / 35, "ETA 3 h 5 min"},
      {187200.0 / 35, "ETA 2 d 4 h"},
      {1e300, "ETA 11574 d 1 h"},  // no more than 1e9 s
  };
  for (const auto& at : cases) {
    RunReport report(scene());
    report.committed(entry(0), Seconds(0));
    report.committed(entry(1), Seconds(at.step_s));
    EXPECT_TRUE(report.progress_line().ends_with(at.text)) << report.progress_line();
  }
}

/// The steps, one every `interval`, at which a line is due.
std::vector<std::uint64_t> printed_steps(bool is_terminal, double interval) {
  RunReportInputs in = scene();
  in.is_terminal = is_terminal;
  RunReport report(std::move(in));
  EXPECT_FALSE(report.should_print(Seconds(0)));  // nothing to tell
  std::vector<std::uint64_t> printed;
  for (std::uint64_t step = 0; step < 37; ++step) {
    const Seconds now(static_cast<double>(step) * interval);
    report.committed(entry(step), now);
    if (!report.should_print(now)) continue;
    printed.push_back(step);
    EXPECT_FALSE(report.should_print(now + Seconds(1000)));  // nothing new
  }
  return printed;
}

TEST(RunReportProgress, lines_are_5_seconds_or_10_steps_apart_but_first_and_last_are_shown) {
  using Steps = std::vector<std::uint64_t>;
  EXPECT_EQ(printed_steps(false, 0.125), (Steps{0, 10, 20, 30, 36}));
  EXPECT_EQ(printed_steps(false, 1), (Steps{0, 5, 10, 15, 20, 25, 30, 35, 36}));
  EXPECT_EQ(printed_steps(false, 5).size(), 37u);
}

TEST(RunReportProgress, a_terminal_is_refreshed_ten_times_a_second) {
  // 1/32 s a step: 0.1 s have passed after four.
  const std::vector<std::uint64_t> printed = printed_steps(true, 0.03125);
  EXPECT_EQ(printed, (std::vector<std::uint64_t>{0, 4, 8, 12, 16, 20, 24, 28, 32, 36}));
}

// ---- metrics.jsonl

TEST(RunReportMetrics, a_step_has_its_line_when_all_workers_have_told) {
  RunReport report(scene());
  report.committed(entry(0), Seconds(110));
  report.measured(0, of_a(0));
  EXPECT_EQ(metrics_of(report), "");
  report.measured(1, of_b(0));
  // Means: compute (0.6 + 1) / 2, wait (0.3 + 0.1) / 2 and so on, to the bit of those sums.
  EXPECT_EQ(metrics_of(report),
            R"({"step":0,"loss":2.913,"norm":1.5,"learning_rate":0.5,"decision":"apply",)"
            R"("time_s":10.0,"step_s":null,"tokens_per_s":null,"links":[)"
            R"({"from":"a","to":"b","bytes_sent":8000000,"bytes_raw":16000000},)"
            R"({"from":"b","to":"a","bytes_sent":2000000,"bytes_raw":2000000}],)"
            R"("compute":0.8,"wait":0.2,"reduce":0.4,"commit":0.15000000000000002,"update":0.2})"
            "\n");
  EXPECT_EQ(metrics_of(report), "");
  report.committed(entry(1), Seconds(114));
  report.measured(1, of_b(1));
  report.measured(0, of_a(1));
  const std::vector<json> lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["time_s"], 14);
  EXPECT_EQ(lines[0]["step_s"], 4);
  EXPECT_EQ(lines[0]["tokens_per_s"], 500);
}

TEST(RunReportMetrics, a_worker_that_tells_nothing_holds_a_line_up_for_two_steps) {
  RunReport report(scene());
  report.committed(entry(0), Seconds(110));
  report.committed(entry(1), Seconds(111));
  for (std::uint64_t step = 0; step < 2; ++step) report.measured(0, of_a(step));
  EXPECT_EQ(metrics_of(report), "");
  report.committed(entry(2), Seconds(112));
  std::vector<json> lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["step"], 0);
  EXPECT_EQ(lines[0]["compute"], 0.6);
  EXPECT_EQ(lines[0]["links"].size(), 1u);
  // Step 2 has nothing of anybody. At the end the lines are written all the same.
  report.ended();
  lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1]["step"], 2);
  EXPECT_TRUE(lines[1]["compute"].is_null());
  EXPECT_TRUE(lines[1]["links"].empty());
  // What comes later still counts in the totals.
  report.measured(1, of_b(0));
  EXPECT_EQ(metrics_of(report), "");
  EXPECT_EQ(report.result({}).links.size(), 2u);
}

TEST(RunReportMetrics, lines_are_in_the_order_of_the_steps) {
  RunReport report(scene());
  report.committed(entry(0), Seconds(110));
  report.committed(entry(1), Seconds(111));
  report.measured(0, of_a(1));
  report.measured(1, of_b(1));
  report.measured(0, of_a(0));
  EXPECT_EQ(metrics_of(report), "");
  report.measured(1, of_b(0));
  const std::vector<json> lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 0);
  EXPECT_EQ(lines[1]["step"], 1);
}

TEST(RunReportMetrics, records_count_tokens_of_the_whole_run_and_what_each_worker_sent) {
  // 5000 sequences of one token, 2000 a step: the third step of an epoch has the last 1000.
  RunReportInputs in = scene();
  in.spec.first_step = 2;
  RunReport report(std::move(in));
  report.committed(entry(2), Seconds(110));
  report.committed(entry(3), Seconds(112));
  report.measured(0, of_a(2));
  report.measured(1, of_b(2));
  report.ended();
  const std::vector<RunRecord> records = report.take_records();
  ASSERT_EQ(records.size(), 2u);
  const auto& third = std::get<StepRecord>(records[0]);
  EXPECT_EQ(third.tokens, 1000);
  EXPECT_EQ(third.tokens_seen, 5000);
  EXPECT_EQ(third.when, Seconds(110));
  EXPECT_EQ(third.bytes_by_cell, (std::vector<std::uint64_t>{8000000, 2000000}));
  const auto& fourth = std::get<StepRecord>(records[1]);
  EXPECT_EQ(fourth.tokens, 2000);
  EXPECT_EQ(fourth.tokens_seen, 7000);
  EXPECT_EQ(fourth.bytes_by_cell, (std::vector<std::uint64_t>{0, 0}));
}

TEST(RunReportMetrics, links_are_sums_over_the_ranks_of_sites) {
  // Ranks 1 and 2 stand on a, 3 and 4 on b, the coordinator on a. What goes there is files: their
  // raw bytes are their bytes, though the worker counts none.
  RunReportInputs in = scene();
  in.topology = unit_topology({0, 0, 1, 1});
  in.plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1, 1});
  in.spec.plan = in.plan;
  RunReport report(std::move(in));
  report.committed(entry(0), Seconds(110));
  const std::vector<std::vector<Measured::Sent>> sent = {
      {{2, 10, 20}, {3, 1, 2}, {4, 3, 6}}, {{0, 7, 0}, {3, 5, 5}}, {{0, 100, 0}, {1, 30, 60}}, {}};
  for (int cell = 0; cell < 4; ++cell) {
    Measured m;
    m.sent = sent[static_cast<std::size_t>(cell)];
    report.measured(cell, m);
  }
  const std::vector<json> lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 1u);
  std::map<std::string, std::pair<int, int>> links;
  for (const json& link : lines[0]["links"]) {
    links[link["from"].get<std::string>() + link["to"].get<std::string>()] = {link["bytes_sent"],
                                                                              link["bytes_raw"]};
  }
  const std::map<std::string, std::pair<int, int>> expected = {
      {"aa", {17, 27}},     // 10 + 7, 20 + 7
      {"ab", {9, 13}},      // 1 + 3 + 5, 2 + 6 + 5
      {"ba", {130, 160}}};  // 100 + 30, 100 + 60
  EXPECT_EQ(links, expected);
}

TEST(RunReportMetrics, numbers_that_are_not_finite_are_null) {
  RunReport report(scene());
  JournalEntry skipped = entry(0, kNan);
  skipped.decision = Decision::kSkip;
  skipped.norm = kInfinity;
  report.committed(skipped, Seconds(110));
  Measured odd = of_a(0);
  odd.wait = -kInfinity;  // its times count for nothing
  report.measured(0, odd);
  report.measured(1, of_b(0));
  report.validated(1, kNan, Seconds(120));
  const std::vector<json> lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0]["loss"].is_null());
  EXPECT_TRUE(lines[0]["norm"].is_null());
  EXPECT_EQ(lines[0]["decision"], "skip");
  EXPECT_EQ(lines[0]["compute"], 1.0);
  EXPECT_TRUE(lines[1]["validation_loss"].is_null());
}

TEST(RunReportMetrics, validations_and_checkpoints_have_lines_of_their_own) {
  RunReport report(scene());
  report.validated(50, 2.25, Seconds(120));
  report.kept({2, 100}, Seconds(121));
  EXPECT_EQ(metrics_of(report),
            "{\"step\":50,\"validation_loss\":2.25}\n"
            "{\"step\":100,\"checkpoint\":\"term-000002-step-000000100\"}\n");
}

TEST(RunReportMetrics, histories_of_all_workers_are_in_the_steps_line_and_summed_up_at_the_end) {
  RunReport report(scene());
  report.committed(entry(0), Seconds(110));
  report.histories(0, {0, 8, 0, 0, 0});
  report.histories(1, {0, 0, 7, 1, 2});
  report.histories(2, {0, 100, 0, 0, 0});  // there is no such worker
  report.histories(0, {1, 100, 0, 0, 0});  // and no such step
  report.measured(0, of_a(0));
  report.measured(1, of_b(0));
  const json line = json::parse(metrics_of(report));
  EXPECT_EQ(line["histories"], json::parse(R"({"first":8,"deltas":7,"whole":1,"healed":2})"));
  // 7 and 1 of 16.
  EXPECT_NE(
      report.final_table({}).find(
          "\nactivations: 43.8 % of 16 sequences as differences to a history, 6.2 % whole for "
          "want of room, 2 asked for again\n"),
      std::string::npos)
      << report.final_table({});
  // A step without has no such key.
  report.committed(entry(1), Seconds(111));
  report.ended();
  EXPECT_FALSE(json::parse(metrics_of(report)).contains("histories"));
}

TEST(RunReportMetrics, a_codec_that_follows_its_link_is_told_and_has_a_line) {
  RunReportInputs in = scene();
  in.spec.emulation.emplace();
  in.spec.emulation->dilation = 2;
  in.spec.ranks = {{"coordinator", "a", 0}, {"n-1/0", "n-1", 0}, {"n-2/0", "n-2", 1}};
  RunReport report(std::move(in));
  const Recoded recoded = {12, 2, false, Codec::kInt8, Codec::kInt4, 2.6, 1.8};
  EXPECT_EQ(report.recoded(0, recoded, Seconds(120)),
            "step 12: n-1/0 sends activations to n-2/0 in int4 instead of int8: sending took 1.3 s "
            "beside 0.9 s of computing");
  EXPECT_EQ(
      metrics_of(report),
      "{\"step\":12,\"recoded\":{\"from\":\"n-1/0\",\"to\":\"n-2/0\",\"tensors\":"
      "\"activations\",\"before\":\"int8\",\"after\":\"int4\",\"busy\":1.3,\"compute\":0.9}}\n");
  // Of nobody: a worker that is not there, a peer that is not, the coordinator.
  EXPECT_EQ(report.recoded(2, recoded, Seconds(120)), "");
  for (const int peer : {0, 3}) {
    Recoded odd = recoded;
    odd.peer = peer;
    EXPECT_EQ(report.recoded(0, odd, Seconds(120)), "");
  }
  EXPECT_EQ(metrics_of(report), "");
}

TEST(RunReportMetrics, times_of_an_emulated_run_are_emulated) {
  RunReportInputs in = scene();
  in.spec.emulation.emplace();
  in.spec.emulation->dilation = 4;
  RunReport report(std::move(in));
  run_five_steps(report);
  const std::vector<json> lines = lines_of(metrics_of(report));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[4]["time_s"], 17.0 / 4);
  EXPECT_EQ(lines[4]["step_s"], 0.5);
  EXPECT_EQ(lines[4]["tokens_per_s"], 4000);
  EXPECT_NEAR(lines[4]["compute"].get<double>(), 0.8 / 4, 1e-15);
}

TEST(RunReportMetrics, what_is_of_no_worker_or_step_changes_nothing) {
  RunReport report(scene());
  report.committed(entry(0), Seconds(110));
  report.measured(-1, of_a(0));
  report.measured(2, of_a(0));
  Measured unknown_peers;
  unknown_peers.step = 0;
  unknown_peers.sent = {{-1, 5, 5}, {3, 5, 5}};
  report.measured(0, unknown_peers);
  report.measured(0, unknown_peers);  // again
  EXPECT_EQ(metrics_of(report), "");
  EXPECT_TRUE(report.result({}).links.empty());
}

// ---- which steps count

std::optional<double> measured_step(const RunReportInputs& in,
                                    const std::vector<double>& step_times,
                                    std::optional<std::size_t> kept_after = {}) {
  RunReport report(in);
  Seconds now(0);
  for (std::size_t step = 0; step < step_times.size(); ++step) {
    now += Seconds(step_times[step]);
    report.committed(entry(step), now);
    if (kept_after == step) report.kept({1, step}, Seconds(121));
  }
  return report.result({}).step_measured_s;
}

TEST(RunReportSteps, warm_up_and_the_step_behind_a_validation_do_not_count) {
  // Validation after 4 steps: within the time of step 4. The median of 10, 12, 11, 13.
  RunReportInputs in = scene();
  in.spec.job.training->validation_every = 4;
  EXPECT_EQ(measured_step(in, {500, 1, 10, 12, 50, 11, 13}), 11.5);
}

TEST(RunReportSteps, steps_do_not_count_while_a_checkpoint_is_fetched) {
  // Saved after 4 steps, kept between the commits of steps 5 and 6: steps 4, 5 and 6 are left out,
  // and 10, 12, 14 are in.
  RunReportInputs in = scene();
  in.spec.job.training->checkpoint_every = 4;
  EXPECT_EQ(measured_step(in, {500, 1, 10, 12, 50, 60, 70, 14}, 5), 12);
  // Kept at once: only step 4 is left out. The median of 10, 12, 60, 70, 14.
  EXPECT_EQ(measured_step(in, {500, 1, 10, 12, 50, 60, 70, 14}, 3), 14);
}

TEST(RunReportSteps, a_short_run_counts_what_it_has) {
  EXPECT_EQ(measured_step(scene(), {500, 3}), 3);
  EXPECT_EQ(measured_step(scene(), {500}), std::nullopt);
  EXPECT_EQ(measured_step(scene(), {}), std::nullopt);
  EXPECT_EQ(measured_step(scene(), {500, 0}), std::nullopt);  // a clock that stands tells nothing
}

// ---- timeline

/// A step that was measured exactly as it was simulated: on a wall twice as slow, by workers whose
/// clocks began at different times.
struct MeasuredStep {
  RunReportInputs in = scene();
  std::vector<Times> times;

  MeasuredStep() {
    in.spec.job.global_batch = 2;
    in.spec.timeline_step = 3;
    in.spec.emulation.emplace();
    in.spec.emulation->dilation = 2;
    in.predicted = simulate_step(in.topology, in.spec.job, in.plan, {.timeline = true}).value();
    const Schedule schedule = make_schedule(in.plan, in.spec.job);
    for (int cell = 0; cell < 2; ++cell) {
      Times of_cell;
      of_cell.step = 3;
      of_cell.origin_ns = cell == 0 ? 1'000'000'000 : 1'500'000'000;
      const double origin_s = cell == 0 ? 0 : 0.5;
      for (const Instruction& what :
           schedule.tasklets[static_cast<std::size_t>(cell)].instructions) {
        // Receives and the wait for the commit are not in the picture.
        std::pair<double, double> span = {0, 1};
        for (const TimelineSlice& slice : in.predicted.timeline) {
          if (slice.cell != cell || slice.op != what.op || slice.micro_batch != what.micro_batch) {
            continue;
          }
          span = {2 * slice.start.seconds().value() + 7 - origin_s,
                  2 * slice.end.seconds().value() + 7 - origin_s};
        }
        of_cell.spans.push_back(span);
      }
      times.push_back(std::move(of_cell));
    }
  }
};

/// Bars of a timeline by process, each `tid name ts dur args`, sorted.
std::map<int, std::multiset<std::string>> bars_of(const std::string& timeline) {
  std::map<int, std::multiset<std::string>> bars;
  for (json event : json::parse(timeline).at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int process = event.at("pid");
    event.erase("pid");
    bars[process].insert(event.dump());
  }
  return bars;
}

TEST(RunReportTimeline, a_step_measured_as_it_was_simulated_gives_the_same_picture) {
  const MeasuredStep step;
  RunReport report(step.in);
  for (int cell = 0; cell < 2; ++cell) {
    report.times(cell, step.times[static_cast<std::size_t>(cell)]);
  }
  const std::string timeline = report.timeline();
  auto bars = bars_of(timeline);
  // Processes: simulated a, simulated b, measured a, measured b. On a: 2 FWD, 2 BWD, UPDATE and 2
  // SEND_ACT; on b 2 SEND_GRAD in their place; a lone pipeline reduces nothing.
  ASSERT_EQ(bars.size(), 4u);
  EXPECT_EQ(bars[1].size(), 7u);
  EXPECT_EQ(bars[2].size(), 7u);
  EXPECT_EQ(bars[1], bars[3]);
  EXPECT_EQ(bars[2], bars[4]);
  for (const std::string name : {"simulated a", "simulated b", "measured a", "measured b"}) {
    EXPECT_TRUE(timeline.contains("{\"name\":\"" + name + "\"}")) << name;
  }
}

TEST(RunReportTimeline, a_worker_that_did_not_tell_is_left_out) {
  const MeasuredStep step;
  RunReport report(step.in);
  report.times(1, step.times[1]);
  auto bars = bars_of(report.timeline());
  EXPECT_FALSE(bars.contains(3));
  // The step begins where its first known instruction does: FWD 0 of stage 1 after 1 s.
  ASSERT_TRUE(bars.contains(4));
  EXPECT_EQ(bars[4].size(), bars[2].size());
  RunReport none(step.in);
  EXPECT_EQ(bars_of(none.timeline()).size(), 2u);
}

TEST(RunReportTimeline, times_that_make_no_sense_are_left_out) {
  const MeasuredStep step;
  Times short_one = step.times[0];
  short_one.spans.pop_back();
  Times other_step = step.times[0];
  other_step.step = 4;
  for (const Times& bad : {short_one, other_step}) {
    RunReport report(step.in);
    report.times(0, bad);
    report.times(7, step.times[0]);
    EXPECT_EQ(bars_of(report.timeline()).size(), 2u);
  }
  // One worker's clock is 500 years ahead, and some spans of the other's are no spans.
  Times ahead = step.times[1];
  ahead.origin_ns = std::numeric_limits<std::uint64_t>::max();
  Times odd = step.times[0];
  odd.spans[0] = {kNan, 1};
  odd.spans[1] = {5, kInfinity};
  odd.spans[2] = {5, 4};
  RunReport report(step.in);
  report.times(0, odd);
  report.times(1, ahead);
  auto bars = bars_of(report.timeline());
  EXPECT_EQ(bars[3].size(), bars[1].size() - 3);
  EXPECT_FALSE(bars.contains(4));
}

// ---- the end

TEST(RunReportEnd, the_table_shows_predicted_beside_measured) {
  RunReportInputs in = scene();
  in.bigram_loss = 2.416;
  RunReport report(std::move(in));
  run_five_steps(report);
  report.validated(5, 2.25, Seconds(120));
  report.ended();
  // Predicted wait is transfer + bubble; measured wait is what the other parts leave of 2 s: 0.6
  // and 0.3. 2 s / 1.6 s = 1.25.
  EXPECT_EQ(report.final_table(0.0042),
            "step: predicted 1.6 s, measured 2 s (median of 3), ratio 1.250\n"
            "where the step goes, predicted / measured (a stage's pipelines averaged)\n"
            "  stage          compute             wait           reduce           commit"
            "           update\n"
            "  0      500 ms / 600 ms  500 ms / 600 ms  300 ms / 400 ms  100 ms / 200 ms"
            "  200 ms / 200 ms\n"
            "  1         900 ms / 1 s  200 ms / 300 ms  300 ms / 400 ms  100 ms / 100 ms"
            "  200 ms / 200 ms\n"
            "links, a step (from = to: inside a site)\n"
            "  from  to  raw MB  sent MB\n"
            "  a      b  16.000    8.000\n"
            "  b      a   2.000    2.000\n"
            "loss 5.5452 -> 2.9130 in 5 steps\n"
            "validation loss 2.2500, of a bigram model 2.4160\n"
            "1.0k tokens/s\n"
            "late: 0.42 % of what was emulated\n");
}

TEST(RunReportEnd, a_run_that_told_nothing_has_a_table_of_what_was_predicted) {
  RunReport report(scene());
  EXPECT_EQ(report.final_table({}), "step: predicted 1.6 s\n");
  report.committed(entry(0), Seconds(110));
  EXPECT_EQ(report.final_table({}),
            "step: predicted 1.6 s\n"
            "loss 2.9130 -> 2.9130 in 1 step\n");
}

TEST(RunReportEnd, the_result_has_the_totals_of_the_run) {
  RunReportInputs in = scene();
  in.bigram_loss = 2.416;
  in.spec.emulation.emplace();
  in.spec.emulation->dilation = 4;
  RunReport report(std::move(in));
  run_five_steps(report);
  report.validated(3, 3.5, Seconds(120));
  report.validated(5, 2.25, Seconds(120));
  report.ended();
  RunResult expected;
  expected.steps = 5;
  // Two layers of 16, the final norm's 2, token and position embedding of one each, and a head.
  expected.parameters = 37;
  expected.loss_first = 5.5452;
  expected.loss_last = 2.913;
  expected.validation_loss = 2.25;
  expected.bigram_loss = 2.416;
  expected.tokens_per_s = 4000;  // 2000 in 2 s / 4
  expected.step_predicted_s = 1.6;
  expected.step_measured_s = 0.5;
  expected.late_fraction = 0.001;
  expected.links = {{"a", "b", 80000000, 40000000}, {"b", "a", 10000000, 10000000}};
  EXPECT_EQ(report.result(0.001), expected);
}

RunResult sample_result() {
  RunResult result;
  result.steps = 250;
  result.parameters = 1600000;
  result.loss_first = 5.5;
  result.loss_last = 2.25;
  result.validation_loss = 2.3;
  result.bigram_loss = 2.416;
  result.tokens_per_s = 4096;
  result.step_predicted_s = 1;
  result.step_measured_s = 1.125;
  result.late_fraction = 0.001;
  result.links = {{"a", "São \"b\"", 80, 40}, {"b", "b", 0, 0}};
  return result;
}

TEST(RunResultText, comes_back_as_it_was) {
  for (const RunResult& result : {sample_result(), RunResult{}}) {
    const std::string text = result_text(result);
    const auto read = parse_result(text, "result.json");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(*read, result);
    EXPECT_EQ(result_text(*read), text);
  }
}

TEST(RunResultText, numbers_that_are_not_finite_and_names_that_are_not_utf8_leave_valid_json) {
  RunResult result = sample_result();
  result.loss_last = kNan;
  result.tokens_per_s = kInfinity;
  result.links[0].from = "\xff";
  const auto read = parse_result(result_text(result), "result.json");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->loss_last, std::nullopt);
  EXPECT_EQ(read->tokens_per_s, std::nullopt);
  EXPECT_TRUE(json::accept(summary_text(result, &result)));
}

TEST(RunResultText, what_is_no_result_is_refused_by_name) {
  const json good = json::parse(result_text(sample_result()));
  const auto with = [&](const std::string& path, const json& value) {
    json bad = good;
    bad[json::json_pointer(path)] = value;
    return bad.dump();
  };
  const auto without = [&](const std::string& key) {
    json bad = good;
    bad.erase(key);
    return bad.dump();
  };
  const struct {
    std::string text;
    std::string says;
  } cases[] = {
      {"", "no JSON object"},
      {"[]", "no JSON object"},
      {"{", "no JSON object"},
      {"{}", "`schema` is missing"},
      {with("/schema", "longhaul/result/2"), "its schema is not longhaul/result/1"},
      {with("/steps", -1), "`steps` is no whole number"},
      {with("/steps", 1.5), "`steps` is no whole number"},
      {with("/loss_last", "2"), "`loss_last` is no number"},
      {without("loss_last"), "`loss_last` is missing"},
      {without("links"), "`links` is missing"},
      {with("/links", 3), "`links` is no list"},
      {with("/links/1", 3), "`from` is missing"},
      {with("/links/0/to", 3), "`to` is no text"},
      {with("/links/0/bytes_sent", nullptr), "`bytes_sent` is no whole number"},
  };
  for (const auto& at : cases) {
    const auto read = parse_result(at.text, "run/result.json");
    ASSERT_FALSE(read) << at.text;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(read.error().message.starts_with("run/result.json is no ")) << at.text;
    EXPECT_TRUE(read.error().message.contains(at.says)) << read.error().message;
    EXPECT_FALSE(read.error().hint.empty());
  }
}

TEST(RunSummary, puts_two_runs_side_by_side) {
  const RunResult plan = sample_result();
  RunResult rank_order = sample_result();
  rank_order.step_predicted_s = 3;
  rank_order.step_measured_s = 3.5;
  rank_order.late_fraction = 0.02;  // the larger of the two
  rank_order.loss_last = 9;
  EXPECT_EQ(summary_text(plan, &rank_order), R"({
  "steps": 250,
  "parameters": 1600000,
  "loss_first": 5.5,
  "loss_last": 2.25,
  "validation_loss": 2.3,
  "bigram_loss": 2.416,
  "tokens_per_s": 4096.0,
  "step_s": {
    "plan": {
      "predicted": 1.0,
      "measured": 1.125
    },
    "rank_order": {
      "predicted": 3.0,
      "measured": 3.5
    }
  },
  "late_fraction": 0.02,
  "links": [
    {
      "from": "a",
      "to": "São \"b\"",
      "bytes_raw": 80,
      "bytes_sent": 40
    },
    {
      "from": "b",
      "to": "b",
      "bytes_raw": 0,
      "bytes_sent": 0
    }
  ]
}
)");
}

TEST(RunSummary, of_one_run_has_no_other) {
  const json summary = json::parse(summary_text(sample_result(), nullptr));
  EXPECT_FALSE(summary["step_s"].contains("rank_order"));
  EXPECT_EQ(summary["step_s"]["plan"]["measured"], 1.125);
  EXPECT_EQ(summary["late_fraction"], 0.001);
}

}  // namespace
}  // namespace longhaul
