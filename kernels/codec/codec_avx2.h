// What the AVX2 kernels share; for codec_kernels_avx2.cc and codec_floats_avx2.cc only.
//
// The functions carry their instruction set as an attribute: the rest of the program is built for
// the plain architecture and runs everywhere. FMA is not enabled, so nothing can be contracted.
#pragma once

#include "kernels/codec/codec_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>

#define LH_AVX2 __attribute__((target("avx2,f16c")))
#define LH_AVX2_INLINE inline __attribute__((always_inline)) LH_AVX2

namespace longhaul {

/// All but the block kernels.
CodecKernels avx2_float_kernels();
bool has_avx2();

namespace avx2 {

inline constexpr std::size_t kLanes = 8;  // floats of a register, and blocks of a group

LH_AVX2_INLINE __m256i load_bits(const float* x) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
}
LH_AVX2_INLINE __m256i sign_cleared(__m256i bits) {
  return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
}
LH_AVX2_INLINE std::uint32_t largest_lane(__m256i lanes) {
  alignas(32) std::array<std::uint32_t, kLanes> values;
  _mm256_store_si256(reinterpret_cast<__m256i*>(values.data()), lanes);
  return *std::max_element(values.begin(), values.end());
}
/// The largest of 16 numbers of 16 bits.
LH_AVX2_INLINE std::uint32_t largest_half(__m256i halves) {
  const __m256i even = _mm256_and_si256(halves, _mm256_set1_epi32(0xffff));
  return largest_lane(_mm256_max_epu32(even, _mm256_srli_epi32(halves, 16)));
}
/// The eight floats as bf16, ties to even, in the low halves of the lanes.
LH_AVX2_INLINE __m256i to_bf16(__m256i bits) {
  const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
}
/// Eight bf16 from memory as floats.
LH_AVX2_INLINE __m256 from_bf16(const void* codes) {
  const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(codes));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
/// The sum as bf16 in the low halves: to nearest even, what has no normal exponent to +0.
LH_AVX2_INLINE __m256i rounded_sum(__m256 history, __m256 y) {
  const __m256i sum = _mm256_castps_si256(_mm256_add_ps(history, y));
  const __m256i exponent = _mm256_and_si256(sum, _mm256_set1_epi32(0x7f800000));
  return _mm256_andnot_si256(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256()), to_bf16(sum));
}
/// The low halves of 16 lanes, in order: a pack works within 128 bits, the permutation mends that.
LH_AVX2_INLINE __m256i low_halves(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

}  // namespace avx2
}  // namespace longhaul

#endif
