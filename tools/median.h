// The middle of measured values.
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

}  // namespace longhaul
