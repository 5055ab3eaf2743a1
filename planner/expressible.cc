#include "planner/expressible.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "planner/baselines.h"

namespace longhaul {
namespace {

constexpr std::size_t kJudged = 96;  // plans that are restricted, as many as search_plan simulates

Grid grid_of(const Plan& plan) {
  return {plan.stages(), plan.pipelines(), plan.micro_batch};
}

/// What the searches are limited to, one after the other: those with a grid that is allowed.
std::vector<GridLimits> allowed_limits(const Problem& problem, const GridLimits& limits,
                                       const Expressible& wanted) {
  const bool limits_stages = wanted.equal_layers || wanted.one_stage;
  std::set<std::pair<int, int>> seen;  // pipelines, stages; 0: any
  for (const Grid& grid : possible_grids(problem, limits)) {
    if (allows(wanted, grid, problem.job()))
      seen.emplace(grid.pipelines, limits_stages ? grid.stages : limits.stages);
  }
  std::vector<GridLimits> out;
  for (const auto& [pipelines, stages] : seen)
    out.push_back({.stages = stages, .pipelines = pipelines, .micro_batch = limits.micro_batch});
  return out;
}

}  // namespace

bool allows(const Expressible& wanted, const Grid& grid, const Job& job) {
  const std::int64_t batches = job.global_batch / grid.micro_batch;
  if (wanted.equal_shares && batches % grid.pipelines != 0) return false;
  if (wanted.equal_layers && job.model.layers % grid.stages != 0) return false;
  if (wanted.one_stage && grid.stages > 1) return false;
  return !wanted.micro_batch_a_stage || grid.stages == 1 || batches / grid.pipelines >= grid.stages;
}

Plan restricted(const Expressible& wanted, Plan plan, const Job& job) {
  LH_CHECK(allows(wanted, grid_of(plan), job), "only plans of an allowed grid are restricted");
  if (wanted.equal_shares) {
    const int all = std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), 0);
    plan.micro_batches.assign(plan.micro_batches.size(), all / plan.pipelines());
  }
  if (wanted.equal_layers) plan.layers.assign(plan.layers.size(), job.model.layers / plan.stages());
  if (wanted.own_depths) {
    const int most = *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end());
    if (plan.family != ScheduleFamily::kGpipe || !wanted.has_gpipe) {
      plan.family = ScheduleFamily::kOneForwardOneBackward;
      plan.orders.clear();
    }
    plan.in_flight = default_in_flight(plan.family, plan.stages(), most);
  }
  return plan;
}

Result<SearchResult> search_expressible(const Topology& topology, const Job& job,
                                        const SearchOptions& options, const Expressible& wanted) {
  if (wanted == Expressible{}) return search_plan(topology, job, options);
  const PolicyOptions policy{options.seed, options.threads, options.limits, options.devices};
  LH_ASSIGN(const std::vector<char> admitted, admitted_devices(topology, options.devices));
  const Problem problem(topology, job, admitted);
  const std::vector<GridLimits> all_limits = allowed_limits(problem, options.limits, wanted);

  SearchResult out;
  std::vector<JudgedPlan> found;
  std::optional<Error> error;
  for (const GridLimits& limits : all_limits) {
    SearchOptions part = options;
    part.limits = limits;
    part.effort = options.effort / static_cast<double>(all_limits.size());
    Result<SearchResult> result = search_plan(topology, job, part);
    if (!result) {
      error = std::move(result).error();
      continue;
    }
    if (out.bound.name.empty() || result->bound.seconds < out.bound.seconds)
      out.bound = result->bound;
    out.evaluations += result->evaluations;
    out.grids += result->grids;
    out.simulations += result->simulations;
    std::move(result->judged.begin(), result->judged.end(), std::back_inserter(found));
  }
  if (found.empty() && error) return std::unexpected(*std::move(error));
  std::stable_sort(found.begin(), found.end(), [&](const JudgedPlan& a, const JudgedPlan& b) {
    return options.goal.cost ? a.step.usd < b.step.usd : a.step.step < b.step.step;
  });

  std::vector<Plan> plans;
  std::vector<double> closed_form_s;
  const auto add = [&](const Plan& plan, double closed_form) {
    if (!allows(wanted, grid_of(plan), job)) return;
    for (const ScheduleFamily family :
         {ScheduleFamily::kOneForwardOneBackward, ScheduleFamily::kGpipe}) {
      const bool is_gpipe = family == ScheduleFamily::kGpipe;
      if (is_gpipe && (!wanted.has_gpipe || plan.stages() == 1)) continue;
      Plan other = plan;
      if (wanted.own_depths) other.family = family;
      other = restricted(wanted, std::move(other), job);
      if (!check_memory(other, topology, job)) continue;
      plans.push_back(std::move(other));
      closed_form_s.push_back(closed_form);
    }
  };
  for (const std::string_view name : baseline_names()) {
    // Megatron's are all grids in rank order, of which the first are the best.
    constexpr std::size_t kOfOne = 16;
    const Result<std::vector<Plan>> chosen = baseline_candidates(name, topology, job, policy);
    for (std::size_t i = 0; chosen && i < std::min(kOfOne, chosen->size()); ++i)
      add((*chosen)[i], 0);
  }
  for (std::size_t i = 0; i < std::min(kJudged, found.size()); ++i)
    add(found[i].plan, found[i].closed_form_s);
  if (plans.empty()) {
    return infeasible("no plan that was found keeps to what the trainer can express",
                      "plan without that limit, use `recompute: true`, or add devices");
  }
  LH_ASSIGN(out.judged, judge(topology, job, std::move(plans), options.threads));
  out.simulations += out.judged.size();
  const JudgedPlan* best = nullptr;
  for (std::size_t i = 0; i < out.judged.size(); ++i) {
    JudgedPlan& judged = out.judged[i];
    judged.closed_form_s = closed_form_s[i];
    if (judged.step.usd > options.goal.usd_max) continue;
    const auto value = [&](const JudgedPlan& of) {
      return options.goal.cost ? std::pair(of.step.usd, of.step.step.value())
                               : std::pair(of.step.step.value(), of.step.usd);
    };
    if (best == nullptr || value(judged) < value(*best)) best = &judged;
  }
  if (best == nullptr) {
    return infeasible("no plan that was found is as the trainer asks and cheap enough",
                      "allow a higher price");
  }
  out.best = *best;
  return out;
}

}  // namespace longhaul
