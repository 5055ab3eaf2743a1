// Policies that our search is compared with: rank order, random, and DT-FM's objective; the others
// and all of them by name are in planner/baselines.h.
//
// Each is given its best: layers split as evenly as the count allows, micro-batches shared evenly,
// and of all grids that use every usable device (P x D = N, P stages up to the model's layers) with
// micro-batches of 1, 2, 4 and 8 sequences and both GPipe and 1F1B, the one that simulates fastest
// (T3) and fits the memory. Where N divides into no grid that fits, the slowest devices are left
// out one by one.
//
//   rank-order  Megatron-LM's layout [Narayanan et al., SC 2021]: devices sorted by name, data-
//               parallel ranks contiguous, stages outermost.
//   random      a random permutation in rank order's grid (DT-FM's baseline scheduler_random).
//   dtfm        DT-FM's objective, searched by our solver [Yuan et al., NeurIPS 2022].
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "planner/dtfm_objective.h"
#include "planner/search.h"

namespace longhaul {

struct PolicyOptions {
  std::uint64_t seed = 1;
  int threads = 1;
  GridLimits limits = {};
  DeviceLimits devices = {};  // of at most N sites: those N with the highest joint speed
};

Result<JudgedPlan> rank_order_plan(const Topology& topology, const Job& job,
                                   const PolicyOptions& options);

/// `count` independent permutations of the devices of `ranked`, rank order's plan.
Result<std::vector<JudgedPlan>> random_plans(const Topology& topology, const Job& job,
                                             const PolicyOptions& options, const Plan& ranked,
                                             int count);

struct DtfmPlan {
  JudgedPlan judged;
  DtfmCost cost;  // what DT-FM's objective says of it
};
Result<DtfmPlan> dtfm_plan(const Topology& topology, const Job& job, const PolicyOptions& options);

/// DT-FM's instance for `devices` in a grid: one-way latencies, the rate of each pair, the mean
/// stage's fp32 gradient and the activations of a pipeline's whole batch, both in 10^9 bytes.
DtfmInstance dtfm_instance(const Topology& topology, const Job& job,
                           const std::vector<int>& devices, int stages);

}  // namespace longhaul
