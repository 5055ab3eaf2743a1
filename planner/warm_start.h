// A search that starts from a plan in use: what the old plan is worth on the cluster as it is now,
// whether another one pays for the time that moving to it takes, and the better of the two.
//
// Moving pays within a horizon H: in H / step_s steps, so that a step of a plan that takes move_s
// to get to is worth step_s + move_s / (H / step_s) = step_s x (1 + move_s / H). The least worth
// wins, the old plan where they are equal; by price the same with the price of a step.
//
// Pure functions but for load_old_plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/migration.h"
#include "planner/search.h"

namespace longhaul {

struct OldPlan {
  Plan plan;                      // devices that the topology has no more are kGone
  std::vector<std::string> gone;  // their names, each once, in the plan's order
  bool is_of_job = true;          // as far as its file says
};

/// Reads a plan of the job whose cluster may have lost devices and sites since. Errors as
/// load_plan.
Result<OldPlan> load_old_plan(const std::string& path, const Topology& topology, const Job& job);
Result<OldPlan> parse_old_plan(std::string_view text, const std::string& name,
                               const Topology& topology, const Job& job);

/// The old plan on usable devices: itself where all are, else with idle devices in the place of
/// those that cannot be used, one after the other the one that makes the closed form least, and new
/// shares and depths. Where too few are idle, pipelines are given up, the worst hit first. Nothing
/// where none is left or the memory does not hold it.
std::optional<Plan> repaired(const Problem& problem, const Plan& old);

struct WarmStart {
  SearchResult found;             // `best` is the plan to use
  std::optional<JudgedPlan> old;  // repaired; without, it cannot be used at all
  Migration old_move;             // to the repaired one
  JudgedPlan other;               // the best one found with its move counted
  Migration move;                 // to it
  bool kept = false;              // `best` is the old plan
  /// Steps after which the time for moving is made good; infinite where `other` is not faster.
  double pays_after = 0;
};

/// Errors as search_plan. The old plan is a seed before those of `options`, and cannot be kept
/// where limits or rules forbid it.
Result<WarmStart> search_from(const Topology& topology, const Job& job, SearchOptions options,
                              const OldPlan& old, Seconds horizon);

}  // namespace longhaul
