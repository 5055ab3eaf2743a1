// Metis [Um et al., USENIX ATC 2024; code commit 4b24046 read for facts]. Device kinds in an order,
// stages cut from it, layers by measured speed, micro-batches by the pipelines' speeds. Its cost:
// (n - 1) x slowest stage + all stages + sends at bandwidth alone + the slowest all-reduce. Given
// more than it has: the bandwidth of each pair of devices, stages of any size, idle devices.
//
// Exhaustive over grids and orders of kinds, up to the caps below.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "planner/baseline_parts.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxOrders = 720;          // of 6 kinds
constexpr std::size_t kMaxEvaluations = 30'000;  // of a grid in an order, least bound first

using Order = std::vector<int>;  // of kinds

/// Orders of the kinds that the problem can use, the fastest kind first to begin with.
std::vector<Order> orders_of_kinds(const Problem& problem) {
  Order kinds;
  for (const int device : problem.usable()) {
    const int kind = problem.topology().devices[static_cast<std::size_t>(device)].kind;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  // Positions are permuted, not kinds: their order in the cluster file does not matter.
  Order positions(kinds.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<Order> orders;
  do {
    orders.emplace_back();
    for (const int position : positions)
      orders.back().push_back(kinds[static_cast<std::size_t>(position)]);
  } while (std::next_permutation(positions.begin(), positions.end()) && orders.size() < kMaxOrders);
  return orders;
}

/// The devices, kind after kind in that order, by name in a kind.
std::vector<int> in_order(const Problem& problem, const std::vector<int>& devices,
                          const Order& order) {
  std::vector<int> out;
  for (const int kind : order) {
    for (const int device : devices) {
      if (problem.topology().devices[static_cast<std::size_t>(device)].kind == kind)
        out.push_back(device);
    }
  }
  return out;
}

struct Priced {
  double seconds = 0;
  std::vector<int> shares;
};

Priced price(const Problem& problem, const Grid& grid, const Layout& layout,
             const std::vector<int>& layers) {
  const std::vector<StageShape> shapes = stage_shapes(layers);
  std::vector<double> fills;
  std::vector<double> periods;
  for (const std::vector<int>& row : layout) {
    double fill = 0;
    double period = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const StageTime time = stage_time(problem, shapes[i], grid.micro_batch, row[i]);
      fill += time.forward + time.backward;
      period = std::max(period, time.forward + time.backward);
      if (i + 1 == row.size()) continue;
      const double bytes = boundary_wire_bytes(problem, grid.micro_batch, row[i], row[i + 1]);
      fill += bytes / problem.rate(row[i], row[i + 1]) + bytes / problem.rate(row[i + 1], row[i]);
    }
    fills.push_back(fill);
    periods.push_back(period);
  }
  Priced out;
  out.shares = share_micro_batches(fills, periods,
                                   static_cast<int>(problem.job().global_batch / grid.micro_batch));
  for (std::size_t d = 0; d < layout.size(); ++d)
    out.seconds = std::max(out.seconds, fills[d] + (out.shares[d] - 1) * periods[d]);
  double exchange = 0;
  const auto replicas = static_cast<double>(layout.size());
  for (std::size_t i = 0; i < shapes.size() && layout.size() > 1; ++i) {
    std::vector<int> group;
    for (const std::vector<int>& row : layout) group.push_back(row[i]);
    exchange = std::max(exchange, 2 * (replicas - 1) / replicas *
                                      gradient_wire_bytes(problem, shapes[i], grid.stages) /
                                      slowest_link(problem, group).rate);
  }
  out.seconds += exchange;
  return out;
}

}  // namespace

std::vector<Plan> metis_candidates(const Problem& problem, const PolicyOptions& options) {
  const std::vector<Order> orders = orders_of_kinds(problem);
  std::optional<Plan> best;
  double least = std::numeric_limits<double>::infinity();
  std::size_t evaluations = 0;
  for (const BoundedGrid& bounded : grids_by_bound(problem, options.limits)) {
    if (bounded.bound_s >= least || evaluations >= kMaxEvaluations) break;
    const Grid& grid = bounded.grid;
    const Evaluator evaluator(problem, grid);
    const std::vector<int> devices = fastest_by_name(problem, grid);
    std::vector<Layout> seen;
    for (const Order& order : orders) {
      const Layout layout = stages_outermost(in_order(problem, devices, order), grid.stages);
      // Orders differ only by kinds that this grid leaves idle.
      if (std::find(seen.begin(), seen.end(), layout) != seen.end()) continue;
      seen.push_back(layout);
      ++evaluations;
      std::vector<int> cells;
      for (const std::vector<int>& row : layout) cells.insert(cells.end(), row.begin(), row.end());
      const std::vector<int> layers = evaluator.split_layers(cells);
      Priced priced = price(problem, grid, layout, layers);
      if (priced.seconds >= least) continue;
      Plan plan = even_plan(problem.topology(), problem.job(), layout, grid.micro_batch,
                            ScheduleFamily::kOneForwardOneBackward);
      plan.layers = layers;
      plan.micro_batches = std::move(priced.shares);
      plan.in_flight = default_in_flight(
          plan.family, grid.stages,
          *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end()));
      if (!check_memory(plan, problem.topology(), problem.job())) continue;
      least = priced.seconds;
      best = std::move(plan);
    }
  }
  if (!best) return {};
  return {std::move(*best)};
}

}  // namespace longhaul
