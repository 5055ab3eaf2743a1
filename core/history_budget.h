// How many samples' histories (AQ codecs; executor/history) the boundaries of a plan keep, and what
// room that takes: planner, simulator and both ends of every boundary must agree on it.
//
// A worker's budget (HistorySettings) is shared evenly by the boundaries of its stage that have
// histories; a boundary keeps as many samples as the smaller of its two ends has room for, and no
// more than come to its pipeline. RAM is filled first. Plain functions, any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/units.h"

namespace longhaul {

/// Of one sample at one end: bf16, context x width.
Bytes history_bytes(const ModelShape& model);

/// Sequences of the training data as far as the job tells: its `history.samples`, else what its
/// steps can see at most. kUnknownSamples: neither is there.
inline constexpr std::int64_t kUnknownSamples = std::numeric_limits<std::int64_t>::max();
std::int64_t samples_at_most(const Job& job);

/// Histories at the boundary from a stage to the next one of its pipeline.
struct BoundaryHistory {
  std::int64_t samples = 0;        // that come to it; 0: its codec keeps no history
  std::int64_t capacity = 0;       // that are kept, the same at both ends
  std::int64_t in_memory[2] = {};  // of them, in RAM: at the sending end, at the receiving one
  bool operator==(const BoundaryHistory&) const = default;
};
/// By stage, the last left out. `sites`: of the pipeline's stages; `samples`: of the whole data.
std::vector<BoundaryHistory> boundary_histories(const Plan& plan, const Job& job, int pipeline,
                                                const std::vector<int>& sites,
                                                std::int64_t samples);
/// The same of a planned run, whose samples are those of samples_at_most.
std::vector<BoundaryHistory> boundary_histories(const Plan& plan, const Topology& topology,
                                                const Job& job, int pipeline);

/// Of all boundaries of a stage.
struct HistoryUse {
  Bytes memory;
  Bytes disk;
};
HistoryUse history_use(const ModelShape& model, const std::vector<BoundaryHistory>& boundaries,
                       int stage);

/// The share of later visits that find a history where the data has as many samples as the job
/// says: capacity / samples. 1 where the job does not say.
double hit_rate(const Job& job, const BoundaryHistory& boundary);

}  // namespace longhaul
