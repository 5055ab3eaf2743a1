// Who plans, for `longhaul plan`: the search, from scratch or from a plan in use, or another
// policy; and what the other policies would have planned, for the comparison.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/units.h"
#include "planner/warm_start.h"
#include "tools/dtfm_command.h"

namespace longhaul {

struct PlanOptions {
  std::string cluster;
  std::string trace;
  std::string devices;
  std::string job;
  std::string policy = "search";
  std::string target;  // the trainer that is to run the plan; empty: ours
  std::string output = "plan.yaml";
  bool baselines = false;
  bool json = false;
  std::uint64_t seed = 1;
  int threads = 0;
  double effort = 1;
  std::string time_limit;
  GridLimits limits;
  DeviceLimits devices_used;
  std::vector<std::string> pins;
  bool any_all_reduce = false;
  bool seeds = true;  // what the quick baselines plan is looked at, too
  std::string from;   // the plan in use; empty: none
  std::string horizon = "1 d";
  double max_cost = 0;  // US dollars of a billion tokens; 0: any
  bool explain = false;
  std::string objective = "time";
  DtfmCommandOptions dtfm;  // what only --objective dtfm reads
};

/// A policy's plan, as it is compared and written.
struct Outcome {
  std::string policy;
  JudgedPlan judged;
  Bound bound;
  std::int64_t evaluations = 0;
  std::vector<const JudgedPlan*> others = {};  // search only: of other stages and pipelines
  std::vector<const JudgedPlan*> front = {};   // --objective pareto only
  std::vector<JudgedPlan> all = {};            // that those point into
  std::optional<WarmStart> from = {};          // with --from only
  std::vector<std::string> gone = {};          // devices of the plan in use
};

/// The other policies' simulated steps, for the comparison.
struct Baseline {
  std::string name;
  double step_s = 0;
  std::string grid;
  std::string missing;  // why there is none
};

Goal goal_of(const PlanOptions& options, const Job& job);

/// `limit`: of the search's time. Progress goes to stderr.
Result<Outcome> run_policy(const Topology& topology, const Job& job, const PlanOptions& options,
                           Seconds limit);

std::vector<Baseline> run_baselines(const Topology& topology, const Job& job,
                                    const PlanOptions& options);
std::string baseline_table(const Outcome& ours, const std::vector<Baseline>& baselines);

}  // namespace longhaul
