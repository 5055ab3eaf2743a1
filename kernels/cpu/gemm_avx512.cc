// 14 x 32 tiles: 28 accumulators, two registers for B, and A broadcast from memory. A few smaller
// heights take what is left of the rows. fp32 and bf16 differ in the instruction of a step and in
// what packing puts into a word.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/gemm_tile.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

constexpr int kColumnsMax = 32;
constexpr ptrdiff_t kLanes = 16;

LH_ALWAYS_INLINE __mmask16 first_lanes(ptrdiff_t count) {
  const ptrdiff_t inside = std::max(ptrdiff_t{0}, std::min(count, kLanes));
  return static_cast<__mmask16>((1u << inside) - 1);
}

// ---- tiles

/// Instructions of AVX512_BF16 are written out in this file: only functions compiled for it may use
/// the intrinsics, and the templates here serve other AVX-512 machines, too.
template <bool kBf16>
LH_TARGET_AVX512 LH_ALWAYS_INLINE void step(__m512& sum, __m512 row, __m512 column) {
  if constexpr (kBf16) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(row), "v"(column));
  } else {
    sum = _mm512_fmadd_ps(row, column, sum);
  }
}

template <bool kBf16, int kRows, int kVectors>
LH_TARGET_AVX512 void run(const GemmTile& tile) {
  const __mmask16 last = first_lanes(tile.columns - kLanes * (kVectors - 1));
  const auto mask = [last](int v) -> __mmask16 { return v == kVectors - 1 ? last : 0xffff; };
  __m512 sum[kRows][kVectors];
  LH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const float* from =
          tile.start == GemmStart::kRow ? tile.start_row : tile.c + r * tile.c_row_stride;
      sum[r][v] = tile.start == GemmStart::kZero ? _mm512_setzero_ps()
                                                 : _mm512_maskz_loadu_ps(mask(v), from + 16 * v);
    }
  }
  const float* a = tile.a;
  const float* b = tile.b;
  for (ptrdiff_t w = 0; w < tile.words; ++w) {
    __m512 column[kVectors];
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = _mm512_load_ps(b + 16 * v);
    LH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 row = _mm512_set1_ps(a[r]);
      LH_UNROLL
      for (int v = 0; v < kVectors; ++v) step<kBf16>(sum[r][v], row, column[v]);
    }
    a += kRows;
    b += kColumnsMax;
  }
  LH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(tile.c + r * tile.c_row_stride + 16 * v, mask(v), sum[r][v]);
    }
  }
}

template <bool kBf16, int kRows>
void choose_width(const GemmTile& tile) {
  tile.columns > 16 ? run<kBf16, kRows, 2>(tile) : run<kBf16, kRows, 1>(tile);
}

template <bool kBf16>
constexpr GemmTileSize kSizes[] = {{14, choose_width<kBf16, 14>},
                                   {8, choose_width<kBf16, 8>},
                                   {4, choose_width<kBf16, 4>},
                                   {2, choose_width<kBf16, 2>},
                                   {1, choose_width<kBf16, 1>}};

// ---- packing

/// A 16 x 16 transpose of words.
LH_TARGET_AVX512 LH_ALWAYS_INLINE void transpose(__m512i (&rows)[kLanes]) {
  __m512i pairs[kLanes];
  LH_UNROLL
  for (int i = 0; i < kLanes; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // Of 4 x 4 blocks: fours[4 i + c] has column c of each quarter, for rows 4 i to 4 i + 3.
  __m512i fours[kLanes];
  LH_UNROLL
  for (int i = 0; i < kLanes; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  LH_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(fours[c], fours[4 + c], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + c], fours[12 + c], 0xdd);
    rows[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

/// What goes into words. fp32: a number each.
struct Fp32Words {
  static constexpr ptrdiff_t kNumbers = 1;  // a word

  /// 16 words of neighbouring i.
  LH_TARGET_AVX512 static LH_ALWAYS_INLINE __m512i across(const GemmPack&, const float* from,
                                                          __mmask16 lanes, ptrdiff_t /*count*/) {
    return _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes, from));
  }
  /// 16 words of neighbouring k, `count` numbers of which are there.
  LH_TARGET_AVX512 static LH_ALWAYS_INLINE __m512i along(const GemmPack&, const float* from,
                                                         ptrdiff_t count) {
    return _mm512_castps_si512(_mm512_maskz_loadu_ps(first_lanes(count), from));
  }
};

/// bf16: two numbers each. A k without a partner gets the pack's.
struct Bf16Words {
  static constexpr ptrdiff_t kNumbers = 2;

  LH_TARGET_AVX512 static LH_ALWAYS_INLINE __m512i rounded(__m512 values) {
    __m256i halves;
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(values));
    return _mm512_cvtepu16_epi32(halves);
  }
  LH_TARGET_AVX512 static LH_ALWAYS_INLINE __m512i across(const GemmPack& p, const float* from,
                                                          __mmask16 lanes, ptrdiff_t count) {
    const __m512i early = rounded(_mm512_maskz_loadu_ps(lanes, from));
    const __m512i late = count == 1 ? _mm512_set1_epi32(p.partner)
                                    : rounded(_mm512_maskz_loadu_ps(lanes, from + p.stride_k));
    return _mm512_or_si512(_mm512_slli_epi32(early, 16), late);
  }
  LH_TARGET_AVX512 static LH_ALWAYS_INLINE __m512i along(const GemmPack& p, const float* from,
                                                         ptrdiff_t count) {
    const __m512 low = _mm512_maskz_loadu_ps(first_lanes(count), from);
    const __m512 high = _mm512_maskz_loadu_ps(first_lanes(count - kLanes), from + kLanes);
    __m512i pairs;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pairs) : "v"(high), "v"(low));
    pairs = _mm512_rol_epi32(pairs, 16);
    if (count % 2 == 0) return pairs;
    const auto lonely = static_cast<__mmask16>(1u << count / 2);
    return _mm512_mask_or_epi32(pairs, lonely, pairs, _mm512_set1_epi32(p.partner));
  }
};

/// Neighbours in memory are neighbours in i.
template <class Words>
LH_TARGET_AVX512 void pack_across(const GemmPack& p) {
  constexpr ptrdiff_t kAhead = 64;  // floats: the panels after this one
  float* to = p.packed;
  for (ptrdiff_t k = 0; k < p.depth; k += Words::kNumbers, to += p.width) {
    const float* from = p.from + k * p.stride_k;
    for (ptrdiff_t n = 0; n < std::min(Words::kNumbers, p.depth - k); ++n) {
      _mm_prefetch(from + n * p.stride_k + kAhead, _MM_HINT_T0);
      _mm_prefetch(from + n * p.stride_k + kAhead + kLanes, _MM_HINT_T0);
    }
    for (ptrdiff_t i = 0; i < p.count; i += kLanes) {
      const __m512i words =
          Words::across(p, from + i, first_lanes(p.count - i), std::min(p.depth - k, ptrdiff_t{2}));
      _mm512_mask_storeu_epi32(to + i, first_lanes(p.width - i), words);
    }
  }
}

/// Neighbours in memory are neighbours in k.
template <class Words>
LH_TARGET_AVX512 void pack_along(const GemmPack& p) {
  constexpr ptrdiff_t kBlock = kLanes * Words::kNumbers;
  const ptrdiff_t words = (p.depth + Words::kNumbers - 1) / Words::kNumbers;
  for (ptrdiff_t w = 0; w < words; w += kLanes) {
    const ptrdiff_t k = w * Words::kNumbers;
    const ptrdiff_t depth = std::min(kBlock, p.depth - k);
    for (ptrdiff_t i = 0; i < p.count; i += kLanes) {
      const float* from = p.from + i * p.stride_i + k;
      __m512i rows[kLanes];
      LH_UNROLL
      for (int r = 0; r < kLanes; ++r) {
        rows[r] = _mm512_setzero_si512();
        if (i + r < p.count) {
          rows[r] = Words::along(p, from + r * p.stride_i, depth);
          _mm_prefetch(from + r * p.stride_i + kBlock, _MM_HINT_T0);
        }
      }
      transpose(rows);
      const __mmask16 lanes = first_lanes(p.width - i);
      float* to = p.packed + w * p.width + i;
      const ptrdiff_t last = std::min(kLanes, words - w);
      LH_UNROLL
      for (int r = 0; r < kLanes; ++r) {
        if (r < last) _mm512_mask_storeu_epi32(to + r * p.width, lanes, rows[r]);
      }
    }
  }
}

/// Strides of neither kind are rare: such a panel is copied first.
template <class Words>
void pack(const GemmPack& p) {
  if (p.stride_i == 1) return pack_across<Words>(p);
  if (p.stride_k == 1) return pack_along<Words>(p);
  constexpr ptrdiff_t kBlock = kLanes * Words::kNumbers;
  float copy[kColumnsMax * kBlock];
  for (ptrdiff_t k = 0; k < p.depth; k += kBlock) {
    GemmPack part = p;
    part.from = copy;
    part.stride_i = kBlock;
    part.stride_k = 1;
    part.depth = std::min(kBlock, p.depth - k);
    part.packed = p.packed + k / Words::kNumbers * p.width;
    for (ptrdiff_t i = 0; i < p.count; ++i) {
      for (ptrdiff_t n = 0; n < part.depth; ++n) {
        copy[i * kBlock + n] = p.from[i * p.stride_i + (k + n) * p.stride_k];
      }
    }
    pack_along<Words>(part);
  }
}

}  // namespace

GemmTileSet avx512_gemm_tiles() {
  return {kColumnsMax, Fp32Words::kNumbers, pack<Fp32Words>, kSizes<false>};
}

GemmTileSet avx512_bf16_gemm_tiles() {
  return {kColumnsMax, Bf16Words::kNumbers, pack<Bf16Words>, kSizes<true>};
}

}  // namespace longhaul

#endif
