#include "planner/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/rng.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

TEST(CostModel, one_device_costs_its_passes_and_update) {
  // One layer and the head: forward 16 + 2 = 18 FLOP at 16 FLOP/s = 1.125 s, backward 2.25 s; four
  // micro-batches of one sequence: 13.5 s. Nothing to reduce, no distance, a free update.
  const Topology topology = unit_topology({0});
  const Job job = unit_job(1, 4);
  const Problem problem(topology, job);
  Evaluator evaluator(problem, {1, 1, 1});
  EXPECT_DOUBLE_EQ(evaluator.evaluate({{0}, {1}}), 13.5);
}

TEST(CostModel, all_reduce_takes_two_phases_of_a_shard_and_two_latencies) {
  // Two devices at two sites, one pipeline each: two micro-batches of 3.375 s, then shards of half
  // the 16 + 3 + 2 + 1 + 1 ... parameters at 4 bytes each way.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(5), bytes_per_second(2));
  const Job job = unit_job(1, 4);
  const Problem problem(topology, job);
  Evaluator evaluator(problem, {1, 2, 1});
  const double parameters = stage_reduced_parameters(job.model, {1, true, true}, 1);
  const double shard_s = parameters / 2 * 4 / 2;
  // Commit: 5 s to the coordinator at the other's site and 5 s back.
  EXPECT_NEAR(evaluator.evaluate({{0, 1}, {1}}), 2 * 3.375 + 2 * (shard_s + 5) + 10, 1e-9);
}

TEST(CostModel, a_shared_uplink_stretches_the_period) {
  // Two pipelines from site a to site b, M = 100 each. A boundary tensor is 4 bytes; the uplink
  // gives 0.5 byte/s to both together, so a round of two tensors takes 16 s, more than any stage.
  Topology topology = unit_topology({0, 1, 0, 1});
  const Job job = unit_job(2, 200);
  const Problem free(topology, job);
  Evaluator unshared(free, {2, 2, 1});
  const Candidate candidate{{0, 1, 2, 3}, {1, 1}};
  EXPECT_LT(unshared.evaluate(candidate), 100 * 4);
  topology.sites[0].uplink = bytes_per_second(0.5);
  const Problem narrow(topology, job);
  Evaluator shared(narrow, {2, 2, 1});
  EXPECT_GE(shared.evaluate(candidate), 99 * 16);
}

TEST(CostModel, a_candidate_that_overflows_its_memory_costs_at_least_the_overflow_mark) {
  Topology topology = unit_topology({0});
  const Job job = unit_job(1, 4);
  const MemoryUse use = memory_use(job, topology.kinds[0],
                                   {.stage = {1, true, true}, .micro_batch = 1, .in_flight = 1});
  topology.kinds[0].memory = use.total();
  const Problem fits(topology, job);
  EXPECT_LT(Evaluator(fits, {1, 1, 1}).evaluate({{0}, {1}}), Evaluator::kOverflow);
  topology.kinds[0].memory = use.total() - bytes(1);
  const Problem lacks(topology, job);
  EXPECT_GE(Evaluator(lacks, {1, 1, 1}).evaluate({{0}, {1}}), Evaluator::kOverflow);
}

TEST(CostModel, shares_end_all_pipelines_as_early_as_possible) {
  // Brute force over all shares of 9 micro-batches among 3 pipelines.
  Rng rng("shares", 1);
  for (int i = 0; i < 100; ++i) {
    std::vector<double> fills;
    std::vector<double> periods;
    for (int d = 0; d < 3; ++d) {
      fills.push_back(5 * rng.uniform());
      periods.push_back(0.2 + rng.uniform());
    }
    const auto end_of = [&](const std::vector<int>& shares) {
      double end = 0;
      for (std::size_t d = 0; d < 3; ++d)
        end = std::max(end, fills[d] + (shares[d] - 1) * periods[d]);
      return end;
    };
    double best = 1e9;
    for (int a = 1; a <= 7; ++a) {
      for (int b = 1; a + b <= 8; ++b) best = std::min(best, end_of({a, b, 9 - a - b}));
    }
    const std::vector<int> shares = share_micro_batches(fills, periods, 9);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), 9);
    EXPECT_NEAR(end_of(shares), best, 1e-12);
  }
}

TEST(CostModel, layers_go_to_the_faster_stage) {
  // Device 0 is three times as fast: of 8 layers it gets 6, and the head's 1/8 layer keeps it so.
  Topology topology = unit_topology({0, 0});
  topology.kinds[0].rate.fill(flops_per_second(48));
  const Job job = unit_job(8, 4);
  const Problem problem(topology, job);
  const Evaluator evaluator(problem, {2, 1, 1});
  EXPECT_EQ(evaluator.split_layers({0, 1}), (std::vector{6, 2}));
}

}  // namespace
}  // namespace longhaul
