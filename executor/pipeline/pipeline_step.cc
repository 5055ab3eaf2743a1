#include "executor/pipeline/pipeline_step.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "executor/transport/frame.h"

namespace longhaul {
namespace {

/// Sends and receives of a message share its name.
Op send_op(Op op) {
  if (op == Op::kReceiveActivation) return Op::kSendActivation;
  if (op == Op::kReceiveGradient) return Op::kSendGradient;
  return op;
}

bool is_send(Op op) {
  return op == Op::kSendActivation || op == Op::kSendGradient;
}

/// Whether it turns the gradient of the output into that of the input.
bool makes_input_gradient(Op op) {
  return op == Op::kBackward || op == Op::kBackwardInput;
}

/// Whether it is the last to use what the micro-batch keeps.
bool makes_weight_gradient(Op op) {
  return op == Op::kBackward || op == Op::kBackwardWeight;
}

std::string describe(Op op, int micro_batch) {
  std::string text(name_of(op));
  if (micro_batch >= 0) text += " " + std::to_string(micro_batch);
  return text;
}
std::string describe(const Instruction& instruction) {
  return describe(instruction.op, instruction.micro_batch);
}
std::string describe(const BoundaryMessage& message) {
  Op op = message.which.op;
  if (message.is_incoming) {
    op = op == Op::kSendActivation ? Op::kReceiveActivation : Op::kReceiveGradient;
  }
  return describe(op, message.which.micro_batch);
}

/// Brings a boundary tensor to where the stage computes with it.
Result<void> take_in(StageMessage& from, const BoundaryTensor& which, std::size_t bytes,
                     std::span<float> tensor) {
  if (from.kind != StageMessage::Kind::kPlain) {
    std::ranges::copy(from.tensor, tensor.begin());
    return {};
  }
  LH_TRY(from.reader->begin(which, from.wire.as<std::byte>().first(bytes), tensor));
  return from.reader->advance(bytes, true);
}

/// And away from there: ready to be encoded, or a plain message already.
Result<void> put_out(StageMessage& to, const BoundaryTensor& which, std::size_t bytes,
                     std::span<const float> tensor) {
  if (to.kind != StageMessage::Kind::kPlain) {
    std::ranges::copy(tensor, to.tensor.begin());
    return {};
  }
  LH_ASSIGN(const std::size_t size,
            to.writer->begin(which, tensor, to.wire.as<std::byte>().first(bytes)));
  LH_CHECK(size == bytes, "a plain message has a fixed size");
  for (std::size_t ready = 0; ready < size;) {
    LH_ASSIGN(ready, to.writer->advance());
  }
  return {};
}

}  // namespace

std::uint64_t PipelineStep::tag_of(const Options& options, std::int32_t instruction) {
  const auto index = static_cast<std::uint64_t>(instruction);
  return options.is_validation ? kValidationTag | index : index;
}

int micro_batches_in_flight(const TaskletSchedule& tasklet) {
  int in_flight = 0;
  int most = 0;
  for (const Instruction& instruction : tasklet.instructions) {
    if (instruction.op == Op::kForward) most = std::max(most, ++in_flight);
    if (makes_input_gradient(instruction.op)) --in_flight;
  }
  return most;
}

struct PipelineStep::Shared {
  std::atomic<bool> is_cancelled = false;
  std::vector<float> losses;
};

std::span<const float> PipelineStep::losses() const {
  return shared_->losses;
}

// ---- set-up

PipelineStep::PipelineStep(const PipelineContext& context, const Options& options)
    : context_(context),
      options_(options),
      tasklet_(context.schedule->tasklets[static_cast<std::size_t>(context.cell)]),
      previous_(tasklet_.stage > 0 ? context.cell - 1 : -1),
      next_(tasklet_.stage + 1 < context.schedule->stages ? context.cell + 1 : -1),
      in_flight_(micro_batches_in_flight(tasklet_)),
      shared_(std::make_shared<Shared>()),
      exchange_(exchange_context()) {
  const ModelSlice& slice = context_.stage->slice();
  LH_CHECK(slice.has_embedding == (previous_ < 0), "the first stage has the embedding");
  LH_CHECK(slice.has_head == (next_ < 0), "the last stage has the head");
  LH_CHECK(context_.queue->is_host_memory(), "a ModelStage lives in host memory");

  const int in_flight_before =
      previous_ < 0 ? 0
                    : micro_batches_in_flight(
                          context_.schedule->tasklets[static_cast<std::size_t>(previous_)]);
  int micro_batches = 0;
  const auto count = static_cast<std::int32_t>(tasklet_.instructions.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const Instruction& instruction = at(i);
    const Lane lane_of_op = lane_of(instruction.op);
    micro_batches = std::max(micro_batches, instruction.micro_batch + 1);
    recomputes_ |= instruction.op == Op::kRecompute;
    if (makes_weight_gradient(instruction.op)) last_backward_ = i;
    if (lane_of_op == Lane::kCompute && first_compute_ < 0) first_compute_ = i;
    if (lane(lane_of_op, instruction.peer) == nullptr) {
      LaneState& made = lanes_.emplace_back();
      made.lane = lane_of_op;
      made.peer = instruction.peer;
      made.limit = instruction.peer == previous_ ? in_flight_before : in_flight_;
    }
    lane(lane_of_op, instruction.peer)->instructions.push_back(i);
  }
  states_.resize(static_cast<std::size_t>(micro_batches));
  done_.resize(tasklet_.instructions.size());
  times_.resize(tasklet_.instructions.size());
  if (slice.has_head) {
    shared_->losses.resize(states_.size() * context_.storage->rows());
  }
}

BoundaryExchange::Context PipelineStep::exchange_context() {
  BoundaryExchange::Context exchange;
  exchange.queue = context_.queue;
  exchange.stream = context_.codec_stream;
  exchange.mesh = context_.mesh;
  exchange.resend = context_.resend;
  if (context_.samples && !options_.is_validation) {
    int micro_batches = 0;
    for (const Instruction& instruction : tasklet_.instructions) {
      micro_batches = std::max(micro_batches, instruction.micro_batch + 1);
    }
    for (int m = 0; m < micro_batches; ++m) {
      const std::vector<std::int64_t> samples = context_.samples(options_.step, m);
      exchange.sequences = samples.size();
      exchange.samples.insert(exchange.samples.end(), samples.begin(), samples.end());
    }
  }
  exchange.failed = [this](const BoundaryMessage& message, const Error& error) {
    stop(within(describe(message), error).error());
  };
  exchange.idle = [this] { settle(); };
  return exchange;
}

PipelineStep::~PipelineStep() {
  shared_->is_cancelled = true;
}

const Instruction& PipelineStep::at(std::int32_t index) const {
  return tasklet_.instructions[static_cast<std::size_t>(index)];
}

PipelineStep::MicroBatchState& PipelineStep::state_of(const Instruction& instruction) {
  return states_[static_cast<std::size_t>(instruction.micro_batch)];
}

BoundaryMessage& PipelineStep::message_of(const Instruction& instruction) {
  MicroBatchState& state = state_of(instruction);
  switch (instruction.op) {
    case Op::kReceiveActivation:
      return state.activation_in;
    case Op::kSendActivation:
      return state.activation_out;
    case Op::kReceiveGradient:
      return state.gradient_in;
    default:
      return state.gradient_out;
  }
}

PipelineStep::LaneState* PipelineStep::lane(Lane lane, int peer) {
  for (LaneState& state : lanes_) {
    if (state.lane == lane && state.peer == peer) return &state;
  }
  return nullptr;
}

int PipelineStep::rank_of(int cell) const {
  return context_.rank_of_cell[static_cast<std::size_t>(cell)];
}

std::uint64_t PipelineStep::name_of_message(const Instruction& instruction) const {
  const Op op = send_op(instruction.op);
  const int sender = op == instruction.op ? context_.cell : instruction.peer;
  return encode_operation(
      {.step = options_.step,
       .kind = static_cast<std::uint8_t>(op),
       .micro_batch = static_cast<std::uint32_t>(instruction.micro_batch),
       .stage = static_cast<std::uint16_t>(sender % context_.schedule->stages)});
}

Result<void> PipelineStep::take_message(const Instruction& instruction) {
  using Kind = StageMessage::Kind;
  const Op op = send_op(instruction.op);
  const int peer = instruction.peer;
  const bool is_empty = options_.is_validation && op == Op::kSendGradient;
  const bool is_plain = is_empty || context_.format->is_plain(op, peer);
  const Kind coded = is_send(instruction.op) ? Kind::kOutgoing : Kind::kIncoming;
  BoundaryMessage& message = message_of(instruction);
  LH_ASSIGN(message.buffers, context_.storage->take_message(is_plain ? Kind::kPlain : coded));
  message.which = {.op = op,
                   .micro_batch = instruction.micro_batch,
                   .peer = peer,
                   .step = options_.step,
                   .is_validation = options_.is_validation,
                   .samples = exchange_.samples(instruction.micro_batch)};
  message.is_incoming = !is_send(instruction.op);
  message.rank = rank_of(peer);
  message.operation = name_of_message(instruction);
  message.segment = options_.is_validation ? 1 : 0;
  if (!is_empty) {
    message.wire_bytes = context_.format->wire_bytes_max(op, peer, context_.storage->elements());
  }
  LH_CHECK(message.wire_bytes <= message.buffers->wire.size(), "the storage is the format's");
  return {};
}

// ---- the lanes

void PipelineStep::start(Completion done) {
  LH_CHECK(!completion_ && done_count_ == 0 && !is_stopped_, "a step starts once");
  completion_ = std::move(done);
  for (LaneState& lane : lanes_) lane.free_since = context_.loop->now();
  advance();
}

/// Begins whatever can begin. Every callback ends here; one that comes from inside a call made here
/// only leaves a note, so that no lane changes under the loop's hands.
void PipelineStep::advance() {
  advance_again_ = true;
  if (is_advancing_) return;
  is_advancing_ = true;
  while (advance_again_ && !is_stopped_) {
    advance_again_ = false;
    // Receives first: the peer may answer to whatever the lanes send next.
    post_receives();
    fetch_tokens();
    for (LaneState& lane : lanes_) {
      while (!is_stopped_ && begin_next(lane)) {
      }
    }
  }
  is_advancing_ = false;
  if (done_count_ == done_.size() && !is_stopped_) stop(std::nullopt);
}

/// True when there may be more to begin on the lane at once.
bool PipelineStep::begin_next(LaneState& lane) {
  if (lane.is_running || lane.next == lane.instructions.size()) return false;
  const std::int32_t index = lane.instructions[lane.next];
  const Instruction& instruction = at(index);
  if (!is_ready(instruction)) return false;

  InstructionTimes& times = times_[static_cast<std::size_t>(index)];
  if (lane.lane == Lane::kReceive) {
    if (!message_of(instruction).is_ready) return false;
    times.start = lane.free_since;
    for (const std::int32_t before : instruction.after) {
      if (before < 0) continue;
      times.start = std::max(times.start, times_[static_cast<std::size_t>(before)].end);
    }
    lane.is_running = true;
    finish(index);
    return true;
  }
  const bool is_hook = lane.lane == Lane::kReduce || instruction.op == Op::kUpdate;
  const bool is_work = lane.lane == Lane::kCompute && !is_hook;
  if (is_work && !prepare_compute(instruction)) return false;
  times.start = context_.loop->now();
  lane.is_running = true;
  if (is_hook) {
    run_hook(index);
  } else if (is_work) {
    submit(index);
  } else {
    send(index);
  }
  return true;
}

bool PipelineStep::is_ready(const Instruction& instruction) const {
  return std::ranges::all_of(instruction.after, [&](std::int32_t before) {
    return before < 0 || done_[static_cast<std::size_t>(before)];
  });
}

void PipelineStep::finish(std::int32_t index) {
  const Instruction& instruction = at(index);
  LaneState& of = *lane(lane_of(instruction.op), instruction.peer);
  LH_CHECK(of.is_running && of.instructions[of.next] == index, "a lane runs in list order");
  of.is_running = false;
  ++of.next;
  of.free_since = context_.loop->now();
  times_[static_cast<std::size_t>(index)].end = of.free_since;
  done_[static_cast<std::size_t>(index)] = true;
  ++done_count_;
  advance();
}

// ---- compute

bool PipelineStep::prepare_compute(const Instruction& instruction) {
  MicroBatchState& state = state_of(instruction);
  const ModelSlice& slice = context_.stage->slice();
  if (options_.is_validation && instruction.op == Op::kRecompute) return true;
  if (instruction.op == Op::kBackwardWeight) return true;
  if (!makes_input_gradient(instruction.op)) {
    if ((slice.has_embedding || slice.has_head) && !state.has_tokens) return false;
    if (instruction.op == Op::kForward && next_ >= 0 && !take_output(instruction)) return false;
    state.batch = context_.storage->take_micro_batch();
    return true;
  }
  return previous_ < 0 || take_output(instruction);
}

/// Buffers for what the instruction computes, which a SEND of the same micro-batch sends.
bool PipelineStep::take_output(const Instruction& instruction) {
  Instruction send = instruction;
  send.op = instruction.op == Op::kForward ? Op::kSendActivation : Op::kSendGradient;
  send.peer = instruction.op == Op::kForward ? next_ : previous_;
  LaneState& to = *lane(Lane::kSend, send.peer);
  if (to.taken == to.limit) return false;
  if (const Result<void> taken = take_message(send); !taken) {
    stop(taken.error());
    return false;
  }
  ++to.taken;
  return true;
}

void PipelineStep::submit(std::int32_t index) {
  is_computing_ = true;
  context_.queue->submit(context_.stream, {.tag = tag_of(options_, index), .run = work_of(index)});
  context_.queue->notify(context_.stream,
                         [this, alive = std::weak_ptr(alive_), index](const Result<void>& status) {
                           if (alive.expired()) return;
                           is_computing_ = false;
                           if (is_stopped_) return settle();
                           if (!status)
                             return stop(within(describe(at(index)), status.error()).error());
                           computed(index);
                         });
}

/// What the compute thread does for an instruction. Owns what it touches except for the stage and
/// the format, and touches nothing if the step is cancelled before it begins.
std::move_only_function<Result<void>()> PipelineStep::work_of(std::int32_t index) {
  const Instruction& instruction = at(index);
  MicroBatchState& state = state_of(instruction);
  const bool is_backward = makes_input_gradient(instruction.op);
  const bool is_forward = instruction.op == Op::kForward;
  if (instruction.op == Op::kBackwardWeight) return weight_gradient_of(index);
  if (options_.is_validation && !is_forward) return []() -> Result<void> { return {}; };
  struct End {
    StageStorage::Message buffers;  // null: nothing crosses this boundary
    BoundaryTensor which;
    std::size_t bytes;
  };
  struct Work {
    std::shared_ptr<Shared> shared;
    ModelStage& stage;
    std::shared_ptr<StageBatch> batch;
    std::shared_ptr<StageTokens> tokens;
    End in, out;
    std::size_t loss_offset;
    float loss_scale;
    bool is_first, is_whole, is_last_backward;
  };
  const auto end_at = [](const BoundaryMessage& message) {
    return End{message.buffers, message.which, message.wire_bytes};
  };
  End out{};
  if (is_forward) out = end_at(state.activation_out);
  if (is_backward) out = end_at(state.gradient_out);
  Work work{
      .shared = shared_,
      .stage = *context_.stage,
      .batch = state.batch,
      .tokens = state.tokens,
      .in = end_at(is_backward ? state.gradient_in : state.activation_in),
      .out = std::move(out),
      .loss_offset = static_cast<std::size_t>(instruction.micro_batch) * context_.storage->rows(),
      .loss_scale = options_.loss_scale,
      .is_first = index == first_compute_ && !options_.is_validation,
      .is_whole = instruction.op == Op::kBackward,
      .is_last_backward = index == last_backward_};
  if (is_backward) {
    return [w = std::move(work)]() -> Result<void> {
      if (w.shared->is_cancelled) return {};
      if (w.in.buffers) LH_TRY(take_in(*w.in.buffers, w.in.which, w.in.bytes, w.batch->output()));
      w.stage.backward_input(*w.batch, w.loss_scale);
      if (w.is_whole) w.stage.backward_weight(*w.batch, w.loss_scale);
      if (w.is_last_backward) w.stage.fold_tied_gradient();
      if (!w.out.buffers) return {};
      return put_out(*w.out.buffers, w.out.which, w.out.bytes, w.batch->input());
    };
  }
  return [w = std::move(work)]() -> Result<void> {
    if (w.shared->is_cancelled) return {};
    if (w.is_first) w.stage.zero_gradients();
    if (w.in.buffers) LH_TRY(take_in(*w.in.buffers, w.in.which, w.in.bytes, w.batch->input()));
    if (w.tokens) {
      std::ranges::copy(w.tokens->inputs, w.batch->tokens().begin());
      std::ranges::copy(w.tokens->targets, w.batch->targets().begin());
    }
    w.stage.forward(*w.batch);
    if (w.out.buffers) {
      LH_TRY(put_out(*w.out.buffers, w.out.which, w.out.bytes, w.batch->output()));
    }
    if (!w.shared->losses.empty()) {
      std::ranges::copy(w.batch->losses(),
                        w.shared->losses.begin() + static_cast<std::ptrdiff_t>(w.loss_offset));
    }
    return {};
  };
}

/// What it computes with and adds to is the stage's own: no message, no token.
std::move_only_function<Result<void>()> PipelineStep::weight_gradient_of(std::int32_t index) {
  if (options_.is_validation) return []() -> Result<void> { return {}; };
  return [shared = shared_, &stage = *context_.stage, batch = state_of(at(index)).batch,
          loss_scale = options_.loss_scale, is_last = index == last_backward_]() -> Result<void> {
    if (shared->is_cancelled) return {};
    stage.backward_weight(*batch, loss_scale);
    if (is_last) stage.fold_tied_gradient();
    return {};
  };
}

void PipelineStep::computed(std::int32_t index) {
  const Instruction& instruction = at(index);
  MicroBatchState& state = state_of(instruction);
  const bool is_backward = makes_input_gradient(instruction.op);
  const bool is_validation = options_.is_validation;
  const auto encode = [this](BoundaryMessage& out) {
    if (out.buffers && out.buffers->kind != StageMessage::Kind::kPlain) exchange_.encode(out);
  };
  if (instruction.op == Op::kForward) encode(state.activation_out);
  if (is_backward) encode(state.gradient_out);
  // Inputs are kept until the backward where a recomputation wants them again.
  if (is_validation ? instruction.op == Op::kForward
                    : is_backward || (instruction.op == Op::kForward && !recomputes_)) {
    if (state.activation_in.buffers) give_back(state.activation_in, Lane::kReceive, previous_);
    if (state.tokens) {
      context_.storage->give_back(std::move(state.tokens));
      --tokens_held_;
    }
  }
  if (is_backward && next_ >= 0) give_back(state.gradient_in, Lane::kReceive, next_);
  if (is_validation ? instruction.op == Op::kForward
                    : makes_weight_gradient(instruction.op) ||
                          (instruction.op == Op::kForward && recomputes_)) {
    context_.storage->give_back(std::move(state.batch));
  }
  finish(index);
}

// ---- messages, tokens, hooks

void PipelineStep::post_receives() {
  for (LaneState& lane : lanes_) {
    if (lane.lane != Lane::kReceive) continue;
    while (lane.posted < lane.instructions.size() && lane.taken < lane.limit) {
      const Instruction& instruction = at(lane.instructions[lane.posted]);
      if (const Result<void> taken = take_message(instruction); !taken) return stop(taken.error());
      ++lane.posted;
      ++lane.taken;
      exchange_.receive(message_of(instruction), [this] { advance(); });
    }
  }
}

void PipelineStep::send(std::int32_t index) {
  exchange_.send(message_of(at(index)), [this, index] {
    const Instruction& sent = at(index);
    give_back(message_of(sent), Lane::kSend, sent.peer);
    finish(index);
  });
}

void PipelineStep::give_back(BoundaryMessage& message, Lane of, int peer) {
  context_.storage->give_back(std::move(message.buffers));
  message.buffers = nullptr;
  --lane(of, peer)->taken;
}

void PipelineStep::fetch_tokens() {
  const ModelSlice& slice = context_.stage->slice();
  if (!slice.has_embedding && !slice.has_head) return;
  while (tokens_fetched_ < static_cast<int>(states_.size()) && tokens_held_ <= in_flight_ &&
         !is_stopped_) {
    const int micro_batch = tokens_fetched_++;
    ++tokens_held_;
    MicroBatchState& state = states_[static_cast<std::size_t>(micro_batch)];
    state.tokens = context_.storage->take_tokens();
    context_.tokens->fetch(
        {.step = options_.step,
         .pipeline = tasklet_.pipeline,
         .micro_batch = micro_batch,
         .inputs = state.tokens->inputs,
         .targets = state.tokens->targets},
        [this, alive = std::weak_ptr(alive_), &state, kept = state.tokens](Result<void> status) {
          if (alive.expired() || is_stopped_) return;
          if (!status) return stop(within("tokens", std::move(status).error()).error());
          state.has_tokens = true;
          advance();
        });
  }
}

void PipelineStep::run_hook(std::int32_t index) {
  const PipelineHooks::Hook* hook = &context_.hooks.update;
  if (at(index).op == Op::kReduce) hook = &context_.hooks.reduce;
  if (at(index).op == Op::kTiedReduce) hook = &context_.hooks.tied_reduce;
  if (at(index).op == Op::kPrepare) hook = &context_.hooks.prepare;
  if (!*hook) return finish(index);
  (*hook)([this, alive = std::weak_ptr(alive_), index](Result<void> status) {
    if (alive.expired() || is_stopped_) return;
    if (!status) return stop(within(describe(at(index)), std::move(status).error()).error());
    finish(index);
  });
}

// ---- the end

/// Without error: the step is complete.
void PipelineStep::stop(std::optional<Error> error) {
  if (is_stopped_) return;
  is_stopped_ = true;
  error_ = std::move(error);
  shared_->is_cancelled = true;
  exchange_.cancel();
  settle();
}

void PipelineStep::abort(Task released) {
  completion_ = nullptr;
  released_ = std::move(released);
  if (!is_stopped_) return stop(std::nullopt);
  settle();
}

/// Tells how a stopped step ended, once the queue is done with the stage.
void PipelineStep::settle() {
  if (is_computing_ || !exchange_.is_idle()) return;
  // Buffers may still be the mesh's: they are not reused but freed with their last owner. Tokens
  // may still be their source's, likewise. Micro-batches are the queue's alone.
  for (MicroBatchState& state : states_) {
    if (state.batch) context_.storage->give_back(std::move(state.batch));
  }
  states_.clear();
  if (released_) context_.loop->post(std::move(released_));
  if (!completion_) return;
  Result<PipelineResult> result = std::unexpected(error_.value_or(Error{}));
  if (!error_) result = PipelineResult{std::move(shared_->losses), std::move(times_)};
  context_.loop->post([alive = std::weak_ptr(alive_), completion = std::move(completion_),
                       result = std::move(result)]() mutable {
    if (!alive.expired()) completion(std::move(result));
  });
  completion_ = nullptr;
}

}  // namespace longhaul
