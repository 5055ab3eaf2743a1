// Error feedback in the exchange. All members of these groups are in sites of their own and have
// one tensor, so that a member's residuals lie as its gradient does: its parts of others' shards,
// and the sum of its own.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/rng.h"
#include "executor/collective/sharded_all_reduce.h"
#include "tests/executor/mesh_fixtures.h"

namespace longhaul {
namespace {

using fixtures::SimMeshWorld;
using Vectors = std::vector<std::vector<float>>;  // by member

constexpr TensorCodec kLossy[] = {
    TensorCodec::kQ8, TensorCodec::kQ6, TensorCodec::kQ4,         TensorCodec::kQ4Symmetric,
    TensorCodec::kQ3, TensorCodec::kQ2, TensorCodec::kHadamardQ4,
};
constexpr std::size_t kElements = 3 * 4096;

/// Members that exchange step after step.
struct Group {
  explicit Group(std::size_t members, TensorCodec codec) {
    const int count = static_cast<int>(members);
    world.connect(count, {.chunk_bytes = 5000});
    world.network.set_default_link({Seconds(0.1), bytes_per_second(1e6)});
    for (int i = 0; i < count; ++i) options.members.push_back({.rank = i, .site = i});
    options.tensor_lengths = {kElements};
    options.codec = codec;
    options.bucket_elements = 1024;
    for (int i = 0; i < count; ++i) {
      parts.push_back(*ShardedAllReduce::create(world.mesh(i), world.loop, options));
    }
  }

  void start(Vectors& gradients) {
    ++operation;
    outcomes.assign(parts.size(), "");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i]->start(operation, gradients[i], [this, i](Result<void> outcome) {
        outcomes[i] = outcome ? "done" : outcome.error().message;
      });
    }
  }
  /// The sum that all have.
  std::vector<float> exchange(Vectors gradients) {
    start(gradients);
    world.run();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(outcomes[i], "done");
      const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
      EXPECT_TRUE(std::ranges::equal(gradients[i], gradients[0], {}, bits, bits)) << i;
    }
    return gradients[0];
  }
  void commit() {
    for (auto& part : parts) part->commit();
  }
  Vectors residuals() const {
    Vectors all;
    for (const auto& part : parts) {
      all.emplace_back(part->residuals().begin(), part->residuals().end());
    }
    return all;
  }

  SimMeshWorld world;
  ExchangeOptions options;
  std::uint64_t operation = 0;
  std::vector<std::unique_ptr<ShardedAllReduce>> parts;
  std::vector<std::string> outcomes;
};

Vectors draw(Rng& rng, std::size_t members) {
  Vectors gradients(members, std::vector<float>(kElements));
  for (auto& gradient : gradients) {
    for (float& value : gradient) value = static_cast<float>(2 * rng.uniform() - 1);
  }
  return gradients;
}

TEST(ErrorFeedback, what_was_sent_and_what_is_left_are_all_that_was_given) {
  // P8 on both hops at once. A member sends g + e - e', the owner sum + E - E', so that over all
  // steps: results + last residuals of all members = inputs. Every step rounds about ten times
  // numbers below 8, by 2^-24 of them: in ten steps at most 5e-5 together.
  for (const TensorCodec codec : kLossy) {
    Group group(3, codec);
    Rng rng("inputs", 1);
    std::vector<double> given(kElements), told(kElements), direct(kElements);
    for (int step = 0; step < 10; ++step) {
      const Vectors inputs = draw(rng, 3);
      const std::vector<float> sum = group.exchange(inputs);
      group.commit();
      for (std::size_t k = 0; k < kElements; ++k) {
        for (const auto& input : inputs) given[k] += double{input[k]};
        told[k] += double{sum[k]};
      }
    }
    const Vectors left = group.residuals();
    double error = 0, kept = 0;
    for (std::size_t k = 0; k < kElements; ++k) {
      double residual = 0;
      for (const auto& of_member : left) residual += double{of_member[k]};
      error = std::max(error, std::abs(told[k] + residual - given[k]));
      kept = std::max(kept, std::abs(residual));
    }
    EXPECT_LT(error, 5e-5) << name_of(codec);
    EXPECT_GT(kept, 1e-3) << name_of(codec) << ": the codec must lose something";
  }
}

TEST(ErrorFeedback, nothing_is_kept_by_16_bits_and_exact_ones) {
  for (const TensorCodec codec : {TensorCodec::kRaw, TensorCodec::kBf16, TensorCodec::kF16}) {
    Group group(2, codec);
    Rng rng("inputs", 1);
    group.exchange(draw(rng, 2));
    group.commit();
    EXPECT_TRUE(group.parts[0]->residuals().empty());
  }
}

TEST(ErrorFeedback, a_step_that_is_not_committed_is_done_again_from_the_same_residuals) {
  for (const TensorCodec codec : kLossy) {
    Group group(3, codec);
    Rng rng("inputs", 1);
    group.exchange(draw(rng, 3));
    group.commit();
    const Vectors before = group.residuals();
    EXPECT_TRUE(before[0] != std::vector<float>(kElements));
    const Vectors inputs = draw(rng, 3);
    const std::vector<float> first = group.exchange(inputs);
    EXPECT_TRUE(group.residuals() == before);
    EXPECT_TRUE(group.exchange(inputs) == first);  // the same bits
    group.commit();
    const Vectors after = group.residuals();
    EXPECT_TRUE(after != before);
    group.commit();  // nothing is left to commit
    EXPECT_TRUE(group.residuals() == after);
  }
}

TEST(ErrorFeedback, a_gradient_that_is_not_finite_leaves_no_trace) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const TensorCodec codec : kLossy) {
    for (const float sick : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t member : {0u, 1u, 2u}) {
        Group group(3, codec);
        Rng rng("inputs", 1);
        group.exchange(draw(rng, 3));
        group.commit();
        const Vectors before = group.residuals();
        Vectors inputs = draw(rng, 3);
        const Vectors well = inputs;
        inputs[member][5000] = sick;  // of the shard of rank 1, bucket 0
        const std::vector<float> sum = group.exchange(inputs);
        for (std::size_t k = 0; k < kElements; ++k) {
          ASSERT_EQ(std::isnan(sum[k]), 4096 <= k && k < 4096 + 1024) << k;
        }
        group.commit();  // has no effect: the sum is not finite
        EXPECT_TRUE(group.residuals() == before);
        EXPECT_TRUE(
            std::ranges::all_of(group.exchange(well), [](float x) { return std::isfinite(x); }));
      }
    }
  }
}

TEST(ErrorFeedback, an_exchange_that_a_loss_ends_is_done_again_in_a_new_term) {
  // Rank 0 loses rank 2 at many moments. With the same residuals as before, rank 0 and 1 give what
  // they would have given at once.
  for (const TensorCodec codec : kLossy) {
    for (int moment = 0; moment < 8; ++moment) {
      Group group(3, codec);
      Rng rng("inputs", 1);
      group.exchange(draw(rng, 3));
      group.commit();
      const Vectors before = group.residuals();
      const Vectors inputs = draw(rng, 3);
      const std::vector<float> undisturbed = group.exchange(inputs);
      Vectors gradients = inputs;
      group.start(gradients);
      group.world.loop.after(Seconds(0.04 * moment), [&] {
        group.parts[0]->peer_lost(2, failed("the test says so").error());
        for (auto& part : group.parts) part->abandon();
      });
      group.world.run();
      group.commit();
      if (group.residuals() != before) continue;  // all were done before the moment
      for (int rank = 0; rank < 3; ++rank) group.world.mesh(rank).set_term(1);
      EXPECT_TRUE(group.exchange(inputs) == undisturbed) << moment;
    }
  }
}

/// Gradient descent on the mean of |w - t_i|^2 / 2, t_i a member's own target: the distance of w
/// from the mean of the targets, in root mean square, after so many steps.
double distance_after(TensorCodec codec, bool has_feedback, int steps) {
  Group group(2, codec);
  Rng rng("targets", 1);
  const Vectors targets = draw(rng, 2);
  std::vector<float> w(kElements);
  for (int step = 0; step < steps; ++step) {
    Vectors gradients = targets;
    for (auto& gradient : gradients) {
      for (std::size_t k = 0; k < kElements; ++k) gradient[k] = w[k] - gradient[k];
    }
    const std::vector<float> sum = group.exchange(gradients);
    if (has_feedback) group.commit();  // else the residuals stay zero
    for (std::size_t k = 0; k < kElements; ++k) w[k] -= 0.05F * sum[k];
  }
  double square = 0;
  for (std::size_t k = 0; k < kElements; ++k) {
    const double off = double{w[k]} - (double{targets[0][k]} + double{targets[1][k]}) / 2;
    square += off * off;
  }
  return std::sqrt(square / static_cast<double>(kElements));
}

TEST(ErrorFeedback, two_bits_find_the_optimum_with_it_and_stay_away_without) {
  // At the optimum members' gradients cancel and are not small, so a codec's error does not shrink
  // by itself. Targets are uniform in [-1, 1]: their mean is 0.41 from the start at 0.
  const double with = distance_after(TensorCodec::kQ2, true, 150);
  const double without = distance_after(TensorCodec::kQ2, false, 150);
  EXPECT_LT(with, 0.03);
  EXPECT_GT(without, 3 * with);
}

TEST(ErrorFeedback, buffers_are_made_once) {
  Group group(3, TensorCodec::kQ8);
  Rng rng("inputs", 1);
  for (int step = 0; step < 5; ++step) {
    group.exchange(draw(rng, 3));
    group.commit();
  }
  for (const auto& part : group.parts) EXPECT_EQ(part->buffers_made(), 1);
  // What an abandoned exchange has given to the mesh is left to it.
  Vectors gradients = draw(rng, 3);
  group.start(gradients);
  group.world.run_until([&] { return group.world.loop.now() > Seconds(0); });
  for (auto& part : group.parts) part->abandon();
  group.exchange(draw(rng, 3));
  for (const auto& part : group.parts) EXPECT_EQ(part->buffers_made(), 2);
}

}  // namespace
}  // namespace longhaul
