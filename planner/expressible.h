// Plans that another trainer can run: what it asks of a plan, and the search within that.
//
// Pure functions; search_expressible as search_plan.
#pragma once

#include "planner/search.h"

namespace longhaul {

/// What a plan must keep to. All false: any plan.
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

/// As search_plan, among such plans only: a search for each number of pipelines (and of stages,
/// where those are limited) that is allowed, with its part of the effort, whose best plans are
/// restricted and simulated again, together with what the baselines would choose.
/// `judged` and `best` are all as wanted; closed_form_s is of the plan before it was restricted.
Result<SearchResult> search_expressible(const Topology& topology, const Job& job,
                                        const SearchOptions& options, const Expressible& wanted);

}  // namespace longhaul
