// What would make a job fit that fits the memory of no grid: single changes, each tried on its own.
#pragma once

#include <string>
#include <vector>

#include "core/job.h"
#include "core/topology.h"
#include "core/units.h"
#include "planner/search.h"

namespace longhaul {

/// Changes as a person would make them, each alone enough or not known to be.
struct Relaxations {
  std::vector<std::string> enough;
  std::vector<std::string> not_enough;
};

/// Tries histories on disk alone, recompute, micro-batches of one sequence, one more stage, the
/// devices that were left out, and more memory on every device of one kind (at most `missing`, what
/// the nearest plan lacks in all), as far as the job and the options leave room for them. Codecs
/// are no change otherwise: they act on the wire. A structured placement that fits proves a change;
/// one that only a longer search finds is not seen.
Relaxations relaxations(const Topology& topology, const Job& job, const SearchOptions& options,
                        Bytes missing);

}  // namespace longhaul
