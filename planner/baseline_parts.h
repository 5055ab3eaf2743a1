// What the baselines (planner/baselines.h) have in common: layouts with equal layers, and prices of
// stages, hops and exchanges from which each builds its own objective. Not for other callers.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/model_math.h"
#include "planner/pipeline_time.h"
#include "planner/policies.h"

namespace longhaul {

/// Devices of the grid: [pipeline][stage].
using Layout = std::vector<std::vector<int>>;

/// L layers over P stages as evenly as the count allows; the longer ones first, away from the head.
std::vector<int> even_layers(int layers, int stages);

/// The plan of a layout with equal layers and shares and the schedule's own depths; the coordinator
/// is in the site of the first device.
Plan even_plan(const Topology& topology, const Job& job, Layout layout, int micro_batch,
               ScheduleFamily family);

/// The devices that the options admit. Where a plan may span only so many sites: those with the
/// highest joint speed.
Result<Problem> baseline_problem(const Topology& topology, const Job& job,
                                 const PolicyOptions& options);

std::vector<int> by_name(const Topology& topology, std::span<const int> devices);
/// Rank r is stage r / D of pipeline r mod D.
Layout stages_outermost(const std::vector<int>& devices, int stages);
/// Rank r is stage r mod P of pipeline r / P.
Layout pipelines_outermost(const std::vector<int>& devices, int stages);
/// The fastest P x D devices, sorted by name.
std::vector<int> fastest_by_name(const Problem& problem, const Grid& grid);

/// Forward and backward of a micro-batch at `seconds_per_flop`.
StageTime stage_time(const Job& job, const StageShape& stage, int micro_batch,
                     double seconds_per_flop, double overhead);
inline StageTime stage_time(const Problem& problem, const StageShape& stage, int micro_batch,
                            int device) {
  return stage_time(problem.job(), stage, micro_batch, problem.seconds_per_flop(device),
                    problem.overhead(device));
}
/// Bytes on the wire of a boundary tensor between two devices, and of fp32 gradients.
double boundary_wire_bytes(const Problem& problem, int micro_batch, int device, int next);
double gradient_wire_bytes(const Problem& problem, const StageShape& stage, int stages);

/// The least rate and the longest latency of all pairs of a group of devices, both directions.
struct SlowestLink {
  double rate = 0;  // infinite where there is one device
  double latency = 0;
};
SlowestLink slowest_link(const Problem& problem, std::span<const int> group);

/// Grids of the limits, least compute bound first: no plan of a grid ends before its P x D fastest
/// devices have done the batch at full speed. A search that keeps the best may stop at the first
/// bound above it.
struct BoundedGrid {
  Grid grid;
  double bound_s;
};
std::vector<BoundedGrid> grids_by_bound(const Problem& problem, const GridLimits& limits);

// One for each planner; empty: nothing fits.
std::vector<Plan> even_candidates(const Problem& problem, const PolicyOptions& options);
std::vector<Plan> megatron_candidates(const Problem& problem, const PolicyOptions& options);
std::vector<Plan> varuna_candidates(const Problem& problem, const PolicyOptions& options);
std::vector<Plan> metis_candidates(const Problem& problem, const PolicyOptions& options);
std::vector<Plan> sailor_candidates(const Problem& problem, const PolicyOptions& options);

}  // namespace longhaul
