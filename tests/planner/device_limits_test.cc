#include "planner/device_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "planner/policies.h"
#include "planner/search.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

TEST(DeviceLimits, sites_nodes_kinds_and_devices_are_excluded_by_name) {
  // Devices a-1/0, a-2/0, b-1/0, c-1/0 of kinds kind-0 .. kind-3.
  const Topology topology = unit_topology({0, 0, 1, 2});
  const auto admitted = [&](const std::vector<std::string>& names) {
    const Result<std::vector<char>> result = admitted_devices(topology, {.excluded = names});
    return result ? *result : std::vector<char>{};
  };
  EXPECT_EQ(admitted({}), (std::vector<char>{1, 1, 1, 1}));
  EXPECT_EQ(admitted({"a"}), (std::vector<char>{0, 0, 1, 1}));
  EXPECT_EQ(admitted({"a-2"}), (std::vector<char>{1, 0, 1, 1}));
  EXPECT_EQ(admitted({"kind-2"}), (std::vector<char>{1, 1, 0, 1}));
  EXPECT_EQ(admitted({"c-1/0"}), (std::vector<char>{1, 1, 1, 0}));
  EXPECT_EQ(admitted({"a", "kind-2"}), (std::vector<char>{0, 0, 0, 1}));
}

TEST(DeviceLimits, an_unknown_name_is_refused_with_a_guess) {
  const Topology topology = unit_topology({0, 1});
  const Result<std::vector<char>> result = admitted_devices(topology, {.excluded = {"kind-O"}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalid);
  EXPECT_NE(result.error().hint.find("kind-0"), std::string::npos) << result.error().text();
}

TEST(DeviceLimits, every_choice_of_two_sites_among_three_the_fastest_first) {
  // Site c is twice as fast as a with two devices, and b is the slowest.
  Topology topology = unit_topology({0, 0, 1, 2});
  topology.kinds[3].rate.fill(flops_per_second(64));
  const Job job = unit_job(2, 4);
  const Problem problem(topology, job);
  EXPECT_EQ(site_choices(problem, 2), (std::vector<std::vector<char>>{{1, 1, 0, 1},     // c, a
                                                                      {0, 0, 1, 1},     // c, b
                                                                      {1, 1, 1, 0}}));  // a, b
  const std::vector<std::vector<char>> everything = {{1, 1, 1, 1}};
  EXPECT_EQ(site_choices(problem, 3), everything);
  EXPECT_EQ(site_choices(problem, 9), everything);
  EXPECT_EQ(site_choices(problem, 0), everything);
}

TEST(DeviceLimits, of_many_sites_only_neighbourhoods_are_chosen) {
  // 12 sites choose 6 are 924. In a row, 1 s apart: the fastest six (equal ones in file order) are
  // the first six, and around the last are the last six. Equal distances go to the faster site,
  // the one earlier in the file.
  std::vector<int> sites;
  for (int s = 0; s < 12; ++s) sites.push_back(s);
  Topology topology = unit_topology(sites);
  for (int a = 0; a < 12; ++a) {
    for (int b = 0; b < a; ++b) set_link(topology, a, b, Seconds(a - b), BytesPerSecond(1));
  }
  const Job job = unit_job(2, 4);
  const std::vector<std::vector<char>> choices = site_choices(Problem(topology, job), 6);
  ASSERT_FALSE(choices.empty());
  EXPECT_LE(choices.size(), 13u);
  EXPECT_EQ(choices.front(), (std::vector<char>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(choices.back(), (std::vector<char>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
  for (const std::vector<char>& choice : choices)
    EXPECT_EQ(std::count(choice.begin(), choice.end(), 1), 6);
}

TEST(DeviceLimits, messages_name_them) {
  EXPECT_EQ(text_of(DeviceLimits{}), "");
  EXPECT_EQ(text_of(DeviceLimits{{"tokyo", "t4"}, 0}), " without tokyo, t4");
  EXPECT_EQ(text_of(DeviceLimits{{}, 1}), " in at most 1 site");
  EXPECT_EQ(text_of(DeviceLimits{{"t4"}, 2}), " without t4 and in at most 2 sites");
}

/// Sites of a plan, and whether device 0 is in it.
std::pair<std::set<int>, bool> use_of(const Plan& plan, const Topology& topology) {
  std::pair<std::set<int>, bool> use;
  for (const std::vector<int>& row : plan.devices) {
    for (const int device : row) {
      use.first.insert(topology.site_of(device));
      use.second = use.second || device == 0;
    }
  }
  return use;
}

TEST(DeviceLimits, search_and_policies_obey_them) {
  // Four equal sites of two devices; unlimited plans use all of them.
  const Topology topology = unit_topology({0, 0, 1, 1, 2, 2, 3, 3});
  const Job job = unit_job(8, 32);
  const DeviceLimits limits{{"a-1"}, 2};
  std::vector<Plan> plans;
  const Result<SearchResult> found =
      search_plan(topology, job, {.effort = 0.05, .devices = limits});
  ASSERT_TRUE(found) << found.error().text();
  plans.push_back(found->best.plan);
  const PolicyOptions options{.devices = limits};
  const Result<JudgedPlan> ranked = rank_order_plan(topology, job, options);
  ASSERT_TRUE(ranked) << ranked.error().text();
  plans.push_back(ranked->plan);
  const Result<DtfmPlan> dtfm = dtfm_plan(topology, job, options);
  ASSERT_TRUE(dtfm) << dtfm.error().text();
  plans.push_back(dtfm->judged.plan);
  for (const JudgedPlan& judged : *random_plans(topology, job, options, ranked->plan, 3))
    plans.push_back(judged.plan);
  for (const Plan& plan : plans) {
    const auto [sites, uses_a_1] = use_of(plan, topology);
    EXPECT_LE(sites.size(), 2u);
    EXPECT_FALSE(uses_a_1);
  }
  EXPECT_EQ(use_of(search_plan(topology, job, {.effort = 0.05})->best.plan, topology).first.size(),
            4u);
}

TEST(DeviceLimits, impossible_ones_are_named) {
  const Topology topology = unit_topology({0, 0, 1, 1});
  const Job job = unit_job(4, 8);
  const Result<SearchResult> nobody = search_plan(topology, job, {.devices = {{"a", "b"}, 0}});
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(nobody.error().message.find("without a, b"), std::string::npos);
  // Three stages in one site of two devices: refused. Two stages: accepted.
  const Result<SearchResult> deep =
      search_plan(topology, job, {.effort = 0.05, .limits = {.stages = 3}, .devices = {{}, 1}});
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(deep.error().message.find("at most 1 site"), std::string::npos);
  EXPECT_NE(deep.error().message.find("3 stages"), std::string::npos);
  EXPECT_TRUE(
      search_plan(topology, job, {.effort = 0.05, .limits = {.stages = 2}, .devices = {{}, 1}}));
  EXPECT_FALSE(rank_order_plan(topology, job, {.devices = {{"a", "b"}, 0}}));
  const Result<SearchResult> unknown = search_plan(topology, job, {.devices = {{"z"}, 0}});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace longhaul
