// Fast CPU versions of what Llama has and GPT-2 has not: RMS norm, rotary embedding, SwiGLU.
// Written once and compiled for each instruction set, as in fast_ops.cc.
#include "core/result.h"
#include "kernels/cpu/check_size.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops.h"
#include "kernels/parallel.h"

namespace longhaul::ops {
namespace {

LH_ALWAYS_INLINE void rms_norm_body(const RmsNorm<>* op) {
  const auto [rows, width, epsilon] = op->shape;
  const float n = static_cast<float>(width);
  const float* __restrict weight = op->weight.data();
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float* __restrict x = op->input.data() + row * width;
    float* __restrict y = op->output.data() + row * width;
    const float mean =
        lane_sum(width, [x](ptrdiff_t c) LH_INLINE_LAMBDA { return x[c] * x[c]; }) / n;
    const float inverse = 1.0f / vector_sqrt(mean + static_cast<float>(epsilon));
    for (ptrdiff_t c = 0; c < width; ++c) y[c] = x[c] * inverse * weight[c];
    op->inverse_root[static_cast<std::size_t>(row)] = inverse;
  }
}

LH_ALWAYS_INLINE void rms_norm_backward_input_body(const RmsNormBackwardInput<>* op) {
  const auto [rows, width, _] = op->shape;
  const float n = static_cast<float>(width);
  const float* __restrict weight = op->weight.data();
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float* __restrict x = op->input.data() + row * width;
    const float* __restrict dy = op->output_gradient.data() + row * width;
    float* __restrict dx = op->input_gradient.data() + row * width;
    const float inverse = op->inverse_root[static_cast<std::size_t>(row)];
    const float mean_gx =
        lane_sum(width, [dy, weight, x, inverse](ptrdiff_t c)
                            LH_INLINE_LAMBDA { return dy[c] * weight[c] * (x[c] * inverse); }) /
        n;
    for (ptrdiff_t c = 0; c < width; ++c) {
      dx[c] = (dy[c] * weight[c] - x[c] * inverse * mean_gx) * inverse;
    }
  }
}

LH_ALWAYS_INLINE void rms_norm_backward_weight_body(const RmsNormBackwardWeight<>* op) {
  const auto [rows, width, _] = op->shape;
  float* __restrict weight_gradient = op->weight_gradient.data();
  for (ptrdiff_t row = 0; row < rows; ++row) {
    const float* __restrict x = op->input.data() + row * width;
    const float* __restrict dy = op->output_gradient.data() + row * width;
    const float inverse = op->inverse_root[static_cast<std::size_t>(row)];
    for (ptrdiff_t c = 0; c < width; ++c) weight_gradient[c] += dy[c] * (x[c] * inverse);
  }
}

LH_ALWAYS_INLINE void rotary_body(const Rotary<>* op, float sign) {
  const RotaryShape& s = op->shape;
  const ptrdiff_t half = s.head_width / 2;
  for (ptrdiff_t row = 0; row < s.rows; ++row) {
    const ptrdiff_t position = s.first_position + row % s.context;
    const float* __restrict cosine = op->cosine.data() + position * half;
    const float* __restrict sine = op->sine.data() + position * half;
    for (ptrdiff_t head = 0; head < s.heads; ++head) {
      float* __restrict x = op->qkv.data() + row * s.row_width + head * s.head_width;
      float* __restrict y = x + half;
      for (ptrdiff_t i = 0; i < half; ++i) {
        const float turned = x[i] * cosine[i] - y[i] * (sign * sine[i]);
        y[i] = y[i] * cosine[i] + x[i] * (sign * sine[i]);
        x[i] = turned;
      }
    }
  }
}

LH_ALWAYS_INLINE void swiglu_body(const float* gate, const float* up, float* output,
                                  ptrdiff_t count) {
  LH_INDEPENDENT
  for (ptrdiff_t i = 0; i < count; ++i) {
    output[i] = gate[i] / (1.0f + vector_exp(-gate[i])) * up[i];
  }
}

// With s = 1 / (1 + e), e = exp(-x): d(x s) = s + x s (1 - s), and 1 - s = e s.
LH_ALWAYS_INLINE void swiglu_backward_body(const SwiGluBackward<>* op, ptrdiff_t count) {
  const float* gate = op->gate.data();
  const float* up = op->up.data();
  const float* output_gradient = op->output_gradient.data();
  float* gate_gradient = op->gate_gradient.data();
  float* up_gradient = op->up_gradient.data();
  LH_INDEPENDENT
  for (ptrdiff_t i = 0; i < count; ++i) {
    const float x = gate[i];
    const float e = vector_exp(-x);
    const float s = 1.0f / (1.0f + e);
    const float of_gate = output_gradient[i] * up[i] * (s + x * s * (e * s));
    up_gradient[i] = output_gradient[i] * (x * s);
    gate_gradient[i] = of_gate;
  }
}

void rotate(const Rotary<>& op, float sign) {
  const RotaryShape& s = op.shape;
  LH_CHECK(s.head_width % 2 == 0 && s.heads * s.head_width <= s.row_width && s.context >= 1,
           "heads have pairs and lie inside a row");
  check_size(op.qkv, s.rows * s.row_width);
  const auto used = static_cast<std::size_t>((s.first_position + s.context) * (s.head_width / 2));
  LH_CHECK(op.cosine.size() >= used && op.sine.size() >= used, "the table has every position");
  run_on_active_isa<rotary_body>(&op, sign);
}

}  // namespace

void rms_norm_forward(const RmsNorm<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.width);
  check_size(op.weight, s.width);
  check_size(op.output, s.rows * s.width);
  check_size(op.inverse_root, s.rows);
  run_by_rows<rms_norm_body>(op, s.width, &RmsNorm<>::input, &RmsNorm<>::output,
                             &RmsNorm<>::inverse_root);
}

void rms_norm_backward_input(const RmsNormBackwardInput<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.width);
  check_size(op.weight, s.width);
  check_size(op.inverse_root, s.rows);
  check_size(op.output_gradient, s.rows * s.width);
  check_size(op.input_gradient, s.rows * s.width);
  run_by_rows<rms_norm_backward_input_body>(
      op, s.width, &RmsNormBackwardInput<>::input, &RmsNormBackwardInput<>::output_gradient,
      &RmsNormBackwardInput<>::input_gradient, &RmsNormBackwardInput<>::inverse_root);
}

void rms_norm_backward_weight(const RmsNormBackwardWeight<>& op) {
  const auto& s = op.shape;
  check_size(op.input, s.rows * s.width);
  check_size(op.inverse_root, s.rows);
  check_size(op.output_gradient, s.rows * s.width);
  check_size(op.weight_gradient, s.width);
  run_on_active_isa<rms_norm_backward_weight_body>(&op);
}

void rotary_forward(const Rotary<>& op) {
  rotate(op, 1.0f);
}

void rotary_backward(const Rotary<>& op) {
  rotate(op, -1.0f);
}

void swiglu_forward(const SwiGlu<>& op) {
  const auto count = static_cast<ptrdiff_t>(op.gate.size());
  check_size(op.up, count);
  check_size(op.output, count);
  in_parts(count, kElementGrain, [&op](ptrdiff_t begin, ptrdiff_t end) {
    run_on_active_isa<swiglu_body>(op.gate.data() + begin, op.up.data() + begin,
                                   op.output.data() + begin, end - begin);
  });
}

void swiglu_backward(const SwiGluBackward<>& op) {
  const auto count = static_cast<ptrdiff_t>(op.gate.size());
  check_size(op.up, count);
  check_size(op.output_gradient, count);
  check_size(op.gate_gradient, count);
  check_size(op.up_gradient, count);
  in_parts(count, kElementGrain, [&op](ptrdiff_t begin, ptrdiff_t end) {
    SwiGluBackward<> part = op;
    part.gate = rows_of(op.gate, begin, end, 1);
    part.up = rows_of(op.up, begin, end, 1);
    part.output_gradient = rows_of(op.output_gradient, begin, end, 1);
    part.gate_gradient = rows_of(op.gate_gradient, begin, end, 1);
    part.up_gradient = rows_of(op.up_gradient, begin, end, 1);
    run_on_active_isa<swiglu_backward_body>(static_cast<const SwiGluBackward<>*>(&part),
                                            end - begin);
  });
}

}  // namespace longhaul::ops
