// A plan: which device runs which part of the model, and how the parts talk.
//
// A plan is a grid of D pipelines by P stages; each cell is a tasklet and is given a device. The
// planner writes plan files, people edit them, simulate and launch run exactly what they say
// (format: docs/formats.md). A Plan is a plain value; device numbers refer to one Topology.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/model_math.h"
#include "core/result.h"
#include "core/topology.h"

namespace longhaul {

enum class ScheduleFamily { kGpipe, kOneForwardOneBackward, kGreedy };
std::string_view name_of(ScheduleFamily family);

/// What a stage computes for a micro-batch where the backward is split: the gradient of its input,
/// which the stage before waits for, and that of its weights, which can wait.
enum class Pass : std::uint8_t { kForward, kBackwardInput, kBackwardWeight };
/// The frozen order of a stage's passes. Each kind takes the micro-batches in ascending order, so
/// the n-th of a kind is micro-batch n.
using StageOrder = std::vector<Pass>;

/// "F0 F1 B0 W0 B1 W1": B the gradient of the input, W of the weights.
std::string order_text(const StageOrder& order);
/// Errors (kInvalid): a word that is no pass, or not the next of its kind.
Result<StageOrder> parse_order(std::string_view text);
/// Errors (kInvalid): not each pass of each micro-batch once, B before its F, W before its B, more
/// than `in_flight` forwards above the weight gradients.
Result<void> check_order(const StageOrder& order, int micro_batches, int in_flight);
/// The order of a pipeline with fewer micro-batches: without those that it does not have.
StageOrder order_for(const StageOrder& order, int micro_batches);

/// The most micro-batches that an order holds at once.
struct OrderPeaks {
  int in_flight = 0;    // forwards minus weight gradients
  int for_weights = 0;  // input gradients minus weight gradients
};
OrderPeaks peaks_of(const StageOrder& order);

/// Limits of the message names on the wire (op_id = step:28 | op:4 | micro_batch:20 | stage:12).
inline constexpr int kMaxStages = 1 << 12;
inline constexpr int kMaxMicroBatches = 1 << 20;

/// How replicas add up their gradients (netsim/exchange.h).
enum class ReduceShape {
  kSharded,       // every member owns a part, and exchanges with all others
  kRing,          // parts go round, each member adds its own
  kHierarchical,  // inside the sites first, then sharded between them
};
std::string_view name_of(ReduceShape shape);

/// How the members of one exchange, the replicas of a stage, do it.
struct Reduction {
  ReduceShape shape = ReduceShape::kSharded;
  /// Of the gradient, one a member in pipeline order; their sum is 1. Empty: equal. Sharded alone.
  std::vector<double> shares = {};
  Codec codec = Codec::kNone;  // between sites
  bool operator==(const Reduction&) const = default;
};

/// The codec of boundary tensors between two sites, whichever way the activations go.
struct PairCodec {
  int site = 0;                // the lower one
  int other = 0;               // the higher one
  Codec codec = Codec::kNone;  // of activations
  /// Of their gradients; nothing: the job's own, and where that has none, usual_beside `codec`.
  std::optional<Codec> gradients = {};
  bool operator==(const PairCodec&) const = default;
};

struct Plan {
  std::vector<int> layers;                // of each stage, at least 1; their sum is the model's
  std::vector<std::vector<int>> devices;  // [pipeline][stage]
  std::vector<int> micro_batches;         // n_d of each pipeline, at least 1
  int micro_batch = 1;                    // sequences of one micro-batch
  ScheduleFamily family = ScheduleFamily::kOneForwardOneBackward;
  /// K of each stage. In-order families: forwards minus backwards, non-increasing. Greedy: the most
  /// forwards minus weight gradients, in any order along the pipeline.
  std::vector<int> in_flight;
  std::vector<StageOrder> orders;  // [stage] of the largest pipeline; greedy alone
  int coordinator_site = 0;
  bool recompute = false;                    // asked for only where the job says auto
  std::vector<PairCodec> activation_codecs;  // sorted; only pairs that differ from the job's
  /// [stage], and last that of the tied embedding where there is one (has_tied_exchange). Its
  /// members are the last stage's pipelines, then the first's. Empty: all sharded equally, in the
  /// job's codec.
  std::vector<Reduction> reductions;

  int stages() const { return static_cast<int>(layers.size()); }
  int pipelines() const { return static_cast<int>(devices.size()); }
  int device(int pipeline, int stage) const {
    return devices[static_cast<std::size_t>(pipeline)][static_cast<std::size_t>(stage)];
  }
};

/// Whether the token embedding lives on two stages, and so has an exchange of its own.
bool has_tied_exchange(const Plan& plan, const Job& job);
/// Codec of activations between the stages at two different sites.
Codec activation_codec(const Plan& plan, const Job& job, int site, int other);
/// And of their gradients.
Codec activation_gradient_codec(const Plan& plan, const Job& job, int site, int other);
/// How a stage's gradients are exchanged; `stage` = plan.stages(): those of the tied embedding.
Reduction reduction_of(const Plan& plan, const Job& job, int stage);
/// Of every exchange: of each stage, and last of the tied embedding where it has one.
std::vector<Reduction> reductions_of(const Plan& plan, const Job& job);
/// The devices of that exchange's members, in their order.
std::vector<int> reduction_devices(const Plan& plan, int stage);
/// Memory of error feedback at each member of a stage's exchanges, the tied embedding's included
/// (feedback_bytes in core/gradient_exchange.h): 0 where all members are in one site.
Bytes feedback_memory(const Plan& plan, const Topology& topology, const Job& job, int stage);
/// Whether stages run forwards again before backwards.
bool recomputes(const Plan& plan, const Job& job);

/// What was predicted when the plan was written, kept in the file for people.
struct Prediction {
  double step_s = 0;
  double tokens_per_s = 0;
  double lower_bound_s = 0;
  std::string lower_bound;  // the binding bound by name
};

/// A plan file: the plan and what it was made from.
struct PlanFile {
  Plan plan;
  std::string cluster_path;  // as they stand in the file: relative to the plan's folder
  std::string job_path;
  std::uint64_t cluster_hash = 0;
  std::uint64_t job_hash = 0;
  std::string policy;
  std::uint64_t seed = 0;
  Prediction predicted;
};

/// Default in-flight vector of a family for P stages and at most M micro-batches a pipeline:
/// GPipe K_i = M; 1F1B K_i = min(P - i, M); greedy K_i = min(P, M), the peak of 1F1B everywhere.
std::vector<int> default_in_flight(ScheduleFamily family, int stages, int micro_batches);

/// The text of a plan file. Same plan, same bytes.
std::string plan_text(const PlanFile& file, const Topology& topology, const Job& job);

/// Cluster and job path of a plan file, before they are loaded.
struct PlanInputs {
  std::string cluster_path;
  std::string job_path;
};
Result<PlanInputs> load_plan_inputs(const std::string& path);

/// Reads a plan file against the cluster and the job it is for. Errors (kInvalid, all at once):
/// unknown or repeated devices, layers or micro-batches that do not add up, an in-flight vector
/// or orders that would dead-lock, a device kind without speed for the job's precision, a codec or
/// a recomputation that the job does not leave to the plan.
Result<PlanFile> load_plan(const std::string& path, const Topology& topology, const Job& job);
Result<PlanFile> parse_plan(std::string_view text, const std::string& name,
                            const Topology& topology, const Job& job);

/// The job with what it leaves to the plan filled in: recomputation.
Job resolved_job(const Plan& plan, const Job& job);
/// What each cell's device holds at its peak: [pipeline * P + stage].
std::vector<MemoryUse> memory_of(const Plan& plan, const Topology& topology, const Job& job);
/// Whether every device can hold its part; kInfeasible names the device, need and size of the
/// worst.
Result<void> check_memory(const Plan& plan, const Topology& topology, const Job& job);

}  // namespace longhaul
