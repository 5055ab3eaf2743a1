#include "planner/expressible.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/problem.h"

namespace longhaul {

bool allows(const Expressible& wanted, const Grid& grid, const Job& job) {
  const std::int64_t batches = job.global_batch / grid.micro_batch;
  if (wanted.equal_shares && batches % grid.pipelines != 0) return false;
  if (wanted.equal_layers && job.model.layers % grid.stages != 0) return false;
  if (wanted.one_stage && grid.stages > 1) return false;
  return !wanted.micro_batch_a_stage || grid.stages == 1 || batches / grid.pipelines >= grid.stages;
}

Plan restricted(const Expressible& wanted, Plan plan, const Job& job) {
  LH_CHECK(allows(wanted, grid_of(plan), job), "only plans of an allowed grid are restricted");
  if (wanted.equal_shares) {
    const int all = std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), 0);
    plan.micro_batches.assign(plan.micro_batches.size(), all / plan.pipelines());
  }
  if (wanted.equal_layers) plan.layers.assign(plan.layers.size(), job.model.layers / plan.stages());
  if (wanted.own_depths) {
    const int most = *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end());
    if (plan.family != ScheduleFamily::kGpipe || !wanted.has_gpipe) {
      plan.family = ScheduleFamily::kOneForwardOneBackward;
      plan.orders.clear();
    }
    plan.in_flight = default_in_flight(plan.family, plan.stages(), most);
  }
  if (wanted != Expressible{}) {
    plan.activation_codecs.clear();
    plan.reductions.clear();
  }
  return plan;
}

bool is_expressible(const Expressible& wanted, const Plan& plan, const Job& job) {
  if (wanted == Expressible{}) return true;
  if (!allows(wanted, grid_of(plan), job)) return false;
  const Plan same = restricted(wanted, plan, job);
  return same.layers == plan.layers && same.micro_batches == plan.micro_batches &&
         same.family == plan.family && same.in_flight == plan.in_flight &&
         plan.activation_codecs.empty() && plan.reductions.empty();
}

}  // namespace longhaul
