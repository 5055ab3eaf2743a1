// What-if questions: a plan on a changed cluster or job, one row a change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/topology.h"
#include "core/units.h"
#include "netsim/step_simulation.h"

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
  std::vector<std::string> notes = {};  // what a change does beside what was asked for, or does not
};

struct WhatIfTable {
  std::string axis;     // of a sweep: what is swept, `link * bandwidth`
  std::string unit;     // of x: `Mbit/s`, `ms`, ..., or empty
  bool is_log = false;  // points are evenly spaced in the logarithm of x
  std::vector<WhatIfRow> rows;
};

/// What the step waits for most: the largest group of its critical path by kind and place, and how
/// much of the step that is. Without a critical path, the largest part of its tasklets' time.
std::string binding_text(const Topology& topology, const StepResult& step);

/// The table for people, with its notes below it.
std::string what_if_text(const WhatIfTable& table);
/// One JSON document (docs/formats.md).
std::string what_if_json(const WhatIfTable& table);
/// A line a row, under a line of names (docs/formats.md).
std::string what_if_csv(const WhatIfTable& table);

}  // namespace longhaul
