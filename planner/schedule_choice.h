// Gives a plan the greedy schedule family: frozen orders for its devices, layers and caps.
//
// One order a stage serves all pipelines, so it is made for the slowest device of each stage and
// the slowest hop after it.
#pragma once

#include <vector>

#include "core/plan.h"
#include "planner/greedy_schedule.h"
#include "planner/pipeline_time.h"
#include "planner/problem.h"

namespace longhaul {

/// One micro-batch of a pipeline, on links of its own.
struct PipelineTimes {
  std::vector<SplitStageTime> stages;
  std::vector<HopTime> hops;  // one fewer
};
PipelineTimes pipeline_times(const Problem& problem, const Plan& plan, int pipeline);

/// The most forwards above weight gradients that the memory of each stage's devices allows, 1 at
/// least and all micro-batches of the largest pipeline at most. Counts every one of them as waiting
/// for its weight gradient.
std::vector<int> memory_caps(const Problem& problem, const Plan& plan);

/// Makes `plan` greedy with these caps (planner/greedy_schedule.h); `in_flight` becomes what the
/// orders hold. False, and nothing is changed, where a stage or a hop takes longer than any step
/// may.
bool make_greedy(const Problem& problem, Plan& plan, const std::vector<int>& caps, int variants);

}  // namespace longhaul
