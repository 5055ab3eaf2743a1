// `longhaul eval` as people use it: after a run, on its data and on others.
#include <cmath>
#include <nlohmann/json.hpp>

#include "executor/data/token_shard.h"
#include "tests/tools/launch_fixtures.h"

namespace longhaul {
namespace {

using fixtures::LaunchFolder;
using nlohmann::json;

/// The last validation loss of a run, as metrics.jsonl has it.
double validation_loss(const LaunchFolder& folder, const std::string& run) {
  double loss = 0;
  std::ifstream file(folder / ("runs/" + run + "/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const json record = json::parse(line);
    if (record.contains("validation_loss")) loss = record["validation_loss"];
  }
  return loss;
}

class EvalCli : public testing::Test {
 protected:
  void train(const std::string& grid) {
    const RunResult run = folder_.launch({grid + ".yaml", "--local", "--name", grid});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  json evaluated(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "eval");
    arguments.push_back("--json");
    const RunResult run = folder_.run(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    json document = json::parse(run.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << run.out;
    return document;
  }
  void expect_refused(std::vector<std::string> arguments, const std::string& says) {
    arguments.insert(arguments.begin(), "eval");
    const RunResult run = folder_.run(arguments);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(says)) << run.err;
  }

  const LaunchFolder folder_;
};

TEST_F(EvalCli, it_is_the_runs_own_validation_loss_to_the_bit) {
  train("1x1");
  const double loss = validation_loss(folder_, "1x1");
  // The job validates on 16 sequences of 16 tokens, of 722 tokens that are there.
  const json own = evaluated({"runs/1x1", "--sequences", "16"});
  EXPECT_EQ(own["loss"], loss);
  EXPECT_EQ(own["sequences"], 16);
  EXPECT_EQ(own["sequences_all"], 45);  // (722 - 1) / 16
  EXPECT_EQ(own["tokens"], 256);
  EXPECT_EQ(own["part"], "validation");
  EXPECT_EQ(own["perplexity"], std::exp(loss));
  // A token is a byte.
  EXPECT_NEAR(own["bits_per_byte"], loss / std::log(2), 1e-12);
  EXPECT_EQ(own["interrupted"], false);
  EXPECT_TRUE(own["model"].get<std::string>().ends_with("step-000000012")) << own;
  for (const char* micro_batch : {"1", "5", "16"}) {
    const json other = evaluated({"runs/1x1", "--data", "data", "--part", "validation",
                                  "--sequences", "16", "--micro-batch", micro_batch});
    EXPECT_EQ(other["loss"], loss) << micro_batch;
  }
}

TEST_F(EvalCli, pipelines_add_their_sums_up) {
  train("2x2");
  const json own = evaluated({"runs/2x2", "--sequences", "16"});
  EXPECT_NEAR(own["loss"], validation_loss(folder_, "2x2"), 1e-12);
}

TEST_F(EvalCli, a_bf16_runs_loss_is_that_of_bf16) {
  folder_.write("core.yaml", edited(fixtures::kCoreText, "fp16: 10 GFLOP/s", "bf16: 10 GFLOP/s"));
  folder_.write("tiny.yaml", edited(fixtures::kTinyJobText, "precision: fp32", "precision: bf16"));
  train("1x1");
  const double loss = validation_loss(folder_, "1x1");
  EXPECT_EQ(evaluated({"runs/1x1", "--sequences", "16", "--precision", "bf16"})["loss"], loss);
  const json fp32 = evaluated({"runs/1x1", "--sequences", "16"});
  EXPECT_NE(fp32["loss"], loss);
  EXPECT_NEAR(fp32["loss"], loss, 0.01);
}

TEST_F(EvalCli, parts_and_files_are_chosen) {
  train("1x1");
  const json validation = evaluated({"runs/1x1"});
  const json train = evaluated({"runs/1x1", "--part", "train"});
  const json all = evaluated({"runs/1x1", "--part", "all"});
  EXPECT_EQ(validation["sequences"], 45);
  EXPECT_EQ(train["sequences"], 414);  // (6636 - 1) / 16
  EXPECT_EQ(all["sequences"], 459);
  const double sum = 45 * validation["loss"].get<double>() + 414 * train["loss"].get<double>();
  EXPECT_NEAR(all["loss"], sum / 459, 1e-9);
  // A shard alone says nothing of a tokenizer, but a vocabulary of 256 does.
  const std::string shard = "data/val_000000.bin";
  ASSERT_TRUE(folder_.has(shard));
  const json file = evaluated({"runs/1x1", "--data", shard});
  EXPECT_EQ(file["loss"], validation["loss"]);
  EXPECT_EQ(file["bits_per_byte"], validation["bits_per_byte"]);
  EXPECT_EQ(file["part"], "file");
  // Without dataset.yaml the names of the shards tell the parts.
  std::filesystem::create_directory(folder_ / "shards");
  std::filesystem::copy(folder_ / shard, folder_ / "shards/fine_val_000001.bin");
  EXPECT_EQ(evaluated({"runs/1x1", "--data", "shards"})["loss"], validation["loss"]);
}

TEST_F(EvalCli, what_is_printed_names_model_and_data) {
  train("1x1");
  const RunResult run = folder_.run({"eval", "runs/1x1"});
  EXPECT_EQ(run.status, 0) << run.err;
  for (const char* part :
       {"loss ", "nats a token, of a bigram model ", "perplexity ", "bits a byte ",
        "(validation), 45 of 45 sequences of 16 tokens", " tokens/s\n"}) {
    EXPECT_TRUE(run.out.contains(part)) << part << run.out;
  }
  EXPECT_TRUE(run.err.contains("model: runs/1x1/checkpoints/")) << run.err;
  const RunResult some = folder_.run({"eval", "runs/1x1", "--sequences", "3"});
  EXPECT_TRUE(some.out.contains("3 of 45 sequences")) << some.out;
  EXPECT_FALSE(some.out.contains("bigram")) << some.out;  // it is one of the whole part
}

TEST_F(EvalCli, an_interrupt_prints_what_is_done) {
  train("1x1");
  // A part of 56,249 sequences takes long enough to be interrupted.
  std::string text;
  while (text.size() < 1'000'000) text += "Line 1 has 7 letters.\n";
  folder_.write("long.txt", text);
  ASSERT_EQ(
      folder_.run({"data", "prepare", "long.txt", "-o", "long", "--validation", "0.9"}).status, 0);
  Process process({"eval", "runs/1x1", "--data", "long", "--micro-batch", "1", "--json"},
                  folder_.path());
  ASSERT_TRUE(process.wait_for_error_text("/56249 sequences")) << process.error_text();
  process.send(SIGINT);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 128 + SIGINT) << run.err;
  const json document = json::parse(run.out, nullptr, false);
  ASSERT_FALSE(document.is_discarded()) << run.out;
  EXPECT_EQ(document["interrupted"], true);
  EXPECT_GT(document["sequences"], 0);
  EXPECT_LT(document["sequences"], 56249);
}

TEST_F(EvalCli, what_is_asked_must_make_sense) {
  train("1x1");
  folder_.write("shard.bin", "no shard");
  // Three tokens of a vocabulary of 70,000, and one that a model of bytes has not.
  folder_.write("few.txt", "abcdefgh");
  ASSERT_EQ(folder_.run({"data", "prepare", "few.txt", "-o", "few", "--validation", "0"}).status,
            0);
  ASSERT_EQ(folder_.run({"data", "prepare", "text.txt", "-o", "other"}).status, 0);
  folder_.write("other/dataset.yaml", edited(read_text(folder_ / "other/dataset.yaml"),
                                             "vocabulary: 256", "vocabulary: 50257"));
  ASSERT_EQ(folder_.run({"data", "prepare", "text.txt", "-o", "mixed"}).status, 0);
  std::filesystem::copy(folder_ / "mixed/train_000000.bin", folder_ / "mixed/val_000000.bin",
                        std::filesystem::copy_options::overwrite_existing);
  std::filesystem::create_directory(folder_ / "empty");
  const struct {
    std::vector<std::string> arguments;
    std::string says;
  } cases[] = {
      {{"runs/absent"}, "runs/absent does not say what to judge it on"},
      {{"runs/absent", "--data", "data"}, "runs/absent is not there"},
      {{"data", "--data", "data"}, "data holds no model"},
      {{"runs/1x1", "--data", "absent"}, "absent is not there"},
      {{"runs/1x1", "--data", "empty"}, "empty holds no dataset.yaml and no shards"},
      {{"runs/1x1", "--data", "shard.bin"}, "shard.bin"},
      {{"runs/1x1", "--data", "data/val_000000.bin", "--part", "train"}, "has no parts"},
      {{"runs/1x1", "--data", "few", "--part", "validation"}, "few has no validation part"},
      {{"runs/1x1", "--data", "few"}, "8 tokens are no sequence of the model's context of 16"},
      {{"runs/1x1", "--data", "other"}, "a vocabulary of 50257 do not fit the model's 256"},
      {{"runs/1x1", "--data", "mixed"}, "are not what dataset.yaml says"},
      {{"runs/1x1", "--part", "test"}, "--part"},
      {{"runs/1x1", "--sequences", "0"}, "--sequences"},
      {{"runs/1x1", "--micro-batch", "0"}, "--micro-batch"},
      {{"runs/1x1", "--precision", "fp16"}, "--precision"},
  };
  for (const auto& [arguments, says] : cases) expect_refused(arguments, says);
}

}  // namespace
}  // namespace longhaul
