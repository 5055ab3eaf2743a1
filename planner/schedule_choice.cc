#include "planner/schedule_choice.h"

#include <algorithm>
#include <utility>

#include "core/history_budget.h"
#include "core/model_math.h"
#include "netsim/step_simulation.h"
#include "planner/greedy_schedule.h"

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

int longest_pipeline(const Plan& plan) {
  return *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end());
}

}  // namespace

std::vector<int> memory_caps(const Problem& problem, const Plan& plan) {
  const std::vector<StageShape> shapes = stage_shapes(plan.layers);
  const Job job = resolved_job(plan, problem.job());
  const int most = longest_pipeline(plan);
  std::vector<std::vector<BoundaryHistory>> histories;
  for (int d = 0; d < plan.pipelines(); ++d) {
    histories.push_back(boundary_histories(plan, problem.topology(), job, d));
  }
  std::vector<int> caps;
  for (int i = 0; i < plan.stages(); ++i) {
    const Bytes feedback = feedback_memory(plan, problem.topology(), job, i);
    const auto fits = [&](int cap) {
      for (int d = 0; d < plan.pipelines(); ++d) {
        const DeviceKind& kind = problem.topology().kind_of(plan.device(d, i));
        const MemoryUse use =
            memory_use(job, kind,
                       {.stage = shapes[at(i)],
                        .micro_batch = plan.micro_batch,
                        .in_flight = cap,
                        .pipelines = plan.pipelines(),
                        .for_weights = cap,
                        .history = history_use(job.model, histories[at(d)], i).memory});
        if (use.total() + feedback > kind.memory) return false;
      }
      return true;
    };
    // Bisection: what fits, and what does not.
    int low = 1;
    int high = most + 1;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    caps.push_back(low);
  }
  return caps;
}

PipelineTimes pipeline_times(const Problem& problem, const Plan& plan, int pipeline) {
  const Topology& topology = problem.topology();
  const Job& job = problem.job();
  const std::vector<StageShape> shapes = stage_shapes(plan.layers);
  PipelineTimes times;
  for (int i = 0; i < plan.stages(); ++i) {
    const StageWork work = stage_work(job.model, shapes[at(i)], plan.micro_batch);
    const int device = plan.device(pipeline, i);
    const auto seconds = [&](Flops flops) {
      return compute_time(topology.kind_of(device), job.precision, flops).value();
    };
    times.stages.push_back(
        {seconds(work.forward),
         seconds(work.backward_input) + (recomputes(plan, job) ? seconds(work.recompute) : 0),
         seconds(work.backward_weight)});
    if (i + 1 == plan.stages()) continue;
    const int next = plan.device(pipeline, i + 1);
    const Bytes activations = activation_message(topology, job, plan, pipeline, i).wire;
    const Bytes gradients = activation_gradient_message(topology, job, plan, pipeline, i).wire;
    times.hops.push_back(
        {activations.value() / problem.rate(device, next), problem.latency(device, next),
         gradients.value() / problem.rate(next, device), problem.latency(next, device)});
  }
  return times;
}

bool make_greedy(const Problem& problem, Plan& plan, const std::vector<int>& caps, int variants) {
  PipelineTimes slowest = pipeline_times(problem, plan, 0);
  for (int d = 1; d < plan.pipelines(); ++d) {
    const PipelineTimes other = pipeline_times(problem, plan, d);
    for (std::size_t i = 0; i < slowest.stages.size(); ++i) {
      SplitStageTime& stage = slowest.stages[i];
      stage.forward = std::max(stage.forward, other.stages[i].forward);
      stage.backward_input = std::max(stage.backward_input, other.stages[i].backward_input);
      stage.backward_weight = std::max(stage.backward_weight, other.stages[i].backward_weight);
    }
    for (std::size_t i = 0; i < slowest.hops.size(); ++i) {
      HopTime& hop = slowest.hops[i];
      hop.forward_send = std::max(hop.forward_send, other.hops[i].forward_send);
      hop.forward_latency = std::max(hop.forward_latency, other.hops[i].forward_latency);
      hop.backward_send = std::max(hop.backward_send, other.hops[i].backward_send);
      hop.backward_latency = std::max(hop.backward_latency, other.hops[i].backward_latency);
    }
  }
  constexpr double kLongest = 1e7;
  for (const SplitStageTime& stage : slowest.stages) {
    if (!(stage.total() < kLongest)) return false;
  }
  for (const HopTime& hop : slowest.hops) {
    if (!(hop.round_trip() < kLongest)) return false;
  }
  GreedySchedule made =
      greedy_schedule(slowest.stages, slowest.hops, caps, longest_pipeline(plan), variants);
  plan.family = ScheduleFamily::kGreedy;
  plan.orders = std::move(made.orders);
  for (int i = 0; i < plan.stages(); ++i) {
    plan.in_flight[at(i)] = peaks_of(plan.orders[at(i)]).in_flight;
  }
  return true;
}

}  // namespace longhaul
