#include "planner/explanation.h"

#include <algorithm>
#include <optional>

#include "core/model_math.h"
#include "netsim/step_simulation.h"
#include "planner/greedy_schedule.h"
#include "planner/parallel.h"
#include "planner/schedule_choice.h"

namespace longhaul {
namespace {

constexpr std::size_t kLinks = 5;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

Link& link_of(Topology& topology, int from, int to) {
  return topology.links[at(from * topology.site_count() + to)];
}

std::vector<DeviceMemory> fullest_devices(const Topology& topology, const Job& job,
                                          const Plan& plan) {
  const std::vector<MemoryUse> uses = memory_of(plan, topology, job);
  std::vector<DeviceMemory> memory;
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (int i = 0; i < plan.stages(); ++i) {
      const int device = plan.device(d, i);
      memory.push_back(
          {device, i, uses[at(d * plan.stages() + i)].total(), topology.kind_of(device).memory});
    }
  }
  std::stable_sort(memory.begin(), memory.end(), [](const DeviceMemory& a, const DeviceMemory& b) {
    return a.need / a.size > b.need / b.size;
  });
  return memory;
}

/// Pairs of sites with traffic, the busiest first.
std::vector<LinkSensitivity> busiest_links(const Topology& topology, const StepResult& step) {
  std::vector<LinkSensitivity> links;
  for (const LinkTraffic& traffic : step.traffic) {
    if (traffic.from_site == traffic.to_site) continue;
    const int site = std::min(traffic.from_site, traffic.to_site);
    const int other = std::max(traffic.from_site, traffic.to_site);
    auto found = std::find_if(links.begin(), links.end(), [&](const LinkSensitivity& link) {
      return link.site == site && link.other == other;
    });
    if (found == links.end()) {
      links.push_back({site, other, {}, {}, {}, {}});
      found = links.end() - 1;
    }
    const Seconds busy = traffic.wire / topology.link(traffic.from_site, traffic.to_site).rate;
    found->wire += traffic.wire;
    found->busy = std::max(found->busy, busy);
  }
  std::stable_sort(
      links.begin(), links.end(),
      [](const LinkSensitivity& a, const LinkSensitivity& b) { return a.busy > b.busy; });
  if (links.size() > kLinks) links.resize(kLinks);
  return links;
}

}  // namespace

Result<Explanation> explain_plan(const Topology& topology, const Job& job, const Plan& plan,
                                 const DeviceLimits& limits, bool any_all_reduce, int threads) {
  LH_ASSIGN(const std::vector<char> admitted, admitted_devices(topology, limits));
  Explanation explanation;
  explanation.any_all_reduce = any_all_reduce;
  const Job resolved = resolved_job(plan, job);
  const PlanRules rules{.any_all_reduce = any_all_reduce};
  const Problem problem(topology, resolved, admitted, {}, rules);
  const Grid grid{plan.stages(), plan.pipelines(), plan.micro_batch};
  explanation.bounds = lower_bounds(problem, grid);
  std::stable_sort(explanation.bounds.begin(), explanation.bounds.end(),
                   [](const Bound& a, const Bound& b) { return a.seconds > b.seconds; });

  Candidate candidate;
  candidate.layers = plan.layers;
  for (const std::vector<int>& row : plan.devices)
    candidate.cells.insert(candidate.cells.end(), row.begin(), row.end());
  Evaluator evaluator(problem, grid);
  // The closed form finds depths that fit wherever some do, as those of the plan.
  evaluator.evaluate(candidate);
  explanation.closed_form = evaluator.closed_form();
  for (int d = 0; d < plan.pipelines(); ++d) {
    std::vector<double> ends;
    if (plan.family == ScheduleFamily::kGreedy) {
      std::vector<StageOrder> orders;
      for (const StageOrder& order : plan.orders) {
        orders.push_back(order_for(order, plan.micro_batches[at(d)]));
      }
      const PipelineTimes times = pipeline_times(problem, plan, d);
      ends = order_recursion(times.stages, times.hops, orders);
    } else {
      ends = pipeline_recursion(evaluator.stage_times(d), evaluator.hop_times(d), plan.in_flight,
                                plan.micro_batches[at(d)]);
    }
    const Seconds end(*std::max_element(ends.begin(), ends.end()));
    if (end <= explanation.pipeline) continue;
    explanation.pipeline = end;
    explanation.slowest_pipeline = d;
  }

  LH_ASSIGN(const StepResult step, simulate_step(topology, job, plan));
  explanation.step = step.step;
  explanation.memory = fullest_devices(topology, job, plan);
  explanation.links = busiest_links(topology, step);

  // Two simulations for each link: a higher rate, a lower latency.
  std::vector<std::optional<Result<StepResult>>> better(2 * explanation.links.size());
  parallel_for(static_cast<int>(better.size()), threads, [&](int task) {
    const LinkSensitivity& pair = explanation.links[at(task) / 2];
    Topology changed = topology;
    for (Link* link :
         {&link_of(changed, pair.site, pair.other), &link_of(changed, pair.other, pair.site)}) {
      if (task % 2 == 0) {
        link->rate = 1.1 * link->rate;
      } else {
        link->latency = std::max(Seconds(0), link->latency - milliseconds(1));
      }
    }
    better[at(task)] = simulate_step(changed, job, plan);
  });
  for (std::size_t i = 0; i < explanation.links.size(); ++i) {
    LH_ASSIGN(const StepResult faster, std::move(*better[2 * i]));
    LH_ASSIGN(const StepResult nearer, std::move(*better[2 * i + 1]));
    explanation.links[i].saved_by_rate = step.step - faster.step;
    explanation.links[i].saved_by_latency = step.step - nearer.step;
  }
  return explanation;
}

const LinkSensitivity* limiting_link(const Explanation& explanation) {
  const LinkSensitivity* limit = nullptr;
  for (const LinkSensitivity& link : explanation.links) {
    if (link.saved_by_rate < 1e-3 * explanation.step) continue;
    if (limit == nullptr || link.saved_by_rate > limit->saved_by_rate) limit = &link;
  }
  return limit;
}

}  // namespace longhaul
