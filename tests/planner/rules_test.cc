// Searches that keep to rules: pins, what another trainer can express, and plans of others as
// seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/rng.h"
#include "planner/placement_search.h"
#include "planner/search.h"
#include "tests/core/fixtures.h"
#include "tests/planner/small_cluster.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Calls `visit` with the closed form's plan of every grid, placement and layer split, made without
/// any rules.
void for_each_plan(const Topology& topology, const Job& job,
                   const std::function<void(const Plan&)>& visit) {
  const Problem problem(topology, job);
  for (const Grid& grid : possible_grids(problem, {})) {
    Evaluator evaluator(problem, grid);
    std::vector<int> split(static_cast<std::size_t>(grid.stages), 1);
    std::vector<std::vector<int>> splits;
    const auto fill = [&](const auto& self, std::size_t stage, int left) -> void {
      if (stage + 1 == split.size()) {
        split[stage] = left;
        splits.push_back(split);
        return;
      }
      for (int l = 1; left - l >= static_cast<int>(split.size() - stage) - 1; ++l) {
        split[stage] = l;
        self(self, stage + 1, left - l);
      }
    };
    fill(fill, 0, job.model.layers);
    std::vector<int> order = {0, 1, 2, 3};
    do {
      Candidate candidate;
      candidate.cells.assign(order.begin(), order.begin() + grid.stages * grid.pipelines);
      for (const std::vector<int>& layers : splits) {
        candidate.layers = layers;
        if (evaluator.evaluate(candidate) < Evaluator::kOverflow)
          visit(evaluator.finish(candidate));
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

double step_of(const Topology& topology, const Job& job, const Plan& plan) {
  return simulate_step(topology, job, plan)->step.value();
}

TEST(Pins, a_search_with_pins_comes_within_three_percent_of_brute_force) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Topology topology = small_cluster("ruled cluster", seed);
    const Job job = unit_job(4, 12);
    // The devices of two far sites, of which the second is last: plans have two stages or more.
    const std::vector<Pin> pins = {{2, 0}, {3, Pin::kLast}};
    const Result<SearchResult> found =
        search_plan(topology, job, {.seed = seed, .effort = 0.05, .rules = {.pins = pins}});
    ASSERT_TRUE(found) << found.error().text();
    for (const JudgedPlan& judged : found->judged) {
      const auto is_at = [&](int device, std::size_t stage) {
        return std::ranges::any_of(
            judged.plan.devices, [&](const std::vector<int>& row) { return row[stage] == device; });
      };
      EXPECT_TRUE(is_at(2, 0));
      EXPECT_TRUE(is_at(3, judged.plan.layers.size() - 1));
    }
    double best = 1e18;
    for_each_plan(topology, job, [&](const Plan& plan) {
      bool first = false, last = false;
      for (const std::vector<int>& row : plan.devices) {
        first = first || row.front() == 2;
        last = last || row.back() == 3;
      }
      if (first && last) best = std::min(best, step_of(topology, job, plan));
    });
    EXPECT_LE(found->best.step.step.value(), 1.03 * best) << "seed " << seed;
  }
}

TEST(Pins, pinned_devices_are_swapped_into_place) {
  const Topology topology = unit_topology({0, 0, 1, 1, 2, 2});
  const Job job = unit_job(4, 12);
  const PlanRules rules{.pins = {{3, 0}, {1, Pin::kLast}, {5, 0}}};
  const Problem problem(topology, job, {}, {}, rules);
  const Evaluator evaluator(problem, {2, 2, 1});
  // Pipelines (0, 1) and (2, 3). Device 1 is in place. 3 changes places in its own pipeline. 5 is
  // idle and takes what is left of stage 0.
  std::vector<int> cells = {0, 1, 2, 3};
  place_pins(evaluator, cells);
  EXPECT_EQ(cells, (std::vector<int>{5, 1, 3, 2}));
}

TEST(Pins, a_candidate_without_its_pins_is_worth_less_than_one_that_does_not_fit) {
  Topology topology = unit_topology({0, 0, 1});
  const Job job = unit_job(2, 4);
  for (DeviceKind& kind : topology.kinds) kind.memory = bytes(1);
  const Problem problem(topology, job, {}, {}, {.pins = {{2, 0}, {1, 1}}});
  Evaluator evaluator(problem, {2, 1, 1});
  EXPECT_EQ(evaluator.evaluate({{0, 1}, {1, 1}}), Evaluator::kUnpinned);
  EXPECT_EQ(evaluator.evaluate({{1, 0}, {1, 1}}), 2 * Evaluator::kUnpinned);
  const double no_room = evaluator.evaluate({{2, 1}, {1, 1}});
  EXPECT_GE(no_room, Evaluator::kOverflow);
  EXPECT_LT(no_room, Evaluator::kUnpinned);
}

TEST(Pins, sites_are_chosen_around_pinned_devices) {
  const Topology topology = small_cluster("ruled cluster", 2);
  const Job job = unit_job(4, 12);
  const Result<SearchResult> found = search_plan(
      topology, job, {.effort = 0.05, .devices = {{}, 2}, .rules = {.pins = {{1, 0}, {3, 1}}}});
  ASSERT_TRUE(found) << found.error().text();
  for (const JudgedPlan& judged : found->judged) {
    for (const std::vector<int>& row : judged.plan.devices)
      EXPECT_EQ(std::ranges::count(row, 2), 0);
  }
  // In one site they cannot be.
  const Result<SearchResult> none = search_plan(
      topology, job, {.effort = 0.05, .devices = {{}, 1}, .rules = {.pins = {{1, 0}, {3, 1}}}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(none.error().message.find("spans 2 sites"), std::string::npos) << none.error().text();
}

TEST(Pins, what_no_grid_can_hold_is_infeasible) {
  Topology topology = unit_topology({0, 0, 1});
  const Job job = unit_job(4, 12);
  const auto error_of = [&](const std::vector<Pin>& pins, const GridLimits& limits) {
    const Result<SearchResult> found =
        search_plan(topology, job, {.effort = 0.05, .limits = limits, .rules = {.pins = pins}});
    EXPECT_FALSE(found);
    return found ? "" : found.error().message;
  };
  // Two devices at the first stage are two pipelines; a device at two stages; stage 3 of 3 devices.
  EXPECT_NE(error_of({{0, 0}, {1, 0}}, {.pipelines = 1}).find("a-1/0 at stage 0, a-2/0 at stage 0"),
            std::string::npos);
  EXPECT_NE(error_of({{0, 0}, {0, 1}}, {}).find("can hold the plan"), std::string::npos);
  EXPECT_NE(error_of({{0, 3}}, {}).find("can hold the plan"), std::string::npos);
  EXPECT_NE(error_of({{0, 0}, {0, Pin::kLast}}, {.stages = 2}).find("at the last stage"),
            std::string::npos);
  // Of one stage the first is the last.
  EXPECT_TRUE(
      search_plan(topology, job, {.effort = 0.05, .rules = {.pins = {{0, 0}, {0, Pin::kLast}}}}));
  topology.kinds[0].rate.fill(FlopsPerSecond(0));
  EXPECT_NE(error_of({{0, 0}}, {}).find("fp32 speed"), std::string::npos);
}

TEST(Pins, texts_that_pin_nothing_are_refused) {
  const Topology topology = unit_topology({0, 0, 1});
  const auto parse = [&](const std::vector<std::string>& texts, int stages = 0) {
    return parse_pins(texts, topology, {1, 0, 1}, stages);
  };
  const Result<std::vector<Pin>> good = parse({"a-1/0=0", "b-1/0=last", "a-1/0=last"});
  ASSERT_TRUE(good) << good.error().text();
  EXPECT_EQ((*good)[0].device, 0);
  EXPECT_EQ((*good)[0].stage, 0);
  EXPECT_EQ((*good)[1].device, 2);
  EXPECT_EQ((*good)[1].stage, Pin::kLast);
  EXPECT_TRUE(parse({"a-1/0=2"}, 3));
  EXPECT_TRUE(parse({"a-1/0=2", "a-1/0=last"}, 3));
  EXPECT_TRUE(parse({"a-1/0=2", "a-1/0=2"}));
  const struct {
    std::vector<std::string> texts;
    int stages;
    const char* said;
  } bad[] = {
      {{"a-1/0"}, 0, "pins no device"},
      {{"a-1/0="}, 0, "pins no device"},
      {{"a-1/0=-1"}, 0, "pins no device"},
      {{"a-1/0=1x"}, 0, "pins no device"},
      {{"a-1/0=first"}, 0, "pins no device"},
      {{"a-11/0=0"}, 0, "no device `a-11/0`"},
      {{"a-2/0=0"}, 0, "excluded"},
      {{"a-1/0=3"}, 3, "plans have 3 stages"},
      {{"a-1/0=0", "a-1/0=1"}, 0, "stage 0 and to stage 1"},
      {{"a-1/0=0", "a-1/0=last"}, 3, "stage 0 and to the last stage"},
  };
  for (const auto& each : bad) {
    const Result<std::vector<Pin>> pins = parse(each.texts, each.stages);
    ASSERT_FALSE(pins) << each.texts.back();
    EXPECT_EQ(pins.error().code, ErrorCode::kInvalid);
    EXPECT_NE(pins.error().message.find(each.said), std::string::npos) << pins.error().text();
  }
  EXPECT_NE(parse({"a-11/0=0"}).error().text().find("did you mean `a-1/0`?"), std::string::npos);
}

TEST(Rules, a_search_for_a_trainer_comes_within_five_percent_of_brute_force) {
  // The closed form of shallow depths is an estimate: further off than where depths are free.
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Topology topology = small_cluster("ruled cluster", seed);
    const Job job = unit_job(4, 12);
    for (const bool has_gpipe : {false, true}) {
      const Expressible wanted{.equal_shares = true,
                               .equal_layers = has_gpipe,
                               .own_depths = true,
                               .has_gpipe = has_gpipe};
      const Result<SearchResult> found = search_plan(
          topology, job, {.seed = seed, .effort = 0.05, .rules = {.expressible = wanted}});
      ASSERT_TRUE(found) << found.error().text();
      for (const JudgedPlan& judged : found->judged)
        EXPECT_TRUE(is_expressible(wanted, judged.plan, job));
      double best = 1e18;
      for_each_plan(topology, job, [&](Plan plan) {
        if (!allows(wanted, grid_of(plan), job)) return;
        for (const ScheduleFamily family :
             {ScheduleFamily::kOneForwardOneBackward, ScheduleFamily::kGpipe}) {
          plan.family = family;
          const Plan same = restricted(wanted, plan, job);
          if (check_memory(same, topology, job))
            best = std::min(best, step_of(topology, job, same));
        }
      });
      EXPECT_LE(found->best.step.step.value(), 1.05 * best) << "seed " << seed;
    }
  }
}

TEST(Rules, memory_must_hold_the_trainers_own_depth) {
  // 2 stages of 1 layer: stage 0 holds P - 0 = 2 micro-batches. What it needs with 2 is what fits.
  Topology topology = unit_topology({0, 0});
  const Job job = unit_job(2, 4);
  const PlanRules rules{.expressible = {.own_depths = true}};
  const auto fits = [&](double memory) {
    for (DeviceKind& kind : topology.kinds) kind.memory = bytes(memory);
    const Problem problem(topology, job, {}, {}, rules);
    Evaluator evaluator(problem, {2, 1, 1});
    return evaluator.evaluate({{0, 1}, {1, 1}}) < Evaluator::kOverflow;
  };
  MemoryQuestion question{.stage = {1, true, false}, .micro_batch = 1, .in_flight = 2};
  const double need = memory_use(job, DeviceKind{}, question).total().value();
  EXPECT_TRUE(fits(need));
  EXPECT_FALSE(fits(need - 1));
}

TEST(Seeds, a_better_plan_of_others_is_taken_where_limits_and_rules_allow_it) {
  const Topology topology = small_cluster("ruled cluster", 3);
  const Job job = unit_job(4, 12);
  const Result<SearchResult> good = search_plan(topology, job, {.effort = 0.2});
  ASSERT_TRUE(good) << good.error().text();
  const Plan& seed = good->best.plan;
  // A search that looks at one evaluation a grid is no better than the plan that it is given.
  SearchOptions options{.effort = 0.0001, .seeds = {seed}};
  const Result<SearchResult> found = search_plan(topology, job, options);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_LE(found->best.step.step, good->best.step.step);
  const auto has_seed = [&](const Result<SearchResult>& result) {
    EXPECT_TRUE(result) << result.error().text();
    return std::ranges::any_of(result->judged,
                               [&](const JudgedPlan& judged) { return judged.closed_form_s == 0; });
  };
  // Its devices, its grid, its shares.
  options.devices.excluded = {topology.devices[static_cast<std::size_t>(seed.devices[0][0])].name};
  EXPECT_FALSE(has_seed(search_plan(topology, job, options)));
  options.devices = {};
  options.limits.micro_batch = seed.micro_batch == 1 ? 2 : 1;
  EXPECT_FALSE(has_seed(search_plan(topology, job, options)));
}

TEST(Seeds, a_seed_is_restricted_to_what_the_trainer_can_express) {
  const Topology topology = unit_topology({0, 0, 0, 0});
  const Job job = unit_job(4, 12);
  Plan seed = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {5, 7});
  seed.layers = {1, 3};
  seed.in_flight = {5, 3};
  const SearchOptions options{.rules = {.expressible = {.equal_shares = true, .own_depths = true}}};
  const std::optional<Plan> plan = as_admitted(topology, job, options, seed);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->micro_batches, (std::vector<int>{6, 6}));
  EXPECT_EQ(plan->layers, seed.layers);
  EXPECT_EQ(plan->in_flight, (std::vector<int>{2, 1}));
  // 12 micro-batches do not divide among 2 pipelines of 5 stages, nor stages of equal layers.
  EXPECT_FALSE(as_admitted(topology, job, {.limits = {.stages = 3}}, seed));
  EXPECT_FALSE(as_admitted(topology, job, {.rules = {.expressible = {.one_stage = true}}}, seed));
  EXPECT_FALSE(as_admitted(topology, job, {.rules = {.pins = {{0, 1}}}}, seed));
  EXPECT_TRUE(as_admitted(topology, job, {.rules = {.pins = {{0, 0}}}}, seed));
}

}  // namespace
}  // namespace longhaul
