// What another trainer asks of a plan: the part of PlanRules (planner/pins.h) that the search keeps
// to so that the trainer can run what it finds.
//
// Pure functions.
#pragma once

#include "core/plan.h"

namespace longhaul {

struct Grid;

/// What a plan must keep to. All false: any plan; else also one that leaves codecs and reductions
/// to the job.
struct Expressible {
  bool equal_shares = false;         // every pipeline runs the same number of micro-batches
  bool equal_layers = false;         // every stage has the same number
  bool own_depths = false;           // 1F1B with K_i = min(P - i, M), or where it has it GPipe
  bool has_gpipe = false;            // own_depths only
  bool micro_batch_a_stage = false;  // a pipeline of several stages runs at least one for each
  bool one_stage = false;            // no pipeline

  bool operator==(const Expressible&) const = default;
};

/// Whether the grid has such plans: D divides the micro-batches, P the layers, and so on.
bool allows(const Expressible& wanted, const Grid& grid, const Job& job);

/// The plan with layers, shares and depths as wanted, on the same devices. Its grid must be
/// allowed; memory may not hold it.
Plan restricted(const Expressible& wanted, Plan plan, const Job& job);

/// Whether the plan is as wanted: restricting it would change nothing.
bool is_expressible(const Expressible& wanted, const Plan& plan, const Job& job);

}  // namespace longhaul
