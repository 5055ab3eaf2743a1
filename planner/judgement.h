// Plans with their simulated step (T3), by which plans are compared in the end.
#pragma once

#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "netsim/step_simulation.h"
#include "planner/problem.h"

namespace longhaul {

/// A plan with its simulated step.
struct JudgedPlan {
  Plan plan;
  StepResult step;           // T3
  double closed_form_s = 0;  // T1; 0 for a plan that the closed form did not lead to
};

/// The steps of plans, simulated on several threads, in the order given.
std::vector<Result<StepResult>> simulate_all(const Topology& topology, const Job& job,
                                             const std::vector<Plan>& plans, int threads);

/// The same for plans that can all be simulated, else the first error.
Result<std::vector<JudgedPlan>> judge(const Topology& topology, const Job& job,
                                      std::vector<Plan> plans, int threads);

/// What the goal makes small, then the other of the two; infinite where it costs too much.
std::pair<double, double> value_of(const JudgedPlan& judged, const Goal& goal);

/// About how many transfers the simulation of such a plan has.
double transfers_of(const Plan& plan);

}  // namespace longhaul
