// Local search on simulated plans (T3): what the closed form cannot tell apart.
//
// A neighbour of a plan differs in one thing: two devices exchanged, a device or a run of them
// replaced by idle ones, a layer or some micro-batches moved, the in-flight depth of some stages,
// the coordinator's site, the shares of a sharded all-reduce, its shape where the rules allow any.
// Greedy schedules are tried half-way; their orders are made anew for every neighbour. Neighbours
// are drawn at random, simulated a batch at a time on several threads, and the best of a batch is
// taken if it is better.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"
#include "planner/judgement.h"
#include "planner/problem.h"

namespace longhaul {

struct RefinementOptions {
  std::string name;  // with the seed, names the random choices
  std::uint64_t seed = 1;
  int threads = 1;
  double transfers = 1e6;  // in all simulations together; a batch that has begun is ended
  bool greedy = true;      // schedules of the greedy family may be chosen
  std::function<bool()> interrupted = {};
};

struct Refinement {
  JudgedPlan best;
  double transfers = 0;  // in all simulations
};
/// A plan at least as good as `start` by the problem's goal, from the problem's devices. Where the
/// plans are small enough for the budget, one that no neighbour improves on.
Refinement refine(const Problem& problem, JudgedPlan start, const RefinementOptions& options);

}  // namespace longhaul
