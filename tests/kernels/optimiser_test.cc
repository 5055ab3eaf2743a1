#include "kernels/cpu/reference_ops.h"
#include "kernels/ops.h"
#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

using namespace fixtures;

// lr 0.1, betas 0.5 and 0.75, epsilon 1, decay 0.5; weight 1, gradient 2.
// Step 1: weight 1 x (1 - 0.05) = 0.95; m = 0.5 x 2 = 1, corrected 1 / 0.5 = 2;
//         v = 0.25 x 4 = 1, corrected 1 / 0.25 = 4, root 2;
//         weight = 0.95 - 0.1 x 2 / (2 + 1) = 0.8833333.
// Step 2, gradient -4: weight 0.8833333 x 0.95 = 0.8391667; m = 1 + 0.5 (-4 - 1) = -1.5, corrected
//         -1.5 / 0.75 = -2; v = 0.75 + 0.25 x 16 = 4.75, corrected 4.75 / 0.4375 = 10.857143, root
//         3.2950179; weight = 0.8391667 + 0.2 / 4.2950179 = 0.8857324.
TEST(AdamW, two_steps_by_hand) {
  with_each_isa([](Isa) {
    std::vector<float> weight(37, 1.0f), m(37), v(37);
    ops::AdamWOptions options = {.learning_rate = 0.1,
                                 .beta1 = 0.5,
                                 .beta2 = 0.75,
                                 .epsilon = 1,
                                 .weight_decay = 0.5,
                                 .step = 1};
    ops::adamw({options, weight, std::vector<float>(37, 2.0f), m, v});
    for (const float w : weight) EXPECT_NEAR(w, 0.8833333f, 1e-6f);
    options.step = 2;
    ops::adamw({options, weight, std::vector<float>(37, -4.0f), m, v});
    for (const float w : weight) EXPECT_NEAR(w, 0.8857324f, 1e-6f);
    EXPECT_EQ(m.back(), -1.5f);
    EXPECT_EQ(v.back(), 4.75f);
  });
}

// Epsilon is outside the root: with gradient 1e-4 at step 1 both corrections cancel, and the move
// is lr x 1e-4 / (1e-4 + 1e-4) = lr / 2; inside the root it would be lr x 1e-4 / sqrt(1e-8 + 1e-4).
TEST(AdamW, epsilon_is_outside_the_root) {
  std::vector<float> weight(1, 0.0f), m(1), v(1);
  ops::adamw({{.learning_rate = 1, .epsilon = 1e-4}, weight, std::vector<float>(1, 1e-4f), m, v});
  EXPECT_NEAR(weight[0], -0.5f, 1e-5f);
}

TEST(AdamW, a_scaled_gradient_is_a_gradient_scaled_before) {
  auto weight = random_values("w", 100);
  auto other = weight;
  const auto gradient = random_values("g", 100);
  auto halved = gradient;
  for (float& g : halved) g *= 0.5f;
  std::vector<float> m(100), v(100), other_m(100), other_v(100);
  ops::adamw({{.learning_rate = 0.1, .gradient_scale = 0.5}, weight, gradient, m, v});
  ops::adamw({{.learning_rate = 0.1}, other, halved, other_m, other_v});
  EXPECT_TRUE(same_bits(weight, other));
}

TEST(AdamW, fast_follows_the_reference_over_many_steps_on_every_instruction_set) {
  constexpr std::size_t kSize = 45;
  const auto start = random_values("w", kSize);
  std::vector<double> weight_d(start.begin(), start.end()), m_d(kSize), v_d(kSize);
  for (std::int64_t step = 1; step <= 50; ++step) {
    const auto g = random_values<double>("g" + std::to_string(step), kSize);
    reference::adamw<double>(
        {{.learning_rate = 0.01, .weight_decay = 0.1, .step = step}, weight_d, g, m_d, v_d});
  }
  std::vector<float> portable;
  with_each_isa([&](Isa isa) {
    auto weight = start;
    std::vector<float> m(kSize), v(kSize);
    for (std::int64_t step = 1; step <= 50; ++step) {
      const auto g = random_values("g" + std::to_string(step), kSize);
      ops::adamw({{.learning_rate = 0.01, .weight_decay = 0.1, .step = step}, weight, g, m, v});
    }
    EXPECT_LT(relative_difference(weight, weight_d), 1e-6);
    if (isa == Isa::kPortable) portable = weight;
    EXPECT_TRUE(same_bits(weight, portable));
  });
}

// 4,097 elements of 2: a block of 4,096 x 4 = 16,384 and one of 4.
TEST(GlobalNorm, blocks_add_up_and_restart_at_each_tensor) {
  const std::vector<float> values(4097, 2.0f);
  EXPECT_EQ(ops::block_sum_of_squares(std::span(values).first(4096)), 16384.0);
  EXPECT_EQ(ops::block_sum_of_squares(std::span(values).last(1)), 4.0);
  EXPECT_EQ(ops::sum_of_squares(values), 16388.0);
  EXPECT_EQ(ops::sum_of_squares({}), 0.0);
}

// Owners of a tensor's shards, cut at blocks, hand in block sums; added in order they are the sum.
TEST(GlobalNorm, a_tensor_cut_at_blocks_has_the_sum_of_the_whole) {
  const auto values = random_values("v", 3 * 4096 + 100);
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += ops::kNormBlock) {
    const std::size_t size = std::min(ops::kNormBlock, values.size() - begin);
    sum += ops::block_sum_of_squares(std::span(values).subspan(begin, size));
  }
  EXPECT_EQ(sum, ops::sum_of_squares(values));
}

TEST(GlobalNorm, is_finite_exactly_if_every_element_is) {
  std::vector<float> values(5000, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(ops::sum_of_squares(values)));
  for (const std::size_t at : {0u, 4095u, 4096u, 4999u}) {
    auto bad = values;
    bad[at] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(ops::sum_of_squares(bad)));
    bad[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(std::isfinite(ops::sum_of_squares(bad)));
  }
}

TEST(GlobalNorm, clipping_touches_only_norms_above_the_limit) {
  EXPECT_EQ(ops::clip_factor(0, 1), 1.0);
  EXPECT_EQ(ops::clip_factor(0.99, 1), 1.0);
  EXPECT_NEAR(ops::clip_factor(4, 1), 0.25, 1e-6);
}

}  // namespace
}  // namespace longhaul
