#include "planner/bounds.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/rng.h"
#include "netsim/cluster_file.h"
#include "netsim/step_simulation.h"
#include "planner/cost_model.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

Topology shipped_cluster(const std::string& name) {
  return *load_cluster(LONGHAUL_SOURCE_DIR "/configs/clusters/" + name + ".yaml");
}
Job shipped_job(const std::string& name) {
  return *load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/" + name + ".yaml");
}

/// A random candidate of a random grid that fits the memory.
bool random_candidate(const Problem& problem, Rng& rng, Grid& grid, Candidate& candidate) {
  const auto devices = static_cast<int>(problem.usable().size());
  grid.stages = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(std::min(devices, 8))));
  grid.pipelines =
      1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(devices / grid.stages)));
  grid.micro_batch = 1 << rng.below(3);
  candidate.cells = problem.usable();
  rng.shuffle(std::span(candidate.cells));
  candidate.cells.resize(static_cast<std::size_t>(grid.stages * grid.pipelines));
  Evaluator evaluator(problem, grid);
  candidate.layers = evaluator.split_layers(candidate.cells);
  return evaluator.evaluate(candidate) < Evaluator::kOverflow;
}

TEST(Bounds, none_is_above_a_simulated_step) {
  const Job job = shipped_job("gpt3-xl");
  Rng rng("bounds", 1);
  for (const char* cluster : {"ten-cities", "eight-cities", "dtfm-4-regional"}) {
    const Topology topology = shipped_cluster(cluster);
    const Problem problem(topology, job);
    int tried = 0;
    for (int i = 0; i < 200 && tried < 15; ++i) {
      Grid grid;
      Candidate candidate;
      if (!random_candidate(problem, rng, grid, candidate)) continue;
      ++tried;
      const Plan plan = Evaluator(problem, grid).finish(candidate);
      EXPECT_TRUE(check_memory(plan, topology, job));
      const Result<StepResult> step = simulate_step(topology, job, plan);
      ASSERT_TRUE(step) << step.error().text();
      EXPECT_LE(lower_bound(problem, grid).seconds, step->step.value() * (1 + 1e-9)) << cluster;
    }
    EXPECT_EQ(tried, 15) << cluster;
  }
}

TEST(Bounds, is_tight_for_one_device) {
  // All work on one device, nothing else: the bound is the step.
  const Topology topology = unit_topology({0});
  const Job job = unit_job(3, 5);
  const Problem problem(topology, job);
  const Bound bound = lower_bound(problem, {1, 1, 1});
  EXPECT_NEAR(bound.seconds, Evaluator(problem, {1, 1, 1}).evaluate({{0}, {3}}), 1e-9);
  EXPECT_EQ(bound.name, "compute of the 1 fastest devices");
}

}  // namespace
}  // namespace longhaul
