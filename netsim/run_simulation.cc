#include "netsim/run_simulation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/model_math.h"
#include "core/rng.h"
#include "netsim/step_simulation.h"

namespace longhaul {
namespace {

/// So many failures without a further checkpoint, and the run is given up.
constexpr int kFailuresInARow = 10000;
constexpr std::uint64_t kProgressEvery = 4096;  // steps

struct StepCost {
  Seconds time;
  double egress_usd = 0;
};

/// Which of a Conditions' windows are open, and where in its trace it is.
std::string state_of(const Conditions& conditions, Seconds time) {
  std::string state;
  if (conditions.replay) state = fmt::format("{} ", conditions.replay->interval(time));
  for (const Background& traffic : conditions.background) {
    state += traffic.window.contains(time) ? '1' : '0';
  }
  for (const Slowdown& slowdown : conditions.slowdowns) {
    state += slowdown.window.contains(time) ? '1' : '0';
  }
  return state;
}

/// 0 where the job does not say how many samples there are.
std::uint64_t steps_per_epoch(const Job& job) {
  if (!job.history) return 0;
  return static_cast<std::uint64_t>((job.history->samples + job.global_batch - 1) /
                                    job.global_batch);
}

class RunSimulation {
 public:
  RunSimulation(const Topology& topology, const Job& job, const Plan& plan,
                const Conditions& conditions, const RunLimits& limits, const RunWatch& watch)
      : topology_(topology),
        job_(job),
        plan_(plan),
        conditions_(conditions),
        limits_(limits),
        watch_(watch),
        rng_("failures", conditions.seed) {
    for (const std::vector<int>& pipeline : plan.devices) {
      for (const int device : pipeline) {
        const DeviceKind& kind = topology.kind_of(device);
        usd_per_hour_ += kind.usd_per_hour;
        failures_per_second_ +=
            (kind.failures_per_hour > 0 ? kind.failures_per_hour : conditions.failures.per_hour) /
            3600;
        used_.push_back(device);
      }
    }
  }

  Result<RunForecast> run() {
    LH_ASSIGN(const StepResult undisturbed, simulate_step(topology_, job_, plan_));
    out_.step_undisturbed = undisturbed.step;
    if (asks_visit(topology_, job_, plan_)) first_visits_ = steps_per_epoch(job_);
    draw_failure();
    while (out_.steps < limits_.steps && out_.time < limits_.time) {
      if (watch_.should_stop && watch_.should_stop()) {
        out_.interrupted = true;
        break;
      }
      LH_ASSIGN(const StepCost cost, cost_of_step());
      if (next_failure_ < out_.time + cost.time) {
        LH_TRY(fail());
      } else {
        finish(cost);
      }
      if (++attempts_ % kProgressEvery == 0 && watch_.on_progress) watch_.on_progress(out_);
    }
    return collect();
  }

 private:
  /// Of the step that begins now.
  Result<StepCost> cost_of_step() {
    const std::size_t wanted = conditions_.jitter ? kSamplesWithJitter : 1;
    const Visit visit = out_.steps < first_visits_ ? Visit::kFirst : Visit::kLater;
    std::vector<StepCost>& samples =
        samples_[state_of(conditions_, out_.time) + (visit == Visit::kFirst ? "f" : "")];
    const Seconds change = conditions_.next_change(out_.time);
    if (samples.size() >= wanted) {
      const StepCost& cost = samples[wanted == 1 ? 0 : rng_of_steps_.index(wanted)];
      if (out_.time + cost.time <= change) return cost;
    }
    LH_ASSIGN(
        const StepResult step,
        simulate_step(
            topology_, job_, plan_,
            {.conditions = &conditions_, .begin = out_.time, .step = attempts_, .visit = visit}));
    ++out_.simulated;
    const StepCost cost{step.step, step.usd - usd_per_hour_ * step.step.value() / 3600};
    if (samples.size() < wanted && out_.time + cost.time <= change) samples.push_back(cost);
    return cost;
  }

  void finish(const StepCost& cost) {
    out_.time += cost.time;
    since_checkpoint_ += cost.time;
    egress_usd_ += cost.egress_usd;
    ++out_.steps;
    ++times_[SimTime::from(cost.time).picoseconds()];
    add_point(cost.time, 1, 0);
    const Checkpoints& checkpoints = conditions_.checkpoints;
    if (checkpoints.every <= 0) return;
    if (out_.steps % static_cast<std::uint64_t>(checkpoints.every) != 0) return;
    out_.time += checkpoints.time;
    out_.checkpoints += checkpoints.time;
    out_.productive += since_checkpoint_;
    since_checkpoint_ = Seconds(0);
    steps_kept_ = out_.steps;
    failures_in_a_row_ = 0;
  }

  Result<void> fail() {
    ++out_.failures;
    if (++failures_in_a_row_ > kFailuresInARow) {
      return infeasible(
          fmt::format("the run failed {} times after step {} and came to no further checkpoint",
                      kFailuresInARow, steps_kept_),
          "checkpoint more often (checkpoints.every), or look at failures_per_hour");
    }
    const Failures& rules = conditions_.failures;
    // A checkpoint may have been written when it came; then the run ends after it.
    const Seconds at = std::max(next_failure_, out_.time);
    out_.lost += since_checkpoint_ + (at - out_.time);
    since_checkpoint_ = Seconds(0);
    out_.steps = steps_kept_;
    // Histories that no checkpoint has begin anew: each sample is a first visit again.
    if (first_visits_ > 0 && !job_.history->in_checkpoints) {
      first_visits_ = steps_kept_ + steps_per_epoch(job_);
    }
    const Seconds pause = rules.notice + rules.repair + rules.restart;
    out_.waiting += pause;
    out_.time = at + pause;
    add_point(Seconds(0), 0, 1);
    draw_failure();
    return {};
  }

  /// The next failure of a device that the plan uses, after now.
  void draw_failure() {
    next_failure_ = Seconds(std::numeric_limits<double>::infinity());
    const std::vector<PlannedFailure>& planned = conditions_.failures.planned;
    for (; next_planned_ < planned.size(); ++next_planned_) {
      const PlannedFailure& failure = planned[next_planned_];
      const bool is_used = std::find(used_.begin(), used_.end(), failure.device) != used_.end();
      if (is_used && failure.time >= out_.time) {
        next_failure_ = failure.time;
        break;
      }
    }
    if (!conditions_.failures.by_rate || failures_per_second_ == 0) return;
    const Seconds drawn(-std::log1p(-rng_.uniform()) / failures_per_second_);
    if (out_.time + drawn >= next_failure_)
      return;  // memoryless: drawn again after the planned one
    next_failure_ = out_.time + drawn;
  }

  void add_point(Seconds time, std::uint64_t steps, std::uint64_t failures) {
    RunPoint* last = out_.points.empty() ? nullptr : &out_.points.back();
    if (last == nullptr || last->steps + last->failures >= steps_a_point_) {
      if (out_.points.size() == kRunPoints) halve_points();
      last = &out_.points.emplace_back();
    }
    last->end = out_.time;
    last->total += time;
    last->longest = std::max(last->longest, time);
    last->steps += steps;
    last->failures += failures;
  }

  void halve_points() {
    std::vector<RunPoint>& points = out_.points;
    for (std::size_t i = 0; i < points.size() / 2; ++i) {
      const RunPoint& a = points[2 * i];
      const RunPoint& b = points[2 * i + 1];
      points[i] = {b.end, a.total + b.total, std::max(a.longest, b.longest), a.steps + b.steps,
                   a.failures + b.failures};
    }
    points.resize(points.size() / 2);
    steps_a_point_ *= 2;
  }

  /// The least time that at least this part of the steps did not exceed.
  Seconds percentile(double part, std::uint64_t count) const {
    const double wanted = part * static_cast<double>(count);
    std::uint64_t seen = 0;
    std::int64_t last = 0;
    for (const auto& [time, steps] : times_) {
      seen += steps;
      last = time;
      if (static_cast<double>(seen) >= wanted) break;
    }
    return Seconds(static_cast<double>(last) / 1e12);
  }

  RunForecast collect() {
    out_.productive += since_checkpoint_;
    out_.tokens = static_cast<double>(out_.steps) * job_.tokens_per_step();
    out_.usd = egress_usd_ + usd_per_hour_ * out_.time.value() / 3600;
    std::uint64_t count = 0;
    double sum = 0;
    for (const auto& [time, steps] : times_) {
      count += steps;
      sum += static_cast<double>(time) / 1e12 * static_cast<double>(steps);
    }
    if (count == 0) return std::move(out_);
    out_.step_mean = Seconds(sum / static_cast<double>(count));
    out_.step_p50 = percentile(0.50, count);
    out_.step_p95 = percentile(0.95, count);
    out_.step_p99 = percentile(0.99, count);
    out_.step_longest = percentile(1, count);
    return std::move(out_);
  }

  const Topology& topology_;
  const Job& job_;
  const Plan& plan_;
  const Conditions& conditions_;
  const RunLimits& limits_;
  const RunWatch& watch_;
  Rng rng_;
  Rng rng_of_steps_{"steps", conditions_.seed};
  std::vector<int> used_;
  double usd_per_hour_ = 0;
  double failures_per_second_ = 0;
  double egress_usd_ = 0;
  std::map<std::string, std::vector<StepCost>> samples_;  // by state
  std::map<std::int64_t, std::uint64_t> times_;           // steps by their picoseconds
  Seconds next_failure_;
  std::size_t next_planned_ = 0;
  std::uint64_t first_visits_ = 0;  // steps before this one see their samples for the first time
  std::uint64_t attempts_ = 0;
  std::uint64_t steps_kept_ = 0;  // in the last checkpoint
  Seconds since_checkpoint_;      // of steps
  int failures_in_a_row_ = 0;
  std::uint64_t steps_a_point_ = 1;
  RunForecast out_;
};

}  // namespace

Seconds assumed_checkpoint_time(const Job& job, const Plan& plan) {
  double most = 0;
  for (const StageShape& shape : stage_shapes(plan.layers)) {
    most = std::max(most, stage_parameters(job.model, shape));
  }
  return Bytes(12 * most) / kCheckpointRate;
}

Result<RunForecast> simulate_run(const Topology& topology, const Job& job, const Plan& plan,
                                 const Conditions& conditions, const RunLimits& limits,
                                 const RunWatch& watch) {
  if (limits.steps == UINT64_MAX && !limits.time.finite()) {
    return invalid("a run needs an end", "a number of steps, of days or of tokens");
  }
  return RunSimulation(topology, job, plan, conditions, limits, watch).run();
}

}  // namespace longhaul
