#include "planner/policies.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>

#include "core/quantity.h"
#include "core/rng.h"
#include "planner/baseline_parts.h"
#include "planner/dtfm_search.h"

namespace longhaul {
namespace {

const std::vector<int> kMicroBatches = {1, 2, 4, 8};
constexpr int kDtfmRounds = 8;
constexpr std::int64_t kDtfmEvaluationsPerRound = 20'000;

using MakeLayout = std::function<Layout(const std::vector<int>& devices, int stages)>;

/// The plans of all grids over exactly these devices, one for each micro-batch and schedule that
/// fits the memory.
std::vector<Plan> plans_over(const Topology& topology, const Job& job,
                             const std::vector<int>& devices, const GridLimits& limits,
                             const MakeLayout& make_layout) {
  std::vector<Plan> plans;
  const auto count = static_cast<int>(devices.size());
  for (int stages = 1; stages <= std::min(count, job.model.layers); ++stages) {
    const int pipelines = count / stages;
    if (stages * pipelines != count || (limits.stages > 0 && stages != limits.stages)) continue;
    if (limits.pipelines > 0 && pipelines != limits.pipelines) continue;
    std::optional<Layout> layout;
    const int fixed = limits.micro_batch > 0 ? limits.micro_batch : job.micro_batch;
    const std::vector<int> fixed_only = {fixed};
    for (const int micro_batch : fixed > 0 ? fixed_only : kMicroBatches) {
      if (job.global_batch % micro_batch != 0 || job.global_batch / micro_batch < pipelines)
        continue;
      if (!layout) layout = make_layout(devices, stages);
      for (const ScheduleFamily family :
           {ScheduleFamily::kOneForwardOneBackward, ScheduleFamily::kGpipe}) {
        Plan plan = even_plan(topology, job, *layout, micro_batch, family);
        if (check_memory(plan, topology, job)) plans.push_back(std::move(plan));
      }
    }
  }
  return plans;
}

/// The fastest simulated plan over all usable devices, leaving out the slowest one by one until
/// something fits.
Result<JudgedPlan> best_plan(const Topology& topology, const Job& job, const PolicyOptions& options,
                             const std::string& policy, const MakeLayout& make_layout) {
  LH_ASSIGN(const Problem problem, baseline_problem(topology, job, options));
  std::vector<int> devices = problem.usable();
  if (options.limits.stages > 0 && options.limits.pipelines > 0) {
    const auto cells = static_cast<std::size_t>(options.limits.stages) *
                       static_cast<std::size_t>(options.limits.pipelines);
    if (cells < devices.size()) devices.resize(cells);
  }
  for (; !devices.empty(); devices.pop_back()) {
    std::vector<Plan> plans =
        plans_over(topology, job, by_name(topology, devices), options.limits, make_layout);
    if (plans.empty()) continue;
    LH_ASSIGN(std::vector<JudgedPlan> judged,
              judge(topology, job, std::move(plans), options.threads));
    return *std::min_element(
        judged.begin(), judged.end(),
        [](const JudgedPlan& a, const JudgedPlan& b) { return a.step.step < b.step.step; });
  }
  return infeasible(fmt::format("policy {}{} finds no grid that fits the memory with equal layers",
                                policy, text_of(options.devices)),
                    "the search, which may split layers unevenly, can still find one");
}

}  // namespace

Result<JudgedPlan> rank_order_plan(const Topology& topology, const Job& job,
                                   const PolicyOptions& options) {
  return best_plan(topology, job, options, "rank-order", stages_outermost);
}

Result<std::vector<JudgedPlan>> random_plans(const Topology& topology, const Job& job,
                                             const PolicyOptions& options, const Plan& ranked,
                                             int count) {
  std::vector<Plan> plans;
  for (int i = 0; i < count; ++i) {
    Rng rng(fmt::format("random plan {}", i), options.seed);
    Plan plan = ranked;
    std::vector<int> devices;
    for (const std::vector<int>& row : plan.devices)
      devices.insert(devices.end(), row.begin(), row.end());
    // A permutation may overfill a small device; draw again until it fits.
    constexpr int kMaxDraws = 1000;
    for (int draw = 0; draw < kMaxDraws; ++draw) {
      rng.shuffle(std::span(devices));
      plan.devices = stages_outermost(devices, plan.stages());
      if (check_memory(plan, topology, job)) break;
    }
    plans.push_back(std::move(plan));
  }
  return judge(topology, job, std::move(plans), options.threads);
}

DtfmInstance dtfm_instance(const Topology& topology, const Job& job,
                           const std::vector<int>& devices, int stages) {
  DtfmInstance instance;
  instance.devices = static_cast<int>(devices.size());
  instance.stages = stages;
  instance.replicas = instance.devices / stages;
  for (const int from : devices) {
    for (const int to : devices) {
      instance.latency_s.push_back(topology.latency(from, to).value());
      // The diagonal is never read.
      instance.gbit_per_s.push_back(from == to ? 1 : topology.rate(from, to).value() * 8 / 1e9);
    }
  }
  instance.gradient_gb = 4 * model_parameters(job.model) / stages / 1e9;
  const double sequences = static_cast<double>(job.global_batch) / instance.replicas;
  instance.activation_gb = boundary_bytes(job.model, job.precision, sequences).value() / 1e9;
  return instance;
}

Result<DtfmPlan> dtfm_plan(const Topology& topology, const Job& job, const PolicyOptions& options) {
  const auto make_layout = [&](const std::vector<int>& devices, int stages) {
    const DtfmInstance instance = dtfm_instance(topology, job, devices, stages);
    DtfmSearchOptions search;
    search.seed = options.seed;
    search.threads = options.threads;
    search.rounds = kDtfmRounds;
    search.evaluations_per_round = kDtfmEvaluationsPerRound;
    const DtfmSearchResult found = dtfm_search(instance, search);
    Layout layout(devices.size() / static_cast<std::size_t>(stages));
    for (const std::vector<int>& group : found.partition) {
      for (std::size_t d = 0; d < group.size(); ++d) {
        layout[d].push_back(devices[static_cast<std::size_t>(group[d])]);
      }
    }
    return layout;
  };
  LH_ASSIGN(JudgedPlan judged, best_plan(topology, job, options, "dtfm", make_layout));
  // Its own cost of the plan that was chosen.
  std::vector<int> devices;
  DtfmPartition partition(static_cast<std::size_t>(judged.plan.stages()));
  for (int i = 0; i < judged.plan.stages(); ++i) {
    for (int d = 0; d < judged.plan.pipelines(); ++d) {
      partition[static_cast<std::size_t>(i)].push_back(static_cast<int>(devices.size()));
      devices.push_back(judged.plan.device(d, i));
    }
  }
  const DtfmInstance instance = dtfm_instance(topology, job, devices, judged.plan.stages());
  return DtfmPlan{std::move(judged), evaluate_dtfm_in_order(instance, partition)};
}

}  // namespace longhaul
