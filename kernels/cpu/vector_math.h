// exp, log, square root and sums for element-wise kernels: own polynomials of plain multiplies and
// adds in a fixed order, so that every instruction set, compiler and C library gives the same bits.
// Written so that compilers vectorise them; see run_on_active_isa in kernels/cpu/isa.h.
//
// Needs -ffp-contract=off: a compiler that fuses a multiply and an add changes the last bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.h"

/// Before a loop whose iterations touch one index each, where an output may be an input.
#if defined(__clang__)
#define LH_INDEPENDENT                                  \
  _Pragma("clang diagnostic ignored \"-Wpass-failed\"") \
      _Pragma("clang loop vectorize(assume_safety)")
#else
#define LH_INDEPENDENT _Pragma("GCC ivdep")
#endif
/// After a lambda's parameters.
#define LH_INLINE_LAMBDA __attribute__((always_inline))

namespace longhaul {

/// e^x. Relative error below 2e-7 on [-87.3, 88.3] (tests/kernels/vector_math_test.cc); 0 below,
/// 2.2e38 above; NaN stays NaN. Coefficients: Cephes expf (Moshier, 1989).
LH_ALWAYS_INLINE float vector_exp(float x) {
  constexpr float kMin = -87.3f;
  constexpr float kMax = 88.3f;
  constexpr float kRounder = 12582912.0f;  // 1.5 x 2^23: adding it rounds to a whole number
  const float above = x < kMin ? kMin : x;
  const float inside = above > kMax ? kMax : above;
  const float rounded = inside * 1.44269504088896341f + kRounder;
  const float n = rounded - kRounder;
  // ln 2 in two parts, the first exact in products with n.
  const float r = (inside - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float power = p * (r * r) + r + 1.0f;
  // The low bits of `rounded` are n; shifted into the exponent they are 2^n.
  const float two_to_n =
      std::bit_cast<float>((std::bit_cast<std::uint32_t>(rounded) << 23) + 0x3f800000u);
  const float result = power * two_to_n;
  return x < kMin ? 0.0f : result;
}

/// ln x for normal x > 0. Relative error below 1.2e-7, absolute below 1.2e-7 near 1; infinity and
/// NaN stay themselves. Coefficients: Cephes logf.
LH_ALWAYS_INLINE float vector_log(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  float e = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x7fffffu) | 0x3f000000u);  // in [0.5, 1)
  const bool low = m < 0.707106781186547524f;
  e = low ? e - 1.0f : e;
  m = low ? (m + m) - 1.0f : m - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m + -1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m + -1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m + -1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m + -2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float y = (p * (m * z) + e * -2.12194440e-4f) - 0.5f * z;
  const float result = (m + y) + e * 0.693359375f;
  return x - x == 0.0f ? result : x;
}

/// Correctly rounded by IEEE 754, and without the errno that would keep it from vectorising.
LH_ALWAYS_INLINE float vector_sqrt(float x) {
#if defined(__clang__)
  return __builtin_elementwise_sqrt(x);
#else
  return std::sqrt(x);
#endif
}

/// term(0) + ... + term(count - 1), in one order at every width: 16 lanes take every sixteenth
/// term, then lanes are added in halves.
template <class Term>
LH_ALWAYS_INLINE float lane_sum(std::ptrdiff_t count, Term term) {
  constexpr std::ptrdiff_t kLanes = 16;
  float lanes[kLanes] = {};
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::ptrdiff_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::ptrdiff_t lane = 0; i + lane < count; ++lane) lanes[lane] += term(i + lane);
  for (std::ptrdiff_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::ptrdiff_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// The largest; exact, so any order will do. count >= 1.
LH_ALWAYS_INLINE float lane_max(const float* values, std::ptrdiff_t count) {
  constexpr std::ptrdiff_t kLanes = 16;
  float lanes[kLanes];
  for (float& lane : lanes) lane = values[0];
  std::ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::ptrdiff_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  float largest = lanes[0];
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

}  // namespace longhaul
