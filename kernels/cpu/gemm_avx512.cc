// 14 x 32 tiles: 28 accumulators, two registers for B, and A broadcast from memory. A few smaller
// heights take what is left of the rows.
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cpu/gemm_tile.h"

namespace longhaul {
namespace {

constexpr int kColumnsMax = 32;

template <int kRows, int kVectors>
LH_TARGET_AVX512 void run(const GemmTile& tile) {
  const int in_last = tile.columns - 16 * (kVectors - 1);
  const auto last = static_cast<__mmask16>((1u << in_last) - 1);
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
  for (std::ptrdiff_t k = 0; k < tile.depth; ++k) {
    __m512 column[kVectors];
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = _mm512_load_ps(b + 16 * v);
    LH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 row = _mm512_set1_ps(a[r]);
      LH_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_fmadd_ps(row, column[v], sum[r][v]);
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

template <int kRows>
void choose_width(const GemmTile& tile) {
  tile.columns > 16 ? run<kRows, 2>(tile) : run<kRows, 1>(tile);
}

constexpr GemmTileSize kSizes[] = {{14, choose_width<14>},
                                   {8, choose_width<8>},
                                   {4, choose_width<4>},
                                   {2, choose_width<2>},
                                   {1, choose_width<1>}};

}  // namespace

GemmTileSet avx512_gemm_tiles() {
  return {kColumnsMax, kSizes};
}

}  // namespace longhaul

#endif
