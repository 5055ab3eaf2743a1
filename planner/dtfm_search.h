// Searches for the partition that DT-FM's objective likes best: a memetic (evolutionary) search
// over compositions of device types.
//
// Rounds of a fixed number of evaluations. In a round, a constant number of islands each breed
// candidates from the population of the round before (structured layouts in the first round, then
// crossover and fresh runs), improve each by late-acceptance hill climbing with incremental prices
// (Burke and Bykov, 2017), and put its stages into the cheapest path order. At the end of a round
// the islands' best are merged in island order.
//
// Deterministic: an island's generator is seeded by (seed, round, island), islands share nothing
// during a round, and no libm function is used, so the answer depends neither on the number of
// threads nor on the machine. A stop function or a callback runs between rounds, on the calling
// thread. May be called from any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "planner/dtfm_objective.h"

namespace longhaul {

struct DtfmProgress {
  int round = 0;  // rounds done
  std::int64_t evaluations = 0;
  double best_total_s = 0;
};

struct DtfmSearchOptions {
  std::uint64_t seed = 1;
  int threads = 1;
  int rounds = 40;
  std::int64_t evaluations_per_round = 100'000;
  int patience = 12;  // rounds without improvement after which the search stops; 0: never
  /// Asked once, after the first round, with the lowest cost so far: a lower bound for all
  /// placements, at which the search stops. May be empty.
  std::function<double(double best_total_s)> lower_bound;
  std::function<bool()> should_stop;                  // asked after each round; may be empty
  std::function<void(const DtfmProgress&)> on_round;  // told after each round; may be empty
};

struct DtfmSearchResult {
  DtfmPartition partition;  // path order; the i-th devices of all stages form pipeline i
  DtfmCost cost;            // evaluate_dtfm_in_order(partition)
  std::int64_t evaluations = 0;
  int rounds = 0;
};

/// The instance must pass check_dtfm_instance.
DtfmSearchResult dtfm_search(const DtfmInstance& instance, const DtfmSearchOptions& options);

}  // namespace longhaul
