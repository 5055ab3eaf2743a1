#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"

namespace longhaul {

template <class T>
void check_size(std::span<T> values, std::ptrdiff_t size) {
  LH_CHECK(static_cast<std::ptrdiff_t>(values.size()) == size, "a span fits the operation's shape");
}

}  // namespace longhaul
