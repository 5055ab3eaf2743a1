// AVX-512 versions of the kernels from floats to floats and to 16 bits. Whole registers are done
// here, the rest by the reference.
#include "kernels/codec/codec_avx512.h"

#if defined(__x86_64__)

#include <algorithm>

namespace longhaul {
namespace {

using namespace avx512;

LH_AVX512 std::uint32_t magnitude_fp32(const float* x, std::size_t n) {
  __m512i a = _mm512_setzero_si512(), b = a;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = _mm512_max_epu32(a, sign_cleared(load_bits(x + i)));
    b = _mm512_max_epu32(b, sign_cleared(load_bits(x + i + kLanes)));
  }
  return std::max<std::uint32_t>(_mm512_reduce_max_epu32(_mm512_max_epu32(a, b)),
                                 reference_kernels().magnitude_fp32(x + i, n - i));
}

/// The largest of 32 numbers of 16 bits.
LH_AVX512_INLINE std::uint32_t largest_half(__m512i halves) {
  const __m512i even = _mm512_and_si512(halves, _mm512_set1_epi32(0xffff));
  return _mm512_reduce_max_epu32(_mm512_max_epu32(even, _mm512_srli_epi32(halves, 16)));
}

LH_AVX512 std::uint32_t magnitude_16(const std::uint16_t* x, std::size_t n) {
  __m512i largest = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m512i magnitudes =
        _mm512_and_si512(_mm512_loadu_si512(x + i), _mm512_set1_epi16(0x7fff));
    largest = _mm512_max_epu16(largest, magnitudes);
  }
  return std::max(largest_half(largest), reference_kernels().magnitude_16(x + i, n - i));
}

// ---- 16 bits

LH_AVX512 void bf16_encode(const float* x, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 2 * i),
                        _mm512_cvtepi32_epi16(to_bf16(load_bits(x + i))));
  }
  reference_kernels().bf16_encode(x + i, n - i, codes + 2 * i);
}

LH_AVX512 std::uint32_t bf16_decode(const std::byte* codes, std::size_t n, float* x) {
  __m512i largest = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m512 values = from_bf16(codes + 2 * i);
    largest = _mm512_max_epu32(largest, sign_cleared(_mm512_castps_si512(values)));
    _mm512_storeu_ps(x + i, values);
  }
  return std::max<std::uint32_t>(_mm512_reduce_max_epu32(largest) >> 16,
                                 reference_kernels().bf16_decode(codes + 2 * i, n - i, x + i));
}

LH_AVX512 void f16_encode(const float* x, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(codes + 2 * i),
        _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  reference_kernels().f16_encode(x + i, n - i, codes + 2 * i);
}

LH_AVX512 std::uint32_t f16_decode(const std::byte* codes, std::size_t n, float* x) {
  __m512i largest = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m512i bits = _mm512_loadu_si512(codes + 2 * i);
    largest = _mm512_max_epu16(largest, _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff)));
    _mm512_storeu_ps(x + i, _mm512_cvtph_ps(_mm512_castsi512_si256(bits)));
    _mm512_storeu_ps(x + i + kLanes, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1)));
  }
  return std::max(largest_half(largest),
                  reference_kernels().f16_decode(codes + 2 * i, n - i, x + i));
}

// ---- rotation and history

/// One level of the transform inside a register: `swapped` has each lane's partner, which is
/// subtracted from where a bit of `minus` is set. The product with 1 or -1 is exact, so that the
/// fused operation rounds as a plain addition does: (a + b, a - b) is (b + a, a + -b) to the bit.
LH_AVX512_INLINE __m512 butterfly(__m512 x, __m512 swapped, __mmask16 minus) {
  const __m512 one = _mm512_set1_ps(1.0f);
  return _mm512_fmadd_ps(x, _mm512_mask_sub_ps(one, minus, _mm512_setzero_ps(), one), swapped);
}
LH_AVX512_INLINE __m512 transformed_16(__m512 x) {
  x = butterfly(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
  x = butterfly(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
  x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
  return butterfly(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}
struct Rotated {
  __m512 parts[4];
};
LH_AVX512_INLINE void transform(Rotated& y) {
  __m512* part = y.parts;
  for (int p = 0; p < 4; ++p) part[p] = transformed_16(part[p]);
  const __m512 a = _mm512_add_ps(part[0], part[1]), b = _mm512_sub_ps(part[0], part[1]);
  const __m512 c = _mm512_add_ps(part[2], part[3]), d = _mm512_sub_ps(part[2], part[3]);
  const __m512 eighth = _mm512_set1_ps(0.125f);
  part[0] = _mm512_mul_ps(_mm512_add_ps(a, c), eighth);
  part[1] = _mm512_mul_ps(_mm512_add_ps(b, d), eighth);
  part[2] = _mm512_mul_ps(_mm512_sub_ps(a, c), eighth);
  part[3] = _mm512_mul_ps(_mm512_sub_ps(b, d), eighth);
}
LH_AVX512_INLINE __m512 with_signs(__m512 x, std::uint64_t signs, int part) {
  const __m512i bits = _mm512_castps_si512(x);
  return _mm512_castsi512_ps(
      _mm512_mask_xor_epi32(bits, static_cast<__mmask16>(signs >> (16 * part)), bits,
                            _mm512_set1_epi32(static_cast<int>(0x80000000u))));
}

LH_AVX512 void rotate(const float* x, std::size_t n, std::uint64_t signs, float* y) {
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    Rotated block;
    for (int p = 0; p < 4; ++p) {
      block.parts[p] = with_signs(_mm512_loadu_ps(x + i + 16 * p), signs, p);
    }
    transform(block);
    for (int p = 0; p < 4; ++p) _mm512_storeu_ps(y + i + 16 * p, block.parts[p]);
  }
  reference_kernels().rotate(x + i, n - i, signs, y + i);
}

LH_AVX512 void rotate_back(const float* y, std::size_t n, std::uint64_t signs, float* x) {
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    Rotated block;
    for (int p = 0; p < 4; ++p) block.parts[p] = _mm512_loadu_ps(y + i + 16 * p);
    transform(block);
    for (int p = 0; p < 4; ++p) {
      _mm512_storeu_ps(x + i + 16 * p, with_signs(block.parts[p], signs, p));
    }
  }
  reference_kernels().rotate_back(y + i, n - i, signs, x + i);
}

LH_AVX512 void subtract_history(const float* x, const std::uint16_t* history, std::size_t n,
                                float* d) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm512_storeu_ps(d + i, _mm512_sub_ps(_mm512_loadu_ps(x + i), from_bf16(history + i)));
  }
  reference_kernels().subtract_history(x + i, history + i, n - i, d + i);
}

LH_AVX512 std::uint32_t add_history(float* y, std::size_t n, std::uint16_t* history) {
  __m512i largest = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m512i low = rounded_sum(from_bf16(history + i), _mm512_loadu_ps(y + i));
    const __m512i high =
        rounded_sum(from_bf16(history + i + kLanes), _mm512_loadu_ps(y + i + kLanes));
    _mm512_storeu_si512(y + i, low);
    _mm512_storeu_si512(y + i + kLanes, high);
    const __m512i halves = odd_halves(low, high);
    _mm512_storeu_si512(history + i, halves);
    const __m512i magnitudes = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
    largest = _mm512_max_epu16(largest, magnitudes);
  }
  return std::max(largest_half(largest),
                  reference_kernels().add_history(y + i, n - i, history + i));
}

}  // namespace

CodecKernels avx512_float_kernels() {
  return {.name = "avx512",
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

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace longhaul

#endif
