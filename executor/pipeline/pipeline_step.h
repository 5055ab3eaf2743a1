// Runs one tasklet's list of one step: the interpreter of core/schedule.h.
//
// Each lane runs its instructions in list order, one at a time; an instruction begins when its lane
// is free and its `after` are done. So tensors are computed while earlier ones travel. What else an
// instruction can wait for is memory or input that is still on its way:
//   FWD, RECOMPUTE   the tokens of the micro-batch, asked for K + 1 micro-batches ahead
//   FWD, BWD(_INPUT) a buffer for the result, when `sent` of a message K micro-batches earlier has
//                    not come yet (its receiver has had it for long)
//   SEND_*           the first pieces of the message, encoded on the codec stream since FWD or BWD
//   RECV_*           the message, decoded on the codec stream as its pieces arrive
//
// What crosses a stage boundary goes through message buffers (StageMessage: the tensor, and its
// message): FWD or BWD takes its input from one and leaves its result in one. So a micro-batch's
// own memory is free for the incoming gradient as soon as its forward is over, whether or not the
// activation has been encoded or sent; nothing is decoded twice; and the lanes of this table wait
// for codec work only where they wait for a message, which that work brings nearer without waiting
// for anything (boundary_exchange.h): it adds no way to dead-lock. Plain messages, as inside a
// site, are copied from and to the stage's memory by FWD and BWD themselves. Receives are posted
// before the peer can send, so nothing waits in the mesh's store within a step:
//
//   buffer                      how many             held from         until
//   activation from previous    K of the previous    receive posted    FWD, BWD if recomputed
//   activation to next          K                    FWD begins        sent
//   gradient from next          K                    receive posted    BWD
//   gradient to previous        K of the previous    BWD begins        sent
//
// K is the most micro-batches that a stage has between FWD and BWD by its list. K bounds suffice:
// a stage's FWD m + K comes after its BWD m, and so after all messages about m. A stage has K
// micro-batches of storage, and 1 where its list recomputes right before each backward.
//
// Where the backward is split, BWD_INPUT stands for BWD in all of this; it touches messages and
// BWD_WEIGHT none. The micro-batch's own memory, with what its two halves pass to each other, stays
// until BWD_WEIGHT: the storage is the most micro-batches between FWD (BWD_INPUT where the list
// recomputes) and BWD_WEIGHT, and one that runs forward.
//
// A stage's gradients are zeroed when its first instruction computes, and the two parts of a tied
// embedding that one stage holds are added with its last BWD or BWD_WEIGHT: what REDUCE finds is
// this step's sum.
//
// Messages are named (step, op of the send, micro-batch, stage of the sender), see frame.h, those
// of a validation apart by their segment (1).
//
// Threads: the loop's, except for tensor work, which runs where the queue runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/schedule.h"
#include "core/units.h"
#include "executor/pipeline/boundary_exchange.h"
#include "executor/pipeline/boundary_format.h"
#include "executor/pipeline/stage_storage.h"
#include "executor/pipeline/token_source.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"
#include "kernels/compute_queue.h"
#include "kernels/model_stage.h"

namespace longhaul {

/// What is not the pipeline's own business. Called on the loop's thread when the instruction's turn
/// has come; it is over when `done` is called, then or later. An empty hook is over at once.
struct PipelineHooks {
  using Done = std::move_only_function<void(Result<void>)>;
  using Hook = std::function<void(Done)>;
  Hook reduce;
  Hook tied_reduce;
  Hook prepare;
  /// Has the compute lane to itself, and the stage: no work of the step is in the queue.
  Hook update;
};

/// What a tasklet's steps have in common. All of it outlives them; the queue outlives the mesh too,
/// which may hold on to message buffers after a step was aborted.
struct PipelineContext {
  const Schedule* schedule = nullptr;
  int cell = 0;
  std::vector<int> rank_of_cell;  // in the mesh
  ModelStage* stage = nullptr;
  StageStorage* storage = nullptr;
  ComputeQueue* queue = nullptr;
  StreamId stream{};        // where the stage's work goes
  StreamId codec_stream{};  // and where its boundary tensors are encoded and decoded
  Mesh* mesh = nullptr;
  EventLoop* loop = nullptr;
  TokenSource* tokens = nullptr;     // may be null for a stage without embedding and head
  BoundaryFormat* format = nullptr;  // the storage's
  /// The sequences of a micro-batch of a training step, in slot order, -1 for padding. Empty:
  /// formats are not told.
  std::function<std::vector<std::int64_t>(std::uint32_t step, int micro_batch)> samples{};
  ResendHook resend{};
  PipelineHooks hooks;
};

struct InstructionTimes {
  /// It had all it waits for. Of a receive: its lane was free and its `after` were done, so that
  /// the wait for the message is inside.
  Seconds start;
  Seconds end;
};

struct PipelineResult {
  /// On a stage with head: one unscaled loss a row, micro-batch after micro-batch; ops::add_losses
  /// makes the step's loss of them. Elsewhere empty.
  std::vector<float> losses;
  std::vector<InstructionTimes> times;  // [instruction], in the loop's time
};

/// The most micro-batches that are between their FWD and their BWD or BWD_INPUT at once, by the
/// list.
int micro_batches_in_flight(const TaskletSchedule& tasklet);

/// In the tag of an instruction's work (ComputeWork::tag), which else is its place in the list:
/// the work is that of a validation.
inline constexpr std::uint64_t kValidationTag = std::uint64_t{1} << 32;

class PipelineStep {
 public:
  using Completion = std::move_only_function<void(Result<PipelineResult>)>;

  struct Options {
    std::uint32_t step = 0;  // < 2^28
    float loss_scale = 1;    // 1 / (target tokens of the step)
    /// Only forwards, for a validation loss: the same list in the same order, but recomputations
    /// and backwards do nothing and gradients travel as empty messages, which keep a fast stage
    /// from running ahead of a slow one as in training. Weights and gradients are not touched.
    bool is_validation = false;
  };

  /// Stage, storage and list must belong together; a list that dead-locks (build_graph) never ends.
  PipelineStep(const PipelineContext& context, const Options& options);
  /// Work that is in the queue does nothing any more; what is running goes on to use the stage,
  /// which must outlive it. To know when that is over, abort first.
  ~PipelineStep();
  PipelineStep(const PipelineStep&) = delete;
  PipelineStep& operator=(const PipelineStep&) = delete;

  /// Once. The completion comes in a task of its own: with the result, or with the first error of
  /// device, tokens, codec or hooks, when the queue no longer uses stage and format. A lost peer is
  /// no error here: its messages stay away until the owner, whom the mesh tells, aborts.
  void start(Completion done);

  /// Ends the step: no completion, no more messages, no more hooks. `released` comes in a task of
  /// its own when the queue no longer uses stage and format. Buffers that the mesh still uses are
  /// freed when it lets go of them; a term must end before the names of its messages are posted
  /// again. Hooks that have begun are their owner's to end; it does not matter if they still call
  /// back. A hook may call this; it must not destroy the step before it returns.
  void abort(Task released);

  /// On a stage with head: as in PipelineResult, of the forwards that are over. For the hooks.
  std::span<const float> losses() const;

  static std::uint64_t tag_of(const Options& options, std::int32_t instruction);

 private:
  /// One lane, in the case of sends and receives of one peer.
  struct LaneState {
    Lane lane = Lane::kCompute;
    int peer = -1;
    std::vector<std::int32_t> instructions;
    std::size_t next = 0;     // to begin, or running
    bool is_running = false;  // next has begun
    Seconds free_since;
    // Of sends and receives: message buffers.
    int limit = 0;
    int taken = 0;
    std::size_t posted = 0;  // receives that the mesh has been given
  };

  struct MicroBatchState {
    std::shared_ptr<StageBatch> batch;
    std::shared_ptr<StageTokens> tokens;
    bool has_tokens = false;
    BoundaryMessage activation_in, activation_out, gradient_in, gradient_out;
  };

  /// What work in the queue needs when the step may be gone.
  struct Shared;

  const Instruction& at(std::int32_t index) const;
  MicroBatchState& state_of(const Instruction& instruction);
  BoundaryMessage& message_of(const Instruction& instruction);
  LaneState* lane(Lane lane, int peer);
  std::uint64_t name_of_message(const Instruction& instruction) const;
  BoundaryExchange::Context exchange_context();
  /// Takes buffers for a message and says what it is.
  Result<void> take_message(const Instruction& instruction);
  int rank_of(int cell) const;

  void advance();
  bool begin_next(LaneState& lane);
  bool is_ready(const Instruction& instruction) const;
  /// Takes what the instruction needs; false while something is missing.
  bool prepare_compute(const Instruction& instruction);
  bool take_output(const Instruction& instruction);
  void submit(std::int32_t index);
  std::move_only_function<Result<void>()> work_of(std::int32_t index);
  std::move_only_function<Result<void>()> weight_gradient_of(std::int32_t index);
  void computed(std::int32_t index);
  void send(std::int32_t index);
  void run_hook(std::int32_t index);
  void finish(std::int32_t index);
  void give_back(BoundaryMessage& message, Lane lane, int peer);

  void post_receives();
  void fetch_tokens();
  void stop(std::optional<Error> error);
  void settle();

  const PipelineContext context_;
  const Options options_;
  const TaskletSchedule& tasklet_;
  const int previous_;  // cells; -1 where there is none
  const int next_;
  int in_flight_ = 0;
  bool recomputes_ = false;
  std::int32_t first_compute_ = -1;
  std::int32_t last_backward_ = -1;

  std::vector<LaneState> lanes_;
  std::vector<MicroBatchState> states_;  // [micro_batch]
  std::vector<bool> done_;               // [instruction]
  std::size_t done_count_ = 0;
  int tokens_fetched_ = 0;
  int tokens_held_ = 0;
  std::vector<InstructionTimes> times_;

  bool is_advancing_ = false;
  bool advance_again_ = false;
  bool is_computing_ = false;  // work is in the queue
  bool is_stopped_ = false;
  Completion completion_;
  Task released_;
  std::optional<Error> error_;

  /// Owned here and by the work in the queue.
  std::shared_ptr<Shared> shared_;
  BoundaryExchange exchange_;
  /// Owned here alone; callbacks hold weak references, to do nothing once the step is gone.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace longhaul
