// Blocks and packs for the tiles, in the loop order of Goto and van de Geijn (ACM TOMS 2008): a
// block of B stays in the last-level cache, a block of A in L2, a panel of each in L1. Accumulators
// are stored to C at the end of a block of k and loaded again at the start of the next, which
// rounds nothing, so blocking is invisible in the result.
#include "kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/result.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/tensor_storage.h"
#include "kernels/parallel.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

constexpr ptrdiff_t kWordBlock = 384;  // of depth
constexpr ptrdiff_t kRowBlock = 16 * 14;
constexpr ptrdiff_t kColumnBlock = 1536;

// A part of a product that is worth a thread: some 40 us of a fast core. Tiles have 16 or 32
// columns, and the tallest 14 or 6 rows.
constexpr ptrdiff_t kPartMultiplyAdds = 2'000'000;
constexpr ptrdiff_t kPartColumns = 32;
constexpr ptrdiff_t kPartRows = 42;

constexpr int kPortableColumns = 16;

/// A step of a bf16 product: 0 for what is smaller than 2^-126 before and after. Fused steps round
/// to multiples of 2^-149 there, so what rounds up to 2^-126 is looked at again with more digits.
float flushed(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
float flushed_step(float a, float b, float sum) {
  sum = flushed(sum);
  const float result = std::fma(a, b, sum);
  if (std::fabs(result) != 0x1p-126f) return flushed(result);
  const double more = std::fma(double{a}, double{b}, double{sum});
  return std::fabs(more) < 0x1p-126 - 0x1p-151 ? std::copysign(0.0f, result) : result;
}

// std::fma rounds once on every machine; where the CPU has no instruction for it, it is slow and
// right.
template <bool kFlush, int kRows>
void portable_tile(const GemmTile& tile) {
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < tile.columns; ++j) {
      float& c = tile.c[r * tile.c_row_stride + j];
      float sum = tile.start == GemmStart::kAccumulate ? c
                  : tile.start == GemmStart::kRow      ? tile.start_row[j]
                                                       : 0.0f;
      for (ptrdiff_t w = 0; w < tile.words; ++w) {
        const float a = tile.a[w * kRows + r];
        const float b = tile.b[w * kPortableColumns + j];
        sum = kFlush ? flushed_step(a, b, sum) : std::fma(a, b, sum);
      }
      c = sum;
    }
  }
}
template <bool kFlush>
constexpr GemmTileSize kPortableSizes[] = {{2, portable_tile<kFlush, 2>},
                                           {1, portable_tile<kFlush, 1>}};

GemmTileSet active_tiles(bool bf16) {
#if defined(__x86_64__)
  switch (active_isa()) {
    case Isa::kAvx512Bf16:
      return bf16 ? avx512_bf16_gemm_tiles() : avx512_gemm_tiles();
    case Isa::kAvx512:
      return avx512_gemm_tiles();
    case Isa::kAvx2:
      return avx2_gemm_tiles();
    case Isa::kPortable:
      break;
  }
#endif
  return portable_gemm_tiles(bf16);
}

/// While it lives, fp32 instructions of this thread take numbers below 2^-126 for zero and give
/// zero for them, if `wanted`.
class FlushScope {
 public:
  explicit FlushScope([[maybe_unused]] bool wanted) {
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    if (wanted) _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
#endif
  }
  FlushScope(const FlushScope&) = delete;
  FlushScope& operator=(const FlushScope&) = delete;
#if defined(__x86_64__)
  ~FlushScope() { _mm_setcsr(before_); }

 private:
  unsigned before_ = _mm_getcsr();
#endif
};

/// A buffer of a thread that grows to the largest size asked for.
class PackBuffer {
 public:
  float* at_least(ptrdiff_t floats) {
    const auto size = static_cast<std::size_t>(floats);
    if (storage_.size() < size) storage_.resize(size);
    return storage_.data();
  }

 private:
  TensorStorage storage_;
};

/// An operand of a product as `i` (rows of A, columns of B) by k.
struct Operand {
  const float* data;
  ptrdiff_t stride_i;
  ptrdiff_t stride_k;
  int partner;  // see GemmPack

  Operand at(ptrdiff_t i, ptrdiff_t k) const {
    if (data == nullptr) return *this;  // of a product without depth
    return {data + i * stride_i + k * stride_k, stride_i, stride_k, partner};
  }
};

/// A part of an operand: `extent` times depth.
struct Part {
  ptrdiff_t extent;
  ptrdiff_t depth;
  bool round;  // to bf16, in words of one number
};

/// Packs a part as panels one after the other, each of width_of(extent left).
template <class WidthOf>
void pack_part(const GemmTileSet& tiles, const Operand& from, const Part& part, float* packed,
               WidthOf width_of) {
  const ptrdiff_t words = tiles.words(part.depth);
  // Where neighbours in memory are neighbours in i, a few k of all panels at a time: rows of memory
  // are then read to their ends, instead of a panel's piece of each of hundreds of pages.
  const ptrdiff_t depth_chunk = from.stride_i == 1 ? 16 * tiles.k_per_word : part.depth;
  for (ptrdiff_t k = 0; k < part.depth; k += depth_chunk) {
    for (ptrdiff_t i = 0; i < part.extent;) {
      const ptrdiff_t width = width_of(part.extent - i);
      const ptrdiff_t depth = std::min(depth_chunk, part.depth - k);
      float* to = packed + i * words + tiles.words(k) * width;
      tiles.pack({.from = from.at(i, k).data,
                  .stride_i = from.stride_i,
                  .stride_k = from.stride_k,
                  .count = std::min(width, part.extent - i),
                  .width = width,
                  .depth = depth,
                  .packed = to,
                  .partner = from.partner});
      if (part.round) round_to_bf16({to, static_cast<std::size_t>(depth * width)});
      i += width;
    }
  }
}

/// Rows that will be packed next. While tiles compute, a few of their cache lines at a time are
/// brought near; else packing would wait for memory while nothing computes.
class Ahead {
 public:
  Ahead(const Operand& from, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t tiles) : from_(from) {
    const bool is_along = from.stride_k == 1;
    lines_ = ((is_along ? depth : rows) + kLine - 1) / kLine;
    runs_ = is_along ? rows : depth;
    stride_ = is_along ? from.stride_i : from.stride_k;
    share_ = tiles == 0 ? 0 : (lines_ * runs_ + tiles - 1) / tiles;
  }
  /// Before each tile.
  void step() {
    for (ptrdiff_t n = 0; n < share_ && run_ < runs_; ++n) {
      __builtin_prefetch(from_.data + run_ * stride_ + line_ * kLine, 0, 2);
      if (++line_ == lines_) {
        line_ = 0;
        ++run_;
      }
    }
  }

 private:
  static constexpr ptrdiff_t kLine = 16;  // floats
  Operand from_;
  ptrdiff_t lines_, runs_, stride_, share_;
  ptrdiff_t line_ = 0, run_ = 0;
};

/// Runs the tiles of a packed block.
struct Block {
  ptrdiff_t rows, columns, words;
  const float* a;
  const float* b;
  float* c;
  ptrdiff_t c_row_stride;
  GemmStart start;
  const float* start_row;
};
/// The part of C that the next tile begins with, or will write.
void prefetch_tile(const float* c, ptrdiff_t c_row_stride, ptrdiff_t rows, ptrdiff_t columns) {
  for (ptrdiff_t r = 0; r < rows; ++r) {
    for (ptrdiff_t v = 0; v < columns; v += 16) __builtin_prefetch(c + r * c_row_stride + v, 1, 3);
  }
}

void run_block(const GemmTileSet& tiles, const Block& block, Ahead ahead) {
  for (ptrdiff_t j = 0; j < block.columns; j += tiles.columns_max) {
    for (ptrdiff_t i = 0; i < block.rows;) {
      const GemmTileSize& tile = tiles.tallest(block.rows - i);
      ahead.step();
      const bool is_last = i + tile.rows == block.rows;
      const ptrdiff_t next_i = is_last ? 0 : i + tile.rows;
      const ptrdiff_t next_j = is_last ? j + tiles.columns_max : j;
      if (next_j < block.columns) {
        prefetch_tile(block.c + next_i * block.c_row_stride + next_j, block.c_row_stride,
                      tiles.tallest(block.rows - next_i).rows,
                      std::min(ptrdiff_t{tiles.columns_max}, block.columns - next_j));
      }
      tile.run(
          {.words = block.words,
           .a = block.a + i * block.words,
           .b = block.b + j * block.words,
           .c = block.c + i * block.c_row_stride + j,
           .c_row_stride = block.c_row_stride,
           .columns = static_cast<int>(std::min(ptrdiff_t{tiles.columns_max}, block.columns - j)),
           .start = block.start,
           .start_row = block.start_row == nullptr ? nullptr : block.start_row + j});
      i += tile.rows;
    }
  }
}

}  // namespace

void pack_words(const GemmPack& p) {
  ptrdiff_t k = 0;
  if (p.stride_k == 1 && p.stride_i != 1) {
    using Four = float __attribute__((vector_size(16)));
    for (; k + 4 <= p.depth; k += 4) {
      ptrdiff_t i = 0;
      for (; i + 4 <= p.count; i += 4) {  // a 4 x 4 transpose at a time
        Four row[4];
        for (ptrdiff_t r = 0; r < 4; ++r) {
          std::memcpy(&row[r], p.from + (i + r) * p.stride_i + k, sizeof(Four));
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
          std::memcpy(p.packed + (k + r) * p.width + i, &column[r], sizeof(Four));
        }
      }
      for (; i < p.count; ++i) {
        for (ptrdiff_t r = 0; r < 4; ++r) {
          p.packed[(k + r) * p.width + i] = p.from[i * p.stride_i + k + r];
        }
      }
    }
  }
  for (; k < p.depth; ++k) {
    const float* from = p.from + k * p.stride_k;
    float* to = p.packed + k * p.width;
    if (p.stride_i == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(p.count) * sizeof(float));
    } else {
      for (ptrdiff_t i = 0; i < p.count; ++i) to[i] = from[i * p.stride_i];
    }
  }
}

GemmTileSet portable_gemm_tiles(bool flush) {
  return {kPortableColumns, 1, pack_words,
          flush ? std::span<const GemmTileSize>(kPortableSizes<true>) : kPortableSizes<false>};
}

namespace {

/// The product, or a part of it, on the calling thread.
void multiply(const Gemm& p) {
  const GemmTileSet tiles = active_tiles(p.bf16);
  const bool round = p.bf16 && tiles.k_per_word == 1;
  const FlushScope flush(round);
  const ptrdiff_t tile_columns = tiles.columns_max;
  const auto width_a = [&](ptrdiff_t left) { return ptrdiff_t{tiles.tallest(left).rows}; };
  const auto width_b = [&](ptrdiff_t) { return tile_columns; };
  // A k without a partner: 0 times -0 is -0, and that changes no sum.
  const Operand a = {p.a.data, p.a.row_stride, p.a.column_stride, 0x0000};
  const Operand b = {p.b.data, p.b.column_stride, p.b.row_stride, 0x8000};
  thread_local PackBuffer buffer_a;
  thread_local PackBuffer buffer_b;
  // Only what this product needs, so that small ones do not touch 3 MB.
  const ptrdiff_t depth_block = kWordBlock * tiles.k_per_word;
  const ptrdiff_t words_max = tiles.words(std::min(p.depth, depth_block));
  float* packed_a = buffer_a.at_least(std::min(p.rows, kRowBlock) * words_max);
  float* packed_b =
      buffer_b.at_least((std::min(p.columns, kColumnBlock) + tile_columns) * words_max);

  for (ptrdiff_t j = 0; j < p.columns; j += kColumnBlock) {
    const ptrdiff_t columns = std::min(kColumnBlock, p.columns - j);
    const auto next_rows = [&](ptrdiff_t i, ptrdiff_t k) {
      const ptrdiff_t rows = std::max(ptrdiff_t{0}, std::min(kRowBlock, p.rows - i - kRowBlock));
      const ptrdiff_t tiles_here = kRowBlock / tiles.sizes[0].rows * (columns / tile_columns);
      return Ahead(a.at(i + kRowBlock, k), rows, std::min(depth_block, p.depth - k), tiles_here);
    };
    ptrdiff_t k = 0;
    do {  // once even at depth 0, to store the start
      const ptrdiff_t depth = std::min(depth_block, p.depth - k);
      pack_part(tiles, b.at(j, k), {columns, depth, round}, packed_b, width_b);
      for (ptrdiff_t i = 0; i < p.rows; i += kRowBlock) {
        const ptrdiff_t rows = std::min(kRowBlock, p.rows - i);
        pack_part(tiles, a.at(i, k), {rows, depth, round}, packed_a, width_a);
        run_block(tiles,
                  {.rows = rows,
                   .columns = columns,
                   .words = tiles.words(depth),
                   .a = packed_a,
                   .b = packed_b,
                   .c = p.c + i * p.c_row_stride + j,
                   .c_row_stride = p.c_row_stride,
                   .start = k == 0 ? p.start : GemmStart::kAccumulate,
                   .start_row = p.start_row == nullptr ? nullptr : p.start_row + j},
                  next_rows(i, k));
      }
      k += depth;
    } while (k < p.depth);
  }
}

}  // namespace

void gemm(const Gemm& p) {
  LH_CHECK(p.start != GemmStart::kRow || p.start_row != nullptr, "a start row was announced");
  // Cut across the longer side. Parts are whole tiles of every instruction set.
  const auto worth = [&](ptrdiff_t other, ptrdiff_t tile) {
    const ptrdiff_t least = kPartMultiplyAdds / std::max<ptrdiff_t>(1, other * p.depth) + 1;
    return (least + tile - 1) / tile * tile;
  };
  if (p.columns >= p.rows) {
    in_parts(p.columns, worth(p.rows, kPartColumns), [&p](ptrdiff_t begin, ptrdiff_t end) {
      Gemm part = p;
      part.columns = end - begin;
      part.b.data += begin * p.b.column_stride;
      part.c += begin;
      if (part.start_row != nullptr) part.start_row += begin;
      multiply(part);
    });
  } else {
    in_parts(p.rows, worth(p.columns, kPartRows), [&p](ptrdiff_t begin, ptrdiff_t end) {
      Gemm part = p;
      part.rows = end - begin;
      part.a.data += begin * p.a.row_stride;
      part.c += begin * p.c_row_stride;
      multiply(part);
    });
  }
}

}  // namespace longhaul
