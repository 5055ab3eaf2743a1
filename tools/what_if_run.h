// Answers what-if questions: each changed cluster or job gets a row with its simulated step, the
// plan kept or searched anew.
//
// Rows do not depend on one another; the same question gives the same table whatever the number of
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "tools/what_if.h"
#include "tools/what_if_world.h"

namespace longhaul {

/// The options of the command line, as they were written.
struct WhatIfRequest {
  std::vector<std::string> removed = {};  // of one changed cluster and job, with `added` and `sets`
  std::vector<std::string> added = {};
  std::vector<std::string> sets = {};
  std::vector<std::string> scenarios = {};  // each a row, changed from what there is
  std::vector<std::string> sweeps = {};     // at most two: rows on top of removed, added and sets
  bool replan = false;
  std::uint64_t seed = 1;
  double effort = 1;
  int threads = 1;

  bool is_empty() const {
    return removed.empty() && added.empty() && sets.empty() && scenarios.empty() && sweeps.empty();
  }
};

struct WhatIfHooks {
  std::function<bool()> interrupted = [] { return false; };                      // from any thread
  std::function<void(const std::string&)> progress = [](const std::string&) {};  // one at a time
};

/// The row of the plan as it is when everything is planned anew.
inline constexpr std::string_view kPlannedAnew = "as it is, planned anew";

/// The table: first the plan as it is; with `replan` also that planned anew; then what removed,
/// added and sets make; the scenarios; the sweep. Once interrupted, it holds the rows that were
/// done. Errors: kInvalid for an edit that is wrong, kInfeasible where the plan as it is has no
/// step.
Result<WhatIfTable> what_if(const WhatIfBase& base, const Plan& plan, const WhatIfRequest& request,
                            const WhatIfHooks& hooks = {});

}  // namespace longhaul
