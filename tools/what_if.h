// What-if questions: a plan on a changed cluster or job, one row a change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/units.h"

namespace longhaul {

struct WhatIfRow {
  std::string change;       // as it was asked for; `as it is` for the unchanged one
  std::optional<double> x;  // of a sweep: the value at this point, in WhatIfTable::unit
  std::string problem;      // why there is no such step; then nothing below holds
  Seconds step;
  double tokens_per_s = 0;
  std::optional<double> usd_per_billion_tokens;  // none where nothing has a price
  std::string binding;  // the largest part of the critical path, for people
  bool replanned = false;
};

struct WhatIfTable {
  std::string axis;     // of a sweep: what is swept, `link * bandwidth`
  std::string unit;     // of x: `Mbit/s`, `ms`, ..., or empty
  bool is_log = false;  // points are evenly spaced in the logarithm of x
  std::vector<WhatIfRow> rows;
};

}  // namespace longhaul
