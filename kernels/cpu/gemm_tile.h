// The innermost piece of the matrix product: a tile of C that is held in registers while a run of k
// passes by. One implementation an instruction set; all obey the chain rule of kernels/gemm.h.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cpu/isa.h"
#include "kernels/gemm.h"

/// Before a loop over a tile's registers: only once unrolled are they registers.
#if defined(__clang__)
#define LH_UNROLL _Pragma("unroll")
#else
#define LH_UNROLL _Pragma("GCC unroll 16")
#endif

namespace longhaul {

/// Packed operands are words of 32 bits: an fp32 number, or two bf16 numbers of one row (column),
/// the earlier k in the upper half. A is packed as a[w * rows + i], rows being the tile's own; B as
/// b[w * columns_max + j].
struct GemmTile {
  std::ptrdiff_t words;  // of depth
  const float* a;
  const float* b;
  float* c;
  std::ptrdiff_t c_row_stride;
  int columns;  // 1 .. columns_max
  GemmStart start;
  const float* start_row;
};
using GemmTileFunction = void (*)(const GemmTile&);

struct GemmTileSize {
  int rows;
  GemmTileFunction run;
};

/// Writes packed[w * width + i] for i < count from from[i * stride_i + k * stride_k]; what stands
/// at count <= i < width is never looked at.
struct GemmPack {
  const float* from;
  std::ptrdiff_t stride_i;
  std::ptrdiff_t stride_k;
  std::ptrdiff_t count;
  std::ptrdiff_t width;
  std::ptrdiff_t depth;  // of k
  float* packed;
  int partner = 0;  // lower half of a word whose k is the last of an odd depth
};
using GemmPackFunction = void (*)(const GemmPack&);

struct GemmTileSet {
  int columns_max;
  int k_per_word;
  GemmPackFunction pack;
  std::span<const GemmTileSize> sizes;  // most rows first, one row last

  std::ptrdiff_t words(std::ptrdiff_t depth) const { return (depth + k_per_word - 1) / k_per_word; }
  /// The tallest tile for so many rows (>= 1) left.
  const GemmTileSize& tallest(std::ptrdiff_t rows) const {
    std::size_t i = 0;
    while (sizes[i].rows > rows) ++i;
    return sizes[i];
  }
};

/// One k a word.
void pack_words(const GemmPack& pack);

/// `flush`: see `bf16` in kernels/gemm.h. The other sets leave flushing to the thread's mode.
GemmTileSet portable_gemm_tiles(bool flush);
#if defined(__x86_64__)
GemmTileSet avx2_gemm_tiles();
GemmTileSet avx512_gemm_tiles();
GemmTileSet avx512_bf16_gemm_tiles();
#endif

}  // namespace longhaul
