#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"

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

}  // namespace longhaul
