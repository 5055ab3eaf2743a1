// The planners that ours is compared with, by name, each searched on its own objective.
//
//   random      a random permutation in rank order's grid. planner/policies.h rank-order  every
//   device by name, stages outermost, the best grid at T3.        planner/policies.h dtfm DT-FM's
//   objective [Yuan et al., NeurIPS 2022].                       planner/policies.h even what
//   people do by hand: devices in node order in one pipeline or in several equal
//               ones, equal layers, 1F1B, micro-batches of one sequence.
//   megatron    Megatron-LM's users [Narayanan et al., SC 2021]: all of P x D x micro-batch x
//               {GPipe, 1F1B} in rank order with equal layers; they run them and keep the best, so
//               the judge is T3.
//   varuna      Varuna [Athlur et al., EuroSys 2022]: all of P x D x micro-batch, equal layers; one
//               profile for all devices (their mean, and again their slowest: the better at T3),
//               mean times of sends in a site, of sends between sites and of all-reduces.
//   metis       Metis [Um et al., ATC 2024]: orders of device kinds, layers by measured speed,
//               uneven shares, bandwidth inside and between nodes; no latency.
//   sailor      Sailor [Strati et al., SOSP 2025]: P, micro-batch, the same D in every stage, equal
//               layers, sites and their order, kinds; data parallelism inside a site only.
//
// None is weakened: where its paper searches exhaustively, so do these up to the caps that each
// file states; all may leave devices idle; all are held to our memory check, so that none loses by
// a plan that cannot run; shares may differ by one micro-batch where D does not divide the batch.
// What they choose keeps their own layers and shares and is simulated (T3) like ours.
//
// Pure functions for any thread; same arguments, same plans, whatever the number of threads.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "planner/policies.h"

namespace longhaul {

/// Names in the order of tables: from no planning at all to the most.
std::span<const std::string_view> baseline_names();

/// What a baseline chooses by its own objective, not yet simulated; of several the one that
/// simulates fastest counts. kInfeasible, by the baseline's name, when none fits the memory;
/// kInvalid when the device limits name something unknown. `name` is one of baseline_names().
Result<std::vector<Plan>> baseline_candidates(std::string_view name, const Topology& topology,
                                              const Job& job, const PolicyOptions& options);

/// The best of them, simulated.
Result<JudgedPlan> baseline_plan(std::string_view name, const Topology& topology, const Job& job,
                                 const PolicyOptions& options);

}  // namespace longhaul
