#include "planner/dtfm_objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "core/rng.h"
#include "planner/dtfm_instance_file.h"

namespace longhaul {
namespace {

const std::string kGolden = LONGHAUL_SOURCE_DIR "/tests/golden/dtfm";

/// Two sites of two devices: 1 ms and 8 Gbit/s inside, 100 ms and 0.8 Gbit/s across.
DtfmInstance two_sites() {
  DtfmInstance instance{.devices = 4,
                        .stages = 2,
                        .replicas = 2,
                        .latency_s = {},
                        .gbit_per_s = {},
                        .gradient_gb = 1,
                        .activation_gb = 1};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const bool inside = i / 2 == j / 2;
      instance.latency_s.push_back(inside ? 0.001 : 0.1);
      instance.gbit_per_s.push_back(inside ? 8 : 0.8);
    }
  }
  return instance;
}

TEST(DtfmObjective, two_sites_by_hand) {
  const DtfmInstance instance = two_sites();
  // e inside = 0.001 + 8/8 = 1.001, across = 0.1 + 8/0.8 = 10.1;
  // x inside = 2 (0.001 + 8/(8*2)) = 1.002, across = 2 (0.1 + 8/(0.8*2)) = 10.2.
  // Pipelines inside the sites: DP = 10.2, 2 PP = 2 * 1.001.
  const DtfmCost pipelines_inside = evaluate_dtfm(instance, {{0, 2}, {1, 3}});
  EXPECT_DOUBLE_EQ(pipelines_inside.data_parallel_s, 10.2);
  EXPECT_DOUBLE_EQ(pipelines_inside.pipeline_s, 2.002);
  EXPECT_DOUBLE_EQ(pipelines_inside.total_s, 12.202);
  // The matching undoes a bad order of members: 0-1 and 2-3 again.
  EXPECT_DOUBLE_EQ(evaluate_dtfm(instance, {{0, 2}, {3, 1}}).total_s, 12.202);
  // Stages inside the sites: DP = 1.002, 2 PP = 2 * 10.1.
  EXPECT_DOUBLE_EQ(evaluate_dtfm(instance, {{0, 1}, {2, 3}}).total_s, 21.202);
}

TEST(DtfmObjective, one_stage_has_no_hops_and_one_replica_no_exchange) {
  DtfmInstance instance = two_sites();
  instance.stages = 1;
  instance.replicas = 4;
  // Each device: one peer inside 2 (0.001 + 8/(8*4)) = 0.502, two across 2 (0.1 + 8/(0.8*4)) = 5.2.
  EXPECT_DOUBLE_EQ(evaluate_dtfm(instance, {{0, 1, 2, 3}}).total_s, 0.502 + 2 * 5.2);
  instance.stages = 4;
  instance.replicas = 1;
  // The path 0-1-2-3 crosses once: 2 (1.001 + 10.1 + 1.001).
  EXPECT_DOUBLE_EQ(evaluate_dtfm(instance, {{0}, {2}, {1}, {3}}).total_s, 24.204);
}

TEST(DtfmObjective, only_the_direction_from_the_group_listed_first_is_read) {
  DtfmInstance instance = two_sites();
  instance.stages = 4;
  instance.replicas = 1;
  // Everything from a higher to a lower device becomes useless; listed 0,1,2,3 nobody notices.
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < i; ++j) instance.latency_s[static_cast<std::size_t>(4 * i + j)] = 1000;
  }
  EXPECT_DOUBLE_EQ(evaluate_dtfm(instance, {{0}, {1}, {2}, {3}}).total_s, 24.204);
  EXPECT_DOUBLE_EQ(evaluate_dtfm_in_order(instance, {{0}, {1}, {2}, {3}}).total_s, 24.204);
  EXPECT_GT(evaluate_dtfm_in_order(instance, {{3}, {2}, {1}, {0}}).total_s, 6000);
}

TEST(DtfmObjective, reference_placements_cost_what_dtfm_says) {
  const nlohmann::json reference =
      nlohmann::json::parse(std::ifstream(kGolden + "/best_assignments.json"));
  int placements = 0;
  for (const auto& [name, entry] : reference.items()) {
    const auto instance = load_dtfm_instance(kGolden, name);
    ASSERT_TRUE(instance) << instance.error().text();
    for (const auto& [method, solution] : entry.at("solutions").items()) {
      SCOPED_TRACE(name + " " + method);
      const DtfmPartition partition = solution.at("partition");
      ASSERT_TRUE(check_dtfm_partition(*instance, partition));
      const DtfmCost cost = evaluate_dtfm(*instance, partition);
      EXPECT_NEAR(cost.data_parallel_s, solution.at("dp").get<double>(), 1e-9);
      EXPECT_NEAR(cost.pipeline_s, solution.at("pp_two_way").get<double>(), 1e-9);
      EXPECT_NEAR(cost.total_s, solution.at("total").get<double>(), 1e-9);
      // The path is one of the cheapest: listing the groups along it costs the same.
      DtfmPartition listed;
      for (const int k : cost.path) listed.push_back(partition[static_cast<std::size_t>(k)]);
      EXPECT_NEAR(evaluate_dtfm_in_order(*instance, listed).total_s, cost.total_s, 1e-9);
      ++placements;
    }
  }
  EXPECT_EQ(placements, 43);
}

TEST(DtfmObjective, pipelines_of_an_arranged_partition_stay_within_the_bottlenecks) {
  const auto instance = load_dtfm_instance(kGolden, "hardA_worldwide8_uneven");
  ASSERT_TRUE(instance) << instance.error().text();
  Rng rng("arrange", 1);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<int> devices(64);
    std::iota(devices.begin(), devices.end(), 0);
    rng.shuffle(std::span(devices));
    DtfmPartition partition(8);
    for (std::size_t k = 0; k < devices.size(); ++k) partition[k % 8].push_back(devices[k]);
    const DtfmCost cost = evaluate_dtfm(*instance, partition);
    const DtfmPartition arranged = arrange_dtfm(*instance, partition, cost.path);
    double sum = 0;
    for (std::size_t s = 0; s < 8; ++s) {
      std::vector<int> before = partition[static_cast<std::size_t>(cost.path[s])];
      std::vector<int> after = arranged[s];
      std::ranges::sort(before);
      std::ranges::sort(after);
      EXPECT_EQ(before, after);
      double worst = 0;
      for (std::size_t d = 0; s > 0 && d < 8; ++d) {
        worst = std::max(worst, instance->activation_hop_s(arranged[s - 1][d], arranged[s][d]));
      }
      sum += worst;
    }
    // Equal to the sum of bottlenecks, so no pipeline's hop is above its bottleneck.
    EXPECT_DOUBLE_EQ(2 * sum, cost.pipeline_s);
  }
}

TEST(DtfmObjective, partitions_that_are_none_are_refused) {
  const DtfmInstance instance = two_sites();
  EXPECT_TRUE(check_dtfm_partition(instance, {{0, 2}, {1, 3}}));
  for (const DtfmPartition& bad : std::vector<DtfmPartition>{
           {{0, 1, 2, 3}}, {{0, 1}, {2}}, {{0, 1}, {2, 2}}, {{0, 1}, {2, 4}}, {{0, 1}, {2, -1}}}) {
    EXPECT_FALSE(check_dtfm_partition(instance, bad));
  }
}

TEST(DtfmObjective, instances_that_cannot_be_are_refused) {
  EXPECT_TRUE(check_dtfm_instance(two_sites()));
  const auto refused = [](auto change) {
    DtfmInstance instance = two_sites();
    change(instance);
    return !check_dtfm_instance(instance);
  };
  EXPECT_TRUE(refused([](DtfmInstance& i) { i.replicas = 3; }));
  EXPECT_TRUE(refused([](DtfmInstance& i) { i.stages = i.replicas = -2; }));
  EXPECT_TRUE(refused([](DtfmInstance& i) { i.latency_s.pop_back(); }));
  EXPECT_TRUE(refused([](DtfmInstance& i) { i.latency_s[1] = -1; }));
  EXPECT_TRUE(refused([](DtfmInstance& i) { i.gbit_per_s[1] = 0; }));
  EXPECT_TRUE(refused([](DtfmInstance& i) { i.gradient_gb = -0.5; }));
  EXPECT_FALSE(refused([](DtfmInstance& i) { i.gbit_per_s[0] = 0; }));  // the diagonal is not read
}

TEST(DtfmMatching, equals_brute_force) {
  Rng rng("matching", 1);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> cost(25);
    for (double& entry : cost) entry = static_cast<double>(rng.below(trial % 2 ? 8 : 1000));
    std::vector<int> order = {0, 1, 2, 3, 4};
    double best = 1e9;
    do {
      double worst = 0;
      for (std::size_t r = 0; r < 5; ++r) {
        worst = std::max(worst, cost[5 * r + static_cast<std::size_t>(order[r])]);
      }
      best = std::min(best, worst);
    } while (std::ranges::next_permutation(order).found);
    const BottleneckMatching matching = bottleneck_matching(cost, 5);
    EXPECT_EQ(matching.worst, best);
    double worst = 0;
    for (std::size_t r = 0; r < 5; ++r) {
      worst = std::max(worst, cost[5 * r + static_cast<std::size_t>(matching.column_of[r])]);
    }
    EXPECT_EQ(worst, best);
    std::vector<int> columns = matching.column_of;
    std::ranges::sort(columns);
    EXPECT_EQ(columns, (std::vector<int>{0, 1, 2, 3, 4}));
  }
}

TEST(DtfmMatching, finds_a_hidden_matching_among_512) {
  constexpr std::size_t kSize = 512;
  Rng rng("hidden matching", 1);
  std::vector<int> hidden(kSize);
  std::iota(hidden.begin(), hidden.end(), 0);
  rng.shuffle(std::span(hidden));
  std::vector<double> cost(kSize * kSize);
  for (double& entry : cost) entry = 1.5 + rng.uniform();
  for (std::size_t r = 0; r < kSize; ++r) {
    cost[r * kSize + static_cast<std::size_t>(hidden[r])] = rng.uniform();
  }
  EXPECT_EQ(bottleneck_matching(cost, kSize).column_of, hidden);
}

TEST(DtfmPath, equals_brute_force_in_both_directions) {
  Rng rng("path", 1);
  for (int trial = 0; trial < 60; ++trial) {
    const int nodes = 1 + static_cast<int>(rng.below(7));
    const auto width = static_cast<std::size_t>(nodes);
    std::vector<double> cost(width * width);
    for (double& entry : cost) entry = static_cast<double>(rng.below(100));
    const auto length = [&](const std::vector<int>& path) {
      double sum = 0;
      for (std::size_t k = 1; k < path.size(); ++k) {
        sum +=
            cost[static_cast<std::size_t>(path[k - 1]) * width + static_cast<std::size_t>(path[k])];
      }
      return sum;
    };
    std::vector<int> order(width);
    std::iota(order.begin(), order.end(), 0);
    double best = 1e9;
    do {
      best = std::min(best, length(order));
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ(length(shortest_open_path(cost, nodes)), best);
    // The heuristic gives a path over all nodes, and here nearly always the best one.
    std::vector<int> heuristic = shortest_open_path(cost, nodes, 0);
    EXPECT_LE(length(heuristic), 1.5 * best + 1);
    std::ranges::sort(heuristic);
    EXPECT_EQ(heuristic, order);
  }
}

TEST(DtfmPath, many_stages_on_a_line_are_visited_in_order) {
  constexpr std::size_t kNodes = 40;  // above the exact limit
  Rng rng("line", 1);
  std::vector<int> place(kNodes);
  std::iota(place.begin(), place.end(), 0);
  rng.shuffle(std::span(place));
  std::vector<double> cost;
  for (const int a : place) {
    for (const int b : place) cost.push_back(std::abs(a - b));
  }
  const std::vector<int> path = shortest_open_path(cost, kNodes);
  double sum = 0;
  for (std::size_t k = 1; k < kNodes; ++k) {
    sum += cost[static_cast<std::size_t>(path[k - 1]) * kNodes + static_cast<std::size_t>(path[k])];
  }
  EXPECT_EQ(sum, kNodes - 1);
}

TEST(DtfmInstanceFile, errors_name_line_and_column) {
  const auto place = [](std::string_view text) {
    const auto matrix = parse_dtfm_matrix(text, "m.csv", 2);
    return matrix ? "" : matrix.error().place.text();
  };
  EXPECT_EQ(place("1,2\n3,4\n"), "");
  EXPECT_EQ(place("1,2\r\n3,4"), "");
  EXPECT_EQ(place("1,2\n3,x\n"), "m.csv:2:3");
  EXPECT_EQ(place("1,2\n3,4 \n"), "m.csv:2:3");
  EXPECT_EQ(place("1,2,3\n3,4\n"), "m.csv:1:5");
  EXPECT_EQ(place("1\n3,4\n"), "m.csv:1:2");
  EXPECT_EQ(place("1,2\n"), "m.csv:2:1");
  EXPECT_EQ(place("1,2\n3,4\n5,6\n"), "m.csv:3:1");
  EXPECT_FALSE(load_dtfm_instance(kGolden, "no such instance"));
}

}  // namespace
}  // namespace longhaul
