// The middle of measured values, and other places among them.
#pragma once

#include <algorithm>
#include <vector>

#include "core/result.h"

namespace longhaul {

/// The mean of the middle two where their number is even. There is a value.
inline double median(std::vector<double> values) {
  LH_CHECK(!values.empty(), "a median is one of something");
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// The element at the fraction q (0..1) of the sorted values, between two by linear interpolation.
/// There is a value.
inline double quantile(std::vector<double> values, double q) {
  LH_CHECK(!values.empty(), "a quantile is one of something");
  std::ranges::sort(values);
  const double rank = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace longhaul
