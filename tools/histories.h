// What `simulate`, `plan --explain` and `launch` say of the samples' histories that a plan with AQ
// codecs keeps.
#pragma once

#include <string>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"
#include "core/units.h"
#include "executor/run/run_spec.h"

namespace longhaul {

/// A table of the boundaries with histories: samples, how many are kept, and the room of the fuller
/// end; empty where there is none.
std::string histories_text(const Plan& plan, const Topology& topology, const Job& job);
/// A JSON list, empty where there is none.
std::string histories_json(const Plan& plan, const Topology& topology, const Job& job);
/// What `launch` says of them, whose data is at hand: the room of the fullest worker, samples that
/// find none, and a job that counts on other data. Empty where there is none.
std::vector<std::string> history_lines(const RunSpec& spec);
/// The line about the first epoch; `step`: of first visits.
std::string first_epoch_text(const Job& job, Seconds step);

}  // namespace longhaul
