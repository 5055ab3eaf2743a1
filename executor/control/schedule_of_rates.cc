#include "executor/control/schedule_of_rates.h"

#include <fmt/core.h>

#include <cmath>
#include <numbers>

#include "kernels/ops.h"

namespace longhaul {

Result<void> RateSchedule::check() const {
  if (!(rate_min >= 0 && rate_min <= rate_max && std::isfinite(rate_max))) {
    return invalid(
        fmt::format("a learning rate from {} down to {} is no schedule", rate_max, rate_min),
        "give 0 <= rate_min <= rate_max");
  }
  if (warm_up_steps >= steps) {
    return invalid(
        fmt::format("{} warm-up steps are not fewer than {} steps", warm_up_steps, steps));
  }
  return {};
}

double RateSchedule::rate(std::uint64_t step) const {
  if (step < warm_up_steps) {
    return rate_max * static_cast<double>(step + 1) / static_cast<double>(warm_up_steps);
  }
  if (decay == RateDecay::kConstant) return rate_max;
  if (step >= steps) return rate_min;
  const double done =
      static_cast<double>(step - warm_up_steps) / static_cast<double>(steps - warm_up_steps);
  const double left = decay == RateDecay::kCosine ? (1 + cosine_of_half_turns(done)) / 2 : 1 - done;
  return rate_min + (rate_max - rate_min) * left;
}

double gradient_norm(std::span<const double> squares) {
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

double gradient_scale(double norm, double norm_max) {
  return norm_max == kNoClip ? 1 : ops::clip_factor(norm, norm_max);
}

double cosine_of_half_turns(double x) {
  LH_CHECK(x >= 0 && x <= 1, "half a turn is the range of a decay");
  if (x > 0.5) return -cosine_of_half_turns(1 - x);
  // Taylor series in Horner's form; the angle is at most pi / 4, where the first term left out is
  // below 2^-60.
  constexpr int kTerms = 9;
  const bool as_sine = x > 0.25;  // cos(pi x) = sin(pi (1/2 - x))
  const double angle = std::numbers::pi * (as_sine ? 0.5 - x : x);
  const double square = angle * angle;
  double sum = 1;
  for (int k = kTerms; k >= 1; --k) {
    const int a = as_sine ? 2 * k : 2 * k - 1;
    sum = 1 - square / static_cast<double>(a * (a + 1)) * sum;
  }
  return as_sine ? angle * sum : sum;
}

}  // namespace longhaul
