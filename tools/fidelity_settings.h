// Settings for suite `fidelity`: clusters, jobs and plans drawn at random, such that steps wait for
// compute, for latency and for bandwidth equally often, under three schedules and all codecs. A
// seed gives the same settings on every machine. What a run of theirs takes is not known here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "netsim/step_simulation.h"

namespace longhaul {

/// What the end of a step waits for most: the kind of critical parts with the largest sum, updates
/// being compute.
enum class Binding { kCompute, kLatency, kBandwidth };
inline constexpr int kBindings = 3;
std::string_view name_of(Binding binding);
Binding binding_of(const StepResult& step);

/// How many micro-batches stages hold: all (GPipe), as few as keep the last one busy (1F1B), or one
/// more for each stage that follows, for the way there and back (eager: min(M, 2 (P - i) - 1)).
enum class Depth { kGpipe, kOneForwardOneBackward, kEager };
inline constexpr int kDepths = 3;
std::string_view name_of(Depth depth);
/// The same placement in that schedule.
Plan with_depth(Plan plan, Depth depth);

struct FidelitySetting {
  std::string name;
  std::string cluster_text;
  std::string job_text;      // names `data` beside it
  bool is_searched = false;  // placement by the search; else a random one
  Depth depth = Depth::kGpipe;
  Topology topology;
  Job job;
  Plan plan;
  StepResult predicted;
};

/// A setting binds by each kind in turn, each three in another depth. Steps take kFidelityStepMin
/// to kFidelityStepMax; no two devices are nearer than can be emulated. Error: no draw of many
/// fits.
inline constexpr double kFidelityStepMin = 0.3, kFidelityStepMax = 2.5;
Result<std::vector<FidelitySetting>> fidelity_settings(std::uint64_t seed, int count, int threads);

}  // namespace longhaul
