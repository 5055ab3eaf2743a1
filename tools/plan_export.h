// What other trainers need to run a plan's layout: who is which rank, the sizes of the split, the
// layers of each stage, in the files that the trainer reads.
//
// Rank r of all three targets is stage r / D of pipeline r mod D: the order of Megatron (tp-cp-ep-
// dp-pp) and of torchtitan's mesh (pp outermost). Ranks that follow one another on a node share one
// torchrun, which numbers its processes from the sum of those before it; so every placement can be
// said, also one that comes back to a node.
//
// Plain functions of values, for any thread. Same plan, same bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/topology.h"
#include "planner/expressible.h"

namespace longhaul {

enum class ExportTarget { kTorchrun, kMegatron, kTorchtitan };
std::string_view name_of(ExportTarget target);
/// By name; none for any other name.
std::optional<ExportTarget> export_target(std::string_view name);

struct ExportedFile {
  std::string name;  // inside the export's folder
  std::string text;
};

struct ExportedPlan {
  std::vector<ExportedFile> files;
  /// What the target does otherwise than the plan says, without another layout: one sentence each.
  std::vector<std::string> notes;
};

/// Why the target cannot express the plan (kInfeasible each); empty: it can.
std::vector<Error> export_refusals(ExportTarget target, const Plan& plan, const Topology& topology,
                                   const Job& job);

/// What a plan must keep to so that the target can express it. An error is the refusal of a job of
/// which it can express no plan.
Result<Expressible> expressible_by(ExportTarget target, const Topology& topology, const Job& job);

/// `plan_name`: the plan's path, for the comments in the files. Refuses (kInfeasible, all reasons
/// at once) what the target cannot express: shares that differ between pipelines, another schedule
/// or depth than its own, and what its models lack.
Result<ExportedPlan> export_plan(ExportTarget target, const Plan& plan, const Topology& topology,
                                 const Job& job, const std::string& plan_name);

}  // namespace longhaul
