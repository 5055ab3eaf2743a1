#include "planner/codec_choice.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/history_budget.h"

namespace longhaul {
namespace {

constexpr double kLonger = 0.001;

/// Pairs of sites (lower, higher) that a pipeline crosses.
std::set<std::pair<int, int>> crossed_pairs(const Topology& topology, const Plan& plan) {
  std::set<std::pair<int, int>> pairs;
  for (const std::vector<int>& row : plan.devices) {
    for (std::size_t i = 1; i < row.size(); ++i) {
      const auto [a, b] = std::minmax(topology.site_of(row[i - 1]), topology.site_of(row[i]));
      if (a != b) pairs.insert({a, b});
    }
  }
  return pairs;
}

/// Whether some boundary has more samples than room for their histories.
bool misses_histories(const Topology& topology, const Job& job, const Plan& plan) {
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (const BoundaryHistory& boundary : boundary_histories(plan, topology, job, d)) {
      if (hit_rate(job, boundary) < 1) return true;
    }
  }
  return false;
}

/// The plan's entry for two sites, made where there is none.
PairCodec& entry_of(Plan& plan, const Job& job, std::pair<int, int> sites) {
  const auto found = std::ranges::lower_bound(
      plan.activation_codecs, sites, {},
      [](const PairCodec& pair) { return std::pair(pair.site, pair.other); });
  if (found != plan.activation_codecs.end() && found->site == sites.first &&
      found->other == sites.second) {
    return *found;
  }
  return *plan.activation_codecs.insert(found, {sites.first, sites.second, job.activations});
}

/// Makes a plan's codecs finer one by one, as long as its step stays as short.
class Refiner {
 public:
  Refiner(const Problem& problem, JudgedPlan judged)
      : problem_(problem), judged_(std::move(judged)) {
    begin_anew();
  }

  /// From here on the step may become a little longer than it is now.
  void begin_anew() { most_ = value_of(judged_, problem_.goal()).first * (1 + kLonger); }

  bool take(Plan plan) {
    if (!keeps(problem_.rules(), plan, problem_.job())) return false;
    Result<StepResult> step = simulate_step(problem_.topology(), problem_.job(), plan);
    if (!step) return false;
    JudgedPlan next{std::move(plan), std::move(*step), judged_.closed_form_s};
    if (value_of(next, problem_.goal()).first > most_) return false;
    judged_ = std::move(next);
    return true;
  }

  /// The finest that `job` leaves open, but for its own, with which `change(plan, codec)` may be
  /// taken.
  template <class Change>
  void refine(const Job& job, CodecUse use, Change change) {
    for (const Codec codec : codecs_to_try(job, use)) {
      if (codec == own_codec(job, use)) return;
      Plan plan = judged_.plan;
      change(plan, codec);
      if (take(std::move(plan))) return;
    }
  }

  const Plan& plan() const { return judged_.plan; }
  JudgedPlan result() && { return std::move(judged_); }

 private:
  const Problem& problem_;
  JudgedPlan judged_;
  double most_ = 0;
};

}  // namespace

std::optional<Job> without_histories(const Job& job) {
  if (!job.activations_auto || !has_history(job.activations)) return std::nullopt;
  Job direct = job;
  direct.activations = Codec::kHadamard4;  // only floors of 4 bits or fewer choose a history
  direct.history.reset();
  return direct;
}

Plan with_codecs_of(const Topology& topology, const Job& job, Plan plan) {
  for (const auto& sites : crossed_pairs(topology, plan)) entry_of(plan, job, sites);
  return plan;
}

JudgedPlan finer_codecs(const Problem& problem, JudgedPlan judged) {
  const Topology& topology = problem.topology();
  Job job = problem.job();
  Refiner refiner(problem, std::move(judged));
  if (const auto direct = without_histories(job);
      direct && misses_histories(topology, job, refiner.plan()) &&
      refiner.take(with_codecs_of(topology, *direct, refiner.plan()))) {
    job = *direct;
    refiner.begin_anew();
  }
  for (const auto& sites : crossed_pairs(topology, refiner.plan())) {
    if (job.activations_auto) {
      refiner.refine(job, CodecUse::kActivations,
                     [&](Plan& plan, Codec codec) { entry_of(plan, job, sites).codec = codec; });
    }
    // Where the job does not name them they go with the activations.
    if (job.activation_gradients_auto) {
      refiner.refine(job, CodecUse::kActivationGradients, [&](Plan& plan, Codec codec) {
        entry_of(plan, job, sites).gradients = codec;
      });
    }
  }
  if (job.gradients_auto && refiner.plan().pipelines() > 1) {
    const std::size_t exchanges = reductions_of(refiner.plan(), job).size();
    for (std::size_t i = 0; i < exchanges; ++i) {
      refiner.refine(job, CodecUse::kGradients, [&](Plan& plan, Codec codec) {
        plan.reductions = reductions_of(plan, job);
        plan.reductions[i].codec = codec;
      });
    }
  }
  return std::move(refiner).result();
}

}  // namespace longhaul
