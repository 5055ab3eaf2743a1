#include "tools/fidelity_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/rng.h"
#include "netsim/cluster_file.h"
#include "planner/baselines.h"
#include "planner/search.h"
#include "tools/random_cluster.h"

namespace longhaul {
namespace {

constexpr int kDrawsMax = 500;  // for one setting
constexpr double kNearestS = 0.006;

template <class T, std::size_t N>
T one_of(const T (&items)[N], Rng& rng) {
  return items[rng.index(N)];
}

/// Links that make it likely that a step waits for this.
LinkStretch stretch_for(Binding binding, Rng& rng) {
  constexpr double kFar[] = {1, 1.5, 2.5};
  constexpr double kThin[] = {0.05, 0.1, 0.2};
  switch (binding) {
    case Binding::kCompute:  // near each other, but not too near
      return {.latency = 0.4, .rate = 2};
    case Binding::kLatency:
      return {.latency = one_of(kFar, rng), .rate = 1};
    case Binding::kBandwidth:
      return {.latency = 1, .rate = one_of(kThin, rng)};
  }
  return {};
}

/// demo-gpt in another shape.
std::string draw_job(const std::string& name, Binding binding, Rng& rng) {
  constexpr int kLayers[] = {4, 6, 8, 8};
  constexpr int kWidths[] = {64, 96, 128, 128};
  constexpr int kContexts[] = {32, 64, 64};
  constexpr int kBatches[] = {16, 32, 64};
  constexpr int kMicroBatches[] = {1, 2, 4};
  constexpr const char* kCodecs[] = {"none", "bf16", "int8"};
  const int layers = one_of(kLayers, rng);
  const int width = one_of(kWidths, rng);
  const int context = one_of(kContexts, rng);
  const int batch = one_of(kBatches, rng) * (binding == Binding::kCompute ? 2 : 1);
  const int micro_batch = one_of(kMicroBatches, rng);
  const char* activations = one_of(kCodecs, rng);
  const char* gradients = one_of(kCodecs, rng);
  return fmt::format(
      "schema: longhaul/job/1\nname: {}\n"
      "model: {{family: gpt2, layers: {}, width: {}, heads: {}, context: {}, vocabulary: 256}}\n"
      "batch: {{global: {}, micro_batch: {}}}\nprecision: fp32\n"
      "compression: {{activations: {}, gradients: {}}}\n"
      "training: {{data: data, steps: 100, validation: {{sequences: 32}}}}\n",
      name, layers, width, width / 32, context, batch, micro_batch, activations, gradients);
}

bool is_near(const Topology& topology) {
  return std::ranges::any_of(topology.links,
                             [](const Link& link) { return link.latency.value() < kNearestS; });
}

std::optional<Plan> placement(const FidelitySetting& setting, std::uint64_t seed, int threads) {
  if (setting.is_searched) {
    Result<SearchResult> found = search_plan(setting.topology, setting.job,
                                             {.seed = seed, .threads = threads, .effort = 0.2});
    if (!found) return std::nullopt;
    return std::move(found->best.plan);
  }
  Result<JudgedPlan> found =
      baseline_plan("random", setting.topology, setting.job, {.seed = seed, .threads = threads});
  if (!found) return std::nullopt;
  return std::move(found->plan);
}

/// A draw that is what was asked for, or nothing.
std::optional<FidelitySetting> draw(const std::string& name, Binding binding, Depth depth,
                                    std::uint64_t seed, int threads) {
  Rng rng("fidelity setting " + name, seed);
  FidelitySetting setting;
  setting.name = name;
  setting.depth = depth;
  const std::uint64_t cluster_seed = rng.below(1'000'000);
  setting.cluster_text = small_cluster_text(cluster_seed, stretch_for(binding, rng));
  setting.job_text = draw_job(name, binding, rng);
  setting.is_searched = rng.chance(0.5);
  Result<Topology> topology = parse_cluster(setting.cluster_text, name, ".");
  Result<Job> job = parse_job(setting.job_text, name);
  LH_CHECK(topology && job, "a drawn cluster and a drawn job are good files");
  setting.topology = std::move(*topology);
  setting.job = std::move(*job);
  if (is_near(setting.topology)) return std::nullopt;

  const std::optional<Plan> placed = placement(setting, cluster_seed, threads);
  if (!placed || placed->stages() < 2) return std::nullopt;
  setting.plan = with_depth(*placed, depth);
  if (!check_memory(setting.plan, setting.topology, setting.job)) return std::nullopt;
  Result<StepResult> step = simulate_step(setting.topology, setting.job, setting.plan);
  if (!step) return std::nullopt;
  setting.predicted = std::move(*step);
  const double step_s = setting.predicted.step.value();
  if (step_s < kFidelityStepMin || step_s > kFidelityStepMax) return std::nullopt;
  if (binding_of(setting.predicted) != binding) return std::nullopt;
  return setting;
}

}  // namespace

std::string_view name_of(Binding binding) {
  constexpr std::array<std::string_view, kBindings> kNames = {"compute", "latency", "bandwidth"};
  return kNames[static_cast<std::size_t>(binding)];
}

std::string_view name_of(Depth depth) {
  constexpr std::array<std::string_view, kDepths> kNames = {"gpipe", "1f1b", "eager"};
  return kNames[static_cast<std::size_t>(depth)];
}

Binding binding_of(const StepResult& step) {
  std::array<double, kBindings> sums{};
  for (const CriticalPart& part : step.critical) {
    const Binding binding = part.kind == CriticalKind::kLatency     ? Binding::kLatency
                            : part.kind == CriticalKind::kBandwidth ? Binding::kBandwidth
                                                                    : Binding::kCompute;
    sums[static_cast<std::size_t>(binding)] += part.time.value();
  }
  return static_cast<Binding>(std::ranges::max_element(sums) - sums.begin());
}

Plan with_depth(Plan plan, Depth depth) {
  const int most = *std::ranges::max_element(plan.micro_batches);
  plan.orders.clear();
  plan.family =
      depth == Depth::kGpipe ? ScheduleFamily::kGpipe : ScheduleFamily::kOneForwardOneBackward;
  plan.in_flight = default_in_flight(plan.family, plan.stages(), most);
  if (depth != Depth::kEager) return plan;
  for (int i = 0; i < plan.stages(); ++i) {
    plan.in_flight[static_cast<std::size_t>(i)] = std::min(most, 2 * (plan.stages() - i) - 1);
  }
  return plan;
}

Result<std::vector<FidelitySetting>> fidelity_settings(std::uint64_t seed, int count, int threads) {
  std::vector<FidelitySetting> settings;
  for (int i = 0; i < count; ++i) {
    const auto binding = static_cast<Binding>(i % kBindings);
    const auto depth = static_cast<Depth>(i / kBindings % kDepths);
    std::optional<FidelitySetting> setting;
    const std::string name = fmt::format("{}-{}", name_of(binding), i / kBindings + 1);
    for (std::uint64_t k = 0; k < kDrawsMax && !setting; ++k) {
      setting = draw(name, binding, depth, seed * 1'000 + k, threads);
    }
    if (!setting) {
      return failed(
          fmt::format("no draw of {} is a setting bound by {}", kDrawsMax, name_of(binding)));
    }
    settings.push_back(std::move(*setting));
  }
  return settings;
}

}  // namespace longhaul
