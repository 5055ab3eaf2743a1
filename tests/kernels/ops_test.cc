#include "kernels/ops.h"

#include "tests/kernels/op_cases.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Output, kept values and gradients of one version.
template <class T>
Tensors<T> everything(const OpCase& op, const OpFunction<T>& function) {
  const Tensors<T> inputs = inputs_of<T>(op);
  Tensors<T> all = function.forward(inputs);
  for (auto& d : function.backward(inputs, cotangent_of<T>(op, all[0].size()))) all.push_back(d);
  return all;
}

TEST(Ops, fast_and_reference_agree_with_double_within_each_operations_tolerance) {
  for (const bool large : {false, true}) {
    for (const OpCase& op : op_cases(large)) {
      SCOPED_TRACE(op.name);
      const Tensors<double> exact = everything(op, op.exact);
      for (const auto* function : {&op.fast, &op.reference}) {
        const Tensors<float> values = everything(op, *function);
        ASSERT_EQ(values.size(), exact.size());
        for (std::size_t i = 0; i < exact.size(); ++i) {
          EXPECT_LT(relative_difference(values[i], exact[i]), op.tolerance)
              << (function == &op.fast ? "fast" : "reference") << ", tensor " << i;
        }
      }
    }
  }
}

TEST(Ops, every_instruction_set_gives_the_same_bits) {
  if (supported_isas().size() == 1) GTEST_SKIP() << "this machine has only the portable kernels";
  for (const OpCase& op : op_cases(true)) {
    SCOPED_TRACE(op.name);
    Tensors<float> portable;
    with_each_isa([&](Isa isa) {
      const Tensors<float> values = everything(op, op.fast);
      if (isa == Isa::kPortable) portable = values;
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(same_bits(values[i], portable[i])) << "tensor " << i;
      }
    });
  }
}

// Central differences of the double reference: with step h the error is about h^2 = 1e-10 times a
// third derivative, and rounding about 1e-16 / h = 1e-11.
TEST(Ops, gradients_match_finite_differences) {
  constexpr double kStep = 1e-5;
  for (const OpCase& op : op_cases(false)) {
    SCOPED_TRACE(op.name);
    Tensors<double> inputs = inputs_of<double>(op);
    const auto loss = [&] {
      const std::vector<double> output = op.exact.forward(inputs)[0];
      const std::vector<double> weights = cotangent_of<double>(op, output.size());
      double sum = 0;
      for (std::size_t i = 0; i < output.size(); ++i) sum += weights[i] * output[i];
      return sum;
    };
    const std::size_t outputs = op.exact.forward(inputs)[0].size();
    const Tensors<double> gradients = op.exact.backward(inputs, cotangent_of<double>(op, outputs));
    ASSERT_EQ(gradients.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t j = 0; j < inputs[i].size(); ++j) {
        const double value = inputs[i][j];
        inputs[i][j] = value + kStep;
        const double above = loss();
        inputs[i][j] = value - kStep;
        const double below = loss();
        inputs[i][j] = value;
        EXPECT_NEAR(gradients[i][j], (above - below) / (2 * kStep), 1e-7)
            << "input " << i << ", element " << j;
      }
    }
  }
}

// gelu(-10) = -10 (1 + tanh(-43.66)) / 2: in fp32 1 + tanh is 0, while the sigmoid form is right:
// exp(-2 x 43.66) x -10 = -1.2e-37.
TEST(Ops, gelu_keeps_its_precision_far_left) {
  const std::vector<float> x = {-10.0f, -5.0f, -100.0f, 100.0f};
  std::vector<float> y(4);
  ops::gelu_forward({.input = x, .output = y});
  EXPECT_LT(y[0], 0.0f);
  EXPECT_GT(y[0], -2e-37f);
  // 0.5 x (1 + tanh) at -5 in double: -2.2917967e-7.
  EXPECT_NEAR(y[1], -2.2917967e-7f, 1e-12f);
  EXPECT_EQ(y[3], 100.0f);
}

TEST(Ops, gelu_backward_may_overwrite_its_input_or_its_output_gradient) {
  const auto x = random_values("x", 100, 3);
  const auto dy = random_values("dy", 100);
  std::vector<float> expected(100);
  ops::gelu_backward({.input = x, .output_gradient = dy, .input_gradient = expected});
  auto over_input = x;
  ops::gelu_backward({.input = over_input, .output_gradient = dy, .input_gradient = over_input});
  EXPECT_TRUE(same_bits(over_input, expected));
  auto over_gradient = dy;
  ops::gelu_backward(
      {.input = x, .output_gradient = over_gradient, .input_gradient = over_gradient});
  EXPECT_TRUE(same_bits(over_gradient, expected));
}

// Uniform logits over V = 4: the loss is ln 4, the gradient scale x (1/4 - one_hot); a padding row
// has neither. In place over the logits.
TEST(Ops, cross_entropy_of_uniform_logits_by_hand) {
  std::vector<float> logits(8, 3.0f);
  const std::vector<std::int32_t> targets = {2, ops::kIgnoredTarget};
  std::vector<float> losses(2), lse(2);
  ops::cross_entropy_forward({{2, 4}, logits, targets, losses, lse});
  EXPECT_NEAR(losses[0], 1.3862944f, 1e-6f);
  EXPECT_EQ(losses[1], 0.0f);
  ops::cross_entropy_backward({{2, 4}, logits, targets, lse, 0.5f, logits});
  const std::vector<float> expected = {0.125f, 0.125f, -0.375f, 0.125f, 0, 0, 0, 0};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(logits[i], expected[i], 1e-6f);
  double sum = 10;
  ops::add_losses(losses, 0.5, sum);
  EXPECT_NEAR(sum, 10.6931472, 1e-6);
}

// Not finite logits must show in the loss, whatever row and lane they are in.
TEST(Ops, a_logit_that_is_not_finite_makes_its_loss_so) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (std::size_t at = 0; at < 20; ++at) {
      std::vector<float> logits(20, 0.5f);
      logits[at] = bad;
      const std::vector<std::int32_t> targets = {3};
      std::vector<float> losses(1), lse(1);
      ops::cross_entropy_forward({{1, 20}, logits, targets, losses, lse});
      EXPECT_FALSE(std::isfinite(losses[0])) << at;
    }
  }
}

// The first query sees only itself: its output is the first value, its log-sum-exp its own score.
TEST(Ops, a_query_sees_no_later_key) {
  const ops::AttentionShape shape = {
      .sequences = 1, .context = 3, .heads = 1, .kv_heads = 1, .head_width = 4};
  auto qkv = random_values("qkv", 3 * 12);
  std::vector<float> output(12), lse(3), changed(12);
  ops::attention_forward({shape, qkv, output, lse});
  for (std::size_t d = 0; d < 4; ++d) EXPECT_EQ(output[d], qkv[8 + d]);
  for (std::size_t i = 24; i < 36; ++i) qkv[i] += 1;  // the last position
  ops::attention_forward({shape, qkv, changed, lse});
  EXPECT_TRUE(same_bits(std::span(output).first(8), std::span(changed).first(8)));
  EXPECT_FALSE(same_bits(output, changed));
}

TEST(OpsDeathTest, a_token_outside_the_table_stops_the_program) {
  std::vector<float> table(6), positions(4), output(4);
  std::vector<std::int32_t> tokens = {0, 2};
  const ops::EmbeddingShape shape = {.sequences = 1, .context = 2, .width = 2};
  ops::embedding_forward({shape, tokens, table, positions, output});  // the largest accepted
  for (const std::int32_t bad : {-1, 3}) {
    tokens[1] = bad;
    EXPECT_DEATH(ops::embedding_forward({shape, tokens, table, positions, output}), "vocabulary");
  }
}

}  // namespace
}  // namespace longhaul
