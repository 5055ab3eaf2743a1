// AVX-512 versions of the block kernels. Whole groups of 16 blocks are done here; what is left over
// goes through the reference, which gives the same bits.
//
// Two things make them fast. A division has a long latency, so the scales of 16 blocks are computed
// as one register; and codes stay in registers from the multiplication to the packed plane.
#include "kernels/codec/codec_avx512.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstring>

namespace longhaul {
namespace {

using namespace avx512;

constexpr std::size_t kPack = 128;  // elements that are packed together: four units of 32

// ---- scales

/// Where numbers come from: a tensor, or its difference to a history, with the largest magnitude of
/// the tensor found on the way (doubled bits, without the sign).
struct Plain {
  const float* x;
  LH_AVX512_INLINE __m512 load(std::size_t i) const { return _mm512_loadu_ps(x + i); }
};
struct Difference {
  const float* x;
  const std::uint16_t* history;
  __m512i largest;
  LH_AVX512_INLINE __m512 load(std::size_t i) {
    const __m512i bits = load_bits(x + i);
    largest = _mm512_max_epu32(largest, _mm512_add_epi32(bits, bits));
    return _mm512_sub_ps(_mm512_castsi512_ps(bits), from_bf16(history + i));
  }
};

/// What orders elements by magnitude: the magnitude or, where the sign must survive, the number
/// with its sign at the lower end.
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512i order_key(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  if constexpr (kGrid.has_signed_scale) return _mm512_rol_epi32(bits, 1);
  return sign_cleared(bits);
}

/// Largest key of each lane over a block.
template <CodecGrid kGrid, class Source>
LH_AVX512_INLINE __m512i block_keys(Source& x, std::size_t i) {
  __m512i a = order_key<kGrid>(x.load(i));
  __m512i b = order_key<kGrid>(x.load(i + kLanes));
  if constexpr (kGrid.block == 64) {
    a = _mm512_max_epu32(a, order_key<kGrid>(x.load(i + 2 * kLanes)));
    b = _mm512_max_epu32(b, order_key<kGrid>(x.load(i + 3 * kLanes)));
  }
  return _mm512_max_epu32(a, b);
}
/// Four blocks' lanes reduced to [block 0, 1, 2, 3], once for each 128 bits.
template <CodecGrid kGrid, class Source>
LH_AVX512_INLINE __m512i reduce_four(Source& x, std::size_t i) {
  const __m512i k0 = block_keys<kGrid>(x, i), k1 = block_keys<kGrid>(x, i + kGrid.block);
  const __m512i k2 = block_keys<kGrid>(x, i + 2 * kGrid.block);
  const __m512i k3 = block_keys<kGrid>(x, i + 3 * kGrid.block);
  const __m512i a = _mm512_max_epu32(_mm512_unpacklo_epi32(k0, k1), _mm512_unpackhi_epi32(k0, k1));
  const __m512i b = _mm512_max_epu32(_mm512_unpacklo_epi32(k2, k3), _mm512_unpackhi_epi32(k2, k3));
  return _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
/// Maxima of 128-bit quarters: of a in the lower half, of b in the upper one.
LH_AVX512_INLINE __m512i max_of_quarters(__m512i a, __m512i b) {
  return _mm512_max_epu32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/// Of whole groups.
template <CodecGrid kGrid, class Source>
LH_AVX512_INLINE DifferenceDone scale_groups(Source& x, std::size_t n, Rounding rounding,
                                             std::byte* plane) {
  constexpr std::size_t kQuarter = 4 * kGrid.block;
  const bool is_nearest = rounding == Rounding::kNearest;
  const __m512i least = _mm512_set1_epi32(is_nearest ? kScaleMin : kStochasticScaleMin);
  const __m512 steps = _mm512_set1_ps(static_cast<float>(kGrid.largest));
  __m512i largest = _mm512_setzero_si512();
  std::size_t i = 0;
  for (; i + 4 * kQuarter <= n; i += 4 * kQuarter) {
    const __m512i keys = max_of_quarters(
        max_of_quarters(reduce_four<kGrid>(x, i), reduce_four<kGrid>(x, i + kQuarter)),
        max_of_quarters(reduce_four<kGrid>(x, i + 2 * kQuarter),
                        reduce_four<kGrid>(x, i + 3 * kQuarter)));
    const __m512i peaks = kGrid.has_signed_scale ? _mm512_srli_epi32(keys, 1) : keys;
    largest = _mm512_max_epu32(largest, peaks);
    const __m512i exact = _mm512_castps_si512(_mm512_div_ps(_mm512_castsi512_ps(peaks), steps));
    const __m512i up = _mm512_srli_epi32(_mm512_add_epi32(exact, _mm512_set1_epi32(0xffff)), 16);
    __m512i scale = _mm512_max_epu32(is_nearest ? to_bf16(exact) : up, least);
    if constexpr (kGrid.has_signed_scale) {
      // Bit 0 of the key is set where the peak is negative and the scale positive.
      const __m512i sign = _mm512_slli_epi32(_mm512_andnot_si512(keys, _mm512_set1_epi32(1)), 15);
      scale = _mm512_or_si512(scale, sign);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(plane + 2 * (i / kGrid.block)),
                        _mm512_cvtepi32_epi16(scale));
  }
  return {.elements = i, .largest = _mm512_reduce_max_epu32(largest)};
}

template <CodecGrid kGrid>
LH_AVX512 std::uint32_t scales(const float* x, std::size_t n, Rounding rounding, std::byte* plane) {
  Plain source{x};
  const DifferenceDone done = scale_groups<kGrid>(source, n, rounding, plane);
  const std::size_t i = done.elements;
  return std::max(done.largest, reference_of<kGrid>().scales(x + i, n - i, rounding,
                                                             plane + 2 * (i / kGrid.block)));
}
template <CodecGrid kGrid>
LH_AVX512 DifferenceDone difference_scales(const float* x, const std::uint16_t* history,
                                           std::size_t n, Rounding rounding, std::byte* plane) {
  Difference source{x, history, _mm512_setzero_si512()};
  DifferenceDone done = scale_groups<kGrid>(source, n, rounding, plane);
  done.source_largest = _mm512_reduce_max_epu32(source.largest) >> 1;
  return done;
}

// ---- codes

/// 64 codes as bytes from four registers of 32 bits, a quarter of the dwords each: byte 4 (4 k + p)
/// is element 16 p + 4 k.
LH_AVX512_INLINE __m512i narrowed(__m512i a, __m512i b, __m512i c, __m512i d) {
  return _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}
/// As packs_epi32, of the upper halves of the lanes.
LH_AVX512_INLINE __m512i upper_halves(__m512i a, __m512i b) {
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<std::uint16_t, 32> places{};
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t lane = i / 8 * 4 + i % 4;
      places[i] = static_cast<std::uint16_t>(2 * lane + 1 + (i % 8 < 4 ? 0 : 32));
    }
    return places;
  }();
  return _mm512_permutex2var_epi16(a, _mm512_load_si512(kPlaces.data()), b);
}
/// The place of element 4 t in `narrowed`, in dwords.
constexpr int narrowed_place(int t) {
  return t % 4 * 4 + t / 4;
}

struct Nearest {
  static constexpr float kFactor = 1.0f;
};
struct Stochastic {
  static constexpr float kFactor = 65536.0f;
  NoiseKey key;
};

/// Codes of 16 elements. The conversion rounds to nearest even; nothing is out of range.
LH_AVX512_INLINE __m512i nearest_codes(const float* x, __m512 inverse) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
}
/// Codes of 16 elements in the upper halves of the lanes. A product exceeds the codes times 2^16 by
/// at most 3 x 2^-24 of itself, less than half up to codes of 6 bits, so that only Q8 needs a limit
/// at the lower end, and at the upper end where the grid ends early as well.
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512i stochastic_codes(const float* x, __m512 inverse, __m512i noise) {
  __m512i exact = nearest_codes(x, inverse);
  if constexpr (kGrid.bits == 8) {
    exact = _mm512_max_epi32(exact, _mm512_set1_epi32(-kGrid.largest * 65536));
  }
  if constexpr (kGrid.bits == 8 || kGrid.has_signed_scale) {
    exact = _mm512_min_epi32(exact, _mm512_set1_epi32(kGrid.code_max() * 65536));
  }
  return _mm512_add_epi32(exact, noise);
}
/// noise_word of 16 counters.
LH_AVX512_INLINE __m512i noise_words(const NoiseKey& key, std::uint32_t counter) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i x = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(counter)), lanes);
  x = _mm512_xor_si512(x, _mm512_set1_epi32(static_cast<int>(key.first)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(static_cast<int>(0x7feb352du)));
  x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
  x = _mm512_add_epi32(x, _mm512_set1_epi32(static_cast<int>(key.second)));
  x = _mm512_mullo_epi32(x, _mm512_set1_epi32(static_cast<int>(0x846ca68bu)));
  return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

/// The codes of 64 elements, the first of them `element` of the tensor, narrowed. `inverses`: of
/// their blocks.
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512i codes_of_64(const float* x, const float* inverses, Nearest, std::size_t) {
  const __m512 low = _mm512_set1_ps(inverses[0]);
  const __m512 high = kGrid.block == 64 ? low : _mm512_set1_ps(inverses[1]);
  const __m512i codes =
      narrowed(nearest_codes(x, low), nearest_codes(x + kLanes, low),
               nearest_codes(x + 2 * kLanes, high), nearest_codes(x + 3 * kLanes, high));
  if constexpr (!kGrid.has_signed_scale) return codes;
  return _mm512_min_epi8(codes, _mm512_set1_epi8(static_cast<char>(kGrid.code_max())));
}
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512i codes_of_64(const float* x, const float* inverses,
                                     const Stochastic& rounding, std::size_t element) {
  const __m512 low = _mm512_set1_ps(inverses[0]);
  const __m512 high = kGrid.block == 64 ? low : _mm512_set1_ps(inverses[1]);
  const __m512i half = _mm512_set1_epi32(0xffff);
  const __m512i first = noise_words(rounding.key, static_cast<std::uint32_t>(element / 2));
  const __m512i second = noise_words(rounding.key, static_cast<std::uint32_t>(element / 2 + 16));
  const __m512i a = stochastic_codes<kGrid>(x, low, _mm512_and_si512(first, half));
  const __m512i b = stochastic_codes<kGrid>(x + kLanes, low, _mm512_srli_epi32(first, 16));
  const __m512i c = stochastic_codes<kGrid>(x + 2 * kLanes, high, _mm512_and_si512(second, half));
  const __m512i d = stochastic_codes<kGrid>(x + 3 * kLanes, high, _mm512_srli_epi32(second, 16));
  return _mm512_packs_epi16(upper_halves(a, b), upper_halves(c, d));
}

/// Dwords of two narrowed registers: the elements 0..15 of each of the four units of 32, or with
/// `half` 4 the elements 16..31.
LH_AVX512_INLINE __m512i unit_halves(int half) {
  const auto at = [half](int unit, int t)
                      LH_AVX512 { return unit / 2 * 16 + narrowed_place(unit % 2 * 8 + half + t); };
  return _mm512_setr_epi32(at(0, 0), at(0, 1), at(0, 2), at(0, 3), at(1, 0), at(1, 1), at(1, 2),
                           at(1, 3), at(2, 0), at(2, 1), at(2, 2), at(2, 3), at(3, 0), at(3, 1),
                           at(3, 2), at(3, 3));
}

/// (a & mask) | (b & ~mask)
LH_AVX512_INLINE __m512i select(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}

/// The halves of 128 codes: elements 0..15 of each unit, 16..31 of each unit.
struct Halves {
  __m512i low, high;
};

/// 4 bits of each at once: 64 bytes, 16 a unit.
LH_AVX512_INLINE __m512i nibbles_of(const Halves& codes) {
  return select(_mm512_set1_epi8(0x0f), codes.low, _mm512_slli_epi16(codes.high, 4));
}
/// 2 bits of each: 32 bytes, 8 a unit. `codes` has nothing above these bits.
LH_AVX512_INLINE __m256i pairs_of(const Halves& codes) {
  // [0..7 | 16..23 << 4, 8..15 | 24..31 << 4] of each unit.
  const __m512i x = _mm512_or_si512(codes.low, _mm512_slli_epi16(codes.high, 4));
  const __m512i swapped = _mm512_shuffle_epi32(x, _MM_PERM_BADC);
  const __m512i packed = _mm512_or_si512(x, _mm512_slli_epi16(swapped, 2));
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi64(even, packed));
}
LH_AVX512_INLINE Halves masked(const Halves& codes, int mask) {
  const __m512i bits = _mm512_set1_epi8(static_cast<char>(mask));
  return {_mm512_and_si512(codes.low, bits), _mm512_and_si512(codes.high, bits)};
}

template <CodecGrid kGrid>
LH_AVX512_INLINE void store_packed(const Halves& codes, std::byte* to) {
  if constexpr (kGrid.bits == 4) {
    _mm512_storeu_si512(to, nibbles_of(codes));
  } else if constexpr (kGrid.bits == 2) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs_of(masked(codes, 3)));
  } else if constexpr (kGrid.bits == 6) {
    const Halves high = {_mm512_srli_epi16(codes.low, 4), _mm512_srli_epi16(codes.high, 4)};
    const __m512i pairs = _mm512_castsi256_si512(pairs_of(masked(high, 3)));
    const __m512i nibbles = nibbles_of(codes);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 2, 3, 9, 4, 5);
    const __m512i second = _mm512_setr_epi64(10, 6, 7, 11, 0, 0, 0, 0);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(nibbles, first, pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 64),
                        _mm512_castsi512_si256(_mm512_permutex2var_epi64(nibbles, second, pairs)));
  } else {
    static_assert(kGrid.bits == 3);
    alignas(32) std::uint64_t pairs[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), pairs_of(masked(codes, 3)));
    const __m512i third = _mm512_set1_epi8(4);
    const std::uint64_t low = _mm512_test_epi8_mask(codes.low, third);
    const std::uint64_t high = _mm512_test_epi8_mask(codes.high, third);
    for (int unit = 0; unit < 4; ++unit, to += 12) {
      const auto bits = static_cast<std::uint32_t>(((low >> (16 * unit)) & 0xffff) |
                                                   ((high >> (16 * unit)) & 0xffff) << 16);
      std::memcpy(to, &pairs[unit], 8);
      std::memcpy(to + 8, &bits, 4);
    }
  }
}

/// Reciprocals of the scales of a group, times a factor that is a power of two.
LH_AVX512_INLINE void load_inverses(const std::byte* scales, float factor, float* inverses) {
  const __m512 exact = _mm512_div_ps(_mm512_set1_ps(1.0f), from_bf16(scales));
  _mm512_store_ps(inverses, _mm512_mul_ps(exact, _mm512_set1_ps(factor)));
}

/// 128 codes, narrowed, to their place in the plane.
struct Packer {
  __m512i ordered = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i low_halves = unit_halves(0);
  __m512i high_halves = unit_halves(4);

  LH_AVX512_INLINE Packer() {}
  template <CodecGrid kGrid>
  LH_AVX512_INLINE void store(__m512i a, __m512i b, std::byte* to) const {
    if constexpr (kGrid.bits == 8) {
      _mm512_storeu_si512(to, _mm512_permutexvar_epi32(ordered, a));
      _mm512_storeu_si512(to + 64, _mm512_permutexvar_epi32(ordered, b));
    } else {
      store_packed<kGrid>({_mm512_permutex2var_epi32(a, low_halves, b),
                           _mm512_permutex2var_epi32(a, high_halves, b)},
                          to);
    }
  }
};

/// Whole groups; the elements done.
template <CodecGrid kGrid, class Rounded>
LH_AVX512_INLINE std::size_t encode_groups(const float* x, std::size_t n, const std::byte* plane,
                                           const Rounded& rounding, std::size_t first,
                                           std::byte* codes) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  const Packer packer;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(64) float inverses[kLanes];
    load_inverses(plane + 2 * (i / kGrid.block), Rounded::kFactor, inverses);
    for (std::size_t k = i; k < i + kGroup; k += kPack) {
      const float* here = inverses + (k - i) / kGrid.block;
      const __m512i a = codes_of_64<kGrid>(x + k, here, rounding, first + k);
      const __m512i b =
          codes_of_64<kGrid>(x + k + 64, here + 64 / kGrid.block, rounding, first + k + 64);
      packer.store<kGrid>(a, b, codes + k * kGrid.bits / 8);
    }
  }
  return i;
}

template <CodecGrid kGrid>
LH_AVX512 void encode(const float* x, std::size_t n, const std::byte* plane, std::byte* codes) {
  const std::size_t i = encode_groups<kGrid>(x, n, plane, Nearest{}, 0, codes);
  reference_of<kGrid>().encode(x + i, n - i, plane + 2 * (i / kGrid.block),
                               codes + i * kGrid.bits / 8);
}

template <CodecGrid kGrid>
LH_AVX512 void encode_stochastic(const float* x, std::size_t n, const std::byte* plane,
                                 const NoiseKey& key, std::size_t first, std::byte* codes) {
  const std::size_t i = encode_groups<kGrid>(x, n, plane, Stochastic{key}, first, codes);
  reference_of<kGrid>().encode_stochastic(x + i, n - i, plane + 2 * (i / kGrid.block), key,
                                          first + i, codes + i * kGrid.bits / 8);
}

// ---- values

/// float(code) for 16 codes of up to 4 bits; shorter ones again and again.
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512 table_of_codes() {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i sign = _mm512_set1_epi32(1 << (kGrid.bits - 1));
  const __m512i code = _mm512_and_si512(lanes, _mm512_set1_epi32((1 << kGrid.bits) - 1));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_xor_si512(code, sign), sign));
}

template <class Word>
LH_AVX512_INLINE Word load_word(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
/// Eight bytes, twice, as 32-bit lanes.
LH_AVX512_INLINE __m512i widened_twice(const std::byte* at) {
  return _mm512_cvtepu8_epi32(_mm_set1_epi64x(load_word<long long>(at)));
}
/// Bits of elements 0..15 and 16..31 of a unit's plane of 2 bits, in the low ends of the lanes.
LH_AVX512_INLINE __m512i pairs_shift(int more) {
  return _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2),
                          _mm512_set1_epi32(more));
}

/// 32 values of codes with up to 4 bits: `values` is the table times the scale.
template <CodecGrid kGrid>
LH_AVX512_INLINE void decode_unit(const std::byte* from, __m512 values, float* x) {
  __m512i low, high;
  if constexpr (kGrid.bits == 4) {
    low = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    high = _mm512_srli_epi32(low, 4);
  } else {
    const __m512i bytes = widened_twice(from);
    low = _mm512_srlv_epi32(bytes, pairs_shift(0));
    high = _mm512_srlv_epi32(bytes, pairs_shift(4));
  }
  if constexpr (kGrid.bits == 3) {
    const auto bits = load_word<std::uint32_t>(from + 8);
    const __m512i third = _mm512_set1_epi32(4);
    low = _mm512_and_si512(low, _mm512_set1_epi32(3));
    high = _mm512_and_si512(high, _mm512_set1_epi32(3));
    low = _mm512_mask_or_epi32(low, static_cast<__mmask16>(bits), low, third);
    high = _mm512_mask_or_epi32(high, static_cast<__mmask16>(bits >> 16), high, third);
  }
  // The permutation looks at the lowest four bits of an index only.
  _mm512_storeu_ps(x, _mm512_permutexvar_ps(low, values));
  _mm512_storeu_ps(x + kLanes, _mm512_permutexvar_ps(high, values));
}

LH_AVX512_INLINE void store_scaled(__m128i codes, __m512 scale, float* x) {
  _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), scale));
}
/// 32 codes of 6 bits as signed bytes.
LH_AVX512_INLINE __m256i codes_of_6_bits(const std::byte* from) {
  const __m256i nibbles =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i low = _mm256_and_si256(_mm256_srlv_epi64(nibbles, _mm256_setr_epi64x(0, 0, 4, 4)),
                                       _mm256_set1_epi8(0x0f));
  const __m256i pairs = _mm256_set1_epi64x(load_word<long long>(from + 16));
  // Shifted by 4 to the left and by 0, 2, 4, 6 to the right; bytes take no more than their own.
  const __m256i high = _mm256_and_si256(
      _mm256_slli_epi16(_mm256_and_si256(_mm256_srlv_epi64(pairs, _mm256_setr_epi64x(0, 2, 4, 6)),
                                         _mm256_set1_epi8(3)),
                        4),
      _mm256_set1_epi8(0x30));
  const __m256i sign = _mm256_set1_epi8(0x20);
  return _mm256_sub_epi8(_mm256_xor_si256(_mm256_or_si256(low, high), sign), sign);
}

/// Which of 64 packed bytes hold a nibble of 8, the code -8.
LH_AVX512_INLINE std::uint64_t nibbles_of_8(const std::byte* at) {
  const __m512i x =
      _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_set1_epi8(static_cast<char>(0x88)));
  return _mm512_testn_epi8_mask(x, _mm512_set1_epi8(0x0f)) |
         _mm512_testn_epi8_mask(x, _mm512_set1_epi8(static_cast<char>(0xf0)));
}

template <CodecGrid kGrid>
LH_AVX512 bool decode(const std::byte* plane, const std::byte* codes, std::size_t n, float* x) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  const __m512 table = table_of_codes<kGrid.bits <= 4 ? kGrid : CodecGrid{4, 32, 8, true}>();
  const __m128i forbidden = _mm_set1_epi8(static_cast<char>(-kGrid.largest - 1));
  std::uint64_t found = 0;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(64) float group_scales[kLanes];
    _mm512_store_ps(group_scales, from_bf16(plane + 2 * (i / kGrid.block)));
    for (std::size_t k = i; k < i + kGroup; k += 32) {
      const __m512 scale = _mm512_set1_ps(group_scales[(k - i) / kGrid.block]);
      const std::byte* from = codes + k * kGrid.bits / 8;
      if constexpr (kGrid.bits <= 4) {
        if (kGrid.bits == 4 && !kGrid.has_signed_scale && k % kPack == 0) {
          found |= nibbles_of_8(from);
        }
        decode_unit<kGrid>(from, _mm512_mul_ps(table, scale), x + k);
      } else {
        const __m256i unit = kGrid.bits == 6
                                 ? codes_of_6_bits(from)
                                 : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        found |= _mm256_cmpeq_epi8_mask(unit, _mm256_broadcastb_epi8(forbidden));
        store_scaled(_mm256_castsi256_si128(unit), scale, x + k);
        store_scaled(_mm256_extracti128_si256(unit, 1), scale, x + k + kLanes);
      }
    }
  }
  const bool rest = reference_of<kGrid>().decode(plane + 2 * (i / kGrid.block),
                                                 codes + i * kGrid.bits / 8, n - i, x + i);
  return rest && found == 0;
}

// ---- differences to a history

/// Codes of 16 elements; `sum` becomes what the history makes of them.
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512i difference_codes(const float* x, const std::uint16_t* history,
                                          __m512 inverse, __m512 scale, __m512i& sum) {
  const __m512 base = from_bf16(history);
  const __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(x), base);
  __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(difference, inverse));
  if constexpr (kGrid.has_signed_scale) {
    codes = _mm512_min_epi32(codes, _mm512_set1_epi32(kGrid.code_max()));
  }
  sum = rounded_sum(base, _mm512_mul_ps(_mm512_cvtepi32_ps(codes), scale));
  return codes;
}
/// And of 64, narrowed. `inverses` and `scales` are of their blocks.
template <CodecGrid kGrid>
LH_AVX512_INLINE __m512i difference_codes_of_64(const float* x, std::uint16_t* history,
                                                const float* inverses, const float* scales) {
  __m512i codes[4], sums[4];
  for (int p = 0; p < 4; ++p) {
    const int block = kGrid.block == 64 ? 0 : p / 2;
    codes[p] =
        difference_codes<kGrid>(x + 16 * p, history + 16 * p, _mm512_set1_ps(inverses[block]),
                                _mm512_set1_ps(scales[block]), sums[p]);
  }
  _mm512_storeu_si512(history, odd_halves(sums[0], sums[1]));
  _mm512_storeu_si512(history + 32, odd_halves(sums[2], sums[3]));
  return narrowed(codes[0], codes[1], codes[2], codes[3]);
}

template <CodecGrid kGrid>
LH_AVX512 std::size_t encode_difference(const float* x, std::uint16_t* history, std::size_t n,
                                        const std::byte* plane, std::byte* codes) {
  constexpr std::size_t kGroup = kLanes * kGrid.block;
  const Packer packer;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    alignas(64) float inverses[kLanes];
    alignas(64) float group_scales[kLanes];
    load_inverses(plane + 2 * (i / kGrid.block), Nearest::kFactor, inverses);
    _mm512_store_ps(group_scales, from_bf16(plane + 2 * (i / kGrid.block)));
    for (std::size_t k = i; k < i + kGroup; k += kPack) {
      const std::size_t block = (k - i) / kGrid.block, next = block + 64 / kGrid.block;
      const __m512i a =
          difference_codes_of_64<kGrid>(x + k, history + k, inverses + block, group_scales + block);
      const __m512i b = difference_codes_of_64<kGrid>(x + k + 64, history + k + 64, inverses + next,
                                                      group_scales + next);
      packer.store<kGrid>(a, b, codes + k * kGrid.bits / 8);
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

const CodecKernels* avx512_kernels() {
  static const CodecKernels kernels = [] {
    CodecKernels all = avx512_float_kernels();
    all.blocks = block_kernels(Maker{});
    return all;
  }();
  static const bool is_here = has_avx512();
  return is_here ? &kernels : nullptr;
}

}  // namespace longhaul

#else

namespace longhaul {

const CodecKernels* avx512_kernels() {
  return nullptr;
}

}  // namespace longhaul

#endif
