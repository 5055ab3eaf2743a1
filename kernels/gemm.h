// Matrix product in fp32 with one specified result, whatever the machine:
//
//   C[i][j] = fma(A[i][K-1], B[K-1][j], ... fma(A[i][1], B[1][j], fma(A[i][0], B[0][j], start)))
//
// Each element is one chain of fused multiply-adds in ascending k, begun at `start`. Nothing else
// about the call enters: not the number of rows or columns, not blocking, instruction set, strides
// or thread. Two things follow that the rest of the project builds on:
//
//   - a row of a product does not depend on the rows beside it, so the micro-batch does not matter;
//   - a product that accumulates (kAccumulate) continues its chain, so a weight gradient summed
//     over micro-batches has the same bits as one taken over all their rows at once.
//
// With `bf16` the elements of A and B are rounded to bf16 first (kernels/cpu/bf16.h) and the chain
// flushes: a term or sum of less than 2^-126 is zero, before each step and after it. (A product of
// two bf16 numbers is exact in fp32, so a step still rounds once.) That is what VDPBF16PS does on
// Zen 4, its odd element first, found by comparing 10^8 random and adversarial pairs; products
// elsewhere do the same by fp32 steps that flush, at the speed of fp32. What follows for rows and
// for products that accumulate stays true.
//
// Large products use the threads of kernels/parallel.h; any number of threads may call. Each thread
// that computes keeps packing buffers of about 3 MB.
#pragma once

#include <cstddef>

namespace longhaul {

/// Element (i, j) is data[i * row_stride + j * column_stride].
struct MatrixView {
  const float* data = nullptr;
  std::ptrdiff_t row_stride = 0;
  std::ptrdiff_t column_stride = 1;

  MatrixView transposed() const { return {data, column_stride, row_stride}; }
};

/// What the chains begin with.
enum class GemmStart {
  kZero,
  kRow,         // start_row[j]: a bias
  kAccumulate,  // what C holds
};

struct Gemm {
  std::ptrdiff_t rows = 0;     // of A and C
  std::ptrdiff_t columns = 0;  // of B and C
  std::ptrdiff_t depth = 0;    // columns of A, rows of B; 0 leaves the start alone
  MatrixView a;
  MatrixView b;
  float* c = nullptr;  // must not overlap A or B; element (i, j) is c[i * c_row_stride + j]
  std::ptrdiff_t c_row_stride = 0;
  GemmStart start = GemmStart::kZero;
  const float* start_row = nullptr;
  bool bf16 = false;  // operands rounded to bf16, C in fp32
};

void gemm(const Gemm& product);

}  // namespace longhaul
