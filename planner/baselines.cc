#include "planner/baselines.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "planner/baseline_parts.h"

namespace longhaul {
namespace {

/// Grids that are simulated for megatron: the best of all by the closed form on real devices and
/// links. That misses T3 by little, so that the best of all is among them.
constexpr std::size_t kMegatronJudged = 96;

constexpr std::string_view kNames[] = {"random", "rank-order", "even",   "megatron",
                                       "varuna", "metis",      "sailor", "dtfm"};

/// Closed form of a plan in rank order on links of its own, plus the slowest stage's ring.
double rank_order_estimate(const Problem& problem, const Plan& plan) {
  const std::vector<StageShape> shapes = stage_shapes(plan.layers);
  double latest = 0;
  for (int d = 0; d < plan.pipelines(); ++d) {
    std::vector<StageTime> stages;
    std::vector<HopTime> hops;
    for (int i = 0; i < plan.stages(); ++i) {
      const int device = plan.device(d, i);
      stages.push_back(
          stage_time(problem, shapes[static_cast<std::size_t>(i)], plan.micro_batch, device));
      if (i + 1 == plan.stages()) continue;
      const int next = plan.device(d, i + 1);
      const double bytes = boundary_wire_bytes(problem, plan.micro_batch, device, next);
      hops.push_back({bytes / problem.rate(device, next), problem.latency(device, next),
                      bytes / problem.rate(next, device), problem.latency(next, device)});
    }
    latest =
        std::max(latest, pipeline_closed_form(stages, hops, plan.in_flight,
                                              plan.micro_batches[static_cast<std::size_t>(d)]));
  }
  double exchange = 0;
  const double replicas = plan.pipelines();
  for (int i = 0; i < plan.stages() && plan.pipelines() > 1; ++i) {
    std::vector<int> group;
    for (const std::vector<int>& row : plan.devices)
      group.push_back(row[static_cast<std::size_t>(i)]);
    const SlowestLink link = slowest_link(problem, group);
    const double bytes =
        gradient_wire_bytes(problem, shapes[static_cast<std::size_t>(i)], plan.stages());
    exchange =
        std::max(exchange, 2 * ((replicas - 1) / replicas * bytes / link.rate + link.latency));
  }
  return latest + exchange;
}

Error no_plan(std::string_view name, const PolicyOptions& options) {
  return infeasible(fmt::format("policy {}{} finds no grid that fits the memory", name,
                                text_of(options.devices)),
                    "the search, which may split layers and depths as memory allows, can still "
                    "find one")
      .error();
}

JudgedPlan fastest(std::vector<JudgedPlan> judged) {
  return std::move(*std::min_element(
      judged.begin(), judged.end(),
      [](const JudgedPlan& a, const JudgedPlan& b) { return a.step.step < b.step.step; }));
}

}  // namespace

std::vector<Plan> even_candidates(const Problem& problem, const PolicyOptions& options) {
  const Topology& topology = problem.topology();
  const Job& job = problem.job();
  int micro_batch = options.limits.micro_batch > 0 ? options.limits.micro_batch : job.micro_batch;
  if (micro_batch == 0) micro_batch = 1;
  std::vector<Plan> plans;
  std::size_t most = 0;  // devices of the best use so far; people do not leave machines idle
  for (const Grid& grid : possible_grids(problem, options.limits)) {
    if (grid.micro_batch != micro_batch) continue;
    const auto devices = static_cast<std::size_t>(grid.stages * grid.pipelines);
    if (devices < most) continue;
    std::vector<int> used(problem.usable().begin(),
                          problem.usable().begin() + static_cast<std::ptrdiff_t>(devices));
    std::sort(used.begin(), used.end());  // node order
    Plan plan = even_plan(topology, job, pipelines_outermost(used, grid.stages), micro_batch,
                          ScheduleFamily::kOneForwardOneBackward);
    if (!check_memory(plan, topology, job)) continue;
    if (devices > most) plans.clear();
    most = devices;
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<Plan> megatron_candidates(const Problem& problem, const PolicyOptions& options) {
  // Neither estimate is right everywhere: a ring at its slowest link is what NCCL would do, and the
  // simulated exchange uses all links at once. Each names half of the plans that are simulated.
  struct Estimated {
    double ring;
    double closed_form;
    Plan plan;
    bool taken = false;
  };
  std::vector<Estimated> all;
  for (const BoundedGrid& bounded : grids_by_bound(problem, options.limits)) {
    const Grid& grid = bounded.grid;
    const Layout layout = stages_outermost(fastest_by_name(problem, grid), grid.stages);
    for (const ScheduleFamily family :
         {ScheduleFamily::kOneForwardOneBackward, ScheduleFamily::kGpipe}) {
      if (grid.stages == 1 && family == ScheduleFamily::kGpipe)
        continue;  // the same, with more memory
      Plan plan = even_plan(problem.topology(), problem.job(), layout, grid.micro_batch, family);
      if (!check_memory(plan, problem.topology(), problem.job())) continue;
      Candidate candidate;
      for (const std::vector<int>& row : plan.devices) {
        candidate.cells.insert(candidate.cells.end(), row.begin(), row.end());
      }
      candidate.layers = plan.layers;
      const double closed_form = Evaluator(problem, grid).evaluate(candidate);
      const double ring = rank_order_estimate(problem, plan);
      all.push_back({ring, closed_form, std::move(plan)});
    }
  }
  std::vector<Plan> plans;
  for (double Estimated::* estimate : {&Estimated::ring, &Estimated::closed_form}) {
    std::stable_sort(all.begin(), all.end(), [&](const Estimated& a, const Estimated& b) {
      return a.*estimate < b.*estimate;
    });
    std::size_t left = kMegatronJudged / 2;
    for (Estimated& each : all) {
      if (left == 0) break;
      if (std::exchange(each.taken, true)) continue;
      plans.push_back(std::move(each.plan));
      --left;
    }
  }
  return plans;
}

std::span<const std::string_view> baseline_names() {
  return kNames;
}

Result<std::vector<Plan>> baseline_candidates(std::string_view name, const Topology& topology,
                                              const Job& job, const PolicyOptions& options) {
  if (name == "rank-order" || name == "random" || name == "dtfm") {
    LH_ASSIGN(JudgedPlan judged, baseline_plan(name, topology, job, options));
    return std::vector<Plan>{std::move(judged.plan)};
  }
  LH_ASSIGN(const Problem problem, baseline_problem(topology, job, options));
  std::vector<Plan> plans;
  if (name == "even") plans = even_candidates(problem, options);
  if (name == "megatron") plans = megatron_candidates(problem, options);
  if (name == "varuna") plans = varuna_candidates(problem, options);
  if (name == "metis") plans = metis_candidates(problem, options);
  if (name == "sailor") plans = sailor_candidates(problem, options);
  if (plans.empty()) return std::unexpected(no_plan(name, options));
  return plans;
}

Result<JudgedPlan> baseline_plan(std::string_view name, const Topology& topology, const Job& job,
                                 const PolicyOptions& options) {
  LH_CHECK(std::ranges::find(kNames, name) != std::end(kNames), "the caller knows the names");
  if (name == "rank-order") return rank_order_plan(topology, job, options);
  if (name == "dtfm") {
    LH_ASSIGN(DtfmPlan found, dtfm_plan(topology, job, options));
    return std::move(found.judged);
  }
  if (name == "random") {
    LH_ASSIGN(const JudgedPlan ranked, rank_order_plan(topology, job, options));
    LH_ASSIGN(std::vector<JudgedPlan> random, random_plans(topology, job, options, ranked.plan, 1));
    return std::move(random.front());
  }
  LH_ASSIGN(std::vector<Plan> plans, baseline_candidates(name, topology, job, options));
  LH_ASSIGN(std::vector<JudgedPlan> judged,
            judge(topology, job, std::move(plans), options.threads));
  return fastest(std::move(judged));
}

}  // namespace longhaul
