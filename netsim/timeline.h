// Writes a simulated step as a Chrome trace (JSON), which ui.perfetto.dev and chrome://tracing
// open: one process a site, one thread for each device's compute lane, its outgoing transfers and
// its reductions. Times are microseconds of simulated time. Same result, same bytes.
#pragma once

#include <string>

#include "core/plan.h"
#include "core/topology.h"
#include "netsim/step_simulation.h"

namespace longhaul {

/// `result` must have been simulated with StepOptions::timeline.
std::string timeline_json(const StepResult& result, const Topology& topology, const Plan& plan);

}  // namespace longhaul
