#include "planner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "core/rng.h"
#include "netsim/cluster_file.h"
#include "planner/layouts.h"
#include "planner/placement_search.h"
#include "planner/policies.h"
#include "tests/core/fixtures.h"
#include "tests/planner/small_cluster.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// The least value of a simulated plan over every grid, placement and layer split.
double brute_force(const Topology& topology, const Job& job,
                   const std::function<double(const Plan&, const StepResult&)>& value_of) {
  const Problem problem(topology, job);
  double best = 1e18;
  for (const Grid& grid : possible_grids(problem, {})) {
    Evaluator evaluator(problem, grid);
    std::vector<std::vector<int>> splits;
    std::vector<int> split(static_cast<std::size_t>(grid.stages), 1);
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
        if (evaluator.evaluate(candidate) >= Evaluator::kOverflow) continue;
        const Plan plan = evaluator.finish(candidate);
        best = std::min(best, value_of(plan, *simulate_step(topology, job, plan)));
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return best;
}

TEST(Search, comes_within_three_percent_of_brute_force_where_devices_are_limited) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Topology topology = small_cluster("small cluster", seed);
    const Job job = unit_job(4, 12);
    const Result<SearchResult> found =
        search_plan(topology, job, {.seed = seed, .effort = 0.05, .devices = {{"a-2"}, 2}});
    ASSERT_TRUE(found) << found.error().text();
    // Device 1 is a-2/0; at most two of the three sites.
    const double best = brute_force(topology, job, [&](const Plan& plan, const StepResult& step) {
      std::set<int> sites;
      for (const std::vector<int>& row : plan.devices) {
        for (const int device : row) sites.insert(device == 1 ? 100 : topology.site_of(device));
      }
      return sites.contains(100) || sites.size() > 2 ? 1e18 : step.step.value();
    });
    EXPECT_LE(found->best.step.step.value(), 1.03 * best) << "seed " << seed;
    EXPECT_LE(found->bound.seconds, found->best.step.step.value() * (1 + 1e-9)) << "seed " << seed;
  }
}

/// The small cluster with prices: 1 to 4 dollars an hour, and egress that a step notices.
Topology priced_cluster(std::uint64_t seed) {
  Rng rng("prices", seed);
  Topology topology = small_cluster("small cluster", seed);
  for (DeviceKind& kind : topology.kinds) kind.usd_per_hour = 1 + 3 * rng.uniform();
  for (Site& site : topology.sites) site.egress_usd_per_byte = 1e-5 * rng.uniform();
  return topology;
}

TEST(Search, finds_the_cheapest_plan_of_small_clusters_within_three_percent) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Topology topology = priced_cluster(seed);
    const Job job = unit_job(4, 12);
    const Result<SearchResult> found =
        search_plan(topology, job, {.seed = seed, .effort = 0.05, .goal = {.cost = true}});
    ASSERT_TRUE(found) << found.error().text();
    const double best =
        brute_force(topology, job, [](const Plan&, const StepResult& step) { return step.usd; });
    EXPECT_LE(found->best.step.usd, 1.03 * best) << "seed " << seed;
    EXPECT_GE(found->best.step.usd, best * (1 - 1e-9)) << "seed " << seed;
  }
}

TEST(Search, finds_the_fastest_plan_below_a_price_within_five_percent) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Topology topology = priced_cluster(seed);
    const Job job = unit_job(4, 12);
    const SearchOptions options{.seed = seed, .effort = 0.05};
    const double fastest = search_plan(topology, job, options)->best.step.usd;
    SearchOptions cheap = options;
    cheap.goal.cost = true;
    const double cheapest = search_plan(topology, job, cheap)->best.step.usd;
    SearchOptions bounded = options;
    bounded.goal.usd_max = (fastest + cheapest) / 2;
    const Result<SearchResult> found = search_plan(topology, job, bounded);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_LE(found->best.step.usd, bounded.goal.usd_max);
    const double best = brute_force(topology, job, [&](const Plan&, const StepResult& step) {
      return step.usd > bounded.goal.usd_max ? 1e18 : step.step.value();
    });
    EXPECT_LE(found->best.step.step.value(), 1.05 * best) << "seed " << seed;

    // Exactly the cheapest price is enough, half of it is not.
    bounded.goal.usd_max = cheapest;
    const Result<SearchResult> edge = search_plan(topology, job, bounded);
    ASSERT_TRUE(edge) << edge.error().text();
    EXPECT_LE(edge->best.step.usd, cheapest);
    bounded.goal.usd_max = cheapest / 2;
    const Result<SearchResult> dear = search_plan(topology, job, bounded);
    ASSERT_FALSE(dear);
    EXPECT_EQ(dear.error().code, ErrorCode::kInfeasible);
    EXPECT_NE(dear.error().message.find("USD a billion tokens"), std::string::npos);
  }
}

TEST(Search, thread_count_changes_nothing) {
  const Topology topology =
      *load_cluster(LONGHAUL_SOURCE_DIR "/configs/clusters/eight-cities.yaml");
  const Job job = *load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/gpt3-xl.yaml");
  std::vector<std::string> texts;
  for (const int threads : {1, 2, 4}) {
    const Result<SearchResult> found =
        search_plan(topology, job, {.seed = 7, .threads = threads, .effort = 0.1});
    ASSERT_TRUE(found) << found.error().text();
    PlanFile file;
    file.plan = found->best.plan;
    file.predicted.step_s = found->best.step.step.value();
    texts.push_back(plan_text(file, topology, job));
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST(Search, a_slow_far_device_is_left_idle) {
  // Three equal devices at one site; the fourth is a hundred times slower and 100 s away.
  Topology topology = unit_topology({0, 0, 0, 1});
  topology.kinds[3].rate.fill(flops_per_second(0.16));
  set_link(topology, 0, 1, Seconds(100), bytes_per_second(1));
  const Result<SearchResult> found = search_plan(topology, unit_job(3, 12), {.effort = 0.05});
  ASSERT_TRUE(found) << found.error().text();
  for (const std::vector<int>& row : found->best.plan.devices) {
    EXPECT_EQ(std::count(row.begin(), row.end(), 3), 0);
  }
}

TEST(Search, infeasible_jobs_name_the_constraint) {
  Topology topology = unit_topology({0, 0});
  for (DeviceKind& kind : topology.kinds) kind.memory = bytes(10);
  const Result<SearchResult> small = search_plan(topology, unit_job(2, 4), {});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(small.error().message.find("memory"), std::string::npos) << small.error().text();

  for (DeviceKind& kind : topology.kinds) kind.rate.fill(FlopsPerSecond(0));
  const Result<SearchResult> speechless = search_plan(topology, unit_job(2, 4), {});
  ASSERT_FALSE(speechless);
  EXPECT_EQ(speechless.error().code, ErrorCode::kInfeasible);
  EXPECT_NE(speechless.error().message.find("fp32"), std::string::npos)
      << speechless.error().text();

  const Result<SearchResult> deep =
      search_plan(unit_topology({0, 0}), unit_job(2, 4), {.limits = {.stages = 3}});
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, ErrorCode::kInfeasible);
}

TEST(Search, limits_are_respected) {
  const Topology topology = small_cluster("small cluster", 3);
  const Result<SearchResult> found =
      search_plan(topology, unit_job(4, 12), {.effort = 0.05, .limits = {2, 2, 3}});
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_EQ(found->best.plan.stages(), 2);
  EXPECT_EQ(found->best.plan.pipelines(), 2);
  EXPECT_EQ(found->best.plan.micro_batch, 3);
}

TEST(PlacementSearch, climbing_never_ends_above_its_start_and_keeps_a_valid_candidate) {
  const Topology topology = small_cluster("small cluster", 5);
  const Job job = unit_job(4, 12);
  const Problem problem(topology, job);
  Evaluator evaluator(problem, {2, 1, 1});
  Rng rng("climb", 1);
  const std::vector<Scored> starts =
      Layouts(problem).candidates(evaluator, 8, Layouts::Breadth::kAll);
  ASSERT_FALSE(starts.empty());
  for (const Scored& start : starts) {
    const Scored end = climb(evaluator, start, 500, rng);
    EXPECT_LE(end.value, start.value);
    EXPECT_EQ(end.value, evaluator.evaluate(end.candidate));
    EXPECT_EQ(std::accumulate(end.candidate.layers.begin(), end.candidate.layers.end(), 0), 4);
    EXPECT_NE(end.candidate.cells[0], end.candidate.cells[1]);
  }
}

TEST(PlacementSearch, children_use_every_device_at_most_once) {
  const Topology topology = unit_topology({0, 0, 1, 1, 2, 2, 3, 3});
  const Job job = unit_job(4, 12);
  const Problem problem(topology, job);
  Evaluator evaluator(problem, {3, 2, 1});
  Rng rng("cross", 1);
  const std::vector<Scored> parents =
      Layouts(problem).candidates(evaluator, 8, Layouts::Breadth::kAll);
  ASSERT_GE(parents.size(), 1u);
  for (int i = 0; i < 50; ++i) {
    Scored other = parents.front();
    rng.shuffle(std::span(other.candidate.cells));
    std::vector<int> cells = cross(evaluator, parents.front(), other, rng).candidate.cells;
    std::sort(cells.begin(), cells.end());
    EXPECT_EQ(std::adjacent_find(cells.begin(), cells.end()), cells.end());
    EXPECT_GE(cells.front(), 0);
  }
}

TEST(Policies, rank_order_sorts_by_name_with_stages_outermost) {
  // Names a-1/0, a-2/0, b-1/0, b-2/0; two stages fixed: pipelines (a-1, b-1) and (a-2, b-2).
  const Topology topology = unit_topology({1, 0, 1, 0});
  const Result<JudgedPlan> ranked =
      rank_order_plan(topology, unit_job(2, 8), {.limits = {.stages = 2, .micro_batch = 1}});
  ASSERT_TRUE(ranked) << ranked.error().text();
  std::vector<std::vector<std::string>> names;
  for (const std::vector<int>& row : ranked->plan.devices) {
    names.emplace_back();
    for (const int device : row)
      names.back().push_back(topology.devices[static_cast<std::size_t>(device)].name);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{{"a-1/0", "b-1/0"}, {"a-2/0", "b-2/0"}}));
}

TEST(Policies, random_plans_differ_from_each_other_and_repeat_for_a_seed) {
  const Topology topology = unit_topology({0, 0, 1, 1, 2, 2, 3, 3});
  const Job job = unit_job(2, 16);
  const PolicyOptions options{.seed = 3, .limits = {.stages = 2, .micro_batch = 1}};
  const Result<JudgedPlan> ranked = rank_order_plan(topology, job, options);
  ASSERT_TRUE(ranked) << ranked.error().text();
  const auto first = random_plans(topology, job, options, ranked->plan, 5);
  const auto again = random_plans(topology, job, options, ranked->plan, 5);
  ASSERT_TRUE(first && again);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ((*first)[i].plan.devices, (*again)[i].plan.devices);
  EXPECT_NE((*first)[0].plan.devices, (*first)[1].plan.devices);
}

TEST(Policies, dtfm_keeps_pipelines_on_fast_links) {
  // Two sites of two devices; inside free, across 10 s. With heavy activations and a tiny gradient
  // DT-FM's objective puts each pipeline inside a site.
  Topology topology = unit_topology({0, 1, 0, 1});
  set_link(topology, 0, 1, Seconds(10), bytes_per_second(1));
  for (const int site : {0, 1})
    set_link(topology, site, site, Seconds(0.001), bytes_per_second(1e9));
  Job job = unit_job(2, 1000);
  const Result<DtfmPlan> found =
      dtfm_plan(topology, job, {.limits = {.stages = 2, .micro_batch = 1}});
  ASSERT_TRUE(found) << found.error().text();
  for (const std::vector<int>& row : found->judged.plan.devices) {
    EXPECT_EQ(topology.site_of(row[0]), topology.site_of(row[1]));
  }
  EXPECT_GT(found->cost.total_s, 0);
}

}  // namespace
}  // namespace longhaul
