// How cheap DT-FM's objective can possibly get: a lower bound for evaluate_dtfm_in_order, and often
// the proof that a known placement is the cheapest.
//
// The exchange is cut into slices. A placement whose exchange lies in a slice costs at least the
// slice's start plus twice the cheapest path over stages that exchange within the slice's end; the
// smallest of the slices' bounds holds for all. Paths are bounded by merged problems first, and by
// A* (dtfm_exact.h) where that leaves a gap, on the real device types where these are few enough,
// else on merged ones. A path that A* completes on real types is a placement, and may be cheaper
// than the known one.
//
// Deterministic: work is limited by counting, not by time. May be called from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/dtfm_objective.h"
#include "planner/dtfm_placement.h"

namespace longhaul {

struct DtfmBoundOptions {
  double known_s = 0;                 // what some placement costs; the bound never exceeds it
  double work = 3e9;                  // about nanoseconds
  std::function<bool()> should_stop;  // asked between two searches for a path; may be empty
};

struct DtfmBound {
  double seconds = 0;
  bool exact = false;   // the cheapest placement costs `seconds` (to a part in 1e10)
  std::string binding;  // "exact", or what keeps the bound from being better
  /// A placement that costs less than the known one, in path order; empty if none was found.
  std::vector<DtfmComposition> cheaper;
  int types = 0;       // of the devices
  int types_used = 0;  // after merging
};

/// The instance must pass check_dtfm_instance.
DtfmBound dtfm_lower_bound(const DtfmInstance& instance, const DtfmBoundOptions& options);

/// Every device's cheapest exchange with any partners, the largest of them: no placement's
/// exchange is below it.
double dtfm_exchange_floor(const DtfmInstance& instance);
/// The hops of a path join all devices into one chain a pipeline, so they cost together at least
/// 1 / D of the lightest forest of D trees.
double dtfm_forest_floor(const DtfmInstance& instance);

}  // namespace longhaul
