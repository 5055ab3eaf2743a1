// Blocks and packs for the tiles, in the loop order of Goto and van de Geijn (ACM TOMS 2008): a
// block of B stays in the last-level cache, a block of A in L2, a panel of each in L1. Accumulators
// are stored to C at the end of a block of k and loaded again at the start of the next, which
// rounds nothing, so blocking is invisible in the result.
#include "kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/result.h"
#include "kernels/cpu/gemm_tile.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

constexpr ptrdiff_t kDepthBlock = 384;
constexpr ptrdiff_t kRowBlock = 16 * 14;
constexpr ptrdiff_t kColumnBlock = 1536;
constexpr ptrdiff_t kAlignment = 64;

constexpr int kPortableColumns = 16;

// std::fma rounds once on every machine; where the CPU has no instruction for it, it is slow and
// right.
template <int kRows>
void portable_tile(const GemmTile& tile) {
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < tile.columns; ++j) {
      float& c = tile.c[r * tile.c_row_stride + j];
      float sum = tile.start == GemmStart::kAccumulate ? c
                  : tile.start == GemmStart::kRow      ? tile.start_row[j]
                                                       : 0.0f;
      for (ptrdiff_t k = 0; k < tile.depth; ++k) {
        sum = std::fma(tile.a[k * kRows + r], tile.b[k * kPortableColumns + j], sum);
      }
      c = sum;
    }
  }
}
constexpr GemmTileSize kPortableSizes[] = {{2, portable_tile<2>}, {1, portable_tile<1>}};

GemmTileSet active_tiles() {
#if defined(__x86_64__)
  switch (active_isa()) {
    case Isa::kAvx512:
      return avx512_gemm_tiles();
    case Isa::kAvx2:
      return avx2_gemm_tiles();
    case Isa::kPortable:
      break;
  }
#endif
  return portable_gemm_tiles();
}

/// A buffer of a thread that grows to the largest size asked for. Aligned for the widest loads.
class PackBuffer {
 public:
  float* at_least(ptrdiff_t floats) {
    const auto size = static_cast<std::size_t>(floats) + kAlignment / sizeof(float);
    if (storage_.size() < size) storage_.resize(size);
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    const std::uintptr_t past = address % kAlignment;
    return storage_.data() + (past == 0 ? 0 : (kAlignment - past) / sizeof(float));
  }

 private:
  std::vector<float> storage_;
};

/// Writes packed[k * width + i] = from[i * stride_i + k * stride_k] for i < count, zero for the
/// rest of the width. count <= width.
void pack_panel(const float* from, ptrdiff_t stride_i, ptrdiff_t stride_k, ptrdiff_t count,
                ptrdiff_t width, ptrdiff_t depth, float* packed) {
  if (stride_i == 1) {
    for (ptrdiff_t k = 0; k < depth; ++k) {
      float* to = packed + k * width;
      std::memcpy(to, from + k * stride_k, static_cast<std::size_t>(count) * sizeof(float));
      std::fill(to + count, to + width, 0.0f);
    }
    return;
  }
  ptrdiff_t i = 0;
  if (stride_k == 1) {
    using Four = float __attribute__((vector_size(16)));
    for (; i + 4 <= count; i += 4) {  // a 4 x 4 transpose at a time
      ptrdiff_t k = 0;
      for (; k + 4 <= depth; k += 4) {
        Four row[4];
        for (ptrdiff_t r = 0; r < 4; ++r) {
          std::memcpy(&row[r], from + (i + r) * stride_i + k, sizeof(Four));
        }
        const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
        const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
        const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
        const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
        const Four column[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                                __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                                __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
        for (ptrdiff_t r = 0; r < 4; ++r) {
          std::memcpy(packed + (k + r) * width + i, &column[r], sizeof(Four));
        }
      }
      for (; k < depth; ++k) {
        for (ptrdiff_t r = 0; r < 4; ++r) packed[k * width + i + r] = from[(i + r) * stride_i + k];
      }
    }
  }
  for (; i < count; ++i) {
    for (ptrdiff_t k = 0; k < depth; ++k) {
      packed[k * width + i] = from[i * stride_i + k * stride_k];
    }
  }
  for (; i < width; ++i) {
    for (ptrdiff_t k = 0; k < depth; ++k) packed[k * width + i] = 0;
  }
}

}  // namespace

GemmTileSet portable_gemm_tiles() {
  return {kPortableColumns, kPortableSizes};
}

void gemm(const Gemm& p) {
  LH_CHECK(p.start != GemmStart::kRow || p.start_row != nullptr, "a start row was announced");
  const GemmTileSet tiles = active_tiles();
  const ptrdiff_t tile_columns = tiles.columns_max;
  thread_local PackBuffer buffer_a;
  thread_local PackBuffer buffer_b;
  // Only what this product needs, so that small ones do not touch 3 MB.
  const ptrdiff_t depth_max = std::min(p.depth, kDepthBlock);
  float* packed_a = buffer_a.at_least(std::min(p.rows, kRowBlock) * depth_max);
  float* packed_b =
      buffer_b.at_least((std::min(p.columns, kColumnBlock) + tile_columns) * depth_max);

  for (ptrdiff_t j0 = 0; j0 < p.columns; j0 += kColumnBlock) {
    const ptrdiff_t columns = std::min(kColumnBlock, p.columns - j0);
    ptrdiff_t k0 = 0;
    do {  // once even at depth 0, to store the start
      const ptrdiff_t depth = std::min(kDepthBlock, p.depth - k0);
      const GemmStart start = k0 == 0 ? p.start : GemmStart::kAccumulate;
      for (ptrdiff_t j = 0; j < columns; j += tile_columns) {
        pack_panel(p.b.data + k0 * p.b.row_stride + (j0 + j) * p.b.column_stride, p.b.column_stride,
                   p.b.row_stride, std::min(tile_columns, columns - j), tile_columns, depth,
                   packed_b + j * depth);
      }
      for (ptrdiff_t i0 = 0; i0 < p.rows; i0 += kRowBlock) {
        const ptrdiff_t rows = std::min(kRowBlock, p.rows - i0);
        for (ptrdiff_t i = 0; i < rows;) {
          const ptrdiff_t height = tiles.tallest(rows - i).rows;
          pack_panel(p.a.data + (i0 + i) * p.a.row_stride + k0 * p.a.column_stride, p.a.row_stride,
                     p.a.column_stride, height, height, depth, packed_a + i * depth);
          i += height;
        }
        for (ptrdiff_t j = 0; j < columns; j += tile_columns) {
          for (ptrdiff_t i = 0; i < rows;) {
            const GemmTileSize& tile = tiles.tallest(rows - i);
            tile.run({.depth = depth,
                      .a = packed_a + i * depth,
                      .b = packed_b + j * depth,
                      .c = p.c + (i0 + i) * p.c_row_stride + j0 + j,
                      .c_row_stride = p.c_row_stride,
                      .columns = static_cast<int>(std::min(tile_columns, columns - j)),
                      .start = start,
                      .start_row = p.start_row == nullptr ? nullptr : p.start_row + j0 + j});
            i += tile.rows;
          }
        }
      }
      k0 += depth;
    } while (k0 < p.depth);
  }
}

}  // namespace longhaul
