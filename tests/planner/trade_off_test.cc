#include "planner/trade_off.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

JudgedPlan judged(double seconds, double usd, int stages = 1, int pipelines = 1) {
  JudgedPlan plan;
  plan.plan.layers.assign(static_cast<std::size_t>(stages), 1);
  plan.plan.devices.resize(static_cast<std::size_t>(pipelines));
  plan.step.step = Seconds(seconds);
  plan.step.usd = usd;
  return plan;
}

TEST(TradeOff, plans_that_another_beats_in_both_are_left_out) {
  // (3, 5) is slower and dearer than (2, 4); of the two (1, 9) one stays; (4, 4) costs as (2, 4).
  const std::vector<JudgedPlan> plans = {judged(3, 5), judged(1, 9), judged(2, 4),
                                         judged(8, 1), judged(1, 9), judged(4, 4)};
  const std::vector<const JudgedPlan*> front = non_dominated(plans);
  ASSERT_EQ(front.size(), 3u);
  EXPECT_EQ(front[0], &plans[1]);
  EXPECT_EQ(front[1], &plans[2]);
  EXPECT_EQ(front[2], &plans[3]);
}

TEST(TradeOff, the_knee_is_farthest_below_the_line_between_the_ends) {
  // Times 0..10 and prices 0..10: (2, 3) is 1 - 0.2 - 0.3 = 0.5 below, (4, 2) is 0.4.
  const std::vector<JudgedPlan> plans = {judged(0, 10), judged(2, 3), judged(4, 2), judged(10, 0)};
  EXPECT_EQ(knee_of(non_dominated(plans)), 1);
  // On the line or above it there is none, and none between two.
  const std::vector<JudgedPlan> line = {judged(0, 10), judged(5, 5), judged(10, 0)};
  EXPECT_EQ(knee_of(non_dominated(line)), -1);
  const std::vector<JudgedPlan> two = {judged(0, 10), judged(10, 0)};
  EXPECT_EQ(knee_of(non_dominated(two)), -1);
  EXPECT_EQ(knee_of({}), -1);
}

TEST(TradeOff, alternatives_are_the_best_of_each_other_grid) {
  SearchResult found;
  found.judged = {judged(1, 9, 2, 2), judged(3, 1, 4, 1), judged(2, 2, 4, 1), judged(1.5, 8, 2, 2),
                  judged(5, 3, 1, 4)};
  found.best = found.judged[0];
  const std::vector<const JudgedPlan*> fastest = alternatives(found, {}, 4);
  ASSERT_EQ(fastest.size(), 2u);
  EXPECT_EQ(fastest[0], &found.judged[2]);
  EXPECT_EQ(fastest[1], &found.judged[4]);
  EXPECT_EQ(alternatives(found, {}, 1).size(), 1u);
  const std::vector<const JudgedPlan*> cheapest = alternatives(found, {.cost = true}, 4);
  ASSERT_EQ(cheapest.size(), 2u);
  EXPECT_EQ(cheapest[0], &found.judged[1]);
  // Dearer ones than may be paid are no alternatives.
  EXPECT_EQ(alternatives(found, {.usd_max = 2.5}, 4).size(), 1u);
}

TEST(TradeOff, prices_are_those_of_devices_that_may_be_used_and_of_their_sites) {
  Topology topology = unit_topology({0, 1});
  EXPECT_FALSE(has_prices(topology, {}));
  topology.kinds[1].usd_per_hour = 1;
  EXPECT_TRUE(has_prices(topology, {}));
  EXPECT_FALSE(has_prices(topology, {{"b"}, 0}));
  EXPECT_EQ(kinds_without_price(topology, {}), std::vector<std::string>{"kind-0"});
  EXPECT_EQ(kinds_without_price(topology, {{"a"}, 0}), std::vector<std::string>{});
  topology.sites[0].egress_usd_per_byte = 1e-9;
  EXPECT_TRUE(has_prices(topology, {{"b"}, 0}));
}

TEST(TradeOff, a_search_finds_the_fast_and_the_cheap_end) {
  // Two devices at one site, the second four times as fast and sixteen times as dear. Fastest: both
  // or the second; cheapest: the first alone, its 12 s of passes at 1 USD/h beat 3 s at 16 USD/h.
  Topology topology = unit_topology({0, 0});
  topology.kinds[0].usd_per_hour = 1;
  topology.kinds[1].usd_per_hour = 16;
  topology.kinds[1].rate.fill(flops_per_second(64));
  const Job job = unit_job(2, 8);
  const SearchOptions options{.effort = 0.05};
  const Result<SearchResult> found = search_trade_offs(topology, job, options);
  ASSERT_TRUE(found) << found.error().text();
  const std::vector<const JudgedPlan*> front = non_dominated(found->judged);
  ASSERT_GE(front.size(), 2u);
  EXPECT_EQ(front.front()->step.step, found->best.step.step);
  EXPECT_EQ(found->best.step.step, search_plan(topology, job, options)->best.step.step);
  EXPECT_EQ(front.back()->plan.devices, (std::vector<std::vector<int>>{{0}}));
  // 8 sequences x (2 x 3 + 0.375) s at 1 USD/h.
  EXPECT_NEAR(front.back()->step.usd, 8 * 6.375 / 3600, 1e-9);
}

TEST(TradeOff, threads_change_nothing_also_where_sites_are_limited) {
  Topology topology = unit_topology({0, 0, 1, 2, 2, 3});
  for (std::size_t k = 0; k < topology.kinds.size(); ++k) {
    topology.kinds[k].usd_per_hour = 1 + static_cast<double>(k);
    topology.kinds[k].rate.fill(flops_per_second(16 + 7 * static_cast<double>(k)));
  }
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < a; ++b)
      set_link(topology, a, b, Seconds(0.1 * (a + b)), bytes_per_second(40));
  }
  const Job job = unit_job(4, 12);
  std::vector<std::vector<std::pair<double, double>>> fronts;
  for (const int threads : {1, 3}) {
    const Result<SearchResult> found =
        search_trade_offs(topology, job, {.threads = threads, .effort = 0.05, .devices = {{}, 2}});
    ASSERT_TRUE(found) << found.error().text();
    fronts.emplace_back();
    for (const JudgedPlan* plan : non_dominated(found->judged))
      fronts.back().emplace_back(plan->step.step.value(), plan->step.usd);
  }
  EXPECT_GE(fronts[0].size(), 2u);
  EXPECT_EQ(fronts[0], fronts[1]);
}

}  // namespace
}  // namespace longhaul
