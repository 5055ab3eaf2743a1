#include "planner/dtfm_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "core/rng.h"
#include "planner/dtfm_breeding.h"
#include "planner/dtfm_placement.h"
#include "planner/parallel.h"
#include "tests/planner/dtfm_fixtures.h"

namespace longhaul {
namespace {

TEST(DtfmTypes, devices_of_one_site_are_one_type) {
  // 8 instances of 4 GPUs, and 32 single GPUs that all see everybody the same way.
  const DtfmTypes types = DtfmTypes::of(golden_dtfm("case1_spot"));
  EXPECT_EQ(types.count, 9);
  EXPECT_EQ(types.members[0], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(types.members[8].size(), 32u);
}

TEST(DtfmPlacement, price_after_any_changes_equals_a_fresh_evaluation) {
  Rng rng("moves", 1);
  for (int trial = 0; trial < 24; ++trial) {
    const DtfmShape shape = {2 + static_cast<int>(rng.below(6)),
                             1 + static_cast<int>(rng.below(9))};
    // Both many devices of few types and nearly every device a type of its own.
    const int sites = 2 + static_cast<int>(rng.below(trial % 2 ? 40 : 5));
    const DtfmInstance instance = random_dtfm(shape, sites, trial % 3 != 0, rng);
    const DtfmTypes types = DtfmTypes::of(instance);
    DtfmPricer pricer(types);
    DtfmPlacement placement(pricer, random_runs(types, rng));
    const auto stage = [&] {
      return static_cast<int>(rng.index(static_cast<std::size_t>(shape.stages)));
    };
    for (int step = 0; step < 60; ++step) {
      const double before = placement.total();
      const DtfmStages stages_before = placement.stages();
      for (std::uint64_t part = 1 + rng.below(3); part > 0; --part) {
        const int s = stage();
        const int t = stage();
        const int given = static_cast<int>(rng.index(static_cast<std::size_t>(types.count)));
        const int taken = static_cast<int>(rng.index(static_cast<std::size_t>(types.count)));
        const int most = std::min(placement.count(s, given), placement.count(t, taken));
        const std::uint64_t kind = rng.below(4);
        if (kind == 0) {
          placement.reverse(std::min(s, t), std::max(s, t) + 1);
        } else if (kind == 1 && s != t) {
          placement.swap_stages(s, t);
        } else if (s != t && given != taken && most > 0) {
          placement.trade(s, t, given, taken,
                          1 + static_cast<int>(rng.index(static_cast<std::size_t>(most))));
        }
      }
      placement.settle();
      const DtfmPartition partition = partition_of(types, placement.stages());
      ASSERT_TRUE(check_dtfm_partition(instance, partition));
      EXPECT_NEAR(placement.total(), evaluate_dtfm_in_order(instance, partition).total_s, 1e-12);
      DtfmPricer fresh_pricer(types);
      const DtfmPlacement fresh(fresh_pricer, placement.stages());
      EXPECT_EQ(placement.total(), fresh.total());
      EXPECT_EQ(placement.spread(), fresh.spread());
      EXPECT_EQ(placement.signature(), fresh.signature());
      if (rng.chance(0.5)) {
        placement.undo();
        EXPECT_EQ(placement.total(), before);
        EXPECT_EQ(placement.stages(), stages_before);
      } else {
        placement.keep();
      }
    }
  }
}

TEST(DtfmBreeding, every_candidate_uses_every_device_once) {
  Rng rng("breeding", 1);
  for (int trial = 0; trial < 40; ++trial) {
    const DtfmShape shape = {1 + static_cast<int>(rng.below(8)),
                             1 + static_cast<int>(rng.below(8))};
    const DtfmInstance instance = random_dtfm(shape, 1 + static_cast<int>(rng.below(9)), true, rng);
    const DtfmTypes types = DtfmTypes::of(instance);
    const auto is_partition = [&](const DtfmStages& stages) {
      return check_dtfm_partition(instance, partition_of(types, stages)).has_value();
    };
    for (const DtfmStages& layout : structured_layouts(types)) EXPECT_TRUE(is_partition(layout));
    DtfmStages parent = random_runs(types, rng);
    for (int generation = 0; generation < 20; ++generation) {
      const DtfmStages other = random_runs(types, rng);
      EXPECT_TRUE(is_partition(other));
      parent = cross(types, generation % 2 ? other : parent, generation % 3 ? parent : other, rng);
      EXPECT_TRUE(is_partition(parent));
    }
  }
}

TEST(DtfmSearch, equals_brute_force_on_small_instances) {
  Rng rng("small instances", 1);
  const DtfmShape shapes[] = {{2, 3}, {3, 2}, {6, 1}, {2, 4}, {4, 2}, {1, 7}, {7, 1}};
  for (int trial = 0; trial < 56; ++trial) {
    const bool symmetric = trial % 4 != 3;
    const DtfmInstance instance =
        random_dtfm(shapes[trial % 7], 1 + static_cast<int>(rng.below(8)), symmetric, rng);
    DtfmSearchOptions options;
    options.rounds = 5;
    options.evaluations_per_round = 8'000;
    const DtfmSearchResult found = dtfm_search(instance, options);
    ASSERT_TRUE(check_dtfm_partition(instance, found.partition));
    EXPECT_NEAR(found.cost.total_s, cheapest_of_all(instance).total_s, 1e-12) << "trial " << trial;
    if (symmetric) {
      EXPECT_NEAR(found.cost.total_s, evaluate_dtfm(instance, found.partition).total_s, 1e-12);
    }
  }
}

TEST(DtfmSearch, thread_count_does_not_change_the_answer) {
  const DtfmInstance instance = golden_dtfm("hardA_worldwide8_uneven");
  DtfmSearchOptions options;
  options.rounds = 3;
  options.evaluations_per_round = 40'000;
  const DtfmSearchResult one = dtfm_search(instance, options);
  for (const int threads : {1, 2, 4, 16}) {
    options.threads = threads;
    const DtfmSearchResult again = dtfm_search(instance, options);
    EXPECT_EQ(again.partition, one.partition);
    EXPECT_EQ(again.cost.total_s, one.cost.total_s);
    EXPECT_EQ(again.evaluations, one.evaluations);
  }
}

TEST(DtfmSearch, published_cases_reach_the_best_known_cost) {
  for (const char* name :
       {"case0_datacenter", "case1_spot", "case2_multidc", "case3_regional", "case4_worldwide"}) {
    const DtfmInstance instance = golden_dtfm(name);
    const DtfmSearchResult found = dtfm_search(instance, {});
    ASSERT_TRUE(check_dtfm_partition(instance, found.partition));
    EXPECT_NEAR(evaluate_dtfm(instance, found.partition).total_s, best_known_dtfm(name), 1e-9)
        << name;
    // Row d of the partition is a pipeline: its hops are within the cost.
    double sum = 0;
    for (std::size_t s = 1; s < found.partition.size(); ++s) {
      double worst = 0;
      for (std::size_t d = 0; d < found.partition[s].size(); ++d) {
        worst = std::max(
            worst, instance.activation_hop_s(found.partition[s - 1][d], found.partition[s][d]));
      }
      sum += worst;
    }
    EXPECT_DOUBLE_EQ(2 * sum, found.cost.pipeline_s);
  }
}

TEST(DtfmSearch, stops_after_a_whole_round_and_reports_each) {
  const DtfmInstance instance = golden_dtfm("case2_multidc");
  std::vector<DtfmProgress> seen;
  DtfmSearchOptions options;
  options.evaluations_per_round = 20'000;
  options.on_round = [&](const DtfmProgress& progress) { seen.push_back(progress); };
  options.should_stop = [&] { return seen.size() == 2; };
  const DtfmSearchResult found = dtfm_search(instance, options);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(found.rounds, 2);
  EXPECT_EQ(seen[1].round, 2);
  EXPECT_EQ(seen[1].evaluations, found.evaluations);
  EXPECT_LE(seen[1].best_total_s, seen[0].best_total_s);
  EXPECT_NEAR(seen[1].best_total_s, found.cost.total_s, 1e-9);
}

TEST(DtfmSearch, patience_counts_rounds_without_gain) {
  // Four equal devices: the first round finds the only cost, three more do not better it.
  Rng rng("one site", 1);
  DtfmSearchOptions options;
  options.patience = 3;
  options.evaluations_per_round = 100;
  EXPECT_EQ(dtfm_search(random_dtfm({2, 2}, 1, true, rng), options).rounds, 4);
}

TEST(ParallelFor, every_piece_runs_once) {
  for (const int threads : {0, 1, 3, 50}) {
    std::vector<std::atomic<int>> runs(20);
    parallel_for(20, threads, [&](int i) { ++runs[static_cast<std::size_t>(i)]; });
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
  }
  parallel_for(0, 4, [](int) { FAIL(); });
}

TEST(DtfmSearchSlowRelease, harder_and_larger_instances_reach_the_lowest_costs_found) {
  // Found by this search; below the reference values (58.977, 51.933, 56.876, 60.566) or equal.
  const std::pair<const char*, double> lowest[] = {{"hardA_worldwide8_uneven", 58.771572012553},
                                                   {"case4_worldwide_N128_way8", 51.933380053129},
                                                   {"case4_worldwide_N256_way8", 55.578287065555},
                                                   {"case4_worldwide_N512_way8", 57.963537065555}};
  for (const auto& [name, cost] : lowest) {
    const DtfmInstance instance = golden_dtfm(name);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      DtfmSearchOptions options;
      options.seed = seed;
      options.threads = 2;
      const DtfmSearchResult found = dtfm_search(instance, options);
      EXPECT_LE(found.cost.total_s, cost + 1e-9) << name << " seed " << seed;
      EXPECT_LE(found.cost.total_s, best_known_dtfm(name) * (1 + 1e-12))
          << name << " seed " << seed;
      EXPECT_NEAR(evaluate_dtfm(instance, found.partition).total_s, found.cost.total_s, 1e-9);
    }
  }
}

TEST(DtfmSearchSlowRelease, published_cases_do_not_depend_on_the_seed) {
  for (const char* name :
       {"case0_datacenter", "case1_spot", "case2_multidc", "case3_regional", "case4_worldwide"}) {
    for (std::uint64_t seed = 2; seed < 12; ++seed) {
      DtfmSearchOptions options;
      options.seed = seed;
      EXPECT_NEAR(dtfm_search(golden_dtfm(name), options).cost.total_s, best_known_dtfm(name), 1e-9)
          << name << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace longhaul
