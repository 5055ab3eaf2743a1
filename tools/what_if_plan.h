// The plan in use on a changed cluster or job, as a person would go on with it: the same layers and
// devices where they are there, idle devices in the place of those that are gone, micro-batches in
// proportion where the batch is another.
#pragma once

#include <string>
#include <vector>

#include "core/plan.h"
#include "tools/what_if_world.h"

namespace longhaul {

struct KeptPlan {
  Plan plan;
  std::vector<std::string> notes;  // what had to be changed
};

/// `plan` is one of the base's topology and job. Errors (kInfeasible) say why it cannot be kept.
Result<KeptPlan> kept_plan(const WhatIfBase& base, const Plan& plan, const World& world);

}  // namespace longhaul
