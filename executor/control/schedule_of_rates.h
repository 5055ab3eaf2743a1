// The learning rate of a step and the clipping of its gradient. Pure functions; any thread.
//
// Both follow from the committed step and its norm alone, so every worker computes them for itself,
// and a worker that joins late is never behind. All workers must get the same bits, also on
// machines whose C libraries differ, so nothing here calls a function of <cmath> that IEEE 754 does
// not define exactly (the cosine is our own).
//
// With s the step from 0, W the warm-up steps, T all steps (the formulas of llm.c's schedulers.h):
//   s < W       rate = rate_max (s + 1) / W
//   W <= s < T  rate = rate_min + (rate_max - rate_min) f(p),  p = (s - W) / (T - W)
//               f = (1 + cos(pi p)) / 2 for cosine, 1 - p for linear; constant: rate = rate_max
//   s >= T      rate = rate_min; constant: rate_max
// Example: rate_max 1, rate_min 0.1, W 2, T 6, cosine: 0.5, 1 (warm-up), then p = 0, 1/4, 1/2, 3/4:
// 1, 0.868198, 0.55, 0.231802, and 0.1 from step 6 on.
#pragma once

#include <cstdint>
#include <span>

#include "core/job.h"
#include "core/result.h"

namespace longhaul {

struct RateSchedule {
  RateDecay decay = RateDecay::kCosine;
  double rate_max = 6e-4;
  double rate_min = 0;
  std::uint64_t warm_up_steps = 0;
  std::uint64_t steps = 1;

  /// An error (kInvalid) unless 0 <= rate_min <= rate_max, finite, and warm-up is shorter than the
  /// run.
  Result<void> check() const;
  double rate(std::uint64_t step) const;
};

/// Of a bound on the global norm that is 0: gradients are not clipped.
inline constexpr double kNoClip = 0;
inline constexpr double kDefaultClip = 1.0;

/// Square root of the sum of `squares`, added in their order: tensors in model order, a tied tensor
/// once. A run of one process adds the same way, and so gets the same bits.
double gradient_norm(std::span<const double> squares);

/// What gradients are multiplied with: min(1, norm_max / (norm + 1e-6)), as torch's
/// clip_grad_norm_; 1 with kNoClip. Norm 3, bound 1: 0.333333. `norm` is finite.
double gradient_scale(double norm, double norm_max = kDefaultClip);

/// cos(pi x) for 0 <= x <= 1, by IEEE additions and multiplications alone; within 2.3e-16.
double cosine_of_half_turns(double x);

}  // namespace longhaul
