// Why a plan takes as long as it does: what each tier of the cost model says of it, how full its
// devices are, and what faster or nearer links would save with the plan as it is.
//
// Deterministic whatever the thread count; may be called from any thread.
#pragma once

#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"
#include "planner/bounds.h"
#include "planner/cost_model.h"
#include "planner/device_limits.h"

namespace longhaul {

struct DeviceMemory {
  int device = 0;
  int stage = 0;
  Bytes need;  // runtime included
  Bytes size;
};

/// The links between two sites, both directions together, and what the simulated step (T3) saves
/// when both get better and nothing else changes; negative: the step gets longer.
struct LinkSensitivity {
  int site = 0;
  int other = 0;
  Bytes wire;                // a step
  Seconds busy;              // the more loaded direction's bytes at one flow's rate
  Seconds saved_by_rate;     // 10 % more
  Seconds saved_by_latency;  // 1 ms less one way, or none where it is less
};

struct Explanation {
  bool any_all_reduce = false;
  std::vector<Bound> bounds;  // T0 of the plan's grid, the binding one first
  ClosedForm closed_form;     // T1 with in-flight depths of its own, which our search's plans have
  int slowest_pipeline = 0;
  Seconds pipeline;                    // T2 of that one: its last backward, on links of its own
  Seconds step;                        // T3
  std::vector<DeviceMemory> memory;    // the fullest first
  std::vector<LinkSensitivity> links;  // the busiest between sites, at most 5; busiest first
};

/// The plan must fit topology and job as load_plan and check_memory check.
/// `limits`, `any_all_reduce`: under which it was found; they decide the bounds' devices and
/// exchanges.
Result<Explanation> explain_plan(const Topology& topology, const Job& job, const Plan& plan,
                                 const DeviceLimits& limits, bool any_all_reduce, int threads);

/// The link whose higher rate saves most; null when none saves a thousandth of the step.
const LinkSensitivity* limiting_link(const Explanation& explanation);

}  // namespace longhaul
