// What differs between two plans: of the run that they describe, not of the files. Devices and
// sites are compared by name, so the plans may be for two versions of a cluster.
#pragma once

#include <string>

#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"

namespace longhaul {

/// A plan with what it is for.
struct LoadedPlan {
  std::string path;
  Topology topology;
  Job job;
  PlanFile file;
};
/// Loads the cluster and the job that the plan file names, then the plan.
Result<LoadedPlan> load_plan_with_inputs(const std::string& path);

struct PlanComparison {
  /// Layers, devices in their order, batch, schedule and coordinator are the same. Predictions and
  /// who planned are not part of a plan.
  bool same = false;
  std::string text;  // for people: the rows that differ, and the predictions
};
PlanComparison compare_plans(const LoadedPlan& before, const LoadedPlan& after);

}  // namespace longhaul
