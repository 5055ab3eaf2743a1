#pragma once

#include <cstddef>
#include <iterator>
#include <span>

#include "core/result.h"
#include "kernels/cpu/isa.h"
#include "kernels/parallel.h"

namespace longhaul {

template <class T>
void check_size(std::span<T> values, std::ptrdiff_t size) {
  LH_CHECK(static_cast<std::ptrdiff_t>(values.size()) == size, "a span fits the operation's shape");
}

/// Rows [begin, end) of a matrix.
template <class T>
std::span<T> rows_of(std::span<T> matrix, std::ptrdiff_t begin, std::ptrdiff_t end,
                     std::ptrdiff_t width) {
  return matrix.subspan(static_cast<std::size_t>(begin * width),
                        static_cast<std::size_t>((end - begin) * width));
}

/// Runs kBody on the rows of `op` in parts; `of_rows` are its spans that have something for each
/// row, the widest `width` elements.
template <auto kBody, class Op, class... Spans>
void run_by_rows(const Op& op, std::ptrdiff_t width, Spans Op::*... of_rows) {
  const std::ptrdiff_t rows = op.shape.rows;
  if (rows == 0) return;
  in_parts(rows, row_grain(width), [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    Op part = op;
    part.shape.rows = end - begin;
    ((part.*of_rows = rows_of(op.*of_rows, begin, end, std::ssize(op.*of_rows) / rows)), ...);
    run_on_active_isa<kBody>(static_cast<const Op*>(&part));
  });
}

}  // namespace longhaul
