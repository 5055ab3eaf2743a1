#include "planner/bounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "core/model_math.h"
#include "core/result.h"
#include "planner/bounds_grid.h"
#include "planner/parallel.h"

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
  std::vector<double> prices;
  for (const int device : problem.usable()) prices.push_back(problem.usd_per_second(device));
  std::sort(prices.begin(), prices.end());
  speed_ = price_ = {0};
  for (std::size_t i = 0; i < prices.size(); ++i) {
    speed_.push_back(speed_.back() + 1 / problem.seconds_per_flop(problem.usable()[i]));
    price_.push_back(price_.back() + prices[i]);
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

Bound Bounds::compute(const Grid& grid) const {
  const Job& job = problem_.job();
  const int devices = grid.stages * grid.pipelines;
  LH_CHECK(devices < static_cast<int>(speed_.size()), "a grid is no larger than the cluster");
  const double sequences = static_cast<double>(job.global_batch);
  const double recompute =
      job.recompute == Recompute::kYes
          ? (job.model.layers * layer_forward_flops(job.model, sequences)).value()
          : 0;
  const double work = model_flops(job.model, sequences).value() + recompute;
  const double batches = sequences / grid.micro_batch;
  const double passes = 2 * batches * grid.stages * overhead_ / devices;
  const double update = update_ * model_parameters(job.model) / grid.stages;
  return {work / speed_[at(devices)] + passes + update,
          fmt::format("compute of the {} fastest devices", devices)};
}

std::vector<Bound> Bounds::all(const Grid& grid) const {
  // Path: one micro-batch forward through all stages on the fastest device, at no distance, and
  // its gradient back; the gradients of the weights may overlap.
  const Job& job = problem_.job();
  const StageShape whole_model{job.model.layers, true, true};
  const StageWork once = stage_work(job.model, whole_model, grid.micro_batch);
  const double path = (once.forward + once.backward_input).value() *
                          problem_.seconds_per_flop(problem_.usable().front()) +
                      2 * grid.stages * overhead_ +
                      update_ * model_parameters(job.model) / grid.stages;
  const Bound compute = this->compute(grid);
  return {GridBounds(*this, grid).lower(), compute, {path, "one micro-batch through all stages"}};
}

std::vector<Bound> Bounds::of_each(const std::vector<Grid>& grids, int threads) const {
  constexpr std::size_t kFew = 4000;
  constexpr int kClosely = 256;
  std::vector<Bound> bounds(grids.size());
  const bool are_few = grids.size() <= kFew;
  parallel_for(static_cast<int>(grids.size()), threads, [&](int g) {
    bounds[at(g)] = are_few ? lower(grids[at(g)]) : compute(grids[at(g)]);
  });
  if (are_few) return bounds;
  // The least of all is sure once it is that of a grid looked at closely.
  using Entry = std::pair<double, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least;
  for (std::size_t g = 0; g < grids.size(); ++g) least.push({bounds[g].seconds, g});
  std::vector<char> is_close(grids.size(), 0);
  for (int i = 0; i < kClosely && is_close[least.top().second] == 0; ++i) {
    const std::size_t g = least.top().second;
    least.pop();
    is_close[g] = 1;
    bounds[g] = lower(grids[g]);
    least.push({bounds[g].seconds, g});
  }
  return bounds;
}

double Bounds::least_usd(const Grid& grid, const Bound& bound) const {
  return bound.seconds * price_[at(grid.stages * grid.pipelines)];
}

Bound lower_bound(const Problem& problem, const Grid& grid) {
  return Bounds(problem).lower(grid);
}

std::vector<Bound> lower_bounds(const Problem& problem, const Grid& grid) {
  return Bounds(problem).all(grid);
}

}  // namespace longhaul
