// A worker: one tasklet's whole run. It joins the pipeline, the exchanges, the commit protocol, the
// data and the checkpoints, and decides nothing that the spec and the coordinator do not.
//
//   load (fresh weights, or a checkpoint's files, fetched where they are not here)
//   then, between steps, in this order and by the number of committed steps alone:
//     validate   where it is due, on the same pipelines
//     save       where it is due, or when the run ends cleanly here; pipeline 0 writes, the other
//                replicas hold the same bits
//     stop       if told to
//     step       forwards, backwards, reduce, PREPARED, COMMIT, update
//
// A clean STOP ends the step at hand, which is not committed; an unclean one ends whatever is at
// hand. A writer says `stopped` only when its last checkpoint is kept, so that the coordinator can
// still ask for the files.
//
// Belongs to the loop's thread; stage and files are touched on the queue. All that the context
// names outlives the worker, the queue also the mesh.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/collective/sharded_all_reduce.h"
#include "executor/control/participant.h"
#include "executor/pipeline/pipeline_step.h"
#include "executor/run/file_transfer.h"
#include "executor/run/run_data.h"
#include "executor/run/run_spec.h"
#include "executor/run/stage_boundaries.h"
#include "executor/run/stage_state.h"

namespace longhaul {

struct WorkerEnding {
  bool clean = true;
  std::string reason;
  std::uint64_t committed = 0;
};

struct WorkerContext {
  const RunSpec* spec = nullptr;
  int cell = 0;
  EventLoop* loop = nullptr;
  Mesh* mesh = nullptr;
  ComputeQueue* queue = nullptr;
  Storage* storage = nullptr;
  std::string folder;  // this node's part of the run folder
  /// Data on this node; null: sequences come from the coordinator.
  SequenceSource* train = nullptr;
  SequenceSource* validation = nullptr;
  /// When loop->now() was 0, in nanoseconds of a clock that processes of this machine share.
  std::uint64_t origin_ns = 0;
  /// The last call.
  std::function<void(const WorkerEnding&)> ended;
  /// Of boundary tensors, in place of the plan's codecs: for tests.
  std::function<std::unique_ptr<BoundaryFormat>()> make_format{};
};

class Worker {
 public:
  /// Errors (kInvalid): data here that is not the run's.
  static Result<std::unique_ptr<Worker>> create(const WorkerContext& context);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Takes the mesh's handlers.
  void start();

  /// For tests, while nothing is in the queue.
  ModelStage& stage() { return state_.stage(); }

 private:
  enum class Activity { kLoading, kIdle, kStep, kValidation, kSaving, kKept, kEnded };
  /// Counts what is sent to each rank.
  class CountingMesh;

  /// An exchange of gradients, the same in every step but for its name.
  struct Exchange {
    std::unique_ptr<ShardedAllReduce> exchange;
    GradientRange range;
  };

  Worker(const WorkerContext& context, StageState state);
  Result<void> open_data();
  Result<void> open_boundaries();
  PipelineContext pipeline_context(const Schedule& schedule, TokenSource* tokens);
  void count_raw_bytes();

  void load();
  void load_histories();
  void loaded(Result<void> result);
  void next();
  void run_step();
  void step_ended(Result<PipelineResult> result);
  void validate();
  void validation_ended(Result<PipelineResult> result);
  void save();
  void save_state(const std::string& folder);
  void kept(const Kept& kept);

  Exchange make_exchange(ExchangeOptions options, const GradientRange& range);
  void reduce(bool tied, PipelineHooks::Done done);
  void prepare(PipelineHooks::Done done);
  void on_commit(const StepUpdate& update);
  void update(PipelineHooks::Done done);
  void on_stop(const Stop& stop);
  void abandon();
  void abandon_exchange();
  void on_coordinator_lost(const Error& why);
  void end(bool clean, const std::string& reason);
  void fail(const Error& why);

  void received(int peer, const std::string& text);
  void lost(int peer, const Error& why);
  void serve(const std::string& what, std::size_t bytes, MeshRequests::Answer answer);
  void measure(const PipelineResult& result);
  /// On the queue, and then on the loop if this is still there.
  void run(std::uint64_t tag, std::move_only_function<Result<void>()> work,
           std::move_only_function<void(Result<void>)> then);
  void tell(const ControlMessage& message);
  bool is_writer() const { return pipeline_ == 0; }
  bool is_stopping_uncleanly() const { return stop_ && !stop_->clean; }

  const WorkerContext context_;
  const RunSpec& spec_;
  const int pipeline_;
  const int stage_;
  Schedule schedule_;
  Schedule validation_schedule_;
  StageState state_;
  QueueRunner runner_;
  std::unique_ptr<CountingMesh> mesh_;
  std::unique_ptr<MeshRequests> requests_;
  std::unique_ptr<SequenceSource> remote_train_, remote_validation_;
  std::unique_ptr<TrainTokens> train_tokens_;
  std::unique_ptr<ValidationTokens> validation_tokens_;
  Exchange stage_exchange_;
  std::optional<Exchange> tied_exchange_;  // where this stage takes part in it
  std::unique_ptr<StageBoundaries> boundaries_;
  std::unique_ptr<StageStorage> storage_;
  std::unique_ptr<Participant> participant_;

  Activity activity_ = Activity::kLoading;
  std::unique_ptr<FileFetch> fetch_;
  std::unique_ptr<PipelineStep> step_;
  ShardedAllReduce* exchange_ = nullptr;  // the last one begun of this step
  PipelineHooks::Done committed_;         // of PREPARE, until COMMIT
  StepUpdate update_;
  bool is_updated_ = false;    // the step at hand
  std::uint64_t updates_ = 0;  // applied
  std::uint64_t validated_;    // steps behind the weights when it was last done
  std::uint64_t saved_;
  std::uint64_t kept_ = 0;  // what the coordinator has answered of what was saved
  std::optional<Stop> stop_;
  std::map<int, std::uint64_t> raw_per_step_, raw_per_validation_;  // bytes, by rank
  std::map<int, std::uint64_t> raw_;                                // not yet told
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);           // owned here alone
};

}  // namespace longhaul
