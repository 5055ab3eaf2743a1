#include "executor/run/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using fixtures::learnable_tokens;
using fixtures::MemorySequences;

constexpr int kContext = 8;

ModelStage fresh_model(std::uint64_t seed = 1) {
  const ModelShape model = {.family = ModelFamily::kGpt2,
                            .layers = 2,
                            .width = 16,
                            .heads = 2,
                            .kv_heads = 2,
                            .head_width = 8,
                            .ffn_width = 64,
                            .context = kContext,
                            .vocabulary = 16,
                            .tied_embedding = true};
  auto stage = ModelStage::create(model, {0, model.layers, true, true}).value();
  stage.initialise_weights(seed);
  return stage;
}

Evaluation evaluated(ModelStage& stage, SequenceSource& source, int micro_batch,
                     std::vector<std::uint32_t> bytes = {}) {
  ModelEvaluator evaluator(stage, micro_batch, std::move(bytes));
  const std::int64_t sequences = source.identity().sequences();
  for (std::int64_t first = 0; first < sequences; first += micro_batch) {
    const auto added =
        evaluator.add(source, first, std::min<std::int64_t>(micro_batch, sequences - first));
    EXPECT_TRUE(added) << added.error().text();
  }
  return evaluator.result();
}

TEST(Evaluation, a_model_that_knows_nothing_has_the_loss_of_a_guess) {
  // 7 sequences; logits of fresh weights are near 0, and a guess among 16 costs log 16.
  ModelStage stage = fresh_model();
  MemorySequences source(learnable_tokens(7 * kContext + 3, 1), kContext);
  const Evaluation done = evaluated(stage, source, 2);
  EXPECT_EQ(done.sequences, 7);
  EXPECT_EQ(done.targets, 7u * kContext);
  EXPECT_EQ(done.bytes, 0u);
  EXPECT_NEAR(done.loss(), std::log(16), 0.05);
}

TEST(Evaluation, the_size_of_a_micro_batch_changes_no_bit) {
  ModelStage stage = fresh_model();
  MemorySequences source(learnable_tokens(7 * kContext + 1, 1), kContext);
  const double alone = evaluated(stage, source, 1).loss_sum;
  for (const int micro_batch : {2, 3, 7, 8}) {
    EXPECT_EQ(evaluated(stage, source, micro_batch).loss_sum, alone) << micro_batch;
  }
}

TEST(Evaluation, bytes_are_those_of_the_targets) {
  // Token n stands for n bytes. The targets are all tokens but the first; what is left over after
  // the second sequence is in none.
  std::vector<Token> tokens = learnable_tokens(2 * kContext + 4, 1);
  std::uint64_t expected = 0;
  for (int i = 1; i <= 2 * kContext; ++i) {
    expected += static_cast<std::uint64_t>(tokens[static_cast<std::size_t>(i)]);
  }
  std::vector<std::uint32_t> bytes;
  for (std::uint32_t n = 0; n < 16; ++n) bytes.push_back(n);
  ModelStage stage = fresh_model();
  MemorySequences source(tokens, kContext);
  EXPECT_EQ(evaluated(stage, source, 3, bytes).bytes, expected);
}

TEST(Evaluation, a_loss_that_is_not_finite_fails) {
  ModelStage stage = fresh_model();
  stage.weights()[0] = std::nanf("");
  MemorySequences source(std::vector<Token>(2 * kContext + 1, 0), kContext);
  ModelEvaluator evaluator(stage, 1, {});
  const auto added = evaluator.add(source, 1, 1);
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kFailed);
  EXPECT_TRUE(added.error().message.contains("sequences 1 to 1")) << added.error().message;
  EXPECT_EQ(evaluator.result().sequences, 0);
}

}  // namespace
}  // namespace longhaul
