// DT-FM's problem solved: the search (dtfm_search.h) and the lower bound (dtfm_bounds.h) together.
// The bound is worked out once, from the cost after the search's first round, and ends the search
// when it proves that nothing is cheaper. May be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "planner/dtfm_bounds.h"
#include "planner/dtfm_search.h"

namespace longhaul {

struct DtfmSolveOptions {
  DtfmSearchOptions search;  // `lower_bound` is set here
  double bound_work = DtfmBoundOptions{}.work;
};

struct DtfmSolution {
  DtfmPartition partition;   // path order; the i-th devices of all stages form pipeline i
  DtfmCost cost;             // evaluate_dtfm_in_order(partition)
  double lower_bound_s = 0;  // of every placement; the cost itself if that is proven cheapest
  std::string binding;       // "exact", or what keeps the bound from being better
  std::int64_t evaluations = 0;

  double gap() const { return lower_bound_s > 0 ? cost.total_s / lower_bound_s - 1 : 0; }
  bool exact() const { return binding == "exact"; }
};

/// The instance must pass check_dtfm_instance.
DtfmSolution dtfm_solve(const DtfmInstance& instance, const DtfmSolveOptions& options);

}  // namespace longhaul
