// `longhaul plan --for TRAINER`: what it plans, `longhaul plan export --for TRAINER` never refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
const std::string kConfigs = LONGHAUL_SOURCE_DIR "/configs/";

/// Llama without a tied embedding, so that torchtitan can cut it, too; small enough for a server.
constexpr std::string_view kUntiedText = R"(schema: longhaul/job/1
name: untied
model:
  {family: llama, layers: 6, width: 128, heads: 4, kv_heads: 4, ffn_width: 256, context: 64, vocabulary: 256, tied_embedding: false}
batch: {global: 48, micro_batch: auto}
precision: fp32
)";

void expect_exportable(const TemporaryFolder& folder, const std::string& cluster,
                       const std::string& job, const std::string& target) {
  SCOPED_TRACE(cluster + " for " + target);
  const RunResult plan = run_longhaul({"plan", "--cluster", cluster, "--job", job, "--for", target,
                                       "--effort", "0.02", "-o", "made.yaml"},
                                      folder.path());
  ASSERT_EQ(plan.status, 0) << plan.err;
  const RunResult exported = run_longhaul(
      {"plan", "export", "made.yaml", "--for", target, "-o", "exported"}, folder.path());
  EXPECT_EQ(exported.status, 0) << exported.err;
  fs::remove_all(folder / "exported");
}

TEST(PlanFor, every_trainer_gets_a_plan_that_it_can_run) {
  const TemporaryFolder folder;
  folder.write_samples();
  folder.write("untied.yaml", kUntiedText);
  for (const std::string target : {"torchrun", "megatron", "torchtitan"}) {
    expect_exportable(folder, kConfigs + "clusters/eight-servers.yaml", "untied.yaml", target);
  }
  expect_exportable(folder, "cluster.yaml", "untied.yaml", "megatron");
  expect_exportable(folder, kConfigs + "clusters/eight-servers.yaml",
                    kConfigs + "jobs/demo-gpt.yaml", "torchrun");
  expect_exportable(folder, kConfigs + "clusters/eight-cities.yaml",
                    kConfigs + "jobs/gpt2-small.yaml", "megatron");
}

TEST(PlanFor, the_trainers_plan_is_no_faster_than_the_free_one) {
  const TemporaryFolder folder;
  folder.write_samples();
  const std::vector<std::string> common = {"plan",  "--cluster", "cluster.yaml",
                                           "--job", "job.yaml",  "--json"};
  const auto step_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult run = run_longhaul(arguments, folder.path());
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? nlohmann::json::parse(run.out)["step_s"].get<double>() : 0.0;
  };
  EXPECT_GE(step_of({"--for", "megatron"}), step_of({}));
}

TEST(PlanFor, the_search_makes_small_what_the_trainer_runs) {
  // Free plans hide the round trips of ten cities by depth; Megatron's 1F1B cannot. The best free
  // plan, cut down to its depths, takes 23.3 s.
  const TemporaryFolder folder;
  const RunResult run = run_longhaul({"plan", "--cluster", kConfigs + "clusters/ten-cities.yaml",
                                      "--job", kConfigs + "jobs/gpt3-xl.yaml", "--for", "megatron",
                                      "--no-seeds", "--effort", "0.05", "--json"},
                                     folder.path());
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json found = nlohmann::json::parse(run.out);
  EXPECT_LT(found["step_s"], 22);
  EXPECT_NEAR(found["closed_form_s"].get<double>() / found["step_s"].get<double>(), 1, 0.05);
}

TEST(PlanFor, a_job_that_the_trainer_cannot_run_is_refused_before_the_search) {
  const TemporaryFolder folder;
  folder.write_samples();
  const RunResult run =
      run_longhaul({"plan", "--cluster", kConfigs + "clusters/eight-cities.yaml", "--job",
                    kConfigs + "jobs/gpt3-xl.yaml", "--for", "torchtitan"},
                   folder.path());
  EXPECT_EQ(run.status, 3);
  EXPECT_TRUE(run.err.contains("torchtitan has no GPT-2")) << run.err;
  EXPECT_FALSE(run.err.contains("round ")) << run.err;
}

TEST(PlanFor, combinations_that_cannot_be_are_refused) {
  const TemporaryFolder folder;
  folder.write_samples();
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--policy", "even"}, {"--objective", "pareto"}, {"--objective", "dtfm"}}) {
    std::vector<std::string> arguments = {"plan", "--for", "megatron"};
    if (more.back() != "dtfm") {
      for (const char* each : {"--cluster", "cluster.yaml", "--job", "job.yaml"})
        arguments.emplace_back(each);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult run = run_longhaul(arguments, folder.path());
    EXPECT_EQ(run.status, 2) << more.back() << run.err;
    EXPECT_TRUE(run.err.contains("--for")) << run.err;
  }
}

}  // namespace
}  // namespace longhaul
