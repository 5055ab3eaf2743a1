#include "planner/layouts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// One site with nodes of so many equal devices behind such NICs.
Topology site_of(const std::vector<std::pair<int, double>>& nodes) {
  Topology topology = unit_topology(std::vector<int>(nodes.size(), 0));
  topology.devices.clear();
  topology.kinds.resize(1);
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    topology.nodes[n].nic = BytesPerSecond(nodes[n].second);
    for (int d = 0; d < nodes[n].first; ++d) {
      topology.devices.push_back(
          {topology.nodes[n].name + "/" + std::to_string(d), static_cast<int>(n), 0, 0});
    }
  }
  return topology;
}

Candidate best_of(const Topology& topology, const Job& job, const Grid& grid) {
  const Problem problem(topology, job);
  Evaluator evaluator(problem, grid);
  return Layouts(problem).candidates(evaluator, 1, Layouts::Breadth::kFew).front().candidate;
}

TEST(Layouts, replicas_of_one_node_stay_there_whatever_its_nic) {
  const Topology topology = site_of({{2, 1000}, {2, 1000}, {4, 1}});
  const Candidate best = best_of(topology, unit_job(1, 8), {1, 4, 1});
  for (const int device : best.cells) EXPECT_EQ(topology.node_of(device), 2);
}

TEST(Layouts, pipelines_across_nodes_take_the_fast_nics) {
  const Topology topology = site_of({{2, 1}, {2, 50}, {2, 1}, {2, 50}});
  const Candidate best = best_of(topology, unit_job(4, 8), {4, 1, 1});
  for (const int device : best.cells) EXPECT_EQ(topology.node_of(device) % 2, 1);
}

TEST(Layouts, the_head_is_on_the_faster_end) {
  // A head of several layers' work: the last stage's device counts most.
  Topology topology = unit_topology({0, 0});
  topology.kinds[0].rate.fill(flops_per_second(64));
  Job job = unit_job(2, 8);
  job.model.vocabulary = 100;
  const Candidate best = best_of(topology, job, {2, 1, 1});
  EXPECT_EQ(best.cells, (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace longhaul
