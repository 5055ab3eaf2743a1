// Where candidates of the DT-FM search come from: structured layouts, and crossover.
//
// All functions return one composition a stage, in path order, that together use every device.
// Pure apart from the generator that is passed in; may be called from any thread.
#pragma once

#include <vector>

#include "core/rng.h"
#include "planner/dtfm_placement.h"

namespace longhaul {

using DtfmStages = std::vector<DtfmComposition>;

DtfmStages stages_of(const DtfmTypes& types, const DtfmPartition& partition);
/// Gives every stage the devices that it wants of each type, in ascending order.
DtfmPartition partition_of(const DtfmTypes& types, const DtfmStages& stages);

/// The layouts that people write by hand: devices in order with each pipeline contiguous, devices
/// in order with each stage contiguous, and runs of equal stages (below) of every length.
std::vector<DtfmStages> structured_layouts(const DtfmTypes& types);

/// A random layout made of runs of equal stages. Inside a run every pipeline can stay within its
/// type, so a run's hops cost what a site's inside costs; good layouts have few, long runs.
DtfmStages random_runs(const DtfmTypes& types, Rng& rng);

/// Copies whole stages of one parent (a segment of its path, or one stage several times) and fills
/// the rest with the other parent's stages in their order, replacing devices that are used up by
/// the nearest ones left. Stages are copied, not labels: costs depend on who is together.
DtfmStages cross(const DtfmTypes& types, const DtfmStages& donor, const DtfmStages& base, Rng& rng);

}  // namespace longhaul
