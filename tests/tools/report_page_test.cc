// The page of a report: it loads nothing, lets nothing in but its own blocks, and reads the files
// behind it with care.

#include <gtest/gtest.h>

#include "tests/tools/report_fixtures.h"
#include "tools/report/page.h"
#include "tools/report/run_data.h"
#include "tools/report/sweep_file.h"

namespace longhaul {
namespace {

constexpr ChartLibrary kLibrary = {"/* a licence */ function uPlot() {}", ".u-line{fill:none}"};

std::string between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t found = text.find(begin);
  EXPECT_NE(found, text.npos) << begin;
  if (found == text.npos) return "";
  const std::size_t from = found + begin.size();
  return std::string(text.substr(from, text.find(end, from) - from));
}

Page sample_page(std::size_t steps) {
  const fixtures::SmallStep small;
  const Planned planned = {small.topology, small.job, small.plan};
  Page page;
  page.title = "tiny on <small> & \"quoted\"";
  page.subtitle = "</title><script>alert(1)</script>";
  page.tiles = {{"Step", "10 s", "simulated"}};
  page.items.push_back({map_picture(planned, small.step, {}), {{"link"}, {"<a>"}}});
  page.items.push_back({gantt_picture(planned, small.step, {})});
  page.plan = "a plan with <angles>";
  page.assumptions = {"assumed: \"a\" < b"};
  page.inputs = {{"", "file"}, {"plan", "<plan>.yaml"}};
  if (steps == 0) return page;
  SeriesChart chart{.id = "loss", .heading = "Loss", .unit = "nats", .lines = {}, .levels = {}};
  chart.lines.push_back({"training", {}, false});
  for (std::size_t i = 0; i < steps; ++i) chart.lines[0].points.push_back({double(i), 1.5});
  chart.levels.push_back({"a bigram model", 2.25});
  page.items.push_back({series_picture(chart)});
  page.series.push_back(chart);
  return page;
}

TEST(ReportPage, hashes_are_those_of_openssl_and_everybody) {
  EXPECT_EQ(policy_hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
  EXPECT_EQ(policy_hash("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
}

TEST(ReportPage, its_policy_lets_in_its_own_style_and_script_alone) {
  const std::string html = page_html(sample_page(5), kLibrary);
  const std::string policy = between(html, "Content-Security-Policy\" content=\"", "\"");
  const std::string style = between(html, "<style>", "</style>");
  const std::string script = between(html, "<script>", "</script>");
  EXPECT_EQ(policy, "default-src 'none'; style-src '" + policy_hash(style) +
                        "'; img-src data:; base-uri 'none'; form-action 'none'; script-src '" +
                        policy_hash(script) + "'");
  EXPECT_TRUE(style.contains(".u-line{fill:none}"));
  EXPECT_TRUE(script.starts_with("/* a licence */ function uPlot() {}")) << script.substr(0, 60);
}

TEST(ReportPage, nothing_has_a_style_or_a_handler_of_its_own_and_nothing_is_loaded) {
  for (const std::size_t steps : {0u, 5u}) {
    const std::string html = page_html(sample_page(steps), {});
    for (const std::string_view part : {" style=", " onload", " onclick", "http:", "https:", "src=",
                                        "@import", "url(http", "unsafe-inline", "<script"})
      EXPECT_FALSE(html.contains(part)) << part;
    // References go to parts of the page itself.
    for (std::size_t at = html.find("href="); at != html.npos; at = html.find("href=", at + 1))
      EXPECT_TRUE(html.substr(at).starts_with("href=\"data:,\"")) << html.substr(at, 40);
  }
}

TEST(ReportPage, names_are_escaped_everywhere) {
  const std::string html = page_html(sample_page(0), {});
  EXPECT_FALSE(html.contains("alert(1)</script>"));
  EXPECT_FALSE(html.contains("<small>"));
  EXPECT_FALSE(html.contains("<angles>"));
  EXPECT_FALSE(html.contains("<plan>"));
  EXPECT_TRUE(html.contains("<title>tiny on &lt;small&gt; &amp; &quot;quoted&quot;</title>"));
}

TEST(ReportPage, without_a_chart_library_the_picture_is_all_there_is) {
  const std::string html = page_html(sample_page(5), {});
  EXPECT_FALSE(html.contains("series-data"));
  EXPECT_TRUE(html.contains("<svg id=\"loss\""));
}

TEST(ReportPage, the_chart_library_gets_each_series_and_the_picture_stays_for_who_has_no_script) {
  const std::string html = page_html(sample_page(3), kLibrary);
  EXPECT_TRUE(html.contains("<svg id=\"loss\""));
  EXPECT_EQ(between(html, "id=\"series-data\">", "</script>"),
            "[{\"id\":\"loss\",\"unit\":\"nats\",\"zero\":false,\"lines\":[[\"training\",false],"
            "[\"a bigram model\",null]],\"data\":[[0,1,2],[1.5,1.5,1.5],[2.25,2.25,2.25]]}]");
  EXPECT_TRUE(html.contains("<figure class=\"card\" id=\"loss-card\">"));
}

TEST(ReportPage, a_page_without_series_has_no_script) {
  EXPECT_FALSE(page_html(sample_page(0), kLibrary).contains("<script"));
}

TEST(ReportPage, a_million_steps_stay_below_two_megabytes) {
  EXPECT_LT(page_html(sample_page(1'000'000), kLibrary).size(), 2'000'000u);
}

TEST(ReportPage, the_same_page_has_the_same_bytes) {
  EXPECT_EQ(page_html(sample_page(5)), page_html(sample_page(5)));
}

TEST(ReportPage, what_the_build_put_in_is_there) {
  EXPECT_TRUE(coastlines().starts_with("# Coastlines")) << coastlines().substr(0, 20);
  EXPECT_TRUE(page_style().contains("prefers-color-scheme: dark"));
  EXPECT_TRUE(page_script().contains("new uPlot"));
  // Both or neither; the script brings its licence along.
  EXPECT_EQ(chart_library().script.empty(), chart_library().style.empty());
  if (!chart_library().script.empty()) {
    EXPECT_TRUE(chart_library().script.contains("Permission is hereby granted"));
    EXPECT_FALSE(chart_library().script.contains("</script"));
  }
}

// ---- the files of a run

constexpr std::string_view kResult = R"({"schema":"longhaul/result/1","steps":3,"parameters":10,
"loss_first":5,"loss_last":4,"validation_loss":null,"bigram_loss":2.5,"tokens_per_s":100,
"step_predicted_s":1,"step_measured_s":1.1,"late_fraction":null,"links":[]})";

constexpr std::string_view kMetrics =
    R"({"step":0,"loss":5,"step_s":null,"compute":1}
{"step":1,"loss":4.5,"step_s":2,"tokens_per_s":50,"compute":1,"reduce":0.5,"commit":0.1,"update":0.1}
{"step":2,"loss":4,"step_s":1,"tokens_per_s":100,"compute":0.5,"reduce":0.2,"commit":0.1,"update":0.1}
{"step":3,"loss":null,"step_s":9,"tokens_per_s":11,"compute":9}
{"step":4,"loss":null,"step_s":3,"tokens_per_s":34,"compute":1.5,"reduce":0.4,"commit":0.3,"update":0.1}
{"step":3,"validation_loss":4.25}
{"step":3,"checkpoint":"term-1-step-3"}
{"step":2,"loss":3.5,"step_s":1,"tokens_per_s":100,"compute":0.5,"reduce":0.2,"commit":0.1,"update":0.1}
)";

std::string timeline_of(std::string_view event) {
  return R"({"traceEvents":[
{"ph":"M","name":"process_name","pid":1,"args":{"name":"simulated a"}},
{"ph":"M","name":"process_name","pid":3,"args":{"name":"measured a"}},
)" + std::string(event) +
         "]}";
}

Result<RunData> run_from(std::string_view result, std::string_view metrics,
                         std::string_view timeline) {
  const fixtures::SmallStep small;
  return parse_run({std::string(result), std::string(metrics), std::string(timeline)}, "runs/x",
                   small.topology, small.plan);
}

TEST(ReportRun, metrics_become_series_and_a_step_that_was_made_twice_counts_once) {
  const auto run = run_from(kResult, kMetrics, "");
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->loss, (std::vector<Point>{{0, 5}, {1, 4.5}, {2, 3.5}}));
  EXPECT_EQ(run->validation, (std::vector<Point>{{3, 4.25}}));
  EXPECT_EQ(run->step_s, (std::vector<Point>{{1, 2}, {2, 1}, {3, 9}, {4, 3}}));
  // Steps 2 and 4 are typical: the first two warm up, the validation falls into step 3. Compute is
  // (0.5 + 1.5) / 2, and what is left of each step, 0.1 and 0.7, is waiting.
  ASSERT_TRUE(run->parts);
  EXPECT_DOUBLE_EQ(run->parts->compute, 1);
  EXPECT_NEAR(run->parts->wait, 0.4, 1e-12);
  EXPECT_NEAR(run->parts->total(), 2, 1e-12);
}

TEST(ReportRun, a_last_line_that_is_cut_off_is_left_out) {
  const auto run = run_from(kResult, "{\"step\":0,\"loss\":5}\n{\"step\":1,\"lo", "");
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(run->loss.size(), 1u);
}

TEST(ReportRun, slices_of_the_measured_step_come_back) {
  // Thread 5 is the compute lane of the second tasklet, 6 its sends of activations.
  const auto run =
      run_from(kResult, kMetrics,
               timeline_of(
                   R"({"ph":"X","name":"FWD 1","pid":3,"tid":5,"ts":1.5,"dur":2,"args":{}},
{"ph":"X","name":"SEND_ACT 1","pid":3,"tid":6,"ts":4,"dur":1,"args":{"to":"a-1/0"}},
{"ph":"X","name":"REDUCE","pid":3,"tid":8,"ts":5,"dur":1,"args":{}},
{"ph":"X","name":"FWD 1","pid":1,"tid":5,"ts":0,"dur":1,"args":{}})"));
  ASSERT_TRUE(run) << run.error().text();
  ASSERT_EQ(run->measured.size(), 3u);
  EXPECT_EQ(run->measured[0].op, Op::kForward);
  EXPECT_EQ(run->measured[0].micro_batch, 1);
  EXPECT_EQ(run->measured[0].cell, 1);
  EXPECT_EQ(run->measured[0].peer, -1);
  EXPECT_EQ(run->measured[0].start.picoseconds(), 1'500'000);
  EXPECT_EQ(run->measured[0].end.picoseconds(), 3'500'000);
  EXPECT_EQ(run->measured[1].peer, 0);
  EXPECT_EQ(run->measured[2].micro_batch, -1);
}

TEST(ReportRun, events_that_fit_no_tasklet_of_the_plan_are_left_out) {
  for (const std::string_view event :
       {R"({"ph":"X","name":"FWD 1","pid":3,"tid":9,"ts":0,"dur":1})",  // a third tasklet
        R"({"ph":"X","name":"FWD 1","pid":3,"tid":0,"ts":0,"dur":1})",
        R"({"ph":"X","name":"FLY 1","pid":3,"tid":1,"ts":0,"dur":1})",
        R"({"ph":"X","name":"FWD x","pid":3,"tid":1,"ts":0,"dur":1})",
        R"({"ph":"X","name":"FWD 99999999999","pid":3,"tid":1,"ts":0,"dur":1})",
        R"({"ph":"X","name":"FWD 1","pid":3,"tid":1,"ts":-1,"dur":1})",
        R"({"ph":"X","name":"FWD 1","pid":3,"tid":1,"ts":1e300,"dur":1})",
        R"({"ph":"X","name":"FWD 1","pid":3,"tid":1,"ts":0,"dur":1e300})",
        R"({"ph":"X","name":"FWD 1","pid":3,"tid":1e99,"ts":0,"dur":1})",
        R"({"ph":"X","name":"FWD 1","pid":7,"tid":1,"ts":0,"dur":1})",
        R"({"ph":"X","name":"FWD 1","tid":1,"ts":0,"dur":1})",
        R"({"ph":"B","name":"FWD 1","pid":3,"tid":1,"ts":0,"dur":1})",
        R"({"ph":"X","name":"SEND_ACT 1","pid":3,"tid":2,"ts":0,"dur":1,"args":{"to":"who"}})"}) {
    const auto run = run_from(kResult, kMetrics, timeline_of(event));
    ASSERT_TRUE(run) << event << run.error().text();
    EXPECT_TRUE(run->measured.empty()) << event;
  }
}

TEST(ReportRun, each_file_that_is_something_else_is_named) {
  struct Row {
    std::string result, metrics, timeline, says;
  };
  const Row rows[] = {
      {"{}", "", "", "runs/x/result.json is no result of a run"},
      {std::string(kResult), "{\"step\":0}\n[]\n{\"step\":1}\n", "", "runs/x/metrics.jsonl:2:"},
      {std::string(kResult), "{\"loss\":0}\n", "", "runs/x/metrics.jsonl:1:"},
      {std::string(kResult), "", "[]", "runs/x/timeline.json is no timeline"},
      {std::string(kResult), "", "{\"traceEvents\":{}}", "runs/x/timeline.json is no timeline"},
      {std::string(kResult), "", "{\"traceEvents\":[1]}", "runs/x/timeline.json is no timeline"},
  };
  for (const Row& row : rows) {
    const auto run = run_from(row.result, row.metrics, row.timeline);
    ASSERT_FALSE(run) << row.says;
    EXPECT_EQ(run.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(run.error().text().contains(row.says)) << run.error().text();
  }
}

// ---- tables of what-ifs

constexpr std::string_view kSweep = R"({"version":1,"axis":"link bandwidth","unit":"ms","log":true,
"rows":[{"change":"as it is","step_s":3,"tokens_per_s":10,"binding":"compute","replanned":false},
{"change":"10","x":10,"step_s":2,"tokens_per_s":15,"usd_per_billion_tokens":null,"binding":"a",
"replanned":true},{"change":"1","x":1,"problem":"too small"}]})";

TEST(ReportSweepFile, a_table_comes_back_as_it_was_printed) {
  const auto table = parse_sweep(kSweep, "sweep.json");
  ASSERT_TRUE(table) << table.error().text();
  EXPECT_EQ(table->axis, "link bandwidth");
  EXPECT_EQ(table->unit, "ms");
  EXPECT_TRUE(table->is_log);
  ASSERT_EQ(table->rows.size(), 3u);
  EXPECT_FALSE(table->rows[0].x);
  EXPECT_EQ(table->rows[1].x, 10);
  EXPECT_EQ(table->rows[1].step.value(), 2);
  EXPECT_FALSE(table->rows[1].usd_per_billion_tokens);
  EXPECT_TRUE(table->rows[1].replanned);
  EXPECT_EQ(table->rows[2].problem, "too small");
}

TEST(ReportSweepFile, each_wrong_field_is_named_with_its_row) {
  const std::pair<std::string_view, std::string_view> rows[] = {
      {"[]", "it is no JSON object"},
      {"{\"version\":2,\"rows\":[{\"change\":\"a\",\"step_s\":1}]}", "`version` is not 1"},
      {"{\"rows\":[{\"change\":\"a\",\"step_s\":1}]}", "`version` is missing"},
      {"{\"version\":1}", "`rows` is no list"},
      {"{\"version\":1,\"rows\":[]}", "`rows` is no list"},
      {"{\"version\":1,\"rows\":[3]}", "row 1: it is no object"},
      {"{\"version\":1,\"log\":1,\"rows\":[{\"change\":\"a\",\"step_s\":1}]}", "`log` is neither"},
      {"{\"version\":1,\"axis\":1,\"rows\":[{\"change\":\"a\",\"step_s\":1}]}",
       "`axis` is no text"},
      {"{\"version\":1,\"rows\":[{\"step_s\":1}]}", "row 1: `change` is missing"},
      {"{\"version\":1,\"rows\":[{\"change\":\"a\"}]}", "row 1: `step_s` is missing"},
      {"{\"version\":1,\"rows\":[{\"change\":\"a\",\"step_s\":\"1 s\"}]}", "`step_s` is no number"},
      {"{\"version\":1,\"rows\":[{\"change\":\"a\",\"step_s\":0}]}", "`step_s` is not above 0"},
      {"{\"version\":1,\"rows\":[{\"change\":\"a\",\"step_s\":1,\"x\":\"1\"}]}",
       "`x` is no number"},
      {"{\"version\":1,\"rows\":[{\"change\":\"a\",\"step_s\":1,\"replanned\":0}]}",
       "`replanned` is neither"},
  };
  for (const auto& [text, says] : rows) {
    const auto table = parse_sweep(text, "sweep.json");
    ASSERT_FALSE(table) << text;
    EXPECT_EQ(table.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(table.error().text().contains(says)) << says << "\n" << table.error().text();
    EXPECT_TRUE(table.error().text().contains("sweep.json")) << table.error().text();
  }
}

}  // namespace
}  // namespace longhaul
