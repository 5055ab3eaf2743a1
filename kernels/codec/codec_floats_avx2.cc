// AVX2 versions of the kernels from floats to floats and to 16 bits. Whole registers are done here,
// the rest by the reference.
#include "kernels/codec/codec_avx2.h"

#if defined(__x86_64__)

#include <algorithm>

namespace longhaul {
namespace {

using namespace avx2;

LH_AVX2 std::uint32_t magnitude_fp32(const float* x, std::size_t n) {
  __m256i a = _mm256_setzero_si256(), b = a;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = _mm256_max_epu32(a, sign_cleared(load_bits(x + i)));
    b = _mm256_max_epu32(b, sign_cleared(load_bits(x + i + kLanes)));
  }
  return std::max(largest_lane(_mm256_max_epu32(a, b)),
                  reference_kernels().magnitude_fp32(x + i, n - i));
}

LH_AVX2 std::uint32_t magnitude_16(const std::uint16_t* x, std::size_t n) {
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    largest = _mm256_max_epu16(largest, _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff)));
  }
  return std::max(largest_half(largest), reference_kernels().magnitude_16(x + i, n - i));
}

// ---- 16 bits

LH_AVX2 void bf16_encode(const float* x, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m256i packed =
        low_halves(to_bf16(load_bits(x + i)), to_bf16(load_bits(x + i + kLanes)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 2 * i), packed);
  }
  reference_kernels().bf16_encode(x + i, n - i, codes + 2 * i);
}

LH_AVX2 std::uint32_t bf16_decode(const std::byte* codes, std::size_t n, float* x) {
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256i bits = _mm256_castps_si256(from_bf16(codes + 2 * i));
    largest = _mm256_max_epu32(largest, sign_cleared(bits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + i), bits);
  }
  return std::max(largest_lane(largest) >> 16,
                  reference_kernels().bf16_decode(codes + 2 * i, n - i, x + i));
}

LH_AVX2 void f16_encode(const float* x, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(codes + 2 * i),
        _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  reference_kernels().f16_encode(x + i, n - i, codes + 2 * i);
}

LH_AVX2 std::uint32_t f16_decode(const std::byte* codes, std::size_t n, float* x) {
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 2 * i));
    largest = _mm256_max_epu16(largest, _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff)));
    _mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm256_castsi256_si128(bits)));
    _mm256_storeu_ps(x + i + kLanes, _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1)));
  }
  return std::max(largest_half(largest),
                  reference_kernels().f16_decode(codes + 2 * i, n - i, x + i));
}

// ---- rotation and history

/// One level of the transform inside a register: `swapped` has each lane's partner, `minus` the
/// sign bit where the partner is subtracted from. (a + b, a - b) is (a + b, a + -b) to the bit.
LH_AVX2_INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256i minus) {
  return _mm256_add_ps(swapped, _mm256_xor_ps(x, _mm256_castsi256_ps(minus)));
}
LH_AVX2_INLINE __m256 transformed_8(__m256 x) {
  constexpr int kMinus = static_cast<int>(0x80000000u);
  const __m256i one = _mm256_setr_epi32(0, kMinus, 0, kMinus, 0, kMinus, 0, kMinus);
  const __m256i two = _mm256_setr_epi32(0, 0, kMinus, kMinus, 0, 0, kMinus, kMinus);
  const __m256i four = _mm256_setr_epi32(0, 0, 0, 0, kMinus, kMinus, kMinus, kMinus);
  x = butterfly(x, _mm256_permute_ps(x, 0xb1), one);
  x = butterfly(x, _mm256_permute_ps(x, 0x4e), two);
  return butterfly(x, _mm256_permute2f128_ps(x, x, 0x01), four);
}
struct Rotated {
  __m256 parts[8];
};
LH_AVX2_INLINE void transform(Rotated& y) {
  for (__m256& part : y.parts) part = transformed_8(part);
  for (int half = 1; half < 8; half *= 2) {
    for (int p = 0; p < 8; ++p) {
      if ((p & half) != 0) continue;
      const __m256 a = y.parts[p], b = y.parts[p + half];
      y.parts[p] = _mm256_add_ps(a, b);
      y.parts[p + half] = _mm256_sub_ps(a, b);
    }
  }
  for (__m256& part : y.parts) part = _mm256_mul_ps(part, _mm256_set1_ps(0.125f));
}
/// Changes the sign where a bit of `signs` from 8 part on is set.
LH_AVX2_INLINE __m256 with_signs(__m256 x, std::uint64_t signs, int part) {
  const __m256i bits = _mm256_set1_epi32(static_cast<int>((signs >> (8 * part)) & 0xff));
  const __m256i placed = _mm256_sllv_epi32(bits, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
  const __m256i flip = _mm256_and_si256(placed, _mm256_set1_epi32(static_cast<int>(0x80000000u)));
  return _mm256_xor_ps(x, _mm256_castsi256_ps(flip));
}

LH_AVX2 void rotate(const float* x, std::size_t n, std::uint64_t signs, float* y) {
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    Rotated block;
    for (int p = 0; p < 8; ++p) {
      block.parts[p] = with_signs(_mm256_loadu_ps(x + i + 8 * p), signs, p);
    }
    transform(block);
    for (int p = 0; p < 8; ++p) _mm256_storeu_ps(y + i + 8 * p, block.parts[p]);
  }
  reference_kernels().rotate(x + i, n - i, signs, y + i);
}

LH_AVX2 void rotate_back(const float* y, std::size_t n, std::uint64_t signs, float* x) {
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    Rotated block;
    for (int p = 0; p < 8; ++p) block.parts[p] = _mm256_loadu_ps(y + i + 8 * p);
    transform(block);
    for (int p = 0; p < 8; ++p) {
      _mm256_storeu_ps(x + i + 8 * p, with_signs(block.parts[p], signs, p));
    }
  }
  reference_kernels().rotate_back(y + i, n - i, signs, x + i);
}

LH_AVX2 void subtract_history(const float* x, const std::uint16_t* history, std::size_t n,
                              float* d) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 base = from_bf16(history + i);
    _mm256_storeu_ps(d + i, _mm256_sub_ps(_mm256_loadu_ps(x + i), base));
  }
  reference_kernels().subtract_history(x + i, history + i, n - i, d + i);
}

LH_AVX2 std::uint32_t add_history(float* y, std::size_t n, std::uint16_t* history) {
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m256i low = rounded_sum(from_bf16(history + i), _mm256_loadu_ps(y + i));
    const __m256i high =
        rounded_sum(from_bf16(history + i + kLanes), _mm256_loadu_ps(y + i + kLanes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), _mm256_slli_epi32(low, 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i + kLanes), _mm256_slli_epi32(high, 16));
    const __m256i halves = low_halves(low, high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(history + i), halves);
    const __m256i magnitudes = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    largest = _mm256_max_epu16(largest, magnitudes);
  }
  return std::max(largest_half(largest),
                  reference_kernels().add_history(y + i, n - i, history + i));
}

}  // namespace

CodecKernels avx2_float_kernels() {
  return {.name = "avx2",
          .magnitude_fp32 = magnitude_fp32,
          .magnitude_16 = magnitude_16,
          .bf16_encode = bf16_encode,
          .f16_encode = f16_encode,
          .bf16_decode = bf16_decode,
          .f16_decode = f16_decode,
          .rotate = rotate,
          .rotate_back = rotate_back,
          .subtract_history = subtract_history,
          .add_history = add_history,
          .blocks = {}};
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

}  // namespace longhaul

#endif
