// AVX2 versions of the codec kernels. Whole groups are done here; what is left over, less than a
// block or a few, goes through the reference, which gives the same bits.
//
// The functions carry their instruction set as an attribute: the rest of the program is built for
// the plain architecture and runs everywhere. FMA is not enabled, so nothing can be contracted.
#include "kernels/codec/codec_kernels.h"
#include "kernels/codec/tensor_frame.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>

#define LH_AVX2 __attribute__((target("avx2")))

namespace longhaul {
namespace {

constexpr std::size_t kQ8Block = 64;
constexpr std::size_t kLanes = 8;        // floats of a register
constexpr std::size_t kGroupBlocks = 8;  // blocks whose scales fill a register
constexpr std::size_t kGroup = kGroupBlocks * kQ8Block;

const BlockKernels& reference_q8() {
  return reference_kernels().blocks[static_cast<std::size_t>(TensorCodec::kQ8)];
}

LH_AVX2 inline __m256i load_bits(const float* x) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
}
LH_AVX2 inline __m256i sign_cleared(__m256i bits) {
  return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
}
LH_AVX2 inline std::uint32_t largest_lane(__m256i lanes) {
  alignas(32) std::array<std::uint32_t, kLanes> values;
  _mm256_store_si256(reinterpret_cast<__m256i*>(values.data()), lanes);
  return *std::max_element(values.begin(), values.end());
}
/// The eight floats as bf16, ties to even, in the low halves of the lanes.
LH_AVX2 inline __m256i to_bf16(__m256i bits) {
  const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
}
/// Eight bf16 from memory as floats.
LH_AVX2 inline __m256i from_bf16(const std::byte* codes) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}

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
  const __m256i even = _mm256_and_si256(largest, _mm256_set1_epi32(0xffff));
  const __m256i odd = _mm256_srli_epi32(largest, 16);
  return std::max(largest_lane(_mm256_max_epu32(even, odd)),
                  reference_kernels().magnitude_16(x + i, n - i));
}

LH_AVX2 void bf16_encode(const float* x, std::size_t n, std::byte* codes) {
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m256i low = to_bf16(load_bits(x + i));
    const __m256i high = to_bf16(load_bits(x + i + kLanes));
    // The pack works within 128-bit halves; the permutation restores the order.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 2 * i), packed);
  }
  reference_kernels().bf16_encode(x + i, n - i, codes + 2 * i);
}

LH_AVX2 std::uint32_t bf16_decode(const std::byte* codes, std::size_t n, float* x) {
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256i bits = from_bf16(codes + 2 * i);
    largest = _mm256_max_epu32(largest, sign_cleared(bits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + i), bits);
  }
  return std::max(largest_lane(largest) >> 16,
                  reference_kernels().bf16_decode(codes + 2 * i, n - i, x + i));
}

/// Largest magnitude of each lane over a block.
LH_AVX2 inline __m256i block_peaks(const float* x) {
  __m256i a = sign_cleared(load_bits(x));
  __m256i b = sign_cleared(load_bits(x + kLanes));
  for (std::size_t i = 2 * kLanes; i < kQ8Block; i += 2 * kLanes) {
    a = _mm256_max_epu32(a, sign_cleared(load_bits(x + i)));
    b = _mm256_max_epu32(b, sign_cleared(load_bits(x + i + kLanes)));
  }
  return _mm256_max_epu32(a, b);
}
/// Four blocks' lanes reduced to [block 0, 1, 2, 3], once for each 128-bit half.
LH_AVX2 inline __m256i reduce_four(const float* x) {
  const __m256i m0 = block_peaks(x), m1 = block_peaks(x + kQ8Block);
  const __m256i m2 = block_peaks(x + 2 * kQ8Block), m3 = block_peaks(x + 3 * kQ8Block);
  const __m256i a = _mm256_max_epu32(_mm256_unpacklo_epi32(m0, m1), _mm256_unpackhi_epi32(m0, m1));
  const __m256i b = _mm256_max_epu32(_mm256_unpacklo_epi32(m2, m3), _mm256_unpackhi_epi32(m2, m3));
  return _mm256_max_epu32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/// A division has a long latency, so the scales of eight blocks are computed as one register.
LH_AVX2 std::uint32_t q8_scales(const float* x, std::size_t n, Rounding rounding,
                                std::byte* scales) {
  if (rounding == Rounding::kStochastic) return reference_q8().scales(x, n, rounding, scales);
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    const __m256i first = reduce_four(x + i);
    const __m256i second = reduce_four(x + i + kGroup / 2);
    const __m256i peaks = _mm256_max_epu32(_mm256_permute2x128_si256(first, second, 0x20),
                                           _mm256_permute2x128_si256(first, second, 0x31));
    largest = _mm256_max_epu32(largest, peaks);
    const __m256 exact = _mm256_div_ps(_mm256_castsi256_ps(peaks), _mm256_set1_ps(127.0f));
    const __m256i rounded =
        _mm256_max_epu32(to_bf16(_mm256_castps_si256(exact)), _mm256_set1_epi32(kScaleMin));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scales + 2 * (i / kQ8Block)),
                     _mm256_castsi256_si128(packed));
  }
  return std::max(largest_lane(largest),
                  reference_q8().scales(x + i, n - i, rounding, scales + 2 * (i / kQ8Block)));
}

/// Eight codes as 32-bit lanes. The conversion rounds to nearest even; nothing is out of range.
LH_AVX2 inline __m256i codes_of(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}
LH_AVX2 inline __m256i codes_of_32(const float* x, __m256 inverse) {
  const __m256i low = _mm256_packs_epi32(codes_of(x, inverse), codes_of(x + kLanes, inverse));
  const __m256i high =
      _mm256_packs_epi32(codes_of(x + 2 * kLanes, inverse), codes_of(x + 3 * kLanes, inverse));
  // Packs work within 128-bit halves; the permutation restores the order.
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

LH_AVX2 void q8_encode(const float* x, std::size_t n, const std::byte* scales, std::byte* codes) {
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    const __m256 group_scales = _mm256_castsi256_ps(from_bf16(scales + 2 * (i / kQ8Block)));
    alignas(32) std::array<float, kGroupBlocks> inverses;
    _mm256_store_ps(inverses.data(), _mm256_div_ps(_mm256_set1_ps(1.0f), group_scales));
    for (std::size_t b = 0; b < kGroupBlocks; ++b) {
      const __m256 inverse = _mm256_set1_ps(inverses[b]);
      const std::size_t at = i + b * kQ8Block;
      auto* to = reinterpret_cast<__m256i*>(codes + at);
      _mm256_storeu_si256(to, codes_of_32(x + at, inverse));
      _mm256_storeu_si256(to + 1, codes_of_32(x + at + 32, inverse));
    }
  }
  reference_q8().encode(x + i, n - i, scales + 2 * (i / kQ8Block), codes + i);
}

LH_AVX2 bool q8_decode(const std::byte* scales, const std::byte* codes, std::size_t n, float* x) {
  __m256i forbidden = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kQ8Block <= n; i += kQ8Block) {
    const __m128i half =
        _mm_cvtsi32_si128(static_cast<std::uint8_t>(scales[2 * (i / kQ8Block)]) |
                          static_cast<std::uint8_t>(scales[2 * (i / kQ8Block) + 1]) << 8);
    const __m256 scale = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_broadcastw_epi16(half)), 16));
    const auto* from = reinterpret_cast<const __m256i*>(codes + i);
    const __m256i least = _mm256_set1_epi8(-128);
    forbidden = _mm256_or_si256(
        forbidden, _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_loadu_si256(from), least),
                                   _mm256_cmpeq_epi8(_mm256_loadu_si256(from + 1), least)));
    for (std::size_t k = 0; k < kQ8Block; k += kLanes) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i + k));
      const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
      _mm256_storeu_ps(x + i + k, _mm256_mul_ps(values, scale));
    }
  }
  const bool rest = reference_q8().decode(scales + 2 * (i / kQ8Block), codes + i, n - i, x + i);
  return rest && _mm256_testz_si256(forbidden, forbidden) != 0;
}

}  // namespace

const CodecKernels* avx2_kernels() {
  static const CodecKernels kernels = [] {
    CodecKernels fast = reference_kernels();
    fast.name = "avx2";
    fast.magnitude_fp32 = magnitude_fp32;
    fast.magnitude_16 = magnitude_16;
    fast.bf16_encode = bf16_encode;
    fast.bf16_decode = bf16_decode;
    BlockKernels& q8 = fast.blocks[static_cast<std::size_t>(TensorCodec::kQ8)];
    q8.scales = q8_scales;
    q8.encode = q8_encode;
    q8.decode = q8_decode;
    return fast;
  }();
  static const bool is_here = __builtin_cpu_supports("avx2") != 0;
  return is_here ? &kernels : nullptr;
}

}  // namespace longhaul

#else

namespace longhaul {

const CodecKernels* avx2_kernels() {
  return nullptr;
}

}  // namespace longhaul

#endif
