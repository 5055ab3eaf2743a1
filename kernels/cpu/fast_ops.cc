// Fast CPU versions of everything but attention (fast_attention.cc), what only Llama has
// (fast_llama_ops.cc) and the optimiser (optimiser.cc). Matrix products go through gemm; the rest
// is element-wise work and row sums, written once and compiled for each instruction set.
#include <algorithm>
#include <cstring>

#include "core/result.h"
#include "kernels/cpu/check_size.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/gemm.h"
#include "kernels/ops.h"
#include "kernels/parallel.h"

namespace longhaul::ops {
namespace {

LH_ALWAYS_INLINE void add_body(const float* left, const float* right, float* output,
                               ptrdiff_t count) {
  LH_INDEPENDENT
  for (ptrdiff_t i = 0; i < count; ++i) output[i] = left[i] + right[i];
}

/// sums[c] += sum over rows of values[row][c], rows in order.
LH_ALWAYS_INLINE void add_rows_body(const float* __restrict values, ptrdiff_t rows, ptrdiff_t width,
                                    ptrdiff_t stride, float* __restrict sums) {
  for (ptrdiff_t row = 0; row < rows; ++row) {
    for (ptrdiff_t c = 0; c < width; ++c) sums[c] += values[row * stride + c];
  }
}

LH_ALWAYS_INLINE void layer_norm_body(const LayerNorm<>* op) {
  const auto [rows, width, epsilon] = op->shape;
  const float n = static_cast<float>(width);
  const float* __restrict weight = op->weight.data();
  const float* __restrict bias = op->bias.data();
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float* __restrict x = op->input.data() + row * width;
    float* __restrict y = op->output.data() + row * width;
    const float mean = lane_sum(width, [x](ptrdiff_t c) LH_INLINE_LAMBDA { return x[c]; }) / n;
    const float variance =
        lane_sum(width, [x, mean](ptrdiff_t c)
                            LH_INLINE_LAMBDA { return (x[c] - mean) * (x[c] - mean); }) /
        n;
    const float inverse = 1.0f / vector_sqrt(variance + static_cast<float>(epsilon));
    for (ptrdiff_t c = 0; c < width; ++c) y[c] = (x[c] - mean) * inverse * weight[c] + bias[c];
    op->mean[static_cast<std::size_t>(row)] = mean;
    op->inverse_deviation[static_cast<std::size_t>(row)] = inverse;
  }
}

LH_ALWAYS_INLINE void layer_norm_backward_input_body(const LayerNormBackwardInput<>* op) {
  const auto [rows, width, _] = op->shape;
  const float n = static_cast<float>(width);
  const float* __restrict weight = op->weight.data();
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float* __restrict x = op->input.data() + row * width;
    const float* __restrict dy = op->output_gradient.data() + row * width;
    float* __restrict dx = op->input_gradient.data() + row * width;
    const float mean = op->mean[static_cast<std::size_t>(row)];
    const float inverse = op->inverse_deviation[static_cast<std::size_t>(row)];
    const float mean_g =
        lane_sum(width, [dy, weight](ptrdiff_t c) LH_INLINE_LAMBDA { return dy[c] * weight[c]; }) /
        n;
    const float mean_gx = lane_sum(width,
                                   [dy, weight, x, mean, inverse](ptrdiff_t c) LH_INLINE_LAMBDA {
                                     return dy[c] * weight[c] * ((x[c] - mean) * inverse);
                                   }) /
                          n;
    for (ptrdiff_t c = 0; c < width; ++c) {
      const float normal = (x[c] - mean) * inverse;
      dx[c] = (dy[c] * weight[c] - mean_g - normal * mean_gx) * inverse;
    }
  }
}

LH_ALWAYS_INLINE void layer_norm_backward_weight_body(const LayerNormBackwardWeight<>* op) {
  const auto [rows, width, _] = op->shape;
  float* __restrict weight_gradient = op->weight_gradient.data();
  float* __restrict bias_gradient = op->bias_gradient.data();
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float* __restrict x = op->input.data() + row * width;
    const float* __restrict dy = op->output_gradient.data() + row * width;
    const float mean = op->mean[static_cast<std::size_t>(row)];
    const float inverse = op->inverse_deviation[static_cast<std::size_t>(row)];
    for (ptrdiff_t c = 0; c < width; ++c) {
      weight_gradient[c] += dy[c] * ((x[c] - mean) * inverse);
      bias_gradient[c] += dy[c];
    }
  }
}

// (1 + tanh u) / 2 is 1 / (1 + exp(-2 u)), which keeps its relative precision far left of zero,
// where 1 + tanh u cancels. u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kGeluCubic = 0.044715f;
constexpr float kMinusTwoRoot = -1.5957691216057308f;  // -2 sqrt(2 / pi)

LH_ALWAYS_INLINE void gelu_body(const float* input, float* output, ptrdiff_t count) {
  LH_INDEPENDENT
  for (ptrdiff_t i = 0; i < count; ++i) {
    const float x = input[i];
    const float e = vector_exp(kMinusTwoRoot * x * (1.0f + kGeluCubic * (x * x)));
    output[i] = x / (1.0f + e);
  }
}

// With s = 1 / (1 + e), e = exp(-2 u): d(x s) = s + x s (1 - s) 2 u', and 1 - s = e s.
LH_ALWAYS_INLINE void gelu_backward_body(const float* input, const float* output_gradient,
                                         float* input_gradient, ptrdiff_t count) {
  LH_INDEPENDENT
  for (ptrdiff_t i = 0; i < count; ++i) {
    const float x = input[i];
    const float e = vector_exp(kMinusTwoRoot * x * (1.0f + kGeluCubic * (x * x)));
    const float s = 1.0f / (1.0f + e);
    const float slope = -kMinusTwoRoot * (1.0f + 3.0f * kGeluCubic * (x * x));
    input_gradient[i] = output_gradient[i] * (s + x * s * (e * s) * slope);
  }
}

LH_ALWAYS_INLINE void cross_entropy_body(const CrossEntropy<>* op) {
  const auto [rows, vocabulary] = op->shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const float* __restrict logits = op->logits.data() + row * vocabulary;
    const float largest = lane_max(logits, vocabulary);
    const float sum = lane_sum(vocabulary, [logits, largest](ptrdiff_t c) LH_INLINE_LAMBDA {
      return vector_exp(logits[c] - largest);
    });
    const float lse = largest + vector_log(sum);
    const std::int32_t target = op->targets[r];
    op->losses[r] = target == kIgnoredTarget ? 0.0f : lse - logits[target];
    op->log_sum_exp[r] = lse;
  }
}

LH_ALWAYS_INLINE void cross_entropy_backward_body(const CrossEntropyBackward<>* op) {
  const auto [rows, vocabulary] = op->shape;
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const float* logits = op->logits.data() + row * vocabulary;
    float* gradient = op->logits_gradient.data() + row * vocabulary;
    const std::int32_t target = op->targets[r];
    if (target == kIgnoredTarget) {
      std::fill(gradient, gradient + vocabulary, 0.0f);
      continue;
    }
    const float lse = op->log_sum_exp[r];
    const float scale = op->scale;
    const float of_target = (vector_exp(logits[target] - lse) - 1.0f) * scale;
    LH_INDEPENDENT
    for (ptrdiff_t c = 0; c < vocabulary; ++c) gradient[c] = vector_exp(logits[c] - lse) * scale;
    gradient[target] = of_target;
  }
}

void check_targets(std::span<const std::int32_t> targets, const CrossEntropyShape& shape) {
  check_size(targets, shape.rows);
  for (const std::int32_t target : targets) {
    LH_CHECK(target >= kIgnoredTarget && target < shape.vocabulary,
             "data is checked against the vocabulary when it is opened");
  }
}

/// Calls body(row, token's offset in its table, position's offset in its table).
template <class Body>
void for_each_token(const EmbeddingShape& shape, std::span<const std::int32_t> tokens,
                    std::size_t table_size, std::size_t position_table_size, Body body) {
  check_size(tokens, shape.sequences * shape.context);
  LH_CHECK(position_table_size == 0 ||
               static_cast<ptrdiff_t>(position_table_size) >= shape.context * shape.width,
           "the position table covers the context");
  for (ptrdiff_t row = 0; row < shape.sequences * shape.context; ++row) {
    const ptrdiff_t from = tokens[static_cast<std::size_t>(row)] * shape.width;
    LH_CHECK(from >= 0 && from + shape.width <= static_cast<ptrdiff_t>(table_size),
             "data is checked against the vocabulary when it is opened");
    body(row, from, row % shape.context * shape.width);
  }
}

/// Whether columns of rows `s.out_row()` apart fit; the last row may end early.
template <class T>
void check_output(std::span<T> output, const LinearShape& s) {
  LH_CHECK(s.out_row() >= s.out, "rows of an output do not overlap");
  if (s.out_stride == 0) return check_size(output, s.rows * s.out);
  LH_CHECK(static_cast<ptrdiff_t>(output.size()) >= (s.rows - 1) * s.out_stride + s.out,
           "the columns lie inside their matrix");
}

/// The weight as an [in, out] matrix.
MatrixView weight_view(const float* weight, const LinearShape& s) {
  const bool in_out = s.layout == WeightLayout::kInOut;
  return {weight, in_out ? s.out : 1, in_out ? 1 : s.in};
}

}  // namespace

void embedding_forward(const Embedding<>& op) {
  const auto& s = op.shape;
  check_size(op.output, s.sequences * s.context * s.width);
  for_each_token(s, op.tokens, op.token_table.size(), op.position_table.size(),
                 [&](ptrdiff_t row, ptrdiff_t token, ptrdiff_t position) {
                   const float* from = op.token_table.data() + token;
                   float* to = op.output.data() + row * s.width;
                   if (op.position_table.empty()) {
                     std::copy(from, from + s.width, to);
                   } else {
                     run_on_active_isa<add_body>(from, op.position_table.data() + position, to,
                                                 s.width);
                   }
                 });
}

void embedding_backward(const EmbeddingBackward<>& op) {
  const auto& s = op.shape;
  check_size(op.output_gradient, s.sequences * s.context * s.width);
  for_each_token(s, op.tokens, op.token_table_gradient.size(), op.position_table_gradient.size(),
                 [&](ptrdiff_t row, ptrdiff_t token, ptrdiff_t position) {
                   const float* gradient = op.output_gradient.data() + row * s.width;
                   const auto add_to = [&](float* sum) {
                     run_on_active_isa<add_body>(static_cast<const float*>(sum), gradient, sum,
                                                 s.width);
                   };
                   add_to(op.token_table_gradient.data() + token);
                   if (!op.position_table_gradient.empty()) {
                     add_to(op.position_table_gradient.data() + position);
                   }
                 });
}

void layer_norm_forward(const LayerNorm<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.width);
  check_size(op.weight, s.width);
  check_size(op.bias, s.width);
  check_size(op.output, s.rows * s.width);
  check_size(op.mean, s.rows);
  check_size(op.inverse_deviation, s.rows);
  run_by_rows<layer_norm_body>(op, s.width, &LayerNorm<>::input, &LayerNorm<>::output,
                               &LayerNorm<>::mean, &LayerNorm<>::inverse_deviation);
}

void layer_norm_backward_input(const LayerNormBackwardInput<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.width);
  check_size(op.weight, s.width);
  check_size(op.mean, s.rows);
  check_size(op.inverse_deviation, s.rows);
  check_size(op.output_gradient, s.rows * s.width);
  check_size(op.input_gradient, s.rows * s.width);
  run_by_rows<layer_norm_backward_input_body>(
      op, s.width, &LayerNormBackwardInput<>::input, &LayerNormBackwardInput<>::output_gradient,
      &LayerNormBackwardInput<>::input_gradient, &LayerNormBackwardInput<>::mean,
      &LayerNormBackwardInput<>::inverse_deviation);
}

void layer_norm_backward_weight(const LayerNormBackwardWeight<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.width);
  check_size(op.mean, s.rows);
  check_size(op.inverse_deviation, s.rows);
  check_size(op.output_gradient, s.rows * s.width);
  check_size(op.weight_gradient, s.width);
  check_size(op.bias_gradient, s.width);
  run_on_active_isa<layer_norm_backward_weight_body>(&op);
}

void linear_forward(const Linear<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.in);
  check_size(op.weight, s.in * s.out);
  if (!op.bias.empty()) check_size(op.bias, s.out);
  check_output(op.output, s);
  gemm({.rows = s.rows,
        .columns = s.out,
        .depth = s.in,
        .a = {op.input.data(), s.in, 1},
        .b = weight_view(op.weight.data(), s),
        .c = op.output.data(),
        .c_row_stride = s.out_row(),
        .start = op.bias.empty() ? GemmStart::kZero : GemmStart::kRow,
        .start_row = op.bias.empty() ? nullptr : op.bias.data(),
        .bf16 = s.bf16});
}

void linear_backward_input(const LinearBackwardInput<>& op) {
  const auto& s = op.shape;
  check_size(op.weight, s.in * s.out);
  check_output(op.output_gradient, s);
  check_size(op.input_gradient, s.rows * s.in);
  gemm({.rows = s.rows,
        .columns = s.in,
        .depth = s.out,
        .a = {op.output_gradient.data(), s.out_row(), 1},
        .b = weight_view(op.weight.data(), s).transposed(),
        .c = op.input_gradient.data(),
        .c_row_stride = s.in,
        .start = op.accumulates ? GemmStart::kAccumulate : GemmStart::kZero,
        .bf16 = s.bf16});
}

void linear_backward_weight(const LinearBackwardWeight<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.in);
  check_output(op.output_gradient, s);
  check_size(op.weight_gradient, s.in * s.out);
  const MatrixView input = {op.input.data(), s.in, 1};
  const MatrixView gradient = {op.output_gradient.data(), s.out_row(), 1};
  const bool in_out = s.layout == WeightLayout::kInOut;
  gemm({.rows = in_out ? s.in : s.out,
        .columns = in_out ? s.out : s.in,
        .depth = s.rows,
        .a = (in_out ? input : gradient).transposed(),
        .b = in_out ? gradient : input,
        .c = op.weight_gradient.data(),
        .c_row_stride = in_out ? s.out : s.in,
        .start = GemmStart::kAccumulate,
        .bf16 = s.bf16});
  if (!op.bias_gradient.empty()) {
    check_size(op.bias_gradient, s.out);
    run_on_active_isa<add_rows_body>(op.output_gradient.data(), s.rows, s.out, s.out_row(),
                                     op.bias_gradient.data());
  }
}

void gelu_forward(const Gelu<>& op) {
  const auto count = static_cast<ptrdiff_t>(op.input.size());
  check_size(op.output, count);
  in_parts(count, kElementGrain, [&op](ptrdiff_t begin, ptrdiff_t end) {
    run_on_active_isa<gelu_body>(op.input.data() + begin, op.output.data() + begin, end - begin);
  });
}

void gelu_backward(const GeluBackward<>& op) {
  const auto count = static_cast<ptrdiff_t>(op.input.size());
  check_size(op.output_gradient, count);
  check_size(op.input_gradient, count);
  in_parts(count, kElementGrain, [&op](ptrdiff_t begin, ptrdiff_t end) {
    run_on_active_isa<gelu_backward_body>(op.input.data() + begin,
                                          op.output_gradient.data() + begin,
                                          op.input_gradient.data() + begin, end - begin);
  });
}

void add(const Add<>& op) {
  const auto count = static_cast<ptrdiff_t>(op.output.size());
  check_size(op.left, count);
  check_size(op.right, count);
  in_parts(count, kElementGrain, [&op](ptrdiff_t begin, ptrdiff_t end) {
    run_on_active_isa<add_body>(op.left.data() + begin, op.right.data() + begin,
                                op.output.data() + begin, end - begin);
  });
}

void cross_entropy_forward(const CrossEntropy<>& op) {
  check_size(op.logits, op.shape.rows * op.shape.vocabulary);
  check_targets(op.targets, op.shape);
  check_size(op.losses, op.shape.rows);
  check_size(op.log_sum_exp, op.shape.rows);
  run_by_rows<cross_entropy_body>(op, op.shape.vocabulary, &CrossEntropy<>::logits,
                                  &CrossEntropy<>::targets, &CrossEntropy<>::losses,
                                  &CrossEntropy<>::log_sum_exp);
}

void cross_entropy_backward(const CrossEntropyBackward<>& op) {
  check_size(op.logits, op.shape.rows * op.shape.vocabulary);
  check_targets(op.targets, op.shape);
  check_size(op.log_sum_exp, op.shape.rows);
  check_size(op.logits_gradient, op.shape.rows * op.shape.vocabulary);
  run_by_rows<cross_entropy_backward_body>(op, op.shape.vocabulary, &CrossEntropyBackward<>::logits,
                                           &CrossEntropyBackward<>::logits_gradient,
                                           &CrossEntropyBackward<>::targets,
                                           &CrossEntropyBackward<>::log_sum_exp);
}

void add_losses(std::span<const float> losses, double scale, double& sum) {
  for (const float loss : losses) sum += static_cast<double>(loss) * scale;
}

}  // namespace longhaul::ops
