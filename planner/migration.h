// What it takes to go from one plan to another: which device lacks which part of the model, who has
// it, and how long the transfers take.
//
// A device that changes its stage keeps what both stages have. Everything else comes as fp32 weight
// and AdamW's m and v, 12 bytes a parameter, from the device that can send it fastest among those
// that had it; of equal ones from the one that sends least so far. What no device has any more
// comes from the last checkpoint, which lies with the coordinator: the first device of its site
// stands for it. All transfers start together on the max-min shares of the network (netsim), so
// moving takes as long as the last of them: for one receiver alone bytes x header factor / rate +
// latency. Steps that are lost since the checkpoint are not counted.
//
// Pure functions.
#pragma once

#include <vector>

#include "core/plan.h"
#include "planner/problem.h"

namespace longhaul {

/// In the plan before: a device that is there no more.
inline constexpr int kGone = -1;

/// What one device gets from another.
struct Move {
  int from_device = 0;
  int to_device = 0;
  bool from_checkpoint = false;  // from_device stands for the coordinator
  std::vector<int> layers;       // ascending; may be empty
  bool ends = false;             // embedding, final norm or head
  Bytes bytes;                   // without headers
};

struct Migration {
  std::vector<Move> moves;  // by receiver in the order of the cells, then by sender
  Bytes bytes;              // of all
  Seconds time;
};

/// From `before`, whose devices may be kGone, to `after`; both of the topology and the job.
Migration migration_between(const Topology& topology, const Job& job, const Plan& before,
                            const Plan& after);

/// `after` with devices exchanged that make no difference to its step (of one kind on one node, or
/// whole nodes of one site that are alike), so that less moves.
Plan with_less_to_move(const Topology& topology, const Job& job, const Plan& before, Plan after);

}  // namespace longhaul
