// Writes a step as a Chrome trace (JSON), which ui.perfetto.dev and chrome://tracing open: one
// process a site, one thread for each device's compute lane, its outgoing transfers and its
// reductions. Times are microseconds of simulated time. Same slices, same bytes.
#pragma once

#include <span>
#include <string>

#include "core/plan.h"
#include "core/topology.h"
#include "netsim/step_simulation.h"

namespace longhaul {

/// `result` must have been simulated with StepOptions::timeline.
std::string timeline_json(const StepResult& result, const Topology& topology, const Plan& plan);

/// One account of a step, to be laid over others of the same plan.
struct TimelineGroup {
  std::string name;  // before the name of each site; may be empty
  std::span<const TimelineSlice> slices;
};
/// Every group has processes of its own, in the order given.
std::string timeline_json(std::span<const TimelineGroup> groups, const Topology& topology,
                          const Plan& plan);

}  // namespace longhaul
