#include "planner/bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/model_math.h"
#include "core/result.h"

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

Bound lower_bound(const Problem& problem, const Grid& grid) {
  const std::vector<Bound> bounds = lower_bounds(problem, grid);
  return *std::max_element(bounds.begin(), bounds.end(),
                           [](const Bound& a, const Bound& b) { return a.seconds < b.seconds; });
}

double least_usd(const Problem& problem, const Grid& grid, const Bound& bound) {
  std::vector<double> prices;
  for (const int device : problem.usable()) prices.push_back(problem.usd_per_second(device));
  std::sort(prices.begin(), prices.end());
  return bound.seconds *
         std::accumulate(prices.begin(), prices.begin() + grid.stages * grid.pipelines, 0.0);
}

std::vector<Bound> lower_bounds(const Problem& problem, const Grid& grid) {
  const Job& job = problem.job();
  const std::vector<int>& usable = problem.usable();
  const int devices = grid.stages * grid.pipelines;
  LH_CHECK(devices <= static_cast<int>(usable.size()), "a grid is no larger than the cluster");

  // Compute: all work at the joint speed of the fastest devices that the grid has room for.
  double speed = 0;
  double least_overhead = std::numeric_limits<double>::infinity();
  for (int i = 0; i < devices; ++i) speed += 1 / problem.seconds_per_flop(usable[at(i)]);
  for (const int device : usable)
    least_overhead = std::min(least_overhead, problem.overhead(device));
  const double sequences = static_cast<double>(job.global_batch);
  const double recompute =
      job.recompute ? (job.model.layers * layer_forward_flops(job.model, sequences)).value() : 0;
  const double work = model_flops(job.model, sequences).value() + recompute;
  const double batches = sequences / grid.micro_batch;
  const double passes = 2 * batches * grid.stages * least_overhead / devices;
  const double compute = work / speed + passes;

  // Exchange: whichever stage ends last still has at least one layer to reduce. A member sends each
  // owner its shard and gets the sum back, over D - 1 links at once, each no faster than the best.
  const double fastest_link = problem.fastest_rate();
  double exchange = 0;
  if (grid.pipelines > 1 && std::isfinite(fastest_link)) {
    const double shard = layer_parameters(job.model) / grid.pipelines;
    const double bytes = std::min(codec_bytes(job.gradients, shard, 4).value(), 4 * shard);
    exchange = 2 * bytes / fastest_link;
  }

  // Path: one micro-batch through all stages and back on the fastest device, at no distance.
  const double fastest = problem.seconds_per_flop(usable.front());
  const double path = work / batches * fastest + 2 * grid.stages * least_overhead;

  const double update = [&] {
    double least = std::numeric_limits<double>::infinity();
    for (const int device : usable) {
      least = std::min(least, problem.update_seconds_per_parameter(device));
    }
    return least * model_parameters(job.model) / grid.stages;
  }();
  return {{compute + exchange + update, fmt::format("compute of the {} fastest devices", devices)},
          {path + exchange + update, "one micro-batch through all stages"}};
}

}  // namespace longhaul
