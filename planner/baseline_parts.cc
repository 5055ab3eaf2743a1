#include "planner/baseline_parts.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace longhaul {

std::vector<int> even_layers(int layers, int stages) {
  std::vector<int> split;
  for (int i = 0; i < stages; ++i) split.push_back(layers / stages + (i < layers % stages ? 1 : 0));
  return split;
}

Plan even_plan(const Topology& topology, const Job& job, Layout layout, int micro_batch,
               ScheduleFamily family) {
  Plan plan;
  const auto pipelines = static_cast<int>(layout.size());
  const auto stages = static_cast<int>(layout.front().size());
  plan.layers = even_layers(job.model.layers, stages);
  plan.micro_batch = micro_batch;
  plan.family = family;
  const auto batches = static_cast<int>(job.global_batch / micro_batch);
  for (int d = 0; d < pipelines; ++d) {
    plan.micro_batches.push_back(batches / pipelines + (d < batches % pipelines ? 1 : 0));
  }
  plan.in_flight = default_in_flight(family, stages, plan.micro_batches.front());
  plan.coordinator_site = topology.site_of(layout.front().front());
  plan.devices = std::move(layout);
  return plan;
}

Result<Problem> baseline_problem(const Topology& topology, const Job& job,
                                 const PolicyOptions& options) {
  LH_ASSIGN(const std::vector<char> admitted, admitted_devices(topology, options.devices));
  const Problem all(topology, job, admitted);
  return Problem(topology, job, site_choices(all, options.devices.sites_max).front());
}

std::vector<int> by_name(const Topology& topology, std::span<const int> devices) {
  std::vector<int> sorted(devices.begin(), devices.end());
  std::sort(sorted.begin(), sorted.end(), [&](int a, int b) {
    return topology.devices[static_cast<std::size_t>(a)].name <
           topology.devices[static_cast<std::size_t>(b)].name;
  });
  return sorted;
}

Layout stages_outermost(const std::vector<int>& devices, int stages) {
  const std::size_t pipelines = devices.size() / static_cast<std::size_t>(stages);
  Layout layout(pipelines);
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    layout[rank % pipelines].push_back(devices[rank]);
  return layout;
}

Layout pipelines_outermost(const std::vector<int>& devices, int stages) {
  const auto length = static_cast<std::size_t>(stages);
  Layout layout(devices.size() / length);
  for (std::size_t rank = 0; rank < layout.size() * length; ++rank)
    layout[rank / length].push_back(devices[rank]);
  return layout;
}

std::vector<int> fastest_by_name(const Problem& problem, const Grid& grid) {
  return by_name(
      problem.topology(),
      std::span(problem.usable()).first(static_cast<std::size_t>(grid.stages * grid.pipelines)));
}

StageTime stage_time(const Job& job, const StageShape& stage, int micro_batch,
                     double seconds_per_flop, double overhead) {
  const StageWork work = stage_work(job.model, stage, micro_batch);
  const double again = job.recompute == Recompute::kYes ? work.recompute.value() : 0;
  return {work.forward.value() * seconds_per_flop + overhead,
          (work.backward.value() + again) * seconds_per_flop +
              overhead * (job.recompute == Recompute::kYes ? 2 : 1)};
}

double boundary_wire_bytes(const Problem& problem, int micro_batch, int device, int next) {
  const Job& job = problem.job();
  const Codec codec = problem.site(device) == problem.site(next) ? Codec::kNone : job.activations;
  return boundary_message_bytes(codec, job.model, job.precision, micro_batch).value() *
         problem.topology().tcp.wire_factor;
}

double gradient_wire_bytes(const Problem& problem, const StageShape& stage, int stages) {
  return 4 * stage_reduced_parameters(problem.job().model, stage, stages) *
         problem.topology().tcp.wire_factor;
}

SlowestLink slowest_link(const Problem& problem, std::span<const int> group) {
  SlowestLink slowest{.rate = std::numeric_limits<double>::infinity()};
  const auto add = [&](int from, int to) {
    slowest.rate = std::min(slowest.rate, problem.rate(from, to));
    slowest.latency = std::max(slowest.latency, problem.latency(from, to));
  };
  std::vector<int> first;  // of each node
  for (const int device : group) {
    const auto same_node = std::find_if(first.begin(), first.end(), [&](int other) {
      return problem.node(other) == problem.node(device);
    });
    if (same_node == first.end()) {
      first.push_back(device);
    } else {
      add(device, *same_node);
    }
  }
  for (const int from : first) {
    for (const int to : first) {
      if (from != to) add(from, to);
    }
  }
  return slowest;
}

std::vector<BoundedGrid> grids_by_bound(const Problem& problem, const GridLimits& limits) {
  const Job& job = problem.job();
  // Recompute aside, every plan does at least this.
  const double work = model_flops(job.model, static_cast<double>(job.global_batch)).value();
  std::vector<double> speed = {0};  // of the n fastest
  for (const int device : problem.usable())
    speed.push_back(speed.back() + 1 / problem.seconds_per_flop(device));
  std::vector<BoundedGrid> grids;
  for (const Grid& grid : possible_grids(problem, limits)) {
    const auto devices = static_cast<std::size_t>(grid.stages * grid.pipelines);
    grids.push_back({grid, work / speed[devices]});
  }
  const auto order = [](const BoundedGrid& at) {
    return std::tuple(at.bound_s, at.grid.stages, at.grid.pipelines, at.grid.micro_batch);
  };
  std::sort(grids.begin(), grids.end(),
            [&](const BoundedGrid& a, const BoundedGrid& b) { return order(a) < order(b); });
  return grids;
}

}  // namespace longhaul
