#include "planner/dtfm_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "planner/dtfm_compositions.h"
#include "planner/dtfm_solve.h"
#include "tests/planner/dtfm_fixtures.h"

namespace longhaul {
namespace {

constexpr std::array<DtfmShape, 9> kShapes = {
    {{2, 3}, {3, 2}, {3, 3}, {6, 1}, {2, 4}, {4, 2}, {1, 7}, {7, 1}, {5, 1}}};

std::uint64_t signature_of(const DtfmTypes& types, const DtfmComposition& stage) {
  std::uint64_t signature = 0;
  for (std::size_t t = 0; t < stage.size(); ++t) signature += stage[t] * types.signature[t];
  return signature;
}

TEST(DtfmCompositions, prices_equal_those_of_the_search) {
  Rng rng("compositions", 1);
  for (int trial = 0; trial < 12; ++trial) {
    const DtfmShape shape = {2 + static_cast<int>(rng.below(4)),
                             1 + static_cast<int>(rng.below(6))};
    const DtfmInstance instance = random_dtfm(shape, 2 + trial % 4, trial % 3 != 0, rng);
    const DtfmTypes types = DtfmTypes::of(instance);
    DtfmPricer pricer(types);
    auto compositions = DtfmCompositions::of(DtfmCounts::of(types), 10'000);
    ASSERT_TRUE(compositions);
    const int size = compositions->size();
    const auto composition = [&](int c) {
      const DtfmTally& tally = compositions->tally(c);
      return DtfmComposition(tally.begin(), tally.begin() + types.count);
    };
    const auto prices = static_cast<int>(compositions->prices().size());
    std::vector<std::uint16_t> price(static_cast<std::size_t>(size));
    for (int a = 0; a < size; ++a) {
      const DtfmComposition from = composition(a);
      EXPECT_NEAR(compositions->exchange_s(a), pricer.stage(from, signature_of(types, from)).worst,
                  1e-12);
      compositions->price_hops(a, prices, price);
      for (int b = 0; b < size; ++b) {
        const DtfmComposition to = composition(b);
        bool together = true;
        for (std::size_t t = 0; t < from.size(); ++t) {
          together &= from[t] + to[t] <= static_cast<int>(types.members[t].size());
        }
        if (!together) continue;
        EXPECT_EQ(compositions->prices()[price[static_cast<std::size_t>(b)]],
                  pricer.hop(from, signature_of(types, from), to, signature_of(types, to)).worst);
      }
    }
  }
}

TEST(DtfmCompositions, too_many_are_refused) {
  // 2 types of 3 devices, stages of 3: 0 to 3 of the first, 4 compositions.
  const DtfmCounts counts{2, 3, {3, 3}, {1, 2, 2, 1}, {1, 2, 2, 1}};
  EXPECT_TRUE(DtfmCompositions::of(counts, 4));
  EXPECT_FALSE(DtfmCompositions::of(counts, 3));
  EXPECT_EQ(DtfmCompositions::count(2, 3), 4);
  EXPECT_EQ(DtfmCompositions::count(8, 8), 6435);  // 15 over 7
}

TEST(DtfmCounts, merging_keeps_the_cheapest_pair_of_different_devices) {
  // Types A (one device), B (one), C (two). A and B merge: their own prices are never paid by one
  // device to itself, so the merged type's inside is A-B: min(5, 6); to C: min(7, 8).
  const double never = std::numeric_limits<double>::infinity();
  const DtfmCounts counts{
      2, 2, {1, 1, 2}, {never, 5, 7, 6, never, 8, 9, 3, 1}, {0, 50, 70, 60, 0, 80, 90, 30, 10}};
  const DtfmCounts merged = counts.merged(std::vector<int>{0, 0, 1}, 2);
  EXPECT_EQ(merged.devices, (std::vector<int>{2, 2}));
  EXPECT_EQ(merged.hop_s, (std::vector<double>{5, 7, 3, 1}));
  EXPECT_EQ(merged.exchange_s, (std::vector<double>{50, 70, 30, 10}));
}

TEST(DtfmBounds, proves_the_optimum_of_brute_force_on_small_instances) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng("small instances, exactly", seed);
    const DtfmInstance instance = random_dtfm(
        kShapes[seed % kShapes.size()], 1 + static_cast<int>(rng.below(8)), seed % 4 != 3, rng);
    const DtfmCost best = cheapest_of_all(instance);

    // Told of something dearer, the bound finds the optimum by itself.
    const DtfmBound from_above = dtfm_lower_bound(instance, {1.3 * best.total_s, 1.5e9, {}});
    EXPECT_TRUE(from_above.exact);
    EXPECT_NEAR(from_above.seconds, best.total_s, 1e-9 * best.total_s);
    EXPECT_FALSE(from_above.cheaper.empty());
    EXPECT_TRUE(dtfm_lower_bound(instance, {best.total_s, 1.5e9, {}}).exact);
    // Without any work it is still a bound.
    EXPECT_LE(dtfm_lower_bound(instance, {1.3 * best.total_s, 0, {}}).seconds,
              best.total_s * (1 + 1e-12));
    EXPECT_LE(dtfm_exchange_floor(instance), best.data_parallel_s + 1e-12);

    DtfmSolveOptions options;
    options.search.rounds = 3;
    options.search.evaluations_per_round = 4'000;
    options.search.seed = seed;
    const DtfmSolution solution = dtfm_solve(instance, options);
    ASSERT_TRUE(check_dtfm_partition(instance, solution.partition));
    EXPECT_NEAR(solution.cost.total_s, best.total_s, 1e-12 * best.total_s);
    EXPECT_EQ(solution.cost.total_s, evaluate_dtfm_in_order(instance, solution.partition).total_s);
    EXPECT_TRUE(solution.exact());
    EXPECT_EQ(solution.gap(), 0);
  }
}

TEST(DtfmBounds, more_types_than_can_be_told_apart_give_a_bound_below_the_optimum) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng("nine types", seed);
    DtfmInstance instance = random_dtfm({3, 3}, 1, true, rng);
    for (double& latency : instance.latency_s) latency = 0.2 * rng.uniform();  // 9 types
    const DtfmCost best = cheapest_of_all(instance);
    const DtfmBound bound = dtfm_lower_bound(instance, {best.total_s, 1.5e9, {}});
    EXPECT_EQ(bound.types, 9);
    EXPECT_LE(bound.types_used, kDtfmTypesExact);
    EXPECT_LE(bound.seconds, best.total_s);
    EXPECT_GT(bound.seconds, 0.8 * best.total_s);
    EXPECT_TRUE(bound.cheaper.empty());  // a merged path is no placement
  }
}

TEST(DtfmBounds, merged_problems_never_cost_more) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng("merging", seed);
    const DtfmInstance instance =
        random_dtfm(kShapes[seed % 6], 2 + static_cast<int>(rng.below(6)), seed % 3 != 0, rng);
    const DtfmCost best = cheapest_of_all(instance);
    const DtfmCounts counts = DtfmCounts::of(DtfmTypes::of(instance));
    std::vector<int> label(counts.devices.size());
    for (int& l : label) l = static_cast<int>(rng.below(2));
    label[0] = 0;
    const int merged = 1 + *std::ranges::max_element(label);
    auto cost_to_go = DtfmCostToGo::of(counts, label, merged);
    ASSERT_TRUE(cost_to_go);
    cost_to_go->solve(best.data_parallel_s * (1 + 1e-12));
    EXPECT_LE(2 * cost_to_go->whole_s(), best.pipeline_s + 1e-12);
  }
}

TEST(DtfmBounds, floors_by_hand) {
  // Four devices on a line, 1 s of latency a step between neighbours, no data; two stages of two.
  // An end's cheapest partner is 1 s away: an exchange of 2 x 1 s. Every pipeline has one hop, and
  // two trees over four devices take the two lightest edges, 1 + 1, so a hop is at least 2 / 2.
  DtfmInstance line{.devices = 4, .stages = 2, .replicas = 2, .latency_s = {}, .gbit_per_s = {}};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      line.latency_s.push_back(std::abs(i - j));
      line.gbit_per_s.push_back(1);
    }
  }
  EXPECT_EQ(dtfm_exchange_floor(line), 2);
  EXPECT_EQ(dtfm_forest_floor(line), 1);
  // {0, 1} then {2, 3}: exchange 2; both hop 2 s (0 to 2, 1 to 3): 2 + 2 x 2 = 6.
  // {0, 2} then {1, 3}: exchange 4; both hop 1 s: 4 + 2 x 1 = 6. Nothing costs less.
  const DtfmBound bound = dtfm_lower_bound(line, {7, 1.5e9, {}});
  EXPECT_TRUE(bound.exact);
  EXPECT_DOUBLE_EQ(bound.seconds, 6);
}

TEST(DtfmBounds, published_cases_are_proven_optimal) {
  for (const char* name :
       {"case0_datacenter", "case1_spot", "case2_multidc", "case3_regional", "case4_worldwide"}) {
    const double best = best_known_dtfm(name);
    const DtfmBound bound = dtfm_lower_bound(golden_dtfm(name), {best, 1.5e9, {}});
    EXPECT_TRUE(bound.exact) << name << " " << bound.seconds;
    EXPECT_EQ(bound.binding, "exact");
    EXPECT_NEAR(bound.seconds, best, 1e-9) << name;
  }
}

// Lowest costs found by the search (tests/planner/dtfm_search_test.cc), and the gap allowed.
void expect_gap(const char* name, double lowest, double gap_max) {
  const DtfmBound bound = dtfm_lower_bound(golden_dtfm(name), {lowest, 1.5e9, {}});
  EXPECT_LE(bound.seconds, lowest) << name;
  EXPECT_LE(lowest / bound.seconds - 1, gap_max) << name;
  EXPECT_TRUE(bound.cheaper.empty()) << name;
}

TEST(DtfmBounds, larger_cases_have_a_bound_below_the_lowest_cost_found) {
  expect_gap("case4_worldwide_N256_way8", 55.578287065555, 0.16);
  expect_gap("case4_worldwide_N512_way8", 57.963537065555, 0.37);
}

TEST(DtfmBoundsSlowRelease, twice_as_many_devices_have_a_bound_close_to_the_lowest_cost_found) {
  expect_gap("case4_worldwide_N128_way8", 51.933380053129, 0.02);
}

TEST(DtfmBounds, work_limit_is_named_and_repeats_exactly) {
  const DtfmInstance instance = golden_dtfm("hardA_worldwide8_uneven");
  const DtfmBound bound = dtfm_lower_bound(instance, {58.8, 4e8, {}});
  EXPECT_FALSE(bound.exact);
  EXPECT_EQ(bound.binding, "work limit");
  EXPECT_EQ(dtfm_lower_bound(instance, {58.8, 4e8, {}}).seconds, bound.seconds);
  EXPECT_LE(dtfm_lower_bound(instance, {58.8, 0, {}}).seconds, bound.seconds);
}

TEST(DtfmSolve, search_ends_once_its_cost_is_proven) {
  for (const char* name : {"case1_spot", "case3_regional", "case4_worldwide"}) {
    const DtfmInstance instance = golden_dtfm(name);
    int rounds = 0;
    DtfmSolveOptions options;
    options.search.on_round = [&](const DtfmProgress& progress) { rounds = progress.round; };
    const DtfmSolution solution = dtfm_solve(instance, options);
    EXPECT_NEAR(solution.cost.total_s, best_known_dtfm(name), 1e-9) << name;
    EXPECT_TRUE(solution.exact()) << name;
    EXPECT_EQ(solution.lower_bound_s, solution.cost.total_s);
    EXPECT_LE(rounds, 4) << name;  // without the proof: 13, the first and twelve of patience
  }
}

TEST(DtfmSolve, stopped_at_once_still_has_a_bound) {
  const DtfmInstance instance = golden_dtfm("hardA_worldwide8_uneven");
  DtfmSolveOptions options;
  options.search.evaluations_per_round = 8'000;
  options.search.should_stop = [] { return true; };
  const DtfmSolution solution = dtfm_solve(instance, options);
  ASSERT_TRUE(check_dtfm_partition(instance, solution.partition));
  EXPECT_GT(solution.lower_bound_s, 40);
  EXPECT_LT(solution.lower_bound_s, 58.78);
  EXPECT_FALSE(solution.exact());
}

TEST(DtfmBoundsSlowRelease, uneven_regions_are_proven_optimal_too) {
  const DtfmBound bound =
      dtfm_lower_bound(golden_dtfm("hardA_worldwide8_uneven"), {58.9, 1e10, {}});
  EXPECT_TRUE(bound.exact);
  EXPECT_NEAR(bound.seconds, 58.771572012553, 1e-9);
  EXPECT_EQ(bound.cheaper.size(), 8u);
}

}  // namespace
}  // namespace longhaul
