// `longhaul plan export`: the files against golden copies, what they make torchrun do, and what is
// refused.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

/// Three pipelines of two equal stages; the ranks of a node follow one another: rank 0 to 2 are
/// the first stages on delft-1, delft-1 and delft-2, rank 3 to 5 the second ones, all on big.
constexpr std::string_view kEvenPlanText = R"(schema: longhaul/plan/1
inputs:
  cluster: {file: cluster.yaml}
  job: {file: job.yaml}
layers: [4, 4]
pipelines:
  - [delft-1/0, big/0]
  - [delft-1/1, big/1]
  - [delft-2/0, big/2]
batch:
  micro_batch: 2
  micro_batches: [4, 4, 4]
schedule: {family: 1f1b, in_flight: [2, 1]}
coordinator: delft
)";

/// The sample files, in bf16, which all targets know, and with an address of one node.
class Export : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write_samples();
    folder_.write("lab.yaml", edited(kDeviceText, "fp16: 50 TFLOP/s", "bf16: 50 TFLOP/s"));
    folder_.write("job.yaml", edited(kJobText, "precision: fp16", "precision: bf16"));
    folder_.write("cluster.yaml",
                  edited(kClusterText, "{name: big,", "{name: big, address: \"10.0.0.7:7000\","));
    folder_.write("even.yaml", kEvenPlanText);
  }

  RunResult exported(const std::string& plan, const std::string& target,
                     const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"plan", "export", plan, "--for", target};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_longhaul(arguments, folder_.path());
  }

  void expect_golden(const std::string& plan, const std::string& target) const {
    const RunResult run = exported(plan, target, {"-o", "out"});
    ASSERT_EQ(run.status, 0) << run.err;
    const fs::path golden = fs::path(LONGHAUL_SOURCE_DIR "/tests/golden/export") / target;
    int files = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(golden)) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(read_text(folder_ / ("out/" + name)), read_text(entry.path().string())) << name;
      EXPECT_TRUE(run.out.contains("out/" + name + "\n")) << run.out;
      ++files;
    }
    EXPECT_EQ(std::ranges::count(run.out, '\n'), files) << run.out;
  }

  void expect_refused(const std::string& target, const std::string& says) const {
    const RunResult run = exported("bad.yaml", target, {"-o", "refused"});
    EXPECT_EQ(run.status, 3) << run.out;
    EXPECT_TRUE(run.err.contains(says)) << run.err;
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
  }

  const TemporaryFolder folder_;
};

TEST_F(Export, the_files_for_torchrun_are_the_golden_ones) {
  expect_golden("even.yaml", "torchrun");
}

TEST_F(Export, the_files_for_megatron_are_the_golden_ones) {
  expect_golden("plan.yaml", "megatron");
}

TEST_F(Export, the_files_for_torchtitan_are_the_golden_ones) {
  expect_golden("plan.yaml", "torchtitan");
}

TEST_F(Export, the_folder_is_called_as_plan_and_trainer_and_lies_beside_the_plan) {
  const RunResult run = exported("plan.yaml", "megatron");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            "plan-megatron/ranks.json\nplan-megatron/megatron.sh\nplan-megatron/launch.sh\n");
  EXPECT_TRUE(fs::exists(folder_ / "plan-megatron/launch.sh"));
}

TEST_F(Export, ranks_go_over_the_replicas_of_a_stage_first) {
  ASSERT_EQ(exported("plan.yaml", "megatron", {"-o", "out"}).status, 0);
  const auto ranks = nlohmann::json::parse(read_text(folder_ / "out/ranks.json"));
  ASSERT_EQ(ranks.at("ranks").size(), 6u);
  EXPECT_EQ(ranks.at("world_size"), 6);
  // 3 stages x 2 pipelines: rank 3 is stage 3 / 2 = 1 of pipeline 3 % 2 = 1.
  const auto& rank = ranks.at("ranks").at(3);
  EXPECT_EQ(rank.at("rank"), 3);
  EXPECT_EQ(rank.at("stage"), 1);
  EXPECT_EQ(rank.at("pipeline"), 1);
  EXPECT_EQ(rank.at("device"), "big/1");
  EXPECT_EQ(rank.at("host"), "10.0.0.7");  // without the port, which is the executor's
  EXPECT_EQ(rank.at("local_device"), 1);
  EXPECT_EQ(ranks.at("ranks").at(4).at("host"), "delft-2");  // no address: the name
}

/// What a `torchrun` that prints its command line is given on a node, sorted.
std::vector<std::string> started(const TemporaryFolder& folder, const std::string& arguments) {
  folder.write("torchrun", "#!/bin/sh\necho \"$CUDA_VISIBLE_DEVICES at $MASTER_ADDR:\" \"$@\"\n");
  fs::permissions(folder / "torchrun", fs::perms::owner_all);
  const std::string command = "cd '" + folder.path() +
                              "' && PATH=\"$PWD:$PATH\" bash out/launch.sh " + arguments +
                              " 2>&1; echo status $?";
  std::FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe)) {
    text.append(buffer, size);
  }
  pclose(pipe);
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

TEST_F(Export, each_node_starts_its_ranks_on_their_devices) {
  ASSERT_EQ(exported("even.yaml", "torchrun", {"-o", "out"}).status, 0);
  const std::string tail = " --master_addr=delft-1 --master_port=29500 train.py --lr 1";
  // 3 torchruns with 2, 1 and 3 processes: ranks 0 and 1, rank 2, ranks 3 to 5.
  EXPECT_EQ(started(folder_, "delft-1 train.py --lr 1"),
            (std::vector<std::string>{
                "0,1 at delft-1: --nnodes=3 --node_rank=0 --nproc_per_node=2" + tail, "status 0"}));
  EXPECT_EQ(started(folder_, "delft-2 train.py --lr 1"),
            (std::vector<std::string>{
                "0 at delft-1: --nnodes=3 --node_rank=1 --nproc_per_node=1" + tail, "status 0"}));
  EXPECT_EQ(
      started(folder_, "big train.py --lr 1"),
      (std::vector<std::string>{
          "0,1,2 at delft-1: --nnodes=3 --node_rank=2 --nproc_per_node=3" + tail, "status 0"}));
  EXPECT_EQ(started(folder_, "riga train.py"),
            (std::vector<std::string>{
                "launch.sh: the plan has no node riga; it has delft-1, delft-2, big", "status 2"}));
}

TEST_F(Export, a_node_whose_ranks_are_apart_starts_several_torchruns) {
  ASSERT_EQ(exported("plan.yaml", "megatron", {"-o", "out"}).status, 0);
  // Stage 0 is on delft-1 and big, stage 1 again: delft-1 has ranks 0 and 2.
  const std::vector<std::string> lines = started(folder_, "delft-1 pretrain_gpt.py --lr 1");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].starts_with("0 at delft-1: --nnodes=6 --node_rank=0 --nproc_per_node=1 "))
      << lines[0];
  EXPECT_TRUE(lines[1].starts_with("1 at delft-1: --nnodes=6 --node_rank=2 --nproc_per_node=1 "))
      << lines[1];
  EXPECT_TRUE(lines[0].contains("pretrain_gpt.py --tensor-model-parallel-size 1")) << lines[0];
  EXPECT_TRUE(lines[0].contains("--pipeline-model-parallel-layout Et*3|t*3|t*2L ")) << lines[0];
  EXPECT_TRUE(lines[0].ends_with(" --bf16 --lr 1")) << lines[0];
}

TEST_F(Export, megatron_gets_no_layout_where_its_own_cut_is_the_plans) {
  ASSERT_EQ(exported("even.yaml", "megatron", {"-o", "out"}).status, 0);
  EXPECT_FALSE(read_text(folder_ / "out/megatron.sh").contains("layout"));
  // [1, 3, 2, 2]: the middle stages differ, so counts of the first and the last do not say it.
  folder_.write("four.yaml",
                edited(edited(edited(edited(kEvenPlanText, "[4, 4]", "[1, 3, 2, 2]"),
                                     "  - [delft-1/0, big/0]\n  - [delft-1/1, big/1]\n  - "
                                     "[delft-2/0, big/2]\n",
                                     "  - [delft-1/0, big/0, delft-1/1, big/1]\n"),
                              "[4, 4, 4]", "[12]"),
                       "[2, 1]", "[4, 3, 2, 1]"));
  ASSERT_EQ(exported("four.yaml", "megatron", {"-o", "four"}).status, 0);
  const std::string text = read_text(folder_ / "four/megatron.sh");
  EXPECT_TRUE(text.contains("'Et*1|t*3|t*2|t*2L'")) << text;
  EXPECT_FALSE(text.contains("first-pipeline")) << text;
}

TEST_F(Export, what_the_trainer_does_otherwise_is_noted) {
  folder_.write("job.yaml", edited(edited(kJobText, "precision: fp16", "precision: bf16"),
                                   "{activations: bf16}", "{activations: int8, gradients: bf16}"));
  const RunResult run = exported("even.yaml", "megatron");
  EXPECT_EQ(run.status, 0);
  EXPECT_TRUE(run.err.contains("note: the plan sends activations between sites as int8"))
      << run.err;
  EXPECT_TRUE(run.err.contains("note: the plan sends gradients between sites as bf16")) << run.err;
  EXPECT_TRUE(run.err.contains("no address of delft-1, delft-2: the name")) << run.err;
}

TEST_F(Export, shares_that_differ_are_refused) {
  folder_.write("bad.yaml", edited(kPlanText, "[6, 6]", "[5, 7]"));
  for (const std::string target : {"torchrun", "megatron", "torchtitan"}) {
    expect_refused(target, "run [5, 7] micro-batches, but " + target + " gives every replica");
  }
}

TEST_F(Export, shares_that_differ_between_kinds_name_the_kinds) {
  folder_.write("cluster.yaml", edited(kClusterText, "3xlab", "3xh100"));
  folder_.write("bad.yaml", edited(kPlanText, "[6, 6]", "[5, 7]"));
  expect_refused("megatron", "[5, 7] micro-batches (their devices differ: h100, lab), but");
}

TEST_F(Export, depths_that_are_not_the_schedules_own_are_refused) {
  folder_.write("bad.yaml", edited(kPlanText, "[3, 2, 1]", "[5, 3, 1]"));
  for (const std::string target : {"torchrun", "megatron", "torchtitan"}) {
    expect_refused(target, "hold [5, 3, 1] micro-batches in flight, but the 1F1B of " + target +
                               " holds [3, 2, 1]");
  }
}

TEST_F(Export, an_order_of_the_plans_own_is_refused) {
  const std::string order = "F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5";
  folder_.write("bad.yaml",
                edited(kPlanText, "{family: 1f1b, in_flight: [3, 2, 1]}",
                       "{family: greedy, orders: [" + order + ", " + order + ", " + order + "]}"));
  for (const std::string target : {"torchrun", "megatron", "torchtitan"}) {
    expect_refused(target, "the plan's schedule is greedy, with the passes of every stage");
    expect_refused(target, target + " takes no order from outside");
  }
}

TEST_F(Export, gpipe_is_refused_by_megatron_alone) {
  const std::string gpipe =
      edited(kPlanText, "{family: 1f1b, in_flight: [3, 2, 1]}", "{family: gpipe}");
  folder_.write("bad.yaml", gpipe);
  expect_refused("megatron", "Megatron has no GPipe");
  ASSERT_EQ(exported("bad.yaml", "torchtitan", {"-o", "out"}).status, 0);
  EXPECT_TRUE(read_text(folder_ / "out/torchtitan.toml")
                  .contains("pipeline_parallel_schedule = \"GPipe\""));
}

TEST_F(Export, uneven_layers_are_refused_by_a_plain_script_alone) {
  folder_.write("bad.yaml", kPlanText);
  expect_refused("torchrun", "[3, 3, 2] layers, but a plain torchrun script");
}

TEST_F(Export, all_reasons_are_given_at_once) {
  folder_.write("bad.yaml",
                edited(edited(kPlanText, "[3, 2, 1]", "[5, 3, 1]"), "[6, 6]", "[5, 7]"));
  expect_refused("torchrun", "[5, 7] micro-batches");
  expect_refused("torchrun", "[5, 3, 1] micro-batches in flight");
  expect_refused("torchrun", "[3, 3, 2] layers");
}

struct JobEdit {
  std::string_view old;
  std::string_view replacement;
  std::string says;
};

TEST_F(Export, what_the_plan_chooses_about_messages_is_noted) {
  const std::string job = edited(kJobText, "precision: fp16", "precision: bf16");
  folder_.write("job.yaml", edited(edited(job, "{activations: bf16}",
                                          "{activations: auto, gradients: auto, floor: int8}"),
                                   "recompute: false", "recompute: auto"));
  const RunResult run = exported("even.yaml", "megatron", {"-o", "out"});
  EXPECT_TRUE(run.err.contains("sends activations between sites as int8")) << run.err;
  EXPECT_TRUE(run.err.contains("sends gradients between sites as int8")) << run.err;
  EXPECT_FALSE(run.err.contains("NCCL")) << run.err;
  folder_.write(
      "chosen.yaml",
      std::string(kEvenPlanText) +
          "recompute: true\n"
          "codecs: [{between: [delft, riga], activations: none}]\n"
          "reductions: [{stage: 0, shape: ring, codec: none}, {stage: 1, codec: none}]\n");
  const RunResult chosen = exported("chosen.yaml", "megatron", {"-o", "out"});
  EXPECT_EQ(chosen.status, 0) << chosen.err;
  EXPECT_FALSE(chosen.err.contains("between sites")) << chosen.err;
  EXPECT_TRUE(chosen.err.contains("megatron leaves that to NCCL")) << chosen.err;
  EXPECT_TRUE(read_text(folder_ / "out/megatron.sh").contains("--recompute-granularity full"));
}

TEST_F(Export, torchtitan_refuses_what_its_models_lack) {
  const std::string job = edited(kJobText, "precision: fp16", "precision: bf16");
  folder_.write("lab.yaml",
                edited(kDeviceText, "fp16: 50 TFLOP/s", "fp16: 50 TFLOP/s, bf16: 50 TFLOP/s"));
  folder_.write("bad.yaml", kPlanText);
  for (const JobEdit& edit : {
           JobEdit{"bf16\nrecompute", "fp16\nrecompute", "knows bfloat16 and float32 only"},
           {"vocabulary: 1000", "vocabulary: 1000, tied_embedding: true",
            "the job's embedding is tied"},
           {"heads: 8, kv", "heads: 8, head_width: 16, kv", "8 heads of width 16"},
           {"llama, layers: 8, width: 256, heads: 8, kv_heads: 2",
            "gpt2, layers: 8, width: 256, heads: 8", "torchtitan has no GPT-2"},
       }) {
    folder_.write("job.yaml", edited(job, edit.old, edit.replacement));
    expect_refused("torchtitan", edit.says);
    EXPECT_EQ(exported("bad.yaml", "megatron", {"-o", "out"}).status, 0) << edit.says;
  }
}

TEST_F(Export, torchtitan_wants_a_micro_batch_a_stage) {
  // 24 sequences over 2 pipelines in micro-batches of 4 are 3 each, enough for 3 stages; of 6, 2.
  folder_.write("bad.yaml",
                edited(edited(kPlanText, "micro_batch: 2", "micro_batch: 4"), "[6, 6]", "[3, 3]"));
  EXPECT_EQ(exported("bad.yaml", "torchtitan", {"-o", "out"}).status, 0);
  folder_.write("bad.yaml", edited(edited(edited(kPlanText, "micro_batch: 2", "micro_batch: 6"),
                                          "[6, 6]", "[2, 2]"),
                                   "[3, 2, 1]", "[2, 2, 1]"));
  expect_refused("torchtitan", "2 micro-batches over 3 stages");
}

TEST_F(Export, torchtitan_replicates_where_there_is_no_pipeline) {
  folder_.write("one.yaml", edited(edited(edited(edited(kEvenPlanText, "[4, 4]", "[8]"),
                                                 "- [delft-1/0, big/0]\n  - [delft-1/1, big/1]\n  "
                                                 "- [delft-2/0, big/2]",
                                                 "- [delft-1/0]\n  - [delft-1/1]"),
                                          "[4, 4, 4]", "[6, 6]"),
                                   "[2, 1]", "[1]"));
  const RunResult run = exported("one.yaml", "torchtitan", {"-o", "out"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string text = read_text(folder_ / "out/torchtitan.toml");
  EXPECT_TRUE(text.contains("data_parallel_replicate_degree = 2\n")) << text;
  EXPECT_TRUE(text.contains("local_batch_size = 2 ")) << text;  // the rest of the 24 accumulates
  EXPECT_TRUE(text.contains("global_batch_size = 24\n")) << text;
  EXPECT_FALSE(text.contains("module_fqns_per_model_part = ")) << text;
}

TEST_F(Export, names_with_quotes_stay_one_word) {
  folder_.write("cluster.yaml", edited(kClusterText, "{name: big,", "{name: \"it's big\","));
  folder_.write("plan.yaml", edited(kPlanText, "[big/0, big/1, big/2]",
                                    "[\"it's big/0\", \"it's big/1\", \"it's big/2\"]"));
  ASSERT_EQ(exported("plan.yaml", "megatron", {"-o", "out"}).status, 0);
  EXPECT_EQ(started(folder_, "\"it's big\" pretrain_gpt.py").size(), 4u);  // three ranks, a status
}

TEST_F(Export, wrong_command_lines_are_refused) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"plan", "export"},
           {"plan", "export", "plan.yaml"},
           {"plan", "export", "plan.yaml", "--for", "deepspeed"},
           {"plan", "export", "absent.yaml", "--for", "megatron"},
       }) {
    const RunResult run = run_longhaul(arguments, folder_.path());
    EXPECT_NE(run.status, 0);
    EXPECT_NE(run.err, "");
    EXPECT_EQ(run.out, "");
  }
}

}  // namespace
}  // namespace longhaul
