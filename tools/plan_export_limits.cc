// What the targets of an export ask of a plan, for a search that makes no other plans. Each limit
// answers a refusal of plan_export_refusals.cc.

#include "tools/plan_export.h"

namespace longhaul {

std::optional<ExportTarget> export_target(std::string_view name) {
  for (const ExportTarget each :
       {ExportTarget::kTorchrun, ExportTarget::kMegatron, ExportTarget::kTorchtitan}) {
    if (name == name_of(each)) return each;
  }
  return std::nullopt;
}

Result<Expressible> expressible_by(ExportTarget target, const Topology& topology, const Job& job) {
  // What is refused of the whole model on one device is refused of every plan.
  Plan least;
  least.layers = {job.model.layers};
  least.devices = {{0}};
  least.micro_batches = {static_cast<int>(job.global_batch)};
  least.in_flight = default_in_flight(least.family, 1, least.micro_batches.front());
  for (Error& refusal : export_refusals(target, least, topology, job))
    return std::unexpected(std::move(refusal));
  const bool is_torchtitan = target == ExportTarget::kTorchtitan;
  return Expressible{.equal_shares = true,
                     .equal_layers = target == ExportTarget::kTorchrun,
                     .own_depths = true,
                     .has_gpipe = target != ExportTarget::kMegatron,
                     .micro_batch_a_stage = is_torchtitan,
                     .one_stage = is_torchtitan && job.model.tied_embedding};
}

}  // namespace longhaul
