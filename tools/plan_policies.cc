#include "tools/plan_policies.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/median.h"
#include "core/quantity.h"
#include "planner/baselines.h"
#include "planner/trade_off.h"
#include "tools/command.h"
#include "tools/plan_export.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr int kRandomPlans = 20;
constexpr std::size_t kAlternatives = 4;

/// Baselines that take less than a second on clusters of up to so many devices.
struct Quick {
  std::string_view name;
  int devices_max;
};
constexpr Quick kQuick[] = {{"varuna", 256}, {"metis", 256}, {"sailor", 64}, {"megatron", 64}};
/// Megatron's are all grids in rank order, of which the first are the best.
constexpr std::size_t kSeedsOfOne = 16;

PolicyOptions policy_options_of(const PlanOptions& options) {
  return {options.seed, options.threads, options.limits, options.devices_used};
}

std::string grid_text(const Plan& plan) {
  return fmt::format("{} x {}, micro-batch {}, {}", plan.stages(), plan.pipelines(),
                     plan.micro_batch, name_of(plan.family));
}

/// What the quick baselines choose; one that finds nothing adds nothing.
std::vector<Plan> baseline_seeds(const Topology& topology, const Job& job,
                                 const PlanOptions& options) {
  std::vector<Plan> seeds;
  for (const auto& [name, devices_max] : kQuick) {
    if (topology.device_count() > devices_max) continue;
    Result<std::vector<Plan>> plans =
        baseline_candidates(name, topology, job, policy_options_of(options));
    if (!plans) continue;
    plans->resize(std::min(plans->size(), kSeedsOfOne));
    std::ranges::move(*plans, std::back_inserter(seeds));
  }
  return seeds;
}

Result<Outcome> run_search(const Topology& topology, const Job& job, const PlanOptions& options,
                           Seconds limit) {
  ProgressLine progress;
  SearchOptions search;
  search.seed = options.seed;
  search.threads = options.threads;
  search.effort = options.effort;
  search.limits = options.limits;
  search.devices = options.devices_used;
  search.goal = goal_of(options, job);
  LH_ASSIGN(const std::vector<char> admitted, admitted_devices(topology, options.devices_used));
  LH_ASSIGN(search.rules.pins, parse_pins(options.pins, topology, admitted, options.limits.stages));
  search.rules.any_all_reduce = options.any_all_reduce;
  if (const std::optional<ExportTarget> target = export_target(options.target)) {
    LH_ASSIGN(search.rules.expressible, expressible_by(*target, topology, job));
  }
  std::optional<OldPlan> old;
  Seconds horizon;
  if (!options.from.empty()) {
    LH_ASSIGN(old, load_old_plan(options.from, topology, job));
    Result<Seconds> parsed = parse_duration(options.horizon);
    if (!parsed) return within("--horizon", std::move(parsed).error());
    if (*parsed == Seconds(0)) return invalid("--horizon is 0", "such as 1h or 7d");
    horizon = *parsed;
    if (!old->is_of_job) {
      fmt::print(stderr, "note: {} was made for another job, or another state of it\n",
                 options.from);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  search.should_stop = [&] { return elapsed() > limit.value(); };
  search.interrupted = [] { return InterruptFlag::signal() != 0; };
  search.on_round = [&](const SearchProgress& at) {
    std::string best = "nothing that fits";
    if (std::isfinite(at.best_s)) best = format_duration(Seconds(at.best_s));
    if (options.objective != "time" && std::isfinite(at.best_s)) {
      best +=
          fmt::format(" at {:.2f} USD a billion tokens", at.best_usd / job.tokens_per_step() * 1e9);
    }
    const std::string gap = std::isfinite(at.best_s)
                                ? fmt::format(" (gap {:.0f} %)", 100 * (at.best_s / at.bound_s - 1))
                                : "";
    progress.show(fmt::format(
        "round {} of {}: best {} ({} x {}, micro-batch {}), bound {}{}, {} evaluations, {:.1f} s",
        at.round, at.rounds, best, at.grid.stages, at.grid.pipelines, at.grid.micro_batch,
        format_duration(Seconds(at.bound_s)), gap, at.evaluations, elapsed()));
  };
  if (options.seeds) {
    progress.show("looking at what the quick baselines plan");
    search.seeds = baseline_seeds(topology, job, options);
  }
  progress.show("searching: bounds and structured placements of every grid");
  const bool pareto = options.objective == "pareto";
  Outcome outcome;
  SearchResult found;
  if (old) {
    LH_ASSIGN(outcome.from, search_from(topology, job, search, *old, horizon));
    outcome.gone = old->gone;
    found = std::move(outcome.from->found);
  } else {
    LH_ASSIGN(found, pareto ? search_trade_offs(topology, job, search)
                            : search_plan(topology, job, search));
  }
  outcome.others = alternatives(found, search.goal, kAlternatives);
  if (pareto) outcome.front = non_dominated(found.judged);
  outcome.policy = "search";
  outcome.judged = std::move(found.best);
  outcome.bound = found.bound;
  outcome.evaluations = found.evaluations;
  outcome.all = std::move(found.judged);  // keeps its elements where they are
  return outcome;
}

}  // namespace

Result<Outcome> run_policy(const Topology& topology, const Job& job, const PlanOptions& options,
                           Seconds limit) {
  if (options.policy == "search") return run_search(topology, job, options, limit);
  const PolicyOptions policy_options = policy_options_of(options);
  LH_ASSIGN(JudgedPlan judged, baseline_plan(options.policy, topology, job, policy_options));
  return Outcome{options.policy, std::move(judged), {}, 0};
}

std::vector<Baseline> run_baselines(const Topology& topology, const Job& job,
                                    const PlanOptions& options) {
  const PolicyOptions policy_options = policy_options_of(options);
  std::vector<Baseline> baselines;
  ProgressLine progress;
  const auto add = [&](const std::string& name, const Result<JudgedPlan>& judged) {
    if (judged) {
      baselines.push_back({name, judged->step.step.value(), grid_text(judged->plan), ""});
    } else {
      baselines.push_back({name, 0, "", judged.error().message});
    }
  };
  std::optional<Plan> ranked;
  for (const std::string_view name : baseline_names()) {
    if (name == "random") continue;  // below, many of them
    progress.show(fmt::format("baseline: {}", name));
    const Result<JudgedPlan> judged = baseline_plan(name, topology, job, policy_options);
    add(std::string(name), judged);
    if (name == "rank-order" && judged) ranked = judged->plan;
  }
  if (!ranked) {
    baselines.push_back({"random", 0, "", "it takes rank order's grid, which has none"});
    return baselines;
  }
  progress.show("baseline: random");
  const Result<std::vector<JudgedPlan>> random =
      random_plans(topology, job, policy_options, *ranked, kRandomPlans);
  if (!random) {
    baselines.push_back({"random", 0, "", random.error().message});
    return baselines;
  }
  std::vector<double> steps;
  for (const JudgedPlan& judged : *random) steps.push_back(judged.step.step.value());
  std::sort(steps.begin(), steps.end());
  const std::string grid = grid_text(random->front().plan);
  baselines.push_back({fmt::format("random, median of {}", kRandomPlans), median(steps), grid, ""});
  baselines.push_back({fmt::format("random, best of {}", kRandomPlans), steps.front(), grid, ""});
  return baselines;
}

std::string baseline_table(const Outcome& ours, const std::vector<Baseline>& baselines) {
  const double step = ours.judged.step.step.value();
  std::vector<std::vector<std::string>> rows = {{"policy", "step", "ours / its", "grid"}};
  rows.push_back(
      {ours.policy, format_duration(ours.judged.step.step), "1.000", grid_text(ours.judged.plan)});
  for (const Baseline& baseline : baselines) {
    if (!baseline.missing.empty()) {
      rows.push_back({baseline.name, "none", "", baseline.missing});
      continue;
    }
    rows.push_back({baseline.name, format_duration(Seconds(baseline.step_s)),
                    fmt::format("{:.3f}", step / baseline.step_s), baseline.grid});
  }
  return "simulated step of each policy\n" + aligned(rows);
}

Goal goal_of(const PlanOptions& options, const Job& job) {
  Goal goal;
  goal.cost = options.objective == "cost";
  if (options.max_cost > 0) goal.usd_max = options.max_cost * job.tokens_per_step() / 1e9;
  return goal;
}

}  // namespace longhaul
