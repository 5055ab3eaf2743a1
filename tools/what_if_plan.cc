#include "tools/what_if_plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "planner/schedule_choice.h"
#include "planner/warm_start.h"

namespace longhaul {
namespace {

constexpr std::string_view kSearchAnew = "--replan searches another plan";

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// A plan whose devices are being renamed to another topology's.
class Keeper {
 public:
  Keeper(const WhatIfBase& base, const Plan& plan, const World& world)
      : base_(base), topology_(world.topology()), job_(world.job()) {
    kept_.plan = plan;
  }

  Result<KeptPlan> keep() {
    LH_TRY(check_layers());
    LH_TRY(rename_devices());
    keep_choices();
    LH_TRY(share_batch());
    move_coordinator();
    if (gone_.empty()) {
      Result<void> fits = check_memory(kept_.plan, topology_, job_);
      if (fits) return std::move(kept_);
      Error& error = fits.error();
      error.hint += fmt::format("{}{}", error.hint.empty() ? "" : "; ", kSearchAnew);
      return std::unexpected(std::move(error));
    }
    return replace_what_is_gone();
  }

 private:
  Result<void> check_layers() const {
    const int held = std::accumulate(kept_.plan.layers.begin(), kept_.plan.layers.end(), 0);
    if (held == job_.model.layers) return {};
    return infeasible(fmt::format("the plan's stages hold {} layers, and the model has {}", held,
                                  job_.model.layers),
                      std::string(kSearchAnew));
  }

  Result<void> rename_devices() {
    for (std::vector<int>& row : kept_.plan.devices) {
      for (int& device : row) {
        const std::string& name = base_.topology.devices[at(device)].name;
        device = topology_.find_device(name);
        if (device < 0) {
          device = kGone;
          gone_.push_back(name);
        } else if (topology_.kind_of(device).rate_at(job_.precision) <= FlopsPerSecond(0)) {
          return infeasible(fmt::format("device {} is a {}, which has no {} speed", name,
                                        topology_.kind_of(device).name, name_of(job_.precision)),
                            std::string(kSearchAnew));
        }
      }
    }
    return {};
  }

  /// What the plan chose where the job left it open, as far as the job now allows it.
  void keep_choices() {
    Plan& plan = kept_.plan;
    if (job_.recompute != Recompute::kAuto) plan.recompute = false;
    std::vector<PairCodec> codecs;
    for (PairCodec pair : plan.activation_codecs) {
      const int site = topology_.find_site(base_.topology.sites[at(pair.site)].name);
      const int other = topology_.find_site(base_.topology.sites[at(pair.other)].name);
      if (site < 0 || other < 0) continue;
      if (!job_.activations_auto || !allows(job_, CodecUse::kActivations, pair.codec)) {
        note("the job's codec of activations takes the place of the plan's");
        pair.codec = job_.activations;
      }
      if (pair.gradients && !allows(job_, CodecUse::kActivationGradients, *pair.gradients)) {
        note("the job's codec of activation gradients takes the place of the plan's");
        pair.gradients.reset();
      }
      if (pair.codec == job_.activations && !pair.gradients) continue;
      codecs.push_back({std::min(site, other), std::max(site, other), pair.codec, pair.gradients});
    }
    plan.activation_codecs = std::move(codecs);
    for (Reduction& reduction : plan.reductions) {
      const bool is_own = base_.job.gradients_auto || reduction.codec != base_.job.gradients;
      if (is_own && allows(job_, CodecUse::kGradients, reduction.codec)) continue;
      reduction.codec = job_.gradients;
    }
    if (!plan.reductions.empty()) {
      const std::size_t wanted = plan.layers.size() + (has_tied_exchange(plan, job_) ? 1 : 0);
      plan.reductions.resize(wanted, Reduction{.codec = job_.gradients});
    }
  }

  /// Gives each pipeline its part of another batch, in proportion to what it has.
  Result<void> share_batch() {
    Plan& plan = kept_.plan;
    if (job_.micro_batch != 0 && job_.micro_batch != base_.job.micro_batch) {
      plan.micro_batch = job_.micro_batch;
    }
    const std::int64_t before =
        std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), std::int64_t{0});
    if (job_.global_batch % plan.micro_batch != 0) {
      return infeasible(fmt::format("{} sequences do not come in the plan's micro-batches of {}",
                                    job_.global_batch, plan.micro_batch),
                        fmt::format("a multiple of {}, or --replan", plan.micro_batch));
    }
    const std::int64_t total = job_.global_batch / plan.micro_batch;
    if (total == before) return {};
    if (total < plan.pipelines()) {
      return infeasible(fmt::format("{} micro-batches of {} are too few for {} pipelines", total,
                                    plan.micro_batch, plan.pipelines()),
                        std::string(kSearchAnew));
    }
    const std::vector<int> old = plan.micro_batches;
    std::int64_t left = total;
    for (int& share : plan.micro_batches) {
      share = static_cast<int>(std::max<std::int64_t>(1, share * total / before));
      left -= share;
    }
    // What is left goes where most is missing; what is too much (a share was raised to 1) is taken
    // where most is over.
    while (left != 0) {
      const int step = left > 0 ? 1 : -1;
      std::size_t best = plan.micro_batches.size();
      std::int64_t most = 0;
      for (std::size_t d = 0; d < old.size(); ++d) {
        if (step < 0 && plan.micro_batches[d] == 1) continue;
        const std::int64_t missing = step * (old[d] * total - plan.micro_batches[d] * before);
        if (best == old.size() || missing > most) {
          best = d;
          most = missing;
        }
      }
      plan.micro_batches[best] += step;
      left -= step;
    }
    const int largest = *std::ranges::max_element(plan.micro_batches);
    if (largest >= kMaxMicroBatches) {
      return infeasible(fmt::format("{} micro-batches are more than messages can name", largest));
    }
    fit_schedule(largest);
    note(fmt::format("the plan's pipelines get {} micro-batches of {} instead of {}", total,
                     plan.micro_batch, before));
    return {};
  }

  void fit_schedule(int largest) {
    Plan& plan = kept_.plan;
    for (int& depth : plan.in_flight) {
      depth = plan.family == ScheduleFamily::kGpipe ? largest : std::min(depth, largest);
    }
    // Devices that are gone are replaced later, and with them the schedule.
    if (plan.family != ScheduleFamily::kGreedy || !gone_.empty()) return;
    const Problem problem(topology_, job_);
    const std::vector<int> caps = plan.in_flight;
    if (make_greedy(problem, plan, caps, kAllGreedyVariants)) return;
    plan.family = ScheduleFamily::kOneForwardOneBackward;
    plan.orders.clear();
    plan.in_flight = default_in_flight(plan.family, plan.stages(), largest);
  }

  /// The coordinator stays at its site. Where that is gone, it goes to the site that is nearest to
  /// all devices.
  void move_coordinator() {
    Plan& plan = kept_.plan;
    const std::string name = base_.topology.sites[at(plan.coordinator_site)].name;
    plan.coordinator_site = topology_.find_site(name);
    if (plan.coordinator_site >= 0) return;
    Seconds least = Seconds::infinity();
    plan.coordinator_site = 0;
    for (int site = 0; site < topology_.site_count(); ++site) {
      Seconds farthest;
      for (const std::vector<int>& row : plan.devices) {
        for (const int device : row) {
          if (device == kGone) continue;
          const int other = topology_.site_of(device);
          farthest = std::max(
              farthest, topology_.link(site, other).latency + topology_.link(other, site).latency);
        }
      }
      if (farthest < least) {
        least = farthest;
        plan.coordinator_site = site;
      }
    }
    note(fmt::format("the coordinator moves from {} to {}", name,
                     topology_.sites[at(plan.coordinator_site)].name));
  }

  Result<KeptPlan> replace_what_is_gone() {
    const Problem problem(topology_, job_);
    const std::optional<Plan> plan = repaired(problem, kept_.plan);
    const std::string gone = fmt::format("{} of the plan's devices {} gone ({}{})", gone_.size(),
                                         gone_.size() == 1 ? "is" : "are", gone_.front(),
                                         gone_.size() > 1 ? ", ..." : "");
    if (!plan) {
      return infeasible(fmt::format("{}, and idle ones cannot take their place", gone),
                        std::string(kSearchAnew));
    }
    const int given_up = kept_.plan.pipelines() - plan->pipelines();
    note(fmt::format(
        "{}: {}", gone,
        given_up > 0 ? fmt::format("{} of {} pipelines {} given up, and the batch is shared anew",
                                   given_up, kept_.plan.pipelines(), given_up == 1 ? "is" : "are")
                     : "idle ones take their place"));
    kept_.plan = *plan;
    return std::move(kept_);
  }

  void note(std::string text) {
    if (std::ranges::find(kept_.notes, text) == kept_.notes.end())
      kept_.notes.push_back(std::move(text));
  }

  const WhatIfBase& base_;
  const Topology& topology_;
  const Job& job_;
  KeptPlan kept_;
  std::vector<std::string> gone_;
};

}  // namespace

Result<KeptPlan> kept_plan(const WhatIfBase& base, const Plan& plan, const World& world) {
  return Keeper(base, plan, world).keep();
}

}  // namespace longhaul
