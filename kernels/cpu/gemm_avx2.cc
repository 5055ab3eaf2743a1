// 6 x 16 tiles: 12 accumulators of the 16 registers, two for B, and A broadcast from memory. A few
// smaller heights take what is left of the rows.
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cpu/gemm_tile.h"

namespace longhaul {
namespace {

constexpr int kColumnsMax = 16;

template <int kRows, int kVectors>
LH_TARGET_AVX2 void run(const GemmTile& tile) {
  const int in_last = tile.columns - 8 * (kVectors - 1);
  const __m256i full = _mm256_set1_epi32(-1);
  const __m256i last =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(in_last), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256 sum[kRows][kVectors];
  LH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const float* from =
          tile.start == GemmStart::kRow ? tile.start_row : tile.c + r * tile.c_row_stride;
      const __m256i mask = v == kVectors - 1 ? last : full;
      sum[r][v] = tile.start == GemmStart::kZero ? _mm256_setzero_ps()
                                                 : _mm256_maskload_ps(from + 8 * v, mask);
    }
  }
  const float* a = tile.a;
  const float* b = tile.b;
  for (std::ptrdiff_t k = 0; k < tile.words; ++k) {
    __m256 column[kVectors];
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = _mm256_load_ps(b + 8 * v);
    LH_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m256 row = _mm256_broadcast_ss(a + r);
      LH_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm256_fmadd_ps(row, column[v], sum[r][v]);
    }
    a += kRows;
    b += kColumnsMax;
  }
  LH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    LH_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const __m256i mask = v == kVectors - 1 ? last : full;
      _mm256_maskstore_ps(tile.c + r * tile.c_row_stride + 8 * v, mask, sum[r][v]);
    }
  }
}

template <int kRows>
void choose_width(const GemmTile& tile) {
  tile.columns > 8 ? run<kRows, 2>(tile) : run<kRows, 1>(tile);
}

constexpr GemmTileSize kSizes[] = {
    {6, choose_width<6>}, {4, choose_width<4>}, {2, choose_width<2>}, {1, choose_width<1>}};

}  // namespace

GemmTileSet avx2_gemm_tiles() {
  return {kColumnsMax, 1, pack_words, kSizes};
}

}  // namespace longhaul

#endif
