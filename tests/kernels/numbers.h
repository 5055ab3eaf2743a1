// Helpers for kernel tests: random tensors, comparison by bits, every instruction set in turn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "kernels/cpu/isa.h"

namespace longhaul::fixtures {

/// Uniform in [-scale, scale).
template <class T = float>
std::vector<T> random_values(std::string_view name, std::size_t count, double scale = 1) {
  Rng rng(name, 1);
  std::vector<T> values(count);
  for (T& value : values) {
    value = static_cast<T>(static_cast<float>(scale * (2 * rng.uniform() - 1)));
  }
  return values;
}

/// Equal to the last bit; +0 and -0 differ.
template <class Range, class Other>
bool same_bits(const Range& a, const Other& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0);
}

/// Largest |a - b|, as a fraction of the largest |b|.
template <class T>
double relative_difference(const std::vector<T>& a, const std::vector<double>& b) {
  double difference = 0;
  double largest = 1e-30;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::fabs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return difference / largest;
}

/// Runs the body once with each instruction set that this machine has.
template <class Body>
void with_each_isa(Body body) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(name_of(isa));
    set_active_isa(isa);
    body(isa);
  }
  set_active_isa(supported_isas().back());
}

}  // namespace longhaul::fixtures
