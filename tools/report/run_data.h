// What a run left in its folder, as the report shows it: result.json, metrics.jsonl and the
// measured step of timeline.json. Read-only once made.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/topology.h"
#include "netsim/step_simulation.h"
#include "tools/report/chart.h"
#include "tools/run_result.h"

namespace longhaul {

/// Of typical steps, means over steps and devices; seconds.
struct MeasuredParts {
  double compute = 0, wait = 0, reduce = 0, commit = 0, update = 0;
  double total() const { return compute + wait + reduce + commit + update; }
};

struct RunData {
  RunResult result;
  std::vector<Point> loss;          // step, nats; of a resumed run each step once, the last counts
  std::vector<Point> validation;    // steps done, nats
  std::vector<Point> step_s;        // step, seconds
  std::vector<Point> tokens_per_s;  // step, tokens
  std::optional<MeasuredParts> parts;
  std::vector<TimelineSlice> measured;  // of one step, from 0; empty where there is none
};

/// The files of a run's folder; a step is a line of metrics.jsonl.
struct RunTexts {
  std::string result;
  std::string metrics;
  std::string timeline;  // may be empty
};

/// Errors (kInvalid) name the file, and the line of metrics.jsonl. The last line of metrics.jsonl
/// may be cut off, as a run's that was killed is.
Result<RunData> parse_run(const RunTexts& texts, const std::string& folder,
                          const Topology& topology, const Plan& plan);

/// The slices of a timeline's process group (netsim/timeline.h), as they are in it; of tasklets
/// and devices that the plan does not have, none.
Result<std::vector<TimelineSlice>> parse_timeline(std::string_view text, const std::string& name,
                                                  std::string_view group, const Topology& topology,
                                                  const Plan& plan);

}  // namespace longhaul
