// Local search and crossover inside one grid: the breeding part of the planner's memetic search.
//
// A candidate's cells are improved by late-acceptance hill climbing [Burke and Bykov, EJOR 2017]
// on tier T1: it escapes plateaus and local optima without exp() or a temperature, so that results
// do not depend on libm. Everything here is deterministic for its generator; nothing is shared.
#pragma once

#include <functional>
#include <vector>

#include "core/rng.h"
#include "planner/cost_model.h"

namespace longhaul {

/// Swaps the evaluator's pinned devices to their stages, each with the device there that is nearest
/// to where it was: of its own pipeline, or where it was idle of its own site if there is one.
void place_pins(const Evaluator& evaluator, std::vector<int>& cells);

struct Scored {
  Candidate candidate;
  double value = 0;  // what the goal makes small, by T1
};

/// Improves a candidate by about `evaluations` evaluations and returns the best seen. Moves: swap
/// two cells or two pipelines' runs of stages, replace the devices of a run by idle ones, reverse
/// stages, match a stage's devices with those before anew, move a layer unless all are to be equal.
/// Ends early when `interrupted` says so.
Scored climb(Evaluator& evaluator, const Scored& start, int evaluations, Rng& rng,
             const std::function<bool()>& interrupted = {});

/// A child with some stages of `mother` (their whole data-parallel groups and layers) and as much
/// of `father` as still fits, the rest filled with unused devices, pinned ones in their place. Not
/// yet improved.
Scored cross(Evaluator& evaluator, const Scored& mother, const Scored& father, Rng& rng);

/// Adds to a population, best first, unless its cost is there already; keeps `limit`.
void add_to_population(std::vector<Scored>& population, Scored scored, std::size_t limit);

}  // namespace longhaul
