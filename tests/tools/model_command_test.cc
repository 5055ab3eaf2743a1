// `longhaul model`, and runs that begin with somebody's weights, as people use them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/launch_fixtures.h"
#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/hugging_face";

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs a command that must end well, and answers what it says.
std::string done(const std::string& folder, const std::vector<std::string>& arguments) {
  const RunResult run = run_longhaul(arguments, folder);
  EXPECT_EQ(run.status, 0) << run.err;
  return run.out;
}

TEST(ModelCommand, says_what_a_model_is) {
  TemporaryFolder folder;
  const RunResult run = run_longhaul({"model", "show", kGolden + "/llama"}, folder.path());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, fmt::format(R"(model       llama, a Hugging Face folder
where       {}/llama
shape       2 layers, width 8, 4 heads of 4 (2 key-value), MLP 12, context 16, vocabulary 11, head untied
numbers     norm epsilon 1e-05, rope theta 500000 (llama3 scaling: factor 8, from 8 tokens)
parameters  1,560
weights     bfloat16, 3 files, 3.047 KiB
)",
                                 kGolden));
  const auto shown = nlohmann::json::parse(
      done(folder.path(), {"model", "show", kGolden + "/gpt2.bin", "--json"}));
  EXPECT_EQ(shown.at("kind"), "a model file of llm.c");
  EXPECT_EQ(shown.at("parameters"), 1912);
  EXPECT_EQ(shown.at("files").at(0).at("bytes"), 12416);
}

TEST(ModelCommand, a_model_comes_back_from_every_format) {
  TemporaryFolder folder;
  const std::string& at = folder.path();
  // GPT-2: llm.c -> checkpoint -> Hugging Face -> llm.c.
  done(at, {"model", "import", kGolden + "/gpt2.bin", "--out", "checkpoint"});
  done(at, {"model", "export", "checkpoint", "--to", "hugging-face", "--out", "folder"});
  done(at, {"model", "export", "folder", "--to", "llm.c", "--out", "again.bin"});
  EXPECT_TRUE(content(folder / "again.bin") == content(kGolden + "/gpt2.bin"));
  // Llama: its config and bf16 shards, by way of a checkpoint.
  done(at, {"model", "import", kGolden + "/llama", "--out", "llama"});
  done(at, {"model", "export", "llama", "--to", "hugging-face", "--out", "llama-again"});
  EXPECT_EQ(content(folder / "llama-again/config.json"), content(kGolden + "/llama/config.json"));
  EXPECT_TRUE(done(at, {"model", "show", "llama"})
                  .contains("float32, 4 files, 8.18 KiB; exported as bfloat16"));
}

TEST(ModelCommand, wrong_uses_end_with_one_message) {
  TemporaryFolder folder;
  const std::string& at = folder.path();
  const std::string gpt2 = kGolden + "/gpt2";
  folder.write("text.txt", std::string(2000, 'x'));
  folder.write("short.bin", "x");
  for (const char* const name : {"empty", "quiet", "qwen", "weightless", "cut"}) {
    fs::create_directory(folder / name);
  }
  folder.write("quiet/job.yaml", "");
  folder.write("qwen/config.json", R"({"model_type": "qwen2"})");
  folder.write("weightless/config.json", content(gpt2 + "/config.json"));
  folder.write("cut/config.json", content(gpt2 + "/config.json"));
  folder.write("cut/model.safetensors", content(gpt2 + "/model.safetensors").substr(0, 5000));
  done(at, {"model", "import", gpt2, "--out", "checkpoint"});
  struct Use {
    std::vector<std::string> arguments;
    std::string says;
    int status = 2;
  };
  const Use uses[] = {
      {{}, "A subcommand is required"},
      {{"show"}, "source is required"},
      {{"show", "nowhere"}, "nowhere is not there"},
      {{"show", "text.txt"}, "the file begins with 2021161080, not with 20240326"},
      {{"show", "short.bin"}, "1 bytes are no model of llm.c"},
      {{"show", "empty"}, "empty holds no model"},
      {{"show", "quiet"}, "there is no checkpoint in quiet/checkpoints"},
      {{"show", "qwen"}, "model type \"qwen2\" is not supported; longhaul trains gpt2 and llama"},
      {{"show", "weightless"}, "neither model.safetensors nor its index"},
      {{"show", "cut"}, "the file was cut short"},
      {{"import", gpt2}, "--out is required"},
      {{"import", gpt2, "--out", "checkpoint"}, "checkpoint has a manifest.yaml already"},
      {{"export", gpt2, "--to", "onnx", "--out", "x"}, "onnx not in {hugging-face,llm.c}"},
      {{"export", gpt2, "--out", "x"}, "--to is required"},
      {{"export", gpt2, "--to", "hugging-face", "--out", gpt2}, "has a config.json already"},
      {{"export", gpt2, "--to", "hugging-face", "--out", "x", "--dtype", "int8"}, "int8 not in"},
      {{"export", gpt2, "--to", "hugging-face", "--out", "x", "--shard-size", "5"}, "--shard-size"},
      {{"export", gpt2, "--to", "llm.c", "--out", "x", "--shard-size", "5 GB"},
       "--shard-size is for Hugging Face folders"},
      {{"export", gpt2, "--to", "llm.c", "--out", "text.txt"}, "text.txt is there already"},
      {{"export", gpt2, "--to", "llm.c", "--out", "x", "--dtype", "float16"},
       "its weights would be float16"},
      {{"export", kGolden + "/llama", "--to", "llm.c", "--out", "x"}, "it is a llama, not a gpt2"},
      {{"export", gpt2, "--to", "hugging-face", "--out", "text.txt/x"}, "text.txt", 1},
  };
  for (const Use& use : uses) {
    std::vector<std::string> arguments = {"model"};
    arguments.insert(arguments.end(), use.arguments.begin(), use.arguments.end());
    const RunResult run = run_longhaul(arguments, at);
    EXPECT_EQ(run.status, use.status) << use.says << "\n" << run.err;
    EXPECT_TRUE(run.err.contains(use.says)) << use.says << "\n" << run.err;
    EXPECT_EQ(run.out, "") << use.says;
    EXPECT_FALSE(fs::exists(folder / "x")) << use.says;
  }
}

// ---- runs that begin with a model

std::string job_from(const std::string& model) {
  return edited(fixtures::kTinyJobText,
                "{family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocabulary: 256, "
                "tied_embedding: true}",
                model);
}

TEST(ModelLaunch, a_finished_run_leaves_a_folder_that_another_begins_with) {
  const fixtures::LaunchFolder folder;
  folder.write("data/tokenizer.json", "the data's");
  const RunResult first = folder.launch({"1x1.yaml", "--local", "--name", "a"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(first.out.contains("model       runs/a/hugging-face")) << first.out;
  EXPECT_EQ(content(folder / "runs/a/hugging-face/tokenizer.json"), "the data's");
  folder.write("runs/a/hugging-face/tokenizer.json", "the model's");

  // As the job says, with --from, from the run itself, and cut into stages: the same beginning.
  folder.write("tuned.yaml", job_from("{from: runs/a/hugging-face}"));
  folder.write("tuned-1x1.yaml", fixtures::plan_of("tuned.yaml", "[2]", "[[d/0]]", "[8]", "[1]"));
  const RunResult tuned = folder.launch({"tuned-1x1.yaml", "--local", "--name", "b"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const std::vector<double> losses = folder.losses("b");
  EXPECT_LT(losses.front(), folder.losses("a").front() - 0.1);  // it has learnt
  EXPECT_EQ(folder.launch({"1x1.yaml", "--local", "--name", "c", "--from", "runs/a"}).status, 0);
  EXPECT_EQ(folder.losses("c"), losses);
  const RunResult cut =
      folder.launch({"1x2.yaml", "--local", "--name", "d", "--from", "runs/a/hugging-face"});
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_EQ(folder.losses("d"), losses);

  // The tokenizer went along, and the new weights are others.
  EXPECT_EQ(content(folder / "runs/d/hugging-face/tokenizer.json"), "the model's");
  EXPECT_EQ(content(folder / "runs/b/hugging-face/config.json"),
            content(folder / "runs/a/hugging-face/config.json"));
  EXPECT_FALSE(content(folder / "runs/b/hugging-face/model.safetensors") ==
               content(folder / "runs/a/hugging-face/model.safetensors"));
  // The run's own job names no folder.
  EXPECT_TRUE(content(folder / "runs/b/job.yaml").contains("vocabulary: 256"));
}

TEST(ModelLaunch, a_stopped_run_goes_on_from_the_imported_weights_or_later) {
  const fixtures::LaunchFolder folder;
  ASSERT_EQ(folder.launch({"1x1.yaml", "--local", "--name", "a"}).status, 0);
  folder.write("tuned.yaml", job_from("{from: runs/a/hugging-face, context: 16}"));
  folder.write("tuned-1x1.yaml", fixtures::plan_of("tuned.yaml", "[2]", "[[d/0]]", "[8]", "[1]"));
  ASSERT_EQ(folder.launch({"tuned-1x1.yaml", "--local", "--name", "whole"}).status, 0);
  ASSERT_EQ(folder.launch({"tuned-1x1.yaml", "--local", "--name", "b", "--steps", "2"}).status, 0);
  // As if it had been killed before its first checkpoint.
  fs::remove_all(folder / "runs/b/checkpoints/term-000001-step-000000002");
  const RunResult resumed = folder.launch({"tuned-1x1.yaml", "--local", "--resume", "runs/b"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(content(folder / "runs/b/hugging-face/model.safetensors") ==
              content(folder / "runs/whole/hugging-face/model.safetensors"));
}

TEST(ModelLaunch, a_model_that_does_not_fit_is_refused_and_leaves_no_folder) {
  const fixtures::LaunchFolder folder;
  const std::string gpt2 = kGolden + "/gpt2";
  folder.write("none.yaml", job_from("{from: nowhere}"));
  folder.write("twice.yaml", job_from(fmt::format("{{from: {}, layers: 2}}", gpt2)));
  folder.write("long.yaml", job_from(fmt::format("{{from: {}, context: 9}}", gpt2)));
  folder.write("small.yaml", job_from(fmt::format("{{from: {}}}", gpt2)));
  for (const std::string job : {"none", "twice", "long", "small"}) {
    folder.write(job + "-plan.yaml",
                 fixtures::plan_of(job + ".yaml", "[2]", "[[d/0]]", "[8]", "[1]"));
  }
  struct Use {
    std::vector<std::string> arguments;
    std::string says;
  };
  const Use uses[] = {
      {{"1x1.yaml", "--from", "nowhere"}, "nowhere is not there"},
      {{"1x1.yaml", "--from", "data"}, "data holds no model"},
      {{"1x1.yaml", "--from", gpt2},
       "is another model than that of tiny.yaml: width 8, not 32; head_width 4, not 16; ffn_width "
       "32, not 128; vocabulary 11, not 256; context 8, not 16"},
      {{"1x1.yaml", "--from", gpt2, "--resume", "runs/a"}, "--resume"},
      {{"none-plan.yaml"}, "nowhere is no folder"},
      {{"twice-plan.yaml"}, "`layers` is what the config.json of `from` says"},
      {{"long-plan.yaml"}, "must be a whole number from 1 to 8"},
      {{"small-plan.yaml"}, "tokens of a vocabulary of 256 do not fit the model's 11"},
  };
  for (Use use : uses) {
    use.arguments.emplace_back("--local");
    const RunResult run = folder.launch(use.arguments);
    EXPECT_EQ(run.status, 2) << use.says << "\n" << run.err;
    EXPECT_TRUE(run.err.contains(use.says)) << use.says << "\n" << run.err;
    EXPECT_FALSE(folder.has("runs")) << use.says;
  }
}

}  // namespace
}  // namespace longhaul
