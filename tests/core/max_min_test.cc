#include "core/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/rng.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Flow {
  std::vector<std::int32_t> path;
  double cap = kInfinity;
};

struct Instance {
  std::vector<double> capacities;
  std::vector<Flow> flows;
};

std::vector<double> solve(const Instance& instance, MaxMinSolver& solver) {
  std::vector<std::int32_t> path_begin = {0};
  std::vector<std::int32_t> path;
  std::vector<double> caps;
  for (const Flow& flow : instance.flows) {
    path.insert(path.end(), flow.path.begin(), flow.path.end());
    path_begin.push_back(static_cast<std::int32_t>(path.size()));
    caps.push_back(flow.cap);
  }
  std::vector<double> rates(instance.flows.size(), -1);
  solver.solve(instance.capacities, path_begin, path, caps, rates);
  return rates;
}

std::vector<double> solve(const Instance& instance) {
  MaxMinSolver solver;
  return solve(instance, solver);
}

using Rates = std::vector<double>;

TEST(MaxMin, flows_on_one_link_share_it_equally) {
  // 3 / 3 = 1, to the bit.
  EXPECT_EQ(solve({{3}, {{{0}}, {{0}}, {{0}}}}), (Rates{1, 1, 1}));
}

TEST(MaxMin, cap_below_the_share_leaves_the_rest_to_the_others) {
  // The equal share of 12 is 4. The first flow takes only its cap 2; the others get (12 - 2) / 2.
  EXPECT_EQ(solve({{12}, {{{0}, 2}, {{0}}, {{0}, 100}}}), (Rates{2, 5, 5}));
}

TEST(MaxMin, cap_that_the_share_reaches_only_after_others_were_capped) {
  // Share 4 of 12 caps the first at 1; then the share is 5.5 and caps the second at 5; the third
  // has 12 - 1 - 5 = 6.
  EXPECT_EQ(solve({{12}, {{{0}, 1}, {{0}, 5}, {{0}}}}), (Rates{1, 5, 6}));
}

TEST(MaxMin, cap_equal_to_the_share_is_both) {
  EXPECT_EQ(solve({{4}, {{{0}, 2}, {{0}}}}), (Rates{2, 2}));
}

TEST(MaxMin, slow_link_takes_the_smaller_share) {
  // Flow 0 crosses links of 1 and 10, flow 1 only the fast one: 1, and what is left, 9.
  EXPECT_EQ(solve({{1, 10}, {{{0, 1}}, {{1}}}}), (Rates{1, 9}));
}

TEST(MaxMin, long_flow_in_the_parking_lot_gets_its_share_of_the_worst_link) {
  // Three links in a row of 10, 4, 9. The long flow meets one short flow on each: level 2 fills the
  // middle link; then 10 - 2 = 8 and 9 - 2 = 7 are left for the others.
  EXPECT_EQ(solve({{10, 4, 9}, {{{0, 1, 2}}, {{0}}, {{1}}, {{2}}}}), (Rates{2, 8, 2, 7}));
}

TEST(MaxMin, second_bottleneck_fills_after_the_first) {
  // Link 0 (6) carries flows 0, 1, 2, link 1 (5) flows 2 and 3. Shares 2 and 2.5: link 0 fills at
  // 2, which leaves 5 - 2 = 3 for flow 3.
  EXPECT_EQ(solve({{6, 5}, {{{0}}, {{0}}, {{0, 1}}, {{1}}}}), (Rates{2, 2, 2, 3}));
}

TEST(MaxMin, links_that_fill_together_give_equal_bits) {
  // Both links fill at 0.7 / 7; the order in which the flows are taken off must not show.
  Instance instance{{0.7, 0.7}, {}};
  for (int i = 0; i < 3; ++i) instance.flows.push_back({{0, 1}});
  for (int i = 0; i < 4; ++i) instance.flows.push_back({{0}});
  for (int i = 0; i < 4; ++i) instance.flows.push_back({{1}});
  for (const double rate : solve(instance)) EXPECT_EQ(rate, 0.7 / 7);
}

TEST(MaxMin, infinite_capacity_limits_nobody) {
  // Flow 0 has only its cap, flow 1 the finite link, flow 2 nothing at all.
  EXPECT_EQ(solve({{kInfinity, 8}, {{{0}, 3}, {{0, 1}}, {{0}}}}), (Rates{3, 8, kInfinity}));
}

TEST(MaxMin, flow_without_resources_runs_at_its_cap) {
  EXPECT_EQ(solve({{}, {{{}, 7}, {{}}}}), (Rates{7, kInfinity}));
}

TEST(MaxMin, resources_that_nobody_crosses_are_ignored) {
  EXPECT_EQ(solve({{0.001, 6, 0.001}, {{{1}}, {{1}}}}), (Rates{3, 3}));
}

TEST(MaxMin, no_flows_no_rates) {
  EXPECT_TRUE(solve({{1, 2}, {}}).empty());
}

TEST(MaxMin, sizes_may_differ_between_calls_of_one_solver) {
  MaxMinSolver solver;
  EXPECT_EQ(solve({{3}, {{{0}}, {{0}}, {{0}}}}, solver), (Rates{1, 1, 1}));
  EXPECT_EQ(solve({{1, 10}, {{{0, 1}}, {{1}}}}, solver), (Rates{1, 9}));
  EXPECT_EQ(solve({{5}, {{{0}}}}, solver), (Rates{5}));
}

// ---- Random instances --------------------------------------------

/// Few distinct values, so that ties happen; a fifth of all limits infinite.
double random_limit(Rng& rng) {
  if (rng.chance(0.2)) return kInfinity;
  if (rng.chance(0.5)) return static_cast<double>(1 + rng.below(4));
  return 0.01 + 10 * rng.uniform();
}

Instance random_instance(Rng& rng) {
  Instance instance;
  const std::size_t resources = 1 + rng.index(12);
  const std::size_t flows = 1 + rng.index(40);
  for (std::size_t r = 0; r < resources; ++r) instance.capacities.push_back(random_limit(rng));
  std::vector<std::int32_t> all(resources);
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t f = 0; f < flows; ++f) {
    rng.shuffle(std::span(all));
    const std::size_t length = rng.index(std::min<std::size_t>(resources, 4) + 1);
    instance.flows.push_back({{all.begin(), all.begin() + static_cast<long>(length)},
                              rng.chance(0.5) ? kInfinity : random_limit(rng)});
  }
  return instance;
}

/// Says what is wrong with the rates by the definition; empty when they are max-min fair.
std::string fault(const Instance& instance, const Rates& rates) {
  constexpr double kTolerance = 1e-9;
  Rates total(instance.capacities.size(), 0);
  Rates fastest(instance.capacities.size(), 0);
  for (std::size_t f = 0; f < rates.size(); ++f) {
    if (!(rates[f] > 0)) return "flow " + std::to_string(f) + " stands still";
    if (rates[f] > instance.flows[f].cap) return "flow " + std::to_string(f) + " above its cap";
    for (const std::int32_t r : instance.flows[f].path) {
      const auto i = static_cast<std::size_t>(r);
      total[i] += rates[f];
      fastest[i] = std::max(fastest[i], rates[f]);
    }
  }
  for (std::size_t r = 0; r < total.size(); ++r) {
    if (total[r] > instance.capacities[r] * (1 + kTolerance)) {
      return "resource " + std::to_string(r) + " overloaded";
    }
  }
  for (std::size_t f = 0; f < rates.size(); ++f) {
    bool limited = rates[f] == instance.flows[f].cap || rates[f] == kInfinity;
    for (const std::int32_t r : instance.flows[f].path) {
      const auto i = static_cast<std::size_t>(r);
      limited |= total[i] >= instance.capacities[i] * (1 - kTolerance) &&
                 rates[f] >= fastest[i] * (1 - kTolerance);
    }
    if (!limited) return "flow " + std::to_string(f) + " could be faster";
  }
  return "";
}

TEST(MaxMin, random_instances_satisfy_the_definition) {
  MaxMinSolver solver;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng("max_min_test", seed);
    const Instance instance = random_instance(rng);
    EXPECT_EQ(fault(instance, solve(instance, solver)), "") << "seed " << seed;
  }
}

TEST(MaxMin, a_flow_of_weight_n_gets_what_n_equal_flows_get) {
  MaxMinSolver solver;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng("max_min_weights", seed);
    const Instance instance = random_instance(rng);
    Instance copies{instance.capacities, {}};
    std::vector<double> weights;
    std::vector<std::int32_t> path_begin = {0};
    std::vector<std::int32_t> path;
    Rates caps;
    for (const Flow& flow : instance.flows) {
      const auto count = 1 + rng.below(3);
      weights.push_back(static_cast<double>(count));
      caps.push_back(flow.cap * weights.back());
      path.insert(path.end(), flow.path.begin(), flow.path.end());
      path_begin.push_back(static_cast<std::int32_t>(path.size()));
      for (std::uint64_t i = 0; i < count; ++i) copies.flows.push_back(flow);
    }
    Rates rates(weights.size());
    solver.solve(instance.capacities, path_begin, path, caps, weights, rates);
    const Rates single = solve(copies);
    std::size_t next = 0;
    for (std::size_t f = 0; f < rates.size(); ++f) {
      double sum = 0;
      for (double i = 0; i < weights[f]; ++i) sum += single[next++];
      if (sum == kInfinity) {
        EXPECT_EQ(rates[f], kInfinity);
      } else {
        EXPECT_NEAR(rates[f], sum, 1e-9 * sum) << "seed " << seed << " flow " << f;
      }
    }
  }
}

TEST(MaxMin, the_check_of_the_definition_sees_wrong_rates) {
  const Instance instance{{4}, {{{0}}, {{0}, 1}}};
  EXPECT_EQ(fault(instance, {3, 1}), "");
  EXPECT_EQ(fault(instance, {2.9, 1}), "flow 0 could be faster");
  EXPECT_EQ(fault(instance, {3.2, 0.8}), "flow 1 could be faster");
  EXPECT_EQ(fault(instance, {3.1, 1}), "resource 0 overloaded");
  EXPECT_EQ(fault(instance, {2.5, 1.5}), "flow 1 above its cap");
}

TEST(MaxMin, order_of_flows_and_resources_does_not_matter) {
  MaxMinSolver solver;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng("max_min_permutation", seed);
    const Instance instance = random_instance(rng);
    std::vector<std::size_t> flow_at(instance.flows.size());
    std::vector<std::size_t> resource_at(instance.capacities.size());
    std::iota(flow_at.begin(), flow_at.end(), 0u);
    std::iota(resource_at.begin(), resource_at.end(), 0u);
    rng.shuffle(std::span(flow_at));
    rng.shuffle(std::span(resource_at));

    Instance permuted{Rates(instance.capacities.size()), {}};
    permuted.flows.resize(instance.flows.size());
    for (std::size_t r = 0; r < resource_at.size(); ++r) {
      permuted.capacities[resource_at[r]] = instance.capacities[r];
    }
    for (std::size_t f = 0; f < flow_at.size(); ++f) {
      Flow flow = instance.flows[f];
      for (std::int32_t& r : flow.path) {
        r = static_cast<std::int32_t>(resource_at[static_cast<std::size_t>(r)]);
      }
      rng.shuffle(std::span(flow.path));
      permuted.flows[flow_at[f]] = flow;
    }
    const Rates expected = solve(instance, solver);
    const Rates rates = solve(permuted, solver);
    for (std::size_t f = 0; f < flow_at.size(); ++f) {
      if (expected[f] == kInfinity) {
        EXPECT_EQ(rates[flow_at[f]], kInfinity) << "seed " << seed;
      } else {
        EXPECT_NEAR(rates[flow_at[f]], expected[f], 1e-12 * expected[f]) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
