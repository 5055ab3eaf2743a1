// A run of many steps under conditions: how long steps take over days, what failures cost, when the
// tokens are trained and for how much money.
//
// Steps that begin in the same state of the network and the devices, and end before it changes,
// take the same time; each state is simulated once, with jitter kSamplesWithJitter times, of which
// later steps draw. A step during which something changes is simulated where it stands.
//
// Where an AQ codec acts and the job says how many samples there are, the steps of the first epoch
// are simulated as first visits, and so are an epoch's after a failure, unless checkpoints hold the
// histories.
//
// A failure follows the executor's rules (executor/README.md): heartbeats notice it, the run ends,
// and when there is a device again it goes on from the last checkpoint; what was done since is done
// again. Deterministic: failures and jitter follow from the conditions' seed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"
#include "netsim/conditions.h"

namespace longhaul {

inline constexpr int kSamplesWithJitter = 64;
inline constexpr std::size_t kRunPoints = 512;

/// Where a run ends: whichever comes first. At least one must be finite.
struct RunLimits {
  std::uint64_t steps = UINT64_MAX;
  Seconds time = Seconds(std::numeric_limits<double>::infinity());
};

/// Steps that ended in one stretch of the run.
struct RunPoint {
  Seconds end;    // of the last of them
  Seconds total;  // of their times
  Seconds longest;
  std::uint64_t steps = 0;
  std::uint64_t failures = 0;
};

struct RunForecast {
  std::uint64_t steps = 0;  // done, those that were lost and done again counted once
  double tokens = 0;
  Seconds time;  // all of it: productive + lost + waiting + checkpoints
  Seconds productive;
  Seconds lost;     // steps that failures undid, and those at which they came
  Seconds waiting;  // notice, repair, restart
  Seconds checkpoints;
  std::uint64_t failures = 0;
  Seconds step_mean, step_p50, step_p95, step_p99, step_longest;  // of all steps, lost ones too
  Seconds step_undisturbed;
  double usd = 0;  // devices of the plan all the time, egress of all steps
  std::uint64_t simulated = 0;
  bool interrupted = false;      // by should_stop; all above holds until then
  std::vector<RunPoint> points;  // at most kRunPoints, in order of time

  /// Effective training time ratio: productive time / all time (Kokolis et al., arXiv 2410.21680).
  double effective() const { return time > Seconds(0) ? productive / time : 0; }
};

struct RunWatch {
  std::function<bool()> should_stop = {};
  std::function<void(const RunForecast&)> on_progress = {};  // now and then
};

/// How long a checkpoint holds a step up where nobody says: the weights and both moments of the
/// largest stage (12 bytes a parameter) at kCheckpointRate.
inline constexpr BytesPerSecond kCheckpointRate(1e9);
Seconds assumed_checkpoint_time(const Job& job, const Plan& plan);

/// The plan must fit as load_plan checks. Errors: those of simulate_step; kInfeasible when the run
/// fails so often that it comes to no further checkpoint.
Result<RunForecast> simulate_run(const Topology& topology, const Job& job, const Plan& plan,
                                 const Conditions& conditions, const RunLimits& limits,
                                 const RunWatch& watch = {});

}  // namespace longhaul
