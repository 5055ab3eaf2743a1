#include "planner/bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/model_math.h"
#include "core/result.h"
#include "planner/bounds_grid.h"

namespace longhaul {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

Bounds::Bounds(const Problem& problem) : problem_(problem) {
  update_ = overhead_ = kEndless;
  for (const int device : problem.usable()) {
    update_ = std::min(update_, problem.update_seconds_per_parameter(device));
    overhead_ = std::min(overhead_, problem.overhead(device));
  }
  add_sites();
  merge_sites();
  // Of each number of stages the most pipelines; of micro-batches the smallest.
  const Job& job = problem.job();
  const auto devices = static_cast<int>(problem.usable().size());
  const int micro_batch = std::max(1, job.micro_batch);
  compute_ = kEndless;
  for (int stages = 1; stages <= std::min(devices, job.model.layers); ++stages) {
    const auto most = std::min<std::int64_t>(devices / stages, job.global_batch / micro_batch);
    if (most < 1) continue;
    const Grid grid{stages, static_cast<int>(most), micro_batch};
    compute_ = std::min(compute_, GridBounds(*this, grid).compute());
  }
}

Bound Bounds::lower(const Grid& grid) const {
  const std::vector<Bound> bounds = all(grid);
  return *std::max_element(bounds.begin(), bounds.end(),
                           [](const Bound& a, const Bound& b) { return a.seconds < b.seconds; });
}

std::vector<Bound> Bounds::all(const Grid& grid) const {
  const Job& job = problem_.job();
  const std::vector<int>& usable = problem_.usable();
  const int devices = grid.stages * grid.pipelines;
  LH_CHECK(devices <= static_cast<int>(usable.size()), "a grid is no larger than the cluster");

  // Compute: all work at the joint speed of the fastest devices that the grid has room for.
  double speed = 0;
  for (int i = 0; i < devices; ++i) speed += 1 / problem_.seconds_per_flop(usable[at(i)]);
  const double sequences = static_cast<double>(job.global_batch);
  const double recompute =
      job.recompute ? (job.model.layers * layer_forward_flops(job.model, sequences)).value() : 0;
  const double work = model_flops(job.model, sequences).value() + recompute;
  const double batches = sequences / grid.micro_batch;
  const double passes = 2 * batches * grid.stages * overhead_ / devices;
  const double update = update_ * model_parameters(job.model) / grid.stages;
  const double compute = work / speed + passes + update;

  // Path: one micro-batch forward through all stages on the fastest device, at no distance, and
  // its gradient back; the gradients of the weights may overlap.
  const StageShape whole_model{job.model.layers, true, true};
  const StageWork once = stage_work(job.model, whole_model, grid.micro_batch);
  const double path =
      (once.forward + once.backward_input).value() * problem_.seconds_per_flop(usable.front()) +
      2 * grid.stages * overhead_ + update;

  std::vector<Bound> bounds = {GridBounds(*this, grid).lower()};
  bounds.push_back({compute, fmt::format("compute of the {} fastest devices", devices)});
  bounds.push_back({path, "one micro-batch through all stages"});
  return bounds;
}

Bound lower_bound(const Problem& problem, const Grid& grid) {
  return Bounds(problem).lower(grid);
}

std::vector<Bound> lower_bounds(const Problem& problem, const Grid& grid) {
  return Bounds(problem).all(grid);
}

double least_usd(const Problem& problem, const Grid& grid, const Bound& bound) {
  std::vector<double> prices;
  for (const int device : problem.usable()) prices.push_back(problem.usd_per_second(device));
  std::sort(prices.begin(), prices.end());
  return bound.seconds *
         std::accumulate(prices.begin(), prices.begin() + grid.stages * grid.pipelines, 0.0);
}

}  // namespace longhaul
