// What all processes of a run must agree on: the job, the grid, who is which rank, where the run
// begins. The coordinator makes it, every worker gets the same text; what a process does follows
// from it and its rank alone.
//
// Rank 0 is the coordinator, rank 1 + cell the worker of that cell (cell = pipeline * P + stage).
// A plain value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/history_budget.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/schedule.h"
#include "executor/checkpoint/manifest.h"
#include "executor/collective/exchange_layout.h"
#include "executor/control/coordinator.h"
#include "executor/control/schedule_of_rates.h"
#include "executor/data/sequence_source.h"
#include "kernels/model_stage.h"

namespace longhaul {

inline constexpr int kCoordinatorRank = 0;

struct RankPlace {
  std::string name;  // of the device, `oregon-1/0`; of the coordinator, `coordinator`
  std::string node;
  int site = 0;
};

/// How many TCP streams a tensor between workers of two sites takes, both ways, and what the path
/// is known to carry each way (MeshConfig::rates). By site, because the pairs of workers grow with
/// their square.
struct StreamCount {
  int site = 0;   // the lower one
  int other = 0;  // the higher one
  int streams = 1;
  BytesPerSecond rate = BytesPerSecond::infinity();       // from site to other
  BytesPerSecond rate_back = BytesPerSecond::infinity();  // from other to site
};

/// Where the run begins, if not with fresh weights.
struct ResumePoint {
  CheckpointId checkpoint;
  std::vector<CheckpointFile> files;  // of the whole model
};

/// Links and devices that this machine only plays (executor/emulation). Times are emulated time.
struct EmulationSpec {
  std::string page;     // path of the shared page
  double dilation = 1;  // wall time / emulated time
  struct Device {
    double forward_s = 0, recompute_s = 0, backward_s = 0;  // of a micro-batch
    double update_s = 0;
    double backward_input_s = 0, backward_weight_s = 0;  // the halves of a split backward
  };
  std::vector<Device> devices;  // by cell
};

struct RunSpec {
  std::uint64_t id = 0;  // of the run: in the header of every frame
  std::uint32_t term = 1;
  std::string job_text;  // the job file; `job` is what it says
  Job job;               // with `training`
  Plan plan;             // its device numbers mean nothing here
  std::vector<RankPlace> ranks;
  std::vector<StreamCount> streams;  // where more than 1, or a rate; each pair of sites once
  std::string data_folder;           // where the coordinator's machine has the data
  DataIdentity train;
  std::optional<DataIdentity> validation;
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;  // the run ends before it; at most the job's steps
  std::uint64_t updates = 0;    // applied before first_step
  int skips_before = 0;         // in a row, before first_step
  std::optional<ResumePoint> resume;
  std::optional<std::uint64_t> timeline_step;  // whose instruction times are told
  std::optional<EmulationSpec> emulation;
  /// Boundary codecs that the job leaves open follow what links turn out to carry (link_pace.h).
  /// The run then depends on the clock.
  bool adapts_codecs = false;
  ControlLimits limits;

  int cells() const { return plan.stages() * plan.pipelines(); }
  int stage_of(int cell) const { return cell % plan.stages(); }
  int pipeline_of(int cell) const { return cell / plan.stages(); }
  const RankPlace& place_of_cell(int cell) const {
    return ranks[static_cast<std::size_t>(rank_of_cell(cell))];
  }
  static int rank_of_cell(int cell) { return cell + 1; }
  /// Whether the token embedding lives on two stages, and so has an exchange of its own.
  bool has_tied_exchange() const { return longhaul::has_tied_exchange(plan, job); }
};

/// The streams between this rank and every other, for MeshConfig: those of the two sites where both
/// ranks give one another tensors (neighbours of a pipeline, replicas of a stage, members of the
/// tied exchange), else 1.
std::vector<int> streams_of(const RunSpec& spec, int rank);
/// The rates from this rank to every other, likewise, else infinite.
std::vector<BytesPerSecond> link_rates_of(const RunSpec& spec, int rank);
/// The part of the model that a stage has.
ModelSlice slice_of_stage(const RunSpec& spec, int stage);
/// Of the training, for Participant.
RateSchedule rates_of(const RunSpec& spec);
/// The grid, as the commit protocol sees it.
CoordinatorConfig coordinator_config(const RunSpec& spec);
/// The exchange of a stage's gradients, without the tied embedding where that has its own.
ExchangeOptions stage_exchange(const RunSpec& spec, int stage);
/// The exchange of the tied embedding: the heads of all pipelines, then their embeddings, so that
/// the sum begins with head + embedding as it does in one process; the plan's shares are in this
/// order.
ExchangeOptions tied_exchange(const RunSpec& spec);
/// The name of the exchange of a step; `op` is REDUCE or TIED_REDUCE, whose stage is 0.
std::uint64_t exchange_operation(Op op, int stage, std::uint32_t step);
/// Where that gradient lies in a stage's gradients: first element and number of elements.
struct GradientRange {
  std::size_t first = 0;
  std::size_t count = 0;
};
GradientRange stage_gradient(const RunSpec& spec, int stage);
GradientRange tied_gradient(const RunSpec& spec, int stage);

/// How many samples' histories both ends of each boundary of a pipeline keep, by stage, the last
/// left out: of all samples that the run's data has.
std::vector<BoundaryHistory> histories_of(const RunSpec& spec, int pipeline);

/// Validation sequences [first, end) of a pipeline: whole micro-batches, as even as the training's.
struct ValidationShare {
  std::int64_t first = 0;
  std::int64_t end = 0;
};
ValidationShare validation_share(const RunSpec& spec, int pipeline);
/// The micro-batches of each pipeline's share, at least one.
std::vector<int> validation_micro_batches(const RunSpec& spec);
/// The run's plan with those. Only forwards matter, so a greedy plan, whose orders are for the
/// micro-batches of a training step, validates with the depths of 1F1B.
Plan validation_plan(const RunSpec& spec);
/// Sequences that are really validated on.
std::int64_t validation_sequences(const RunSpec& spec);
bool validates_after(const RunSpec& spec, std::uint64_t steps_done);
bool saves_after(const RunSpec& spec, std::uint64_t steps_done);

/// One JSON document, and back. Everything is checked: what a worker is given may come from another
/// version.
std::string run_spec_text(const RunSpec& spec);
Result<RunSpec> parse_run_spec(std::string_view text);

/// Errors (kInvalid): no training section, a model or a precision that the kernels do not compute,
/// a batch that the plan does not make.
Result<void> check_runnable(const Job& job, const Plan& plan);
/// Error (kInvalid): gradients that are exchanged in another shape than sharded.
Result<void> check_shapes(const Plan& plan);

}  // namespace longhaul
