// Kendall's tau-b: how far two measures put the same things in the same order, from 1 (the same)
// over 0 (unrelated) to -1 (reversed) [Kendall, Biometrika 1945]. Ties count half.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "core/result.h"

namespace longhaul {

/// Values within a part in 10^9 are tied: what differs by rounding alone is equal. 0 where one
/// measure calls everything equal. O(n^2).
inline double kendall_tau(std::span<const double> a, std::span<const double> b) {
  LH_CHECK(a.size() == b.size(), "both measure the same things");
  const auto order = [](double x, double y) {
    if (std::abs(x - y) <= 1e-9 * std::max(std::abs(x), std::abs(y))) return 0;
    return x < y ? -1 : 1;
  };
  double agreement = 0;
  double told_by_a = 0;
  double told_by_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int by_a = order(a[i], a[j]);
      const int by_b = order(b[i], b[j]);
      agreement += by_a * by_b;
      told_by_a += std::abs(by_a);
      told_by_b += std::abs(by_b);
    }
  }
  return told_by_a > 0 && told_by_b > 0 ? agreement / std::sqrt(told_by_a * told_by_b) : 0;
}

}  // namespace longhaul
