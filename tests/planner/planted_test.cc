// Clusters that are built around a plan. Every device stands alone at a site, in shuffled order.
// Links that the plan uses are 100 times as fast as all others, and the speeds of the devices fit
// its uneven layers, so that any other plan pays. What the search finds must be as good.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/rng.h"
#include "netsim/step_simulation.h"
#include "planner/search.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

struct Planted {
  Topology topology;
  Job job;
  double step_s = 0;  // simulated, of the plan that it was built around
};

Planted plant(std::uint64_t seed) {
  Rng rng("planted", seed);
  const int stages = 2 + static_cast<int>(rng.below(3));
  const int pipelines = 2 + static_cast<int>(rng.below(3));
  const int decoys = static_cast<int>(rng.below(4));
  const int devices = stages * pipelines + decoys;
  std::vector<int> places(static_cast<std::size_t>(devices));
  std::iota(places.begin(), places.end(), 0);
  Planted planted;
  planted.topology = unit_topology(places);
  rng.shuffle(std::span(places));

  Plan plan;
  plan.layers.resize(static_cast<std::size_t>(stages));
  for (int& layers : plan.layers) layers = 1 + static_cast<int>(rng.below(3));
  plan.micro_batches.assign(static_cast<std::size_t>(pipelines), 8);
  plan.in_flight = default_in_flight(plan.family, stages, 8);
  for (int d = 0; d < pipelines; ++d) {
    const auto first = places.begin() + d * stages;
    plan.devices.emplace_back(first, first + stages);
  }
  plan.coordinator_site = plan.device(0, 0);  // a device's site has its number
  planted.job = unit_job(std::accumulate(plan.layers.begin(), plan.layers.end(), 0), 8 * pipelines);
  planted.job.micro_batch = 1;

  Topology& topology = planted.topology;
  for (Link& link : topology.links) {
    link.rate = bytes_per_second(10);
    link.latency = Seconds(1);
  }
  // Pipelines and the groups of each stage.
  for (int d = 0; d < pipelines; ++d) {
    for (int i = 0; i < stages; ++i) {
      const int here = plan.device(d, i);
      const int layers = plan.layers[static_cast<std::size_t>(i)];
      topology.kinds[static_cast<std::size_t>(here)].rate.fill(flops_per_second(16.0 * layers));
      for (int other = 0; other < pipelines; ++other) {
        if (other != d) {
          set_link(topology, here, plan.device(other, i), Seconds(0.01), bytes_per_second(1000));
        }
      }
      if (i > 0) {
        set_link(topology, here, plan.device(d, i - 1), Seconds(0.01), bytes_per_second(1000));
      }
    }
  }
  planted.step_s = simulate_step(topology, planted.job, plan)->step.value();
  return planted;
}

int count_found(int instances) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(instances); ++seed) {
    const Planted planted = plant(seed);
    const Result<SearchResult> result =
        search_plan(planted.topology, planted.job, {.seed = seed, .threads = 2});
    if (result && result->best.step.step.value() <= planted.step_s * (1 + 1e-9)) ++found;
  }
  return found;
}

TEST(Planted, plan_of_a_cluster_is_found) {
  EXPECT_GE(count_found(3), 3);
}

TEST(PlantedSlowRelease, plans_of_95_in_100_clusters_are_found) {
  EXPECT_GE(count_found(100), 95);
}

}  // namespace
}  // namespace longhaul
