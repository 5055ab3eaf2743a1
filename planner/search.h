// The planner's search: over grids (stages x pipelines x micro-batch), and in each grid over
// placements and layer splits. Where a plan may span only so many sites, a grid with each choice
// of sites is a branch of its own. Branch and bound with a memetic search inside.
//
// Grids whose lower bound does not already lose get structured candidates, but for numbers of
// pipelines beyond several in a row that were far slower than fewer; the best of them are bred in
// rounds, fewer grids and more effort each round, the last only where the one before it gained. The
// best plans by the closed form (T1) are judged by simulation (T3), beside plans that others made,
// and refined; the best of those is the answer.
//
// Deterministic: work is cut into tasks seeded by (seed, grid, round, island) and merged in order;
// the thread count changes nothing. should_stop is asked between rounds only; `interrupted` is
// asked all the time, by any thread, and the round at hand then counts for nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "planner/bounds.h"
#include "planner/cost_model.h"
#include "planner/device_limits.h"
#include "planner/judgement.h"

namespace longhaul {

struct SearchProgress {
  int round = 0;
  int rounds = 0;
  std::int64_t evaluations = 0;
  double best_s = 0;    // T1 so far; infinite while nothing fits the memory and the price
  double best_usd = 0;  // its price of a step
  double bound_s = 0;   // no plan is faster
  Grid grid;            // of the best
};

/// Grid choices that are fixed from outside; 0 = free.
struct GridLimits {
  int stages = 0;
  int pipelines = 0;
  int micro_batch = 0;
};

struct SearchOptions {
  std::uint64_t seed = 1;
  int threads = 1;
  double effort = 1;  // multiplies the evaluations of every round
  GridLimits limits = {};
  DeviceLimits devices = {};
  Goal goal = {};
  std::function<bool()> should_stop = {};
  std::function<bool()> interrupted = {};
  std::function<void(const SearchProgress&)> on_round = {};
  PlanRules rules = {};  // what every plan keeps to
  /// Plans of this job that are simulated beside the search's own, and refined where they are good:
  /// those that limits and rules allow, restricted to what is expressible.
  std::vector<Plan> seeds = {};
};

struct SearchResult {
  JudgedPlan best;
  std::vector<JudgedPlan> judged;  // all that were simulated, `best` among them
  Bound bound;                     // of all grids
  std::int64_t evaluations = 0;
  std::size_t grids = 0;  // that could hold the job
  std::size_t simulations = 0;
};

/// All grids within the limits and the problem's rules whose micro-batches divide the batch and
/// whose devices exist.
std::vector<Grid> possible_grids(const Problem& problem, const GridLimits& limits);

/// Whether two plans say the same of one job.
bool is_same(const Plan& a, const Plan& b);

/// The plan as a search with these options may choose it: restricted to what is expressible;
/// nothing where limits, rules or memory forbid it. `options` must name devices that exist.
std::optional<Plan> as_admitted(const Topology& topology, const Job& job,
                                const SearchOptions& options, Plan plan);

/// Errors: kInvalid when the device limits name something unknown. kInfeasible when no admitted
/// device (or not a pinned one) has the precision's speed, when limits and rules admit no grid,
/// when the job fits no grid's memory, or when no plan found is cheap enough; the message names the
/// constraint, the hint what would help.
Result<SearchResult> search_plan(const Topology& topology, const Job& job,
                                 const SearchOptions& options);

}  // namespace longhaul
