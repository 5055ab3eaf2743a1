#include "planner/dtfm_solve.h"

#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/dtfm_breeding.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Costs of one placement, added up by device and by type, differ by rounding.
constexpr double kRelativeTolerance = 1e-9;

}  // namespace

DtfmSolution dtfm_solve(const DtfmInstance& instance, const DtfmSolveOptions& options) {
  std::optional<DtfmBound> bound;
  const auto work_out_bound = [&](double known_s) {
    bound = dtfm_lower_bound(instance, {known_s, options.bound_work, options.search.should_stop});
    // What is proven need not be searched for.
    return bound->exact ? kInfinity : bound->seconds * (1 + kRelativeTolerance);
  };
  DtfmSearchOptions search = options.search;
  search.lower_bound = work_out_bound;
  DtfmSearchResult found = dtfm_search(instance, search);

  DtfmSolution solution{std::move(found.partition), std::move(found.cost), bound->seconds,
                        bound->binding, found.evaluations};
  if (!bound->cheaper.empty()) {
    std::vector<int> in_order(bound->cheaper.size());
    std::iota(in_order.begin(), in_order.end(), 0);
    DtfmPartition partition =
        arrange_dtfm(instance, partition_of(DtfmTypes::of(instance), bound->cheaper), in_order);
    DtfmCost cost = evaluate_dtfm_in_order(instance, partition);
    if (cost.total_s < solution.cost.total_s) {
      solution.partition = std::move(partition);
      solution.cost = std::move(cost);
    }
  }
  if (solution.cost.total_s <= solution.lower_bound_s * (1 + kRelativeTolerance)) {
    solution.lower_bound_s = solution.cost.total_s;
    solution.binding = "exact";
  }
  return solution;
}

}  // namespace longhaul
