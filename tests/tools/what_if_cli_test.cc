// `longhaul simulate` with what-if options, as people run it, and the texts of a table.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/what_if_fixtures.h"
#include "tools/what_if.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

class WhatIfCli : public WhatIfTest {
 protected:
  RunResult simulate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"simulate"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_longhaul(arguments, folder_.path());
  }
};

TEST_F(WhatIfCli, without_a_change_it_prints_one_step) {
  const RunResult run = simulate({"plan.yaml"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.contains("where the step goes")) << run.out;
  EXPECT_FALSE(run.out.contains("as it is")) << run.out;
}

TEST_F(WhatIfCli, what_is_removed_and_added_may_be_one_word_or_two) {
  const std::vector<std::string> edits = {"--set", "job batch.global 48", "--links-like", "riga"};
  const auto out = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), edits.begin(), edits.end());
    const RunResult run = simulate(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  const std::string two =
      out({"plan.yaml", "--remove", "site", "oslo", "--add", "site", "bonn:2xlab"});
  EXPECT_TRUE(two.contains("remove site oslo; add site bonn:2xlab; job batch.global 48")) << two;
  EXPECT_EQ(out({"plan.yaml", "--remove", "site oslo", "--add", "site bonn:2xlab"}), two);
  // The plan may stand behind: a second word is not taken for it, nor it for one.
  EXPECT_EQ(out({"--remove", "site", "oslo", "plan.yaml", "--add", "site bonn:2xlab"}), two);
  EXPECT_EQ(out({"--remove", "site oslo", "--add", "site", "bonn:2xlab", "plan.yaml"}), two);
  EXPECT_EQ(out({"--remove=site oslo", "--add=site bonn:2xlab", "plan.yaml"}), two);
}

TEST_F(WhatIfCli, a_table_has_a_line_a_row_and_its_notes) {
  const RunResult run = simulate({"plan.yaml", "--scenario", "fast: link * bandwidth *2",
                                  "--scenario", "gone: remove site riga; remove site oslo",
                                  "--scenario", "moved: remove site riga"});
  EXPECT_EQ(run.status, 0) << run.err;
  for (const std::string said :
       {"change", "vs as it is", "USD/1e9 tokens", "\n  as it is ", "\n  fast ",
        "\n  gone          none ", "idle ones cannot take their place (--replan",
        "note: 1 of the plan's devices is gone (riga-1/0): idle ones take their place [moved]"}) {
    EXPECT_TRUE(run.out.contains(said)) << said << "\n" << run.out;
  }
}

TEST_F(WhatIfCli, json_and_csv_hold_the_whole_table) {
  const RunResult run =
      simulate({"plan.yaml", "--sweep", "link * bandwidth 250Mbit/s..1Gbit/s log 3", "--scenario",
                "gone: remove link delft->riga", "--json", "--csv", "sweep.csv"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json table = Json::parse(run.out);
  EXPECT_EQ(table["version"], 1);
  EXPECT_EQ(table["axis"], "link * bandwidth");
  EXPECT_EQ(table["unit"], "Mbit/s");
  EXPECT_EQ(table["log"], true);
  ASSERT_EQ(table["rows"].size(), 5u);
  const Json& base = table["rows"][0];
  EXPECT_EQ(base["change"], "as it is");
  EXPECT_FALSE(base.contains("x"));
  EXPECT_EQ(table["rows"][1]["change"], "gone");
  EXPECT_TRUE(table["rows"][1].contains("problem"));
  EXPECT_FALSE(table["rows"][1].contains("step_s"));
  const Json& same = table["rows"][3];
  EXPECT_EQ(same["x"], 500);
  for (const char* key : {"step_s", "tokens_per_s", "usd_per_billion_tokens", "binding"}) {
    EXPECT_EQ(same[key], base[key]) << key;
  }
  EXPECT_EQ(same["replanned"], false);
  const std::string csv = read_text(folder_ / "sweep.csv");
  EXPECT_TRUE(
      csv.starts_with("change,x,unit,step_s,tokens_per_s,usd_per_billion_tokens,binding,"
                      "replanned,problem,notes\nas it is,,,"))
      << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 6);
  EXPECT_TRUE(csv.contains("\nlink * bandwidth 500 Mbit/s,500,Mbit/s,")) << csv;
  const RunResult to_stdout =
      simulate({"plan.yaml", "--sweep", "link * bandwidth 250Mbit/s..1Gbit/s log 3", "--scenario",
                "gone: remove link delft->riga", "--csv", "-"});
  EXPECT_EQ(to_stdout.out, csv);
}

TEST_F(WhatIfCli, the_same_question_has_the_same_answer) {
  const std::vector<std::string> arguments = {"plan.yaml", "--set",    "link * bandwidth /4",
                                              "--replan",  "--effort", "0.05",
                                              "--json",    "--threads"};
  const auto with_threads = [&](const std::string& threads) {
    std::vector<std::string> all = arguments;
    all.push_back(threads);
    const RunResult run = simulate(all);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(run.err.contains("row 3 of 3: link * bandwidth /4")) << run.err;
    return run.out;
  };
  const std::string one = with_threads("1");
  EXPECT_EQ(with_threads("2"), one);
  const Json rows = Json::parse(one)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0]["replanned"].get<bool>());
  EXPECT_TRUE(rows[2]["replanned"].get<bool>());
  EXPECT_LE(rows[1]["step_s"], rows[0]["step_s"]);
}

TEST_F(WhatIfCli, the_status_tells_a_wrong_question_from_an_answer_of_no) {
  const struct {
    std::vector<std::string> arguments;
    int status;
    std::string said;  // on either stream
  } cases[] = {
      {{"--set", "link delft->riga bandwith *2"}, 2, "did you mean `bandwidth`?"},
      {{"--set", "job batch.globl 2"}, 2, "did you mean `global`?"},
      {{"--remove", "site", "osl"}, 2, "did you mean `oslo`?"},
      {{"--add", "site", "bonn:lab"}, 2, "nothing says how far bonn is from delft, riga, oslo"},
      {{"--sweep", "link * bandwidth 5Gbit/s..50Mbit/s log 12"}, 2, "does not rise"},
      {{"--scenario", "a: device * colour red"}, 2, "`colour` is not a property of a device"},
      {{"--set"}, 2, "--set"},
      {{"--replan"}, 2, "go with a change"},
      {{"--csv", "-"}, 2, "go with a change"},
      {{"--links-like", "riga"}, 2, "go with a change"},
      {{"--set", "link * latency *2", "--timeline", "t.json"}, 2, "--timeline shows one step"},
      {{"--set", "link * latency *2", "--json", "--csv", "-"}, 2, "--json and --csv -"},
      {{"--set", "link * latency *2", "--csv", "job.yaml/t.csv"}, 1, "cannot write"},
      {{"--set", "link * latency *2", "--effort", "nan"}, 2, "--effort"},
      {{"--set", "job model.layers 9"}, 3, "the model has 9"},
      {{"--set", "job model.layers 9", "--scenario", "b: link * latency *2"}, 0, "the model has 9"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.said);
    std::vector<std::string> arguments = {"plan.yaml"};
    arguments.insert(arguments.end(), each.arguments.begin(), each.arguments.end());
    const RunResult run = simulate(arguments);
    EXPECT_EQ(run.status, each.status) << run.err;
    EXPECT_TRUE((run.err + run.out).contains(each.said)) << run.err << run.out;
    if (each.status == 2) EXPECT_EQ(run.out, "");
  }
}

TEST_F(WhatIfCli, an_interrupt_prints_the_rows_that_are_done) {
  std::vector<std::string> arguments = {
      "simulate", "plan.yaml", "--replan", "--threads",
      "1",        "--json",    "--sweep",  "link * latency +1ms..+99ms lin 99"};
  Process process(arguments, folder_.path());
  ASSERT_TRUE(process.wait_for_error_text("row 3 of "));
  process.send(SIGINT);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 130) << run.err;
  const Json rows = Json::parse(run.out)["rows"];
  EXPECT_GE(rows.size(), 2u);
  EXPECT_LT(rows.size(), 101u);
}

TEST_F(WhatIfCli, help_explains_the_language) {
  const RunResult run = simulate({"--help"});
  EXPECT_EQ(run.status, 0);
  for (const std::string said :
       {"--sweep", "link tokyo->oregon bandwidth *2", "50Mbit/s..5Gbit/s log 12"})
    EXPECT_TRUE(run.out.contains(said)) << run.out;
}

TEST_F(WhatIfTest, the_binding_part_is_the_largest_group_by_kind_and_place) {
  StepResult step;
  step.step = Seconds(10);
  // Two devices of one kind in two sites are two groups; two links are two; equal ones add up.
  using Kind = CriticalKind;
  step.critical = {{Kind::kBandwidth, 0, 1, Seconds(3)}, {Kind::kCompute, 0, 0, Seconds(2.5)},
                   {Kind::kCompute, 1, 1, Seconds(2)},   {Kind::kLatency, 0, 1, Seconds(1)},
                   {Kind::kUpdate, 1, 1, Seconds(0.9)},  {Kind::kCompute, 0, 0, Seconds(0.6)}};
  EXPECT_EQ(binding_text(base_.topology, step), "compute of lab in delft, 31 % of the step");
  step.critical.pop_back();
  EXPECT_EQ(binding_text(base_.topology, step), "bandwidth delft -> riga, 30 % of the step");
  // Of equal ones the first.
  step.critical = {{Kind::kLatency, 1, 0, Seconds(5)}, {Kind::kBandwidth, 2, 2, Seconds(5)}};
  EXPECT_EQ(binding_text(base_.topology, step), "latency riga -> delft, 50 % of the step");
  step.critical.erase(step.critical.begin());
  EXPECT_EQ(binding_text(base_.topology, step), "bandwidth inside oslo, 50 % of the step");
  // Without a critical path: the largest mean over the tasklets.
  step.critical.clear();
  step.tasklets.resize(2);
  step.tasklets[0].transfer = Seconds(6);
  step.tasklets[1].reduce = Seconds(5);
  EXPECT_EQ(binding_text(base_.topology, step), "transfer, 30 % of the step");
}

TEST_F(WhatIfTest, csv_quotes_what_has_commas_and_json_takes_any_bytes) {
  WhatIfTable table;
  table.rows.resize(1);
  table.rows[0].change = "a \"b\", c\xff";
  table.rows[0].problem = "no";
  EXPECT_TRUE(what_if_csv(table).contains("\n\"a \"\"b\"\", c\xff\",,,,,,,,no,\n"))
      << what_if_csv(table);
  EXPECT_EQ(Json::parse(what_if_json(table))["rows"][0]["problem"], "no");
}

}  // namespace
}  // namespace longhaul
