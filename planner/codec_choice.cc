#include "planner/codec_choice.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace longhaul {
namespace {

constexpr double kLonger = 0.001;
constexpr Codec kFinestFirst[] = {Codec::kNone, Codec::kBf16, Codec::kInt8};

/// Pairs of sites (lower, higher) that a pipeline crosses.
std::set<std::pair<int, int>> crossed_pairs(const Problem& problem, const Plan& plan) {
  std::set<std::pair<int, int>> pairs;
  for (const std::vector<int>& row : plan.devices) {
    for (std::size_t i = 1; i < row.size(); ++i) {
      const auto [a, b] = std::minmax(problem.site(row[i - 1]), problem.site(row[i]));
      if (a != b) pairs.insert({a, b});
    }
  }
  return pairs;
}

}  // namespace

JudgedPlan finer_codecs(const Problem& problem, JudgedPlan judged) {
  const Job& job = problem.job();
  const Topology& topology = problem.topology();
  const double most = value_of(judged, problem.goal()).first * (1 + kLonger);
  const auto take = [&](Plan plan) {
    if (!keeps(problem.rules(), plan, job)) return false;
    Result<StepResult> step = simulate_step(topology, job, plan);
    if (!step) return false;
    JudgedPlan next{std::move(plan), std::move(*step), judged.closed_form_s};
    if (value_of(next, problem.goal()).first > most) return false;
    judged = std::move(next);
    return true;
  };
  if (job.activations_auto) {
    for (const auto& [a, b] : crossed_pairs(problem, judged.plan)) {
      for (const Codec codec : kFinestFirst) {
        if (codec == job.activations) break;
        Plan plan = judged.plan;
        plan.activation_codecs.push_back({a, b, codec});  // pairs come in ascending order
        if (take(std::move(plan))) break;
      }
    }
  }
  if (job.gradients_auto && judged.plan.pipelines() > 1) {
    const std::size_t exchanges = reductions_of(judged.plan, job).size();
    for (std::size_t i = 0; i < exchanges; ++i) {
      for (const Codec codec : kFinestFirst) {
        if (codec == job.gradients) break;
        Plan plan = judged.plan;
        plan.reductions = reductions_of(plan, job);
        plan.reductions[i].codec = codec;
        if (take(std::move(plan))) break;
      }
    }
  }
  return judged;
}

}  // namespace longhaul
