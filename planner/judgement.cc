#include "planner/judgement.h"

#include <limits>
#include <numeric>

#include "planner/parallel.h"

namespace longhaul {

std::vector<Result<StepResult>> simulate_all(const Topology& topology, const Job& job,
                                             const std::vector<Plan>& plans, int threads) {
  std::vector<Result<StepResult>> steps(plans.size());
  parallel_for(static_cast<int>(plans.size()), threads, [&](int p) {
    const auto slot = static_cast<std::size_t>(p);
    steps[slot] = simulate_step(topology, job, plans[slot]);
  });
  return steps;
}

Result<std::vector<JudgedPlan>> judge(const Topology& topology, const Job& job,
                                      std::vector<Plan> plans, int threads) {
  std::vector<Result<StepResult>> steps = simulate_all(topology, job, plans, threads);
  std::vector<JudgedPlan> judged;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    LH_ASSIGN(StepResult step, std::move(steps[i]));
    judged.push_back({std::move(plans[i]), std::move(step), 0});
  }
  return judged;
}

std::pair<double, double> value_of(const JudgedPlan& judged, const Goal& goal) {
  const double seconds = judged.step.step.value();
  if (judged.step.usd > goal.usd_max) {
    return {std::numeric_limits<double>::infinity(), judged.step.usd};
  }
  if (goal.cost) return {judged.step.usd, seconds};
  return {seconds, 0};
}

double transfers_of(const Plan& plan) {
  const double micro_batches =
      std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), 0.0);
  const double pipelines = plan.pipelines();
  return 2 * micro_batches * (plan.stages() - 1) + 2 * plan.stages() * pipelines * (pipelines - 1);
}

}  // namespace longhaul
