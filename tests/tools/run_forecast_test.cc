#include "tools/run_forecast.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/fixtures.h"
#include "tests/tools/longhaul_process.h"
#include "tests/tools/what_if_fixtures.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

TEST(RunLimits, tokens_become_whole_steps) {
  const Job job = fixtures::unit_job(2, 8);  // 8 tokens a step
  const auto steps = [&](const std::string& tokens) {
    return limits_of({.tokens = tokens}, job).value().steps;
  };
  EXPECT_EQ(steps("16"), 2u);
  EXPECT_EQ(steps("17"), 3u);
  EXPECT_EQ(steps("1k"), 125u);
  EXPECT_EQ(steps("1.6M"), 200000u);
  EXPECT_EQ(steps("2B"), 250000000u);
  EXPECT_EQ(limits_of({.steps = 5, .days = 2, .tokens = "16"}, job).value().steps, 2u);
  EXPECT_EQ(limits_of({.steps = 5, .days = 2}, job).value().time, seconds(172800));
  for (const std::string wrong : {"many", "10G", "-5", "0", "1e30", "nan", "10 B"}) {
    EXPECT_FALSE(limits_of({.tokens = wrong}, job)) << wrong;
  }
}

class RunCli : public WhatIfTest {
 protected:
  RunResult simulate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"simulate", "plan.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_longhaul(arguments, folder_.path());
  }
  static const std::string kConditions;
};
const std::string RunCli::kConditions =
    std::string(LONGHAUL_SOURCE_DIR) + "/configs/conditions/bad-month.yaml";

TEST_F(RunCli, a_run_has_percentiles_failures_and_money) {
  const RunResult run = simulate({"--days", "20", "--conditions", kConditions, "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json out = Json::parse(run.out);
  EXPECT_EQ(out["version"], 1);
  EXPECT_GE(out["time_s"].get<double>(), 20 * 86400.0);
  const double parts = out["productive_s"].get<double>() + out["lost_s"].get<double>() +
                       out["waiting_s"].get<double>() + out["checkpoints_s"].get<double>();
  EXPECT_NEAR(parts, out["time_s"].get<double>(), 1e-6 * parts);
  const Json& step = out["step_s"];
  EXPECT_GT(step["mean"], step["undisturbed"]);
  EXPECT_GE(step["p99"], step["p50"]);
  EXPECT_GT(out["points"].size(), 10u);
  EXPECT_EQ(simulate({"--days", "20", "--conditions", kConditions, "--json"}).out, run.out);
}

TEST_F(RunCli, a_calm_run_is_steps_one_after_another) {
  const RunResult run = simulate({"--steps", "1000"});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const std::string said : {"effective training time ratio", "1.0000",
                                 "1 steps were simulated", "USD a billion tokens"}) {
    EXPECT_TRUE(run.out.contains(said)) << said << "\n" << run.out;
  }
}

TEST_F(RunCli, wrong_uses_are_refused) {
  struct Row {
    std::vector<std::string> arguments;
    std::string says;
  };
  const Row rows[] = {
      {{"--tokens", "lots"}, "is not a number of tokens"},
      {{"--days", "0"}, "days"},
      {{"--days", "nan"}, "days"},
      {{"--steps", "0"}, "steps"},
      {{"--steps", "5", "--sweep", "link * bandwidth *1,*2"}, "neither a table nor a timeline"},
      {{"--steps", "5", "--timeline", "t.json"}, "neither a table nor a timeline"},
      {{"--conditions", "none.yaml"}, "none.yaml"},
  };
  for (const Row& row : rows) {
    const RunResult run = simulate(row.arguments);
    EXPECT_EQ(run.status, 2) << row.says << run.out;
    EXPECT_TRUE(run.err.contains(row.says)) << row.says << "\n" << run.err;
  }
}

TEST_F(RunCli, conditions_hold_for_one_step_and_for_every_row) {
  folder_.write("slow.yaml",
                "schema: longhaul/conditions/1\nslowdowns: [{devices: '*', factor: 3}]\n");
  const auto step_of = [&](const std::vector<std::string>& arguments) {
    const RunResult run = simulate(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    const Json out = Json::parse(run.out);
    return (out.contains("rows") ? out["rows"][0]["step_s"] : out["step_s"]).get<double>();
  };
  const double calm = step_of({"--json"});
  const double slow = step_of({"--json", "--conditions", "slow.yaml"});
  EXPECT_GT(slow, calm);
  EXPECT_EQ(step_of({"--json", "--conditions", "slow.yaml", "--set", "link * latency +1ms"}), slow);
}

}  // namespace
}  // namespace longhaul
