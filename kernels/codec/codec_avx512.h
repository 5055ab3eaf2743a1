// What the AVX-512 kernels share; for codec_kernels_avx512.cc and codec_floats_avx512.cc only.
//
// The functions carry their instruction set as an attribute: the rest of the program is built for
// the plain architecture and runs everywhere. The set has FMA in it, so that the flag
// -ffp-contract=off of the whole project matters here.
#pragma once

#include "kernels/codec/codec_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>

#define LH_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,f16c")))
#define LH_AVX512_INLINE inline __attribute__((always_inline)) LH_AVX512

namespace longhaul {

/// All but the block kernels.
CodecKernels avx512_float_kernels();
bool has_avx512();

namespace avx512 {

inline constexpr std::size_t kLanes = 16;  // floats of a register, and blocks of a group

LH_AVX512_INLINE __m512i load_bits(const float* x) {
  return _mm512_loadu_si512(x);
}
LH_AVX512_INLINE __m512i sign_cleared(__m512i bits) {
  return _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
}
/// The floats as bf16, ties to even, in the low halves of the lanes.
LH_AVX512_INLINE __m512i to_bf16(__m512i bits) {
  const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff));
  return _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
}
/// Sixteen bf16 from memory as floats.
LH_AVX512_INLINE __m512 from_bf16(const void* codes) {
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(codes));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// The sum rounded to bf16, as fp32: to nearest even, what has no normal exponent to +0.
LH_AVX512_INLINE __m512i rounded_sum(__m512 history, __m512 y) {
  const __m512i sum = _mm512_castps_si512(_mm512_add_ps(history, y));
  const __mmask16 is_normal = _mm512_test_epi32_mask(sum, _mm512_set1_epi32(0x7f800000));
  const __mmask16 is_odd = _mm512_test_epi32_mask(sum, _mm512_set1_epi32(0x00010000));
  const __m512i below = _mm512_add_epi32(sum, _mm512_set1_epi32(0x7fff));
  const __m512i carried = _mm512_mask_sub_epi32(below, is_odd, below, _mm512_set1_epi32(-1));
  return _mm512_maskz_and_epi32(is_normal, carried,
                                _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}
/// The upper halves of 32 lanes.
LH_AVX512_INLINE __m512i odd_halves(__m512i low, __m512i high) {
  alignas(64) static constexpr auto kOdd = [] {
    std::array<std::uint16_t, 32> places{};
    for (std::size_t i = 0; i < 32; ++i) places[i] = static_cast<std::uint16_t>(2 * i + 1);
    return places;
  }();
  return _mm512_permutex2var_epi16(low, _mm512_load_si512(kOdd.data()), high);
}

}  // namespace avx512
}  // namespace longhaul

#endif
