// What `simulate --steps | --days | --tokens` prints of a run that has not been: text for people
// and JSON (docs/formats.md). Pure functions; any thread.
#pragma once

#include <string>

#include "core/job.h"
#include "core/plan.h"
#include "core/result.h"
#include "netsim/run_simulation.h"

namespace longhaul {

/// How long a run is to be, as the command line says it; 0 or empty: not said.
struct RunLength {
  std::uint64_t steps = 0;
  double days = 0;
  std::string tokens;  // `10B`; k, M, B, T or none

  bool is_said() const { return steps > 0 || days > 0 || !tokens.empty(); }
};

/// Errors (kInvalid): a number of tokens that is none.
Result<RunLimits> limits_of(const RunLength& length, const Job& job);

/// Fills what the conditions leave to the job: how often checkpoints are written, and how long one
/// takes (says so in `assumed`).
void complete_checkpoints(Conditions& conditions, const Job& job, const Plan& plan,
                          std::string& assumed);

std::string forecast_text(const RunForecast& run);
std::string forecast_json(const RunForecast& run);
/// One line while it runs: `day 3.2 of 30, 16,000 steps, 2 failures`.
std::string forecast_progress(const RunForecast& run, const RunLimits& limits);

}  // namespace longhaul
