// `longhaul report` as people use it.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

class Report : public testing::Test {
 protected:
  void SetUp() override { folder_.write_samples(); }

  RunResult report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "report");
    return run_longhaul(arguments, folder_.path());
  }
  std::string page(std::string_view name) const { return read_text(folder_ / name); }

  /// A run's folder without having run: 2x3 of the samples' plan, `steps` of them.
  void write_run(int steps) const {
    std::filesystem::create_directory(folder_ / "run");
    folder_.write("run/run.json", "{}");
    folder_.write("run/plan.yaml",
                  edited(edited(kPlanText, "file: cluster.yaml", "file: ../cluster.yaml"),
                         "file: job.yaml", "file: ../job.yaml"));
    folder_.write("run/job.yaml", kJobText);
    folder_.write("run/result.json",
                  R"({"schema":"longhaul/result/1","steps":3,"parameters":10,"loss_first":5,
"loss_last":4,"validation_loss":3,"bigram_loss":2.5,"tokens_per_s":100,"step_predicted_s":1,
"step_measured_s":1.1,"late_fraction":0.5,"links":[]})");
    std::string metrics;
    for (int i = 0; i < steps; ++i) {
      metrics += "{\"step\":" + std::to_string(i) +
                 ",\"loss\":4,\"step_s\":1,\"tokens_per_s\":9,\"compute\":1}\n";
    }
    folder_.write("run/metrics.jsonl", metrics);
  }

  const TemporaryFolder folder_;
};

TEST_F(Report, a_plan_has_its_page_beside_it_and_the_path_is_all_of_stdout) {
  const RunResult run = report({"plan.yaml"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "plan.html\n");
  const std::string html = page("plan.html");
  for (const std::string_view part :
       {"<title>tiny on two-labs</title>", "id=\"map-card\"", "id=\"gantt-card\"",
        "id=\"stages-card\"", "id=\"memory-card\"", "id=\"links-card\"", "No plan of this grid",
        "delft", "riga", "cluster.yaml", "by hand"})
    EXPECT_TRUE(html.contains(part)) << part;
  EXPECT_FALSE(html.contains("<script"));
  EXPECT_FALSE(html.contains("Loss"));
}

TEST_F(Report, the_same_plan_has_the_same_page) {
  ASSERT_EQ(report({"plan.yaml", "-o", "one.html"}).status, 0);
  ASSERT_EQ(report({"plan.yaml", "-o", "two.html"}).status, 0);
  EXPECT_EQ(page("one.html"), page("two.html"));
}

TEST_F(Report, a_run_has_its_page_in_its_folder_with_what_it_measured) {
  write_run(12);
  const RunResult run = report({"run/"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "run/report.html\n");
  const std::string html = page("run/report.html");
  for (const std::string_view part :
       {"id=\"loss-card\"", "id=\"speed-card\"", "Step, measured",
        "50.00 % late, so it does not count", "Predicted and measured", ">measured</text>"})
    EXPECT_TRUE(html.contains(part)) << part;
  EXPECT_FALSE(html.contains("<script"));  // 12 steps can be told apart
}

TEST_F(Report, a_resumed_run_shows_the_plan_that_it_went_on_with) {
  write_run(3);
  folder_.write("run/plan-term-2.yaml",
                edited(read_text(folder_ / "run/plan.yaml"), "[3, 3, 2]", "[2, 3, 3]"));
  folder_.write("run/job-term-2.yaml", kJobText);
  EXPECT_EQ(report({"run"}).status, 0);
  EXPECT_TRUE(page("run/report.html").contains("plan-term-2.yaml"));
}

TEST_F(Report, sweeps_and_the_front_are_drawn_when_they_are_asked_for) {
  folder_.write("sweep.json",
                R"({"version":1,"axis":"riga bandwidth","unit":"Mbit/s","log":false,"rows":[
{"change":"100","x":100,"step_s":2,"tokens_per_s":9,"binding":"compute","replanned":false},
{"change":"200","x":200,"step_s":1,"tokens_per_s":9,"binding":"compute","replanned":false}]})");
  const RunResult run = report({"plan.yaml", "--sweep", "sweep.json", "--sweep", "sweep.json",
                                "--pareto", "--effort", "0.01"});
  EXPECT_EQ(run.status, 0) << run.err;
  const std::string html = page("plan.html");
  EXPECT_TRUE(html.contains("id=\"sweep0-card\""));
  EXPECT_TRUE(html.contains("id=\"sweep1-card\""));
  EXPECT_TRUE(html.contains("What if: riga bandwidth"));
  EXPECT_TRUE(html.contains("id=\"pareto-card\""));
}

TEST_F(Report, a_changed_input_is_pointed_out_and_the_old_bound_is_not_shown) {
  const std::string planned = edited(
      edited(kPlanText, "file: cluster.yaml", "file: cluster.yaml, hash: \"0000000000000001\""),
      "coordinator: delft",
      "coordinator: delft\npredicted: {step: 1 s, tokens_per_s: 1, lower_bound: 0.5 s, "
      "bound_by: \"the old bound\"}");
  folder_.write("plan.yaml", planned);
  ASSERT_EQ(report({"plan.yaml"}).status, 0);
  EXPECT_TRUE(page("plan.html").contains("changed since it was planned"));
  EXPECT_FALSE(page("plan.html").contains("the old bound"));
}

TEST_F(Report, what_cannot_be_reported_is_said_with_a_status) {
  struct Row {
    std::vector<std::string> arguments;
    int status;
    std::string says;
  };
  std::filesystem::create_directory(folder_ / "empty");
  write_run(3);
  std::filesystem::create_directory(folder_ / "half");
  folder_.write("half/run.json", "{}");
  folder_.write("half/plan.yaml", read_text(folder_ / "run/plan.yaml"));
  folder_.write("half/job.yaml", kJobText);
  folder_.write("bad.json", "[]");
  folder_.write("plan.html", kPlanText);  // a strange name for one
  folder_.write("free.yaml", edited(kDeviceText, "price: 1 USD/h\n", ""));
  folder_.write("free-cluster.yaml", edited(kClusterText, "lab: lab.yaml", "lab: free.yaml"));
  folder_.write("big.yaml", edited(kDeviceText, "memory: 8 GiB", "memory: 1.001 GiB"));
  folder_.write("big-cluster.yaml", edited(kClusterText, "lab: lab.yaml", "lab: big.yaml"));
  const Row rows[] = {
      {{"nothing.yaml"}, 2, "nothing.yaml"},
      {{"empty"}, 2, "empty is no run's folder: it has no run.json"},
      {{"half"}, 2, "half has no result.json"},
      {{"plan.yaml", "--cluster", "nowhere.yaml"}, 2, "nowhere.yaml"},
      {{"plan.yaml", "--sweep", "bad.json"}, 2, "bad.json is no table of what-ifs"},
      {{"plan.yaml", "--sweep", "none.json"}, 1, "none.json"},
      {{"plan.yaml", "--effort", "1"}, 2, "--effort requires --pareto"},
      {{"plan.yaml", "--pareto", "--cluster", "free-cluster.yaml"}, 2, "has no prices"},
      {{"plan.yaml", "--cluster", "big-cluster.yaml"}, 3, "stage 0 needs"},
      {{"plan.yaml", "-o", "plan.yaml/page.html"}, 1, "plan.yaml"},
      {{"plan.yaml", "-o", "job.yaml"}, 2, "the page would take the place of job.yaml"},
      {{"plan.html"}, 2, "the page would take the place of plan.html"},
  };
  for (const Row& row : rows) {
    const RunResult run = report(row.arguments);
    EXPECT_EQ(run.status, row.status) << row.says << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(row.says)) << row.says << "\n" << run.err;
  }
}

}  // namespace
}  // namespace longhaul
