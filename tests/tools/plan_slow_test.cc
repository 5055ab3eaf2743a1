// The search against the policies that it must beat, on the shipped clusters, as people run it.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

/// GPT-3 XL on a shipped cluster: our step, and that of each baseline.
void expect_to_beat_the_baselines(const std::string& cluster) {
  const std::string configs = std::string(LONGHAUL_SOURCE_DIR) + "/configs/";
  const TemporaryFolder folder;
  const RunResult run =
      run_longhaul({"plan", "--cluster", configs + "clusters/" + cluster + ".yaml", "--job",
                    configs + "jobs/gpt3-xl.yaml", "--baselines", "--json"},
                   folder.path());
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json plan = nlohmann::json::parse(run.out);
  std::map<std::string, double> step_s;
  for (const auto& baseline : plan["baselines"]) {
    ASSERT_TRUE(baseline.contains("step_s")) << baseline;
    step_s[baseline["policy"]] = baseline["step_s"];
  }
  const double ours = plan["step_s"];
  EXPECT_LE(ours, 0.75 * step_s.at("rank-order"));
  EXPECT_LE(ours, step_s.at("dtfm"));
  EXPECT_LE(ours, step_s.at("random, best of 20"));
  EXPECT_GE(ours, plan["lower_bound_s"].get<double>());
}

TEST(PlanSlow, the_search_beats_the_baselines_on_eight_cities) {
  expect_to_beat_the_baselines("eight-cities");
}

TEST(PlanSlow, the_search_beats_the_baselines_on_ten_cities) {
  expect_to_beat_the_baselines("ten-cities");
}

}  // namespace
}  // namespace longhaul
