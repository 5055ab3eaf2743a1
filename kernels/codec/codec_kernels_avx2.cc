// AVX2 versions of the block kernels. Whole groups of 8 blocks are done here; what is left over
// goes through the reference, which gives the same bits.
#include "kernels/codec/codec_avx2.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstring>

namespace longhaul {
namespace {

using namespace avx2;

constexpr std::size_t kUnit = 32;  // codes of a register, packed together

// ---- scales

/// Where numbers come from: a tensor, or its difference to a history, with the largest magnitude of
/// the tensor found on the way.
struct Plain {
  const float* x;
  LH_AVX2_INLINE __m256i load(std::size_t i) const { return load_bits(x + i); }
};
struct Difference {
  const float* x;
  const std::uint16_t* history;
  __m256i largest;
  LH_AVX2_INLINE __m256i load(std::size_t i) {
    const __m256i bits = load_bits(x + i);
    largest = _mm256_max_epu32(largest, sign_cleared(bits));
    return _mm256_castps_si256(_mm256_sub_ps(_mm256_castsi256_ps(bits), from_bf16(history + i)));
  }
};

/// What orders elements by magnitude: the magnitude or, where the sign must survive, the number
/// with its sign at the lower end.
template <CodecGrid kGrid>
LH_AVX2_INLINE __m256i order_key(__m256i bits) {
  if constexpr (!kGrid.has_signed_scale) return sign_cleared(bits);
  return _mm256_or_si256(_mm256_add_epi32(bits, bits), _mm256_srli_epi32(bits, 31));
}

/// Largest key of each lane over a block.
template <CodecGrid kGrid, class Source>
LH_AVX2_INLINE __m256i block_keys(Source& x, std::size_t first) {
  __m256i a = order_key<kGrid>(x.load(first)), b = order_key<kGrid>(x.load(first + kLanes));
  for (std::size_t i = first + 2 * kLanes; i < first + kGrid.block; i += 2 * kLanes) {
    a = _mm256_max_epu32(a, order_key<kGrid>(x.load(i)));
    b = _mm256_max_epu32(b, order_key<kGrid>(x.load(i + kLanes)));
  }
  return _mm256_max_epu32(a, b);
}
/// Four blocks' lanes reduced to [block 0, 1, 2, 3], once for each 128-bit half.
template <CodecGrid kGrid, class Source>
LH_AVX2_INLINE __m256i reduce_four(Source& x, std::size_t i) {
  const __m256i k0 = block_keys<kGrid>(x, i), k1 = block_keys<kGrid>(x, i + kGrid.block);
  const __m256i k2 = block_keys<kGrid>(x, i + 2 * kGrid.block);
  const __m256i k3 = block_keys<kGrid>(x, i + 3 * kGrid.block);
  const __m256i a = _mm256_max_epu32(_mm256_unpacklo_epi32(k0, k1), _mm256_unpackhi_epi32(k0, k1));
  const __m256i b = _mm256_max_epu32(_mm256_unpacklo_epi32(k2, k3), _mm256_unpackhi_epi32(k2, k3));
  return _mm256_max_epu32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/// Of whole groups. A division has a long latency, so the scales of eight blocks are computed as
/// one register.
template <CodecGrid kGrid, class Source>
LH_AVX2_INLINE DifferenceDone scale_groups(Source& x, std::size_t n, Rounding rounding,
                                           std::byte* plane) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  const bool is_nearest = rounding == Rounding::kNearest;
  const __m256i least = _mm256_set1_epi32(is_nearest ? kScaleMin : kStochasticScaleMin);
  const __m256 steps = _mm256_set1_ps(static_cast<float>(kGrid.largest));
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    const __m256i first = reduce_four<kGrid>(x, i);
    const __m256i second = reduce_four<kGrid>(x, i + kGroup / 2);
    const __m256i keys = _mm256_max_epu32(_mm256_permute2x128_si256(first, second, 0x20),
                                          _mm256_permute2x128_si256(first, second, 0x31));
    const __m256i peaks = kGrid.has_signed_scale ? _mm256_srli_epi32(keys, 1) : keys;
    largest = _mm256_max_epu32(largest, peaks);
    const __m256i exact = _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(peaks), steps));
    const __m256i up = _mm256_srli_epi32(_mm256_add_epi32(exact, _mm256_set1_epi32(0xffff)), 16);
    __m256i scale = _mm256_max_epu32(is_nearest ? to_bf16(exact) : up, least);
    if constexpr (kGrid.has_signed_scale) {
      // Bit 0 of the key is set where the peak is negative and the scale positive.
      const __m256i sign = _mm256_slli_epi32(_mm256_andnot_si256(keys, _mm256_set1_epi32(1)), 15);
      scale = _mm256_or_si256(scale, sign);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(plane + 2 * (i / kGrid.block)),
                     _mm256_castsi256_si128(low_halves(scale, scale)));
  }
  return {.elements = i, .largest = largest_lane(largest)};
}

template <CodecGrid kGrid>
LH_AVX2 std::uint32_t scales(const float* x, std::size_t n, Rounding rounding, std::byte* plane) {
  Plain source{x};
  const DifferenceDone done = scale_groups<kGrid>(source, n, rounding, plane);
  const std::size_t i = done.elements;
  return std::max(done.largest, reference_of<kGrid>().scales(x + i, n - i, rounding,
                                                             plane + 2 * (i / kGrid.block)));
}
template <CodecGrid kGrid>
LH_AVX2 DifferenceDone difference_scales(const float* x, const std::uint16_t* history,
                                         std::size_t n, Rounding rounding, std::byte* plane) {
  Difference source{x, history, _mm256_setzero_si256()};
  DifferenceDone done = scale_groups<kGrid>(source, n, rounding, plane);
  done.source_largest = largest_lane(source.largest);
  return done;
}

// ---- codes

struct Nearest {
  static constexpr float kFactor = 1.0f;
};
struct Stochastic {
  static constexpr float kFactor = 65536.0f;
  NoiseKey key;
};

/// Eight codes. The conversion rounds to nearest even; nothing is out of range.
LH_AVX2_INLINE __m256i nearest_codes(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}
template <CodecGrid kGrid>
LH_AVX2_INLINE __m256i stochastic_codes(const float* x, __m256 inverse, __m256i noise) {
  const __m256i least = _mm256_set1_epi32(-kGrid.largest * 65536);
  const __m256i most = _mm256_set1_epi32(kGrid.code_max() * 65536);
  const __m256i exact = nearest_codes(x, inverse);
  const __m256i limited = _mm256_min_epi32(_mm256_max_epi32(exact, least), most);
  return _mm256_srai_epi32(_mm256_add_epi32(limited, noise), 16);
}
/// noise_word of eight counters.
LH_AVX2_INLINE __m256i noise_words(const NoiseKey& key, std::size_t counter) {
  __m256i x = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(counter)),
                               _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  x = _mm256_xor_si256(x, _mm256_set1_epi32(static_cast<int>(key.first)));
  x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
  x = _mm256_mullo_epi32(x, _mm256_set1_epi32(static_cast<int>(0x7feb352du)));
  x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
  x = _mm256_add_epi32(x, _mm256_set1_epi32(static_cast<int>(key.second)));
  x = _mm256_mullo_epi32(x, _mm256_set1_epi32(static_cast<int>(0x846ca68bu)));
  return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

/// 32 codes as bytes, in order.
LH_AVX2_INLINE __m256i narrowed(__m256i a, __m256i b, __m256i c, __m256i d) {
  // Packs work within 128-bit halves; the permutation restores the order.
  return _mm256_permutevar8x32_epi32(
      _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)),
      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
template <CodecGrid kGrid>
LH_AVX2_INLINE __m256i codes_of_unit(const float* x, __m256 inverse, Nearest, std::size_t) {
  const __m256i codes = narrowed(nearest_codes(x, inverse), nearest_codes(x + 8, inverse),
                                 nearest_codes(x + 16, inverse), nearest_codes(x + 24, inverse));
  if constexpr (!kGrid.has_signed_scale) return codes;
  return _mm256_min_epi8(codes, _mm256_set1_epi8(static_cast<char>(kGrid.code_max())));
}
/// The first element of the unit is `element` of the tensor.
template <CodecGrid kGrid>
LH_AVX2_INLINE __m256i codes_of_unit(const float* x, __m256 inverse, const Stochastic& rounding,
                                     std::size_t element) {
  const __m256i half = _mm256_set1_epi32(0xffff);
  const __m256i first = noise_words(rounding.key, element / 2);
  const __m256i second = noise_words(rounding.key, element / 2 + kLanes);
  return narrowed(stochastic_codes<kGrid>(x, inverse, _mm256_and_si256(first, half)),
                  stochastic_codes<kGrid>(x + 8, inverse, _mm256_and_si256(second, half)),
                  stochastic_codes<kGrid>(x + 16, inverse, _mm256_srli_epi32(first, 16)),
                  stochastic_codes<kGrid>(x + 24, inverse, _mm256_srli_epi32(second, 16)));
}

template <class Word>
LH_AVX2_INLINE Word load_word(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
LH_AVX2_INLINE __m256i shifts_of_pairs() {
  return _mm256_setr_epi64x(0, 2, 4, 6);
}

/// The lowest 4 bits of 32 codes: 16 bytes.
LH_AVX2_INLINE void store_nibbles(__m256i codes, std::byte* to) {
  const __m256i bits = _mm256_and_si256(codes, _mm256_set1_epi8(0x0f));
  const __m128i high = _mm_slli_epi16(_mm256_extracti128_si256(bits, 1), 4);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_or_si128(_mm256_castsi256_si128(bits), high));
}
/// The lowest 2 bits: 8 bytes.
LH_AVX2_INLINE void store_pairs(__m256i codes, std::byte* to) {
  const __m256i bits = _mm256_and_si256(codes, _mm256_set1_epi8(3));
  const __m256i placed = _mm256_sllv_epi64(bits, shifts_of_pairs());
  const __m128i half =
      _mm_or_si128(_mm256_castsi256_si128(placed), _mm256_extracti128_si256(placed, 1));
  const __m128i all = _mm_or_si128(half, _mm_unpackhi_epi64(half, half));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), all);
}
template <CodecGrid kGrid>
LH_AVX2_INLINE void store_unit(__m256i codes, std::byte* to) {
  if constexpr (kGrid.bits == 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), codes);
  } else if constexpr (kGrid.bits == 4) {
    store_nibbles(codes, to);
  } else if constexpr (kGrid.bits == 6) {
    store_nibbles(codes, to);
    store_pairs(_mm256_srli_epi16(codes, 4), to + 16);
  } else {
    store_pairs(codes, to);
    if constexpr (kGrid.bits == 3) {
      const int third = _mm256_movemask_epi8(_mm256_slli_epi16(codes, 5));
      std::memcpy(to + 8, &third, sizeof third);
    }
  }
}

LH_AVX2_INLINE __m256i load_nibbles(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes),
                          _mm256_set1_epi8(0x0f));
}
LH_AVX2_INLINE __m256i load_pairs(const std::byte* from) {
  const __m256i bytes = _mm256_set1_epi64x(load_word<long long>(from));
  return _mm256_and_si256(_mm256_srlv_epi64(bytes, shifts_of_pairs()), _mm256_set1_epi8(3));
}
/// 4 in each byte whose bit of 32 is set.
LH_AVX2_INLINE __m256i load_third_bits(const std::byte* from) {
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(load_word<int>(from)),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit),
                          _mm256_set1_epi8(4));
}
/// 32 codes as signed bytes.
template <CodecGrid kGrid>
LH_AVX2_INLINE __m256i load_unit(const std::byte* from) {
  if constexpr (kGrid.bits == 8) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  __m256i bits;
  if constexpr (kGrid.bits >= 4) bits = load_nibbles(from);
  if constexpr (kGrid.bits == 6) {
    bits = _mm256_or_si256(bits, _mm256_slli_epi16(load_pairs(from + 16), 4));
  }
  if constexpr (kGrid.bits < 4) bits = load_pairs(from);
  if constexpr (kGrid.bits == 3) bits = _mm256_or_si256(bits, load_third_bits(from + 8));
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(1 << (kGrid.bits - 1)));
  return _mm256_sub_epi8(_mm256_xor_si256(bits, sign), sign);
}

/// Whole groups; the elements done.
template <CodecGrid kGrid, class Rounded>
LH_AVX2_INLINE std::size_t encode_groups(const float* x, std::size_t n, const std::byte* plane,
                                         const Rounded& rounding, std::size_t first,
                                         std::byte* codes) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(32) std::array<float, kLanes> inverses;
    const __m256 group = from_bf16(plane + 2 * (i / kGrid.block));
    _mm256_store_ps(inverses.data(), _mm256_mul_ps(_mm256_div_ps(_mm256_set1_ps(1.0f), group),
                                                   _mm256_set1_ps(Rounded::kFactor)));
    for (std::size_t k = i; k < i + kGroup; k += kUnit) {
      const __m256 inverse = _mm256_set1_ps(inverses[(k - i) / kGrid.block]);
      store_unit<kGrid>(codes_of_unit<kGrid>(x + k, inverse, rounding, first + k),
                        codes + k * kGrid.bits / 8);
    }
  }
  return i;
}

template <CodecGrid kGrid>
LH_AVX2 void encode(const float* x, std::size_t n, const std::byte* plane, std::byte* codes) {
  const std::size_t i = encode_groups<kGrid>(x, n, plane, Nearest{}, 0, codes);
  reference_of<kGrid>().encode(x + i, n - i, plane + 2 * (i / kGrid.block),
                               codes + i * kGrid.bits / 8);
}

template <CodecGrid kGrid>
LH_AVX2 void encode_stochastic(const float* x, std::size_t n, const std::byte* plane,
                               const NoiseKey& key, std::size_t first, std::byte* codes) {
  const std::size_t i = encode_groups<kGrid>(x, n, plane, Stochastic{key}, first, codes);
  reference_of<kGrid>().encode_stochastic(x + i, n - i, plane + 2 * (i / kGrid.block), key,
                                          first + i, codes + i * kGrid.bits / 8);
}

LH_AVX2_INLINE void store_scaled(__m128i codes, __m256 scale, float* x) {
  _mm256_storeu_ps(x, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), scale));
}

template <CodecGrid kGrid>
LH_AVX2 bool decode(const std::byte* plane, const std::byte* codes, std::size_t n, float* x) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  const __m256i forbidden = _mm256_set1_epi8(static_cast<char>(-kGrid.largest - 1));
  __m256i found = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(32) std::array<float, kLanes> group;
    _mm256_store_ps(group.data(), from_bf16(plane + 2 * (i / kGrid.block)));
    for (std::size_t k = i; k < i + kGroup; k += kUnit) {
      const __m256 scale = _mm256_set1_ps(group[(k - i) / kGrid.block]);
      const __m256i unit = load_unit<kGrid>(codes + k * kGrid.bits / 8);
      if constexpr (!kGrid.has_signed_scale) {
        found = _mm256_or_si256(found, _mm256_cmpeq_epi8(unit, forbidden));
      }
      const __m128i low = _mm256_castsi256_si128(unit), high = _mm256_extracti128_si256(unit, 1);
      store_scaled(low, scale, x + k);
      store_scaled(_mm_unpackhi_epi64(low, low), scale, x + k + 8);
      store_scaled(high, scale, x + k + 16);
      store_scaled(_mm_unpackhi_epi64(high, high), scale, x + k + 24);
    }
  }
  const bool rest = reference_of<kGrid>().decode(plane + 2 * (i / kGrid.block),
                                                 codes + i * kGrid.bits / 8, n - i, x + i);
  return rest && _mm256_testz_si256(found, found) != 0;
}

// ---- differences to a history

/// Eight codes; `sum` becomes what the history makes of them, bf16 in the low halves.
template <CodecGrid kGrid>
LH_AVX2_INLINE __m256i difference_codes(const float* x, const std::uint16_t* history,
                                        __m256 inverse, __m256 scale, __m256i& sum) {
  const __m256 base = from_bf16(history);
  const __m256 difference = _mm256_sub_ps(_mm256_loadu_ps(x), base);
  __m256i codes = _mm256_cvtps_epi32(_mm256_mul_ps(difference, inverse));
  if constexpr (kGrid.has_signed_scale) {
    codes = _mm256_min_epi32(codes, _mm256_set1_epi32(kGrid.code_max()));
  }
  sum = rounded_sum(base, _mm256_mul_ps(_mm256_cvtepi32_ps(codes), scale));
  return codes;
}

template <CodecGrid kGrid>
LH_AVX2 std::size_t encode_difference(const float* x, std::uint16_t* history, std::size_t n,
                                      const std::byte* plane, std::byte* codes) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(32) std::array<float, kLanes> inverses, group;
    const __m256 of_group = from_bf16(plane + 2 * (i / kGrid.block));
    _mm256_store_ps(group.data(), of_group);
    _mm256_store_ps(inverses.data(), _mm256_div_ps(_mm256_set1_ps(1.0f), of_group));
    for (std::size_t k = i; k < i + kGroup; k += kUnit) {
      const __m256 inverse = _mm256_set1_ps(inverses[(k - i) / kGrid.block]);
      const __m256 scale = _mm256_set1_ps(group[(k - i) / kGrid.block]);
      __m256i unit[4], sums[4];
      for (std::size_t p = 0; p < 4; ++p) {
        const std::size_t at = k + p * kLanes;
        unit[p] = difference_codes<kGrid>(x + at, history + at, inverse, scale, sums[p]);
      }
      auto* const to = reinterpret_cast<__m256i*>(history + k);
      _mm256_storeu_si256(to, low_halves(sums[0], sums[1]));
      _mm256_storeu_si256(to + 1, low_halves(sums[2], sums[3]));
      store_unit<kGrid>(narrowed(unit[0], unit[1], unit[2], unit[3]), codes + k * kGrid.bits / 8);
    }
  }
  return i;
}

struct Maker {
  template <CodecGrid kGrid>
  constexpr BlockKernels operator()() const {
    return {scales<kGrid>,
            encode<kGrid>,
            encode_stochastic<kGrid>,
            decode<kGrid>,
            difference_scales<kGrid>,
            encode_difference<kGrid>};
  }
};

}  // namespace

const CodecKernels* avx2_kernels() {
  static const CodecKernels kernels = [] {
    CodecKernels all = avx2_float_kernels();
    all.blocks = block_kernels(Maker{});
    return all;
  }();
  static const bool is_here = has_avx2();
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
