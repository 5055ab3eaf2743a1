#include "kernels/rotary_table.h"

#include <cmath>
#include <numbers>

#include "core/result.h"

namespace longhaul {
namespace {

// Series in double, good to about 1e-15; frexp, ldexp and floor are exact everywhere.

/// ln x of x > 0: with x = m 2^e, ln m = 2 artanh((m - 1) / (m + 1)), m in [1 / sqrt 2, sqrt 2).
double series_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);  // in [0.5, 1)
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --e;
  }
  const double z = (m - 1) / (m + 1);  // below 0.172: 13 terms reach 1e-20
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * (z * z) + 1.0 / k;
  return 2 * z * sum + e * std::numbers::ln2;
}

/// e^x: with x = n ln 2 + r, the Taylor series of e^r, |r| below 0.35: 16 terms reach 1e-20.
double series_exp(double x) {
  const double n = std::floor(x / std::numbers::ln2 + 0.5);
  const double r = x - n * std::numbers::ln2;
  double sum = 1;
  for (int k = 16; k >= 1; --k) sum = sum * r / k + 1;
  return std::ldexp(sum, static_cast<int>(n));
}

struct Turn {
  double cosine;
  double sine;
};

/// Of an angle >= 0: Taylor series of what is left of the nearest quarter turn.
Turn turn_by(double angle) {
  // pi / 2 in three parts, of which the first two have 33 bits: their products with n are exact up
  // to n = 2^20, beyond the longest contexts.
  constexpr double kHigh = 0x1.921fb544p+0;
  constexpr double kMiddle = 0x1.0b4611a6p-34;
  constexpr double kLow = 0x1.3198a2e037073p-69;
  const double n = std::floor(angle * (2 / std::numbers::pi) + 0.5);
  const double r = ((angle - n * kHigh) - n * kMiddle) - n * kLow;
  const double square = r * r;
  double cosine = 1;
  double sine = 1;
  for (int k = 18; k >= 2; k -= 2) {
    cosine = 1 - cosine * square / (k * (k - 1));
    sine = 1 - sine * square / (k * (k + 1));
  }
  sine *= r;
  switch (static_cast<long long>(n) % 4) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

/// transformers' _compute_llama3_parameters, in fp32 and in its order.
float scaled(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_frequency);
  const auto high = static_cast<float>(scaling.high_frequency);
  const auto context = static_cast<float>(scaling.original_context);
  const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wave > context / low) return frequency / factor;
  if (wave < context / high) return frequency;
  const float smooth = (context / wave - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> rotary_frequencies(const ModelShape& model) {
  std::vector<float> frequencies;
  if (model.family != ModelFamily::kLlama) return frequencies;
  const double log_theta = series_log(model.rope_theta);
  for (int i = 0; i + 1 < model.head_width; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(model.head_width);
    const float frequency = 1.0f / static_cast<float>(series_exp(double{exponent} * log_theta));
    frequencies.push_back(model.rope_scaling ? scaled(frequency, *model.rope_scaling) : frequency);
  }
  return frequencies;
}

void RotaryTable::cover(int positions) {
  for (; positions_ < positions; ++positions_) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(positions_) * frequency;
      const Turn turn = turn_by(double{angle});
      cosine_.push_back(static_cast<float>(turn.cosine));
      sine_.push_back(static_cast<float>(turn.sine));
    }
  }
}

}  // namespace longhaul
