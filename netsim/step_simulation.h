// Simulates one training step of a plan: every instruction of every tasklet, every transfer as a
// flow on the shared network, the all-reduces, the commit barrier and the update. This is tier T3
// of the cost model, the judge of all others.
//
// Deterministic: same topology, job and plan give the same result to the last picosecond. Calls are
// independent and may run on different threads.
//
// What is modelled: compute times from the device tables; each transfer's serialisation on the
// max-min shares of everything that it crosses, then its latency; all-reduces in the plan's shapes
// (netsim/exchange.h); PREPARE to the coordinator and COMMIT back; AdamW; and, where conditions are
// given, links that change, traffic of others, jitter, lost packets and slow devices
// (netsim/conditions.h). What is not: the time to fold a shard (a memory-speed pass, three orders
// faster than the wire).
#pragma once

#include <cstdint>
#include <vector>

#include "core/gradient_exchange.h"
#include "core/job.h"
#include "core/model_math.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/schedule.h"
#include "core/topology.h"
#include "core/units.h"
#include "netsim/conditions.h"

namespace longhaul {

/// Where a tasklet's time goes; the parts add up to the step.
struct TaskletTimes {
  Seconds compute;   // forwards, recomputes, backwards
  Seconds transfer;  // idle while the awaited activation or gradient was on its way
  Seconds bubble;    // idle because the awaited tensor was not computed yet
  Seconds reduce;    // from its last backward until its gradients are reduced
  Seconds commit;    // waiting for the coordinator's commit, and for others' updates at the end
  Seconds update;
};

/// Traffic from one site to another (or inside one).
struct LinkTraffic {
  int from_site = 0;
  int to_site = 0;
  Bytes raw;   // tensor bytes before codecs and headers
  Bytes wire;  // bytes on the wire
};

/// One bar of the timeline.
struct TimelineSlice {
  Op op = Op::kForward;
  int micro_batch = -1;
  int cell = 0;   // whose lane it is on
  int peer = -1;  // cell at the other end of a transfer; -1 for work on the device itself
  SimTime start;
  SimTime end;
  Bytes wire = {};  // of a transfer, which occupies its lane from start to end
};

/// What the end of the step waited for, last cause by last cause back to its beginning.
enum class CriticalKind { kCompute, kUpdate, kBandwidth, kLatency };
struct CriticalPart {
  CriticalKind kind = CriticalKind::kCompute;
  int from = 0;  // compute and update: device; bandwidth and latency: site
  int to = 0;    // site
  Seconds time;
};

struct StepResult {
  Seconds step;
  std::vector<TaskletTimes> tasklets;   // by cell
  std::vector<LinkTraffic> traffic;     // by from_site, then to_site; only pairs with traffic
  std::vector<TimelineSlice> timeline;  // in order of their end; empty unless asked for
  std::vector<TimelineSlice> exchange_messages;  // of which exchanges are made; likewise
  /// Parts of the critical path, equal ones joined; the longest first. They add up to the step.
  std::vector<CriticalPart> critical;
  std::size_t flows = 0;
  double usd = 0;  // devices of the plan and egress, for this step
};

struct StepOptions {
  bool timeline = false;
  const Conditions* conditions = nullptr;  // null: nothing is unusual
  Seconds begin = {};                      // of the step, after the run's
  std::uint64_t step = 0;                  // its number: jitter of steps differs
  Visit visit = Visit::kLater;             // of its samples, which AQ codecs ask
};

/// Errors: those of build_graph (a schedule that dead-locks); kInfeasible when the step takes more
/// than 50 days. The plan must fit topology and job as
/// load_plan checks.
Result<StepResult> simulate_step(const Topology& topology, const Job& job, const Plan& plan,
                                 const StepOptions& options = {});

/// Bytes of a message between two devices: its tensor, and what it takes on the wire under a codec,
/// which acts between sites only.
struct MessageSize {
  Bytes raw;
  Bytes wire;
};
/// Activations of one micro-batch from a stage to the next, in the plan's codec for the two sites.
/// An AQ codec's later visits find a history as often as there is room for (hit_rate); what they do
/// not find travels as on a first one, and the bytes are the mean of both.
MessageSize activation_message(const Topology& topology, const Job& job, const Plan& plan,
                               int pipeline, int stage, Visit visit = Visit::kLater);
/// Their gradients, from the next stage back to `stage`.
MessageSize activation_gradient_message(const Topology& topology, const Job& job, const Plan& plan,
                                        int pipeline, int stage);
/// Whether the samples' first visit takes other bytes: an AQ codec acts between two sites.
bool asks_visit(const Topology& topology, const Job& job, const Plan& plan);
/// A part of a gradient on its way to its owner, or the sum back.
MessageSize gradient_message(const Topology& topology, Codec codec,
                             const GradientElements& elements, int from_device, int to_device);

}  // namespace longhaul
