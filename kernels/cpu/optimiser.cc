// AdamW and the pieces of the global norm. See kernels/ops.h.
#include <algorithm>
#include <cmath>

#include "core/result.h"
#include "kernels/cpu/check_size.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops.h"
#include "kernels/parallel.h"

namespace longhaul::ops {
namespace {

/// base^exponent by squaring: the same bits everywhere, which std::pow does not promise.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

/// The step's constants, rounded to fp32 once as torch does.
struct AdamWConstants {
  float gradient_scale;
  float keep_weight;   // 1 - learning_rate weight_decay
  float to_m;          // 1 - beta1
  float keep_v;        // beta2
  float to_v;          // 1 - beta2
  float root_divisor;  // sqrt(1 - beta2^step)
  float epsilon;
  float minus_step_size;  // -learning_rate / (1 - beta1^step)
};

LH_ALWAYS_INLINE void adamw_body(const AdamW<>* op, AdamWConstants constants) {
  float* __restrict weight = op->weight.data();
  const float* __restrict gradient = op->gradient.data();
  float* __restrict m = op->m.data();
  float* __restrict v = op->v.data();
  const auto count = static_cast<ptrdiff_t>(op->weight.size());
  for (ptrdiff_t i = 0; i < count; ++i) {
    const float g = gradient[i] * constants.gradient_scale;
    m[i] += constants.to_m * (g - m[i]);
    v[i] = v[i] * constants.keep_v + constants.to_v * g * g;
    const float divisor = vector_sqrt(v[i]) / constants.root_divisor + constants.epsilon;
    weight[i] = weight[i] * constants.keep_weight + constants.minus_step_size * (m[i] / divisor);
  }
}

}  // namespace

void adamw(const AdamW<>& op) {
  LH_CHECK(op.gradient.size() == op.weight.size() && op.m.size() == op.weight.size() &&
               op.v.size() == op.weight.size(),
           "a span fits the operation's shape");
  const AdamWOptions& o = op.options;
  LH_CHECK(o.step >= 1, "steps count from 1");
  const double correction1 = 1 - power(o.beta1, o.step);
  const double correction2 = 1 - power(o.beta2, o.step);
  const AdamWConstants constants = {
      .gradient_scale = static_cast<float>(o.gradient_scale),
      .keep_weight = static_cast<float>(1 - o.learning_rate * o.weight_decay),
      .to_m = static_cast<float>(1 - o.beta1),
      .keep_v = static_cast<float>(o.beta2),
      .to_v = static_cast<float>(1 - o.beta2),
      .root_divisor = static_cast<float>(std::sqrt(correction2)),
      .epsilon = static_cast<float>(o.epsilon),
      .minus_step_size = static_cast<float>(-o.learning_rate / correction1)};
  in_parts(static_cast<ptrdiff_t>(op.weight.size()), kElementGrain,
           [&op, &constants](ptrdiff_t begin, ptrdiff_t end) {
             AdamW<> part = op;
             part.weight = rows_of(op.weight, begin, end, 1);
             part.gradient = rows_of(op.gradient, begin, end, 1);
             part.m = rows_of(op.m, begin, end, 1);
             part.v = rows_of(op.v, begin, end, 1);
             run_on_active_isa<adamw_body>(static_cast<const AdamW<>*>(&part), constants);
           });
}

double block_sum_of_squares(std::span<const float> block) {
  LH_CHECK(block.size() <= kNormBlock, "a block has at most kNormBlock elements");
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  for (std::size_t i = 0; i < block.size(); ++i) {
    const auto value = static_cast<double>(block[i]);
    lanes[i % kLanes] += value * value;
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

double sum_of_squares(std::span<const float> tensor) {
  double sum = 0;
  for (std::size_t begin = 0; begin < tensor.size(); begin += kNormBlock) {
    sum += block_sum_of_squares(tensor.subspan(begin, std::min(kNormBlock, tensor.size() - begin)));
  }
  return sum;
}

double clip_factor(double norm, double norm_max) {
  return std::min(1.0, norm_max / (norm + 1e-6));
}

}  // namespace longhaul::ops
