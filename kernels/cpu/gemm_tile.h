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

/// A is packed as a[k * rows + i], rows being the tile's own; B as b[k * columns_max + j], zero
/// where j >= columns.
struct GemmTile {
  std::ptrdiff_t depth;
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

struct GemmTileSet {
  int columns_max;
  std::span<const GemmTileSize> sizes;  // most rows first, one row last

  /// The tallest tile for so many rows (>= 1) left.
  const GemmTileSize& tallest(std::ptrdiff_t rows) const {
    std::size_t i = 0;
    while (sizes[i].rows > rows) ++i;
    return sizes[i];
  }
};

GemmTileSet portable_gemm_tiles();
#if defined(__x86_64__)
GemmTileSet avx2_gemm_tiles();
GemmTileSet avx512_gemm_tiles();
#endif

}  // namespace longhaul
