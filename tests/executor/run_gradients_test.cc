// Runs whose replicas exchange their gradients in few bits, through the real executor.

#include <cmath>

#include "core/gradient_exchange.h"
#include "tests/executor/run_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Two replicas in two sites.
RunOptions two_replicas(Codec gradients) {
  return {.layers = {2},
          .micro_batches = {4, 4},
          .width = 64,
          .gradients = gradients,
          .steps = 100,
          .train_tokens = 8 * 8 * 100 + 1};
}

struct Outcome {
  double loss = 0;  // mean of the last half of the steps
  std::map<int, Measured> measured;
  RunSpec spec;
};

Outcome outcome_of(const RunOptions& options) {
  MemorySequences train(learnable_tokens(options.train_tokens, 1), 8);
  MemorySequences validation(learnable_tokens(8 * 8 + 1, 2), 8);
  const RunSpec spec = spec_of(options, train.identity(), validation.identity());
  Disks disks;
  SimRun run(options, spec, train, validation, disks);
  EXPECT_TRUE(run.run_until_ended()) << "the run does not end";
  EXPECT_TRUE(run.ending && run.ending->ending.clean());
  if (::testing::Test::HasFailure()) return {};
  run.collect_weights();  // replicas hold the same bits
  const std::vector<double>& losses = run.outcome.losses;
  const auto half = static_cast<std::ptrdiff_t>(losses.size() / 2);
  const double sum = std::accumulate(losses.end() - half, losses.end(), 0.0);
  return {sum / static_cast<double>(half), run.measured, spec};
}

TEST(RunGradients, few_bits_end_near_the_loss_of_fp32) {
  // All four are within 1.3 % here; the loss begins at 2.9.
  const double exact = outcome_of(two_replicas(Codec::kNone)).loss;
  EXPECT_LT(exact, 1) << "the model must learn something";
  for (const Codec codec : {Codec::kInt8, Codec::kInt4, Codec::kHadamard4, Codec::kInt2}) {
    const double loss = outcome_of(two_replicas(codec)).loss;
    EXPECT_NEAR(loss, exact, 0.03 * exact) << name_of(codec);
    EXPECT_NE(loss, exact) << name_of(codec) << ": nothing was coded";
  }
}

TEST(RunGradients, the_bytes_that_are_predicted_are_sent) {
  // Between two sites goes a part of the one shard and the sum of the other. Real shards end at
  // block boundaries, predicted ones are exact halves: scales and codes of two frames are padded
  // differently, at most by 64 bytes and by a block.
  for (const Codec codec : {Codec::kNone, Codec::kBf16, Codec::kInt8, Codec::kInt4, Codec::kInt2}) {
    RunOptions options = two_replicas(codec);
    options.steps = 6;
    const Outcome outcome = outcome_of(options);
    const GradientElements all =
        stage_gradient_elements(outcome.spec.job.model, {2, true, true}, 1);
    const double predicted = 2 * gradient_wire_bytes(codec, all / 2).value();
    for (const auto& [cell, measured] : outcome.measured) {
      const auto& sent = measured.sent;
      const auto to =
          std::ranges::find(sent, RunSpec::rank_of_cell(1 - cell), &Measured::Sent::peer);
      ASSERT_NE(to, sent.end());
      EXPECT_EQ(static_cast<double>(to->raw), 4 * all.all());
      EXPECT_NEAR(static_cast<double>(to->bytes), predicted,
                  codec == Codec::kNone || codec == Codec::kBf16 ? 0 : 2 * (64 + 32))
          << name_of(codec);
    }
    EXPECT_EQ(outcome.measured.size(), 2u);
  }
}

}  // namespace
}  // namespace longhaul
