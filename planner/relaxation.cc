#include "planner/relaxation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/layouts.h"
#include "planner/parallel.h"

namespace longhaul {
namespace {

constexpr double kMiB = 1048576;

/// For each number of stages the grid that needs least memory: a larger micro-batch or a further
/// pipeline never needs less. possible_grids lists it first.
std::vector<Grid> smallest_grids(const Problem& problem, const GridLimits& limits) {
  std::set<int> seen;
  std::vector<Grid> grids;
  for (const Grid& grid : possible_grids(problem, limits)) {
    if (seen.insert(grid.stages).second) grids.push_back(grid);
  }
  return grids;
}

/// Whether a structured placement of some grid fits its memory.
bool fits(const Topology& topology, const Job& job, const SearchOptions& options) {
  const Result<std::vector<char>> admitted = admitted_devices(topology, options.devices);
  if (!admitted) return false;
  const Problem all(topology, job, *admitted);
  if (all.usable().empty()) return false;
  for (const std::vector<char>& choice : site_choices(all, options.devices.sites_max)) {
    const Problem problem(topology, job, choice, {}, options.rules);
    const Layouts layouts(problem);
    const std::vector<Grid> grids = smallest_grids(problem, options.limits);
    std::vector<char> grid_fits(grids.size(), 0);
    parallel_for(static_cast<int>(grids.size()), options.threads, [&](int g) {
      const auto slot = static_cast<std::size_t>(g);
      Evaluator evaluator(problem, grids[slot]);
      const std::vector<Scored> best = layouts.candidates(evaluator, 1, Layouts::Breadth::kAll);
      grid_fits[slot] = best.front().value < Evaluator::kOverflow ? 1 : 0;
    });
    if (std::find(grid_fits.begin(), grid_fits.end(), 1) != grid_fits.end()) return true;
  }
  return false;
}

/// The least memory, in MiB and within 2 %, that every device of a kind must gain; 0 when `missing`
/// is not enough.
double memory_wanted(const Topology& topology, const Job& job, const SearchOptions& options,
                     std::size_t kind, double missing) {
  Topology changed = topology;
  const auto fits_with = [&](double more) {
    changed.kinds[kind].memory = topology.kinds[kind].memory + Bytes(more * kMiB);
    return fits(changed, job, options);
  };
  double enough = std::ceil(missing / kMiB);
  if (!fits_with(enough)) return 0;
  double little = 0;
  while (enough - little > std::max(1.0, enough / 50)) {
    const double middle = std::floor((little + enough) / 2);
    (fits_with(middle) ? enough : little) = middle;
  }
  return enough;
}

}  // namespace

Relaxations relaxations(const Topology& topology, const Job& job, const SearchOptions& options,
                        Bytes missing) {
  Relaxations found;
  const auto try_out = [&](const std::string& what, const Job& changed_job,
                           const SearchOptions& changed) {
    (fits(topology, changed_job, changed) ? found.enough : found.not_enough).push_back(what);
  };
  if (has_history(job.activations) && (!job.history || job.history->memory > Bytes(0))) {
    Job changed = job;
    if (!changed.history) changed.history.emplace();
    changed.history->memory = Bytes(0);
    try_out("less `memory` in the job's `compression.history`", changed, options);
  }
  if (job.recompute != Recompute::kYes) {
    Job changed = job;
    changed.recompute = Recompute::kYes;
    try_out("`recompute: true` in the job", changed, options);
  }
  if (options.limits.micro_batch > 1 || (options.limits.micro_batch == 0 && job.micro_batch > 1)) {
    SearchOptions changed = options;
    changed.limits.micro_batch = 1;
    try_out("micro-batches of 1 sequence", job, changed);
  }
  if (options.limits.stages > 0) {
    SearchOptions changed = options;
    ++changed.limits.stages;
    try_out(fmt::format("one more stage ({})", changed.limits.stages), job, changed);
  }
  if (!text_of(options.devices).empty()) {
    SearchOptions changed = options;
    changed.devices = {};
    try_out("all devices of the cluster", job, changed);
  }
  const Result<std::vector<char>> admitted = admitted_devices(topology, options.devices);
  std::set<int> kinds;
  if (admitted) {
    for (const int device : Problem(topology, job, *admitted).usable())
      kinds.insert(topology.devices[static_cast<std::size_t>(device)].kind);
  }
  for (const int kind : kinds) {
    const auto slot = static_cast<std::size_t>(kind);
    const std::string& name = topology.kinds[slot].name;
    const double more = memory_wanted(topology, job, options, slot, missing.value());
    if (more > 0) {
      found.enough.push_back(fmt::format("{:.0f} MiB more on every {}", more, name));
    } else {
      found.not_enough.push_back(fmt::format("more memory on {} only", name));
    }
  }
  return found;
}

}  // namespace longhaul
