// What each device executes: lists of instructions, generated once from job and plan. The
// simulator prices exactly the lists that the executor runs.
//
// A tasklet (one cell of the plan's grid, `cell = pipeline * P + stage`) has one list. Each
// instruction belongs to a lane: the compute lane, the reduce lane, and one send and one receive
// lane for each peer, since the traffic to different peers does not wait for one another. A lane
// runs its instructions in list order; the only other waits are `after` (instructions of the same
// list) and, for a receive, the peer's matching send. F, B and W run in ascending micro-batch order
// at every stage.
//
// In-order families are one rule with an in-flight vector K: stage i runs K_i forwards, then
// backwards and forwards in turn, then the remaining backwards. K_i = M everywhere is GPipe
// [Huang et al., NeurIPS 2019]; K_i = min(P - i, M) is 1F1B [Narayanan et al., SOSP 2019]; larger
// non-increasing K is eager 1F1B, which hides the latency of slow links.
//
// The greedy family splits the backward: BWD_INPUT makes the gradient that the stage before waits
// for, BWD_WEIGHT fills the time in which nothing else can run [Qi et al., zero bubble pipeline
// parallelism, ICLR 2024]. Which order that gives is found by planner/greedy_schedule and frozen in
// the plan, so that a run never decides anything.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/units.h"

namespace longhaul {

enum class Lane : std::uint8_t { kCompute, kSend, kReceive, kReduce };

enum class Op : std::uint8_t {
  kReceiveActivation,
  kForward,
  kSendActivation,
  kReceiveGradient,
  kRecompute,
  kBackward,        // whole: of the input and of the weights
  kBackwardInput,   // split: of the input; SEND_GRAD follows it
  kBackwardWeight,  // split: of the weights
  kSendGradient,
  kReduce,      // data-parallel exchange of the stage's gradients
  kTiedReduce,  // exchange of the tied embedding among first and last stages
  kPrepare,     // tell the coordinator that the gradients are ready
  kUpdate,      // optimiser, after the coordinator's commit
};
/// `FWD`, `SEND_ACT`, ... as in logs and messages.
std::string_view name_of(Op op);
Lane lane_of(Op op);

struct Instruction {
  Op op = Op::kForward;
  int micro_batch = -1;  // -1: not about one micro-batch
  int peer = -1;         // cell at the other end of a send or receive
  /// Indices into the same list that must be done first; -1 = none.
  std::array<std::int32_t, 2> after = {-1, -1};
};

/// One tasklet's list.
struct TaskletSchedule {
  int pipeline = 0;
  int stage = 0;
  std::vector<Instruction> instructions;
};

struct Schedule {
  int stages = 0;
  int pipelines = 0;
  std::vector<TaskletSchedule> tasklets;  // [pipeline * stages + stage]

  /// "stage 2 of pipeline 0".
  std::string name_of_cell(int cell) const;
};

/// The lists of a step for a plan that load_plan or the planner made. A stage's K is capped at its
/// pipeline's number of micro-batches; of an order, what a pipeline does not have is left out.
Schedule make_schedule(const Plan& plan, const Job& job);

/// A schedule as a graph: nodes are instructions in tasklet order, an edge means "must be done
/// before". Lane order, `after`, and send before receive. Collective instructions wait inside
/// themselves and have no edges across tasklets here.
struct ScheduleGraph {
  std::vector<std::int32_t> first_node;  // of each tasklet; tasklets + 1 entries
  std::vector<std::int32_t> waits;       // number of predecessors, by node
  std::vector<std::int32_t> next_begin;  // successors of node n: next[next_begin[n] .. [n+1])
  std::vector<std::int32_t> next;

  std::size_t size() const { return waits.size(); }
};

/// Errors (kInvalid): a send without its receive or the reverse, an `after` outside its list, or a
/// cycle, which is a dead-lock and is named instruction by instruction.
Result<ScheduleGraph> build_graph(const Schedule& schedule);

}  // namespace longhaul
