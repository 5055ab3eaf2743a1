#include "executor/run/worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "executor/transport/frame.h"

namespace longhaul {

class Worker::CountingMesh final : public Mesh {
 public:
  explicit CountingMesh(Mesh& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  void send(int peer, std::uint64_t operation, std::uint32_t segment,
            std::span<const std::byte> payload, Task sent) override {
    sent_[peer] += payload.size();
    inner_.send(peer, operation, segment, payload, std::move(sent));
  }
  void receive(int peer, std::uint64_t operation, std::uint32_t segment,
               std::span<std::byte> buffer, Task received) override {
    inner_.receive(peer, operation, segment, buffer, std::move(received));
  }
  void send_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                    std::span<const std::byte> payload, Task sent) override {
    sent_[peer] += payload.size();
    inner_.send_growing(peer, operation, segment, payload, std::move(sent));
  }
  void grow(int peer, std::uint64_t operation, std::uint32_t segment, std::size_t ready) override {
    inner_.grow(peer, operation, segment, ready);
  }
  void receive_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                       std::span<std::byte> buffer, Arrived arrived) override {
    inner_.receive_growing(peer, operation, segment, buffer, std::move(arrived));
  }
  void send_control(int peer, const std::string& text) override { inner_.send_control(peer, text); }
  void on_control(std::function<void(int, const std::string&)> handler) override {
    inner_.on_control(std::move(handler));
  }
  void on_lost(std::function<void(int, const Error&)> handler) override {
    inner_.on_lost(std::move(handler));
  }
  void set_term(std::uint32_t term) override { inner_.set_term(term); }

  /// Since the last call.
  std::map<int, std::uint64_t> take_sent() { return std::exchange(sent_, {}); }

 private:
  Mesh& inner_;
  std::map<int, std::uint64_t> sent_;
};

// ---- set-up

Worker::Worker(const WorkerContext& context, StageState state)
    : context_(context),
      spec_(*context.spec),
      pipeline_(spec_.pipeline_of(context.cell)),
      stage_(spec_.stage_of(context.cell)),
      schedule_(make_schedule(spec_.plan, spec_.job)),
      state_(std::move(state)),
      runner_{context.queue, context.queue->create_stream()},
      mesh_(std::make_unique<CountingMesh>(*context.mesh)),
      updates_(spec_.updates),
      validated_(spec_.first_step),
      saved_(spec_.first_step) {
  requests_ = std::make_unique<MeshRequests>(
      *mesh_, [this](const std::string& what, std::size_t bytes, MeshRequests::Answer answer) {
        serve(what, bytes, std::move(answer));
      });
  if (spec_.validation) {
    validation_schedule_ = make_schedule(validation_plan(spec_), spec_.job);
  }

  stage_exchange_ = make_exchange(stage_exchange(spec_, stage_), stage_gradient(spec_, stage_));
  if (spec_.has_tied_exchange() && (stage_ == 0 || stage_ == spec_.plan.stages() - 1)) {
    tied_exchange_ = make_exchange(tied_exchange(spec_), tied_gradient(spec_, stage_));
  }
  count_raw_bytes();
}

Worker::~Worker() = default;

Result<std::unique_ptr<Worker>> Worker::create(const WorkerContext& context) {
  const RunSpec& spec = *context.spec;
  LH_ASSIGN(StageState state,
            StageState::create(spec.job.model, slice_of_stage(spec, spec.stage_of(context.cell)),
                               spec.job.precision));
  std::unique_ptr<Worker> worker(new Worker(context, std::move(state)));
  LH_TRY(worker->open_data());
  LH_TRY(worker->open_boundaries());
  return worker;
}

Result<void> Worker::open_boundaries() {
  StageBoundaries::Context context;
  context.spec = &spec_;
  context.cell = context_.cell;
  context.queue = context_.queue;
  context.requests = requests_.get();
  context.storage = context_.storage;
  context.folder = context_.folder;
  if (context_.make_format) context.format = context_.make_format();
  LH_ASSIGN(boundaries_, StageBoundaries::create(std::move(context)));
  storage_ = std::make_unique<StageStorage>(state_.stage(), *context_.queue, boundaries_->format(),
                                            spec_.plan.micro_batch, boundaries_->wire_bytes_max());
  return {};
}

Result<void> Worker::open_data() {
  const ModelSlice& slice = state_.stage().slice();
  if (!slice.has_embedding && !slice.has_head) return {};
  SequenceSource* train = context_.train;
  if (train == nullptr) {
    remote_train_ = std::make_unique<RemoteSequences>(*requests_, kCoordinatorRank,
                                                      DataPart::kTrain, spec_.train);
    train = remote_train_.get();
  }
  LH_ASSIGN(train_tokens_, TrainTokens::make(spec_, *train));
  if (!spec_.validation) return {};
  SequenceSource* validation = context_.validation;
  if (validation == nullptr) {
    remote_validation_ = std::make_unique<RemoteSequences>(
        *requests_, kCoordinatorRank, DataPart::kValidation, *spec_.validation);
    validation = remote_validation_.get();
  }
  LH_ASSIGN(validation_tokens_, ValidationTokens::make(spec_, *validation));
  return {};
}

PipelineContext Worker::pipeline_context(const Schedule& schedule, TokenSource* tokens) {
  PipelineContext context;
  context.schedule = &schedule;
  context.cell = context_.cell;
  for (int cell = 0; cell < spec_.cells(); ++cell) {
    context.rank_of_cell.push_back(RunSpec::rank_of_cell(cell));
  }
  context.stage = &state_.stage();
  context.storage = storage_.get();
  context.queue = context_.queue;
  context.stream = runner_.stream;
  context.mesh = mesh_.get();
  context.loop = context_.loop;
  context.tokens = tokens;
  boundaries_->prepare(context);
  return context;
}

/// What the messages of a step would have without codecs.
void Worker::count_raw_bytes() {
  const ModelShape& model = spec_.job.model;
  const std::uint64_t boundary = static_cast<std::uint64_t>(spec_.plan.micro_batch) *
                                 static_cast<std::uint64_t>(model.context) *
                                 static_cast<std::uint64_t>(model.width) * sizeof(float);
  const auto micro_batches =
      static_cast<std::uint64_t>(spec_.plan.micro_batches[static_cast<std::size_t>(pipeline_)]);
  const int rank = RunSpec::rank_of_cell(context_.cell);
  if (stage_ > 0) raw_per_step_[rank - 1] += micro_batches * boundary;
  if (stage_ + 1 < spec_.plan.stages()) {
    raw_per_step_[rank + 1] += micro_batches * boundary;
    if (spec_.validation) {
      const int count = validation_micro_batches(spec_)[static_cast<std::size_t>(pipeline_)];
      raw_per_validation_[rank + 1] += static_cast<std::uint64_t>(count) * boundary;
    }
  }
  const auto count_exchange = [&](const ExchangeLayout& layout) {
    for (std::size_t i = 0; i < layout.members(); ++i) {
      if (i == layout.self()) continue;
      // Its part of the peer's shard, and the sum of its own.
      raw_per_step_[layout.rank_of(i)] +=
          sizeof(float) * (layout.shard_elements(i) + layout.shard_elements(layout.self()));
    }
  };
  count_exchange(stage_exchange_.exchange->layout());
  if (tied_exchange_) count_exchange(tied_exchange_->exchange->layout());
}

void Worker::start() {
  ParticipantConfig config;
  config.coordinator = kCoordinatorRank;
  config.first_step = spec_.first_step;
  config.rates = rates_of(spec_);
  config.norm_max = spec_.job.training->clip;
  config.limits = spec_.limits;
  ParticipantHooks hooks;
  hooks.update = [this](const StepUpdate& update) { on_commit(update); };
  hooks.stop = [this](const Stop& stop) { on_stop(stop); };
  hooks.coordinator_lost = [this](const Error& why) { on_coordinator_lost(why); };
  participant_ = std::make_unique<Participant>(*context_.loop, *mesh_, config, std::move(hooks));
  mesh_->on_control([this, alive = std::weak_ptr(alive_)](int peer, const std::string& text) {
    if (!alive.expired()) received(peer, text);
  });
  mesh_->on_lost([this, alive = std::weak_ptr(alive_)](int peer, const Error& why) {
    if (!alive.expired()) lost(peer, why);
  });
  load();
}

void Worker::run(std::uint64_t tag, std::move_only_function<Result<void>()> work,
                 std::move_only_function<void(Result<void>)> then) {
  runner_.run(tag, std::move(work),
              [alive = std::weak_ptr(alive_), t = std::move(then)](Result<void> result) mutable {
                if (!alive.expired()) t(std::move(result));
              });
}

void Worker::load() {
  if (!spec_.resume) {
    return run(
        kStorageTag,
        [this]() -> Result<void> {
          state_.stage().initialise_weights(spec_.job.training->seed);
          return {};
        },
        [this](Result<void> result) { loaded(std::move(result)); });
  }
  const std::string root = checkpoints_root(context_.folder);
  FileFetch::Options options;
  options.runner = runner_;
  options.storage = context_.storage;
  options.requests = requests_.get();
  options.root = root;
  options.rank = RunSpec::rank_of_cell(context_.cell);
  options.checkpoint = spec_.resume->checkpoint;
  for (const CheckpointPart part : state_.needed_parts()) {
    for (const std::string& name : {weights_file_name(part), optimiser_file_name(part)}) {
      Result<CheckpointFile> file = file_named(spec_.resume->files, name);
      if (!file) return loaded(std::unexpected(std::move(file).error()));
      options.files.push_back({*std::move(file), kCoordinatorRank});
    }
  }
  fetch_ = std::make_unique<FileFetch>(std::move(options), [this, root](Result<void> fetched) {
    if (!fetched) return loaded(std::move(fetched));
    run(
        kStorageTag,
        [this, folder = root + "/" + folder_name(spec_.resume->checkpoint)] {
          return state_.read(*context_.storage, folder, spec_.resume->files);
        },
        [this](Result<void> result) {
          if (result) return load_histories();
          loaded(std::move(result));
        });
  });
  fetch_->start();
}

/// Where there are none they are built anew.
void Worker::load_histories() {
  if (!boundaries_->keeps_histories()) return loaded({});
  boundaries_->load_histories(
      checkpoints_root(context_.folder) + "/" + folder_name(spec_.resume->checkpoint),
      [this, alive = std::weak_ptr(alive_)](Result<void> result) {
        if (!alive.expired()) loaded(std::move(result));
      });
}

void Worker::loaded(Result<void> result) {
  if (activity_ == Activity::kEnded) return;
  if (!result) fail(within("the weights cannot be loaded", std::move(result).error()).error());
  activity_ = Activity::kIdle;
  next();
}

// ---- between steps

void Worker::next() {
  if (activity_ != Activity::kIdle) return;
  if (is_stopping_uncleanly()) {
    participant_->stopped();
    return end(false, stop_->reason);
  }
  if (participant_->state() == Participant::State::kBroken) return;  // a STOP will come
  const std::uint64_t done = participant_->committed();
  const bool is_new = done > spec_.first_step;
  if (is_new && validated_ != done && validates_after(spec_, done)) return validate();
  if (is_new && saved_ != done && (saves_after(spec_, done) || stop_)) return save();
  if (stop_) {
    // Also when the STOP has come after the saving: until then the coordinator may be fetching it.
    if (is_new && is_writer() && saved_ == done && kept_ != saved_) {
      activity_ = Activity::kKept;
      return;
    }
    participant_->stopped();
    return end(true, stop_->reason);
  }
  if (done < spec_.last_step) run_step();
}

void Worker::run_step() {
  activity_ = Activity::kStep;
  is_updated_ = false;
  const std::uint64_t number = participant_->committed();
  boundaries_->begin_step(number);
  PipelineContext context = pipeline_context(schedule_, train_tokens_.get());
  context.hooks.reduce = [this](PipelineHooks::Done done) { reduce(false, std::move(done)); };
  context.hooks.tied_reduce = [this](PipelineHooks::Done done) { reduce(true, std::move(done)); };
  context.hooks.prepare = [this](PipelineHooks::Done done) { prepare(std::move(done)); };
  context.hooks.update = [this](PipelineHooks::Done done) { update(std::move(done)); };
  const PipelineStep::Options options = {
      .step = static_cast<std::uint32_t>(number),
      .loss_scale = static_cast<float>(1 / targets_of_step(spec_, number))};
  step_ = std::make_unique<PipelineStep>(context, options);
  step_->start([this](Result<PipelineResult> result) { step_ended(std::move(result)); });
}

void Worker::step_ended(Result<PipelineResult> result) {
  if (!result) return fail(result.error());
  measure(*result);
  step_ = nullptr;
  activity_ = Activity::kIdle;
  next();
}

Worker::Exchange Worker::make_exchange(ExchangeOptions options, const GradientRange& range) {
  auto exchange = ShardedAllReduce::create(*mesh_, *context_.loop, std::move(options));
  LH_CHECK(exchange, "the exchange is made from a spec that was checked");
  return {std::move(*exchange), range};
}

void Worker::reduce(bool tied, PipelineHooks::Done done) {
  const auto number = static_cast<std::uint32_t>(participant_->committed());
  const auto& [exchange, range] = tied ? *tied_exchange_ : stage_exchange_;
  exchange_ = exchange.get();
  exchange_->start(tied ? exchange_operation(Op::kTiedReduce, 0, number)
                        : exchange_operation(Op::kReduce, stage_, number),
                   state_.stage().gradients().subspan(range.first, range.count), std::move(done));
}

void Worker::prepare(PipelineHooks::Done done) {
  committed_ = std::move(done);
  const std::uint64_t number = participant_->committed();
  double loss = 0;
  if (!step_->losses().empty()) {
    ops::add_losses(step_->losses(), 1 / targets_of_step(spec_, number), loss);
  }
  // Owners: the work and its completion.
  auto prepared = std::make_shared<Prepared>();
  run(
      kPrepareTag,
      [this, prepared, number]() -> Result<void> {
        *prepared = state_.prepared(number);
        return {};
      },
      [this, prepared, loss](Result<void> result) {
        if (activity_ != Activity::kStep || stop_) return;
        if (!result) return fail(result.error());
        prepared->loss = loss;
        participant_->prepared(std::move(*prepared));
      });
}

void Worker::on_commit(const StepUpdate& update) {
  update_ = update;
  if (update.decision == Decision::kApply) {
    stage_exchange_.exchange->commit();
    if (tied_exchange_) tied_exchange_->exchange->commit();
  }
  auto done = std::move(committed_);
  committed_ = nullptr;
  LH_CHECK(done, "a COMMIT answers a PREPARED");
  done({});
}

void Worker::update(PipelineHooks::Done done) {
  run(
      kUpdateTag,
      [this]() -> Result<void> {
        state_.update(update_, *spec_.job.training, updates_);
        return {};
      },
      [this, d = std::move(done)](Result<void> result) mutable {
        if (!result) return fail(result.error());
        if (update_.decision == Decision::kApply) ++updates_;
        is_updated_ = true;
        // The step first: a STOP that has waited for the update is obeyed from `updated`.
        d({});
        participant_->updated();
      });
}

// ---- validation and checkpoints

void Worker::validate() {
  activity_ = Activity::kValidation;
  const PipelineStep::Options options = {
      .step = static_cast<std::uint32_t>(participant_->committed()), .is_validation = true};
  step_ = std::make_unique<PipelineStep>(
      pipeline_context(validation_schedule_, validation_tokens_.get()), options);
  step_->start([this](Result<PipelineResult> result) { validation_ended(std::move(result)); });
}

void Worker::validation_ended(Result<PipelineResult> result) {
  if (!result) return fail(result.error());
  validated_ = participant_->committed();
  if (!result->losses.empty()) {
    Validated validated;
    validated.step = validated_;
    ops::add_losses(result->losses, 1, validated.loss);
    validated.targets = ValidationTokens::targets(spec_, pipeline_);
    tell(validated);
  }
  for (const auto& [rank, bytes] : raw_per_validation_) raw_[rank] += bytes;
  step_ = nullptr;
  activity_ = Activity::kIdle;
  next();
}

void Worker::save() {
  saved_ = participant_->committed();
  const std::string folder =
      checkpoints_root(context_.folder) + "/" + folder_name({spec_.term, saved_});
  if (!boundaries_->keeps_histories()) return save_state(folder);
  activity_ = Activity::kSaving;
  boundaries_->save_histories(
      folder, [this, folder, alive = std::weak_ptr(alive_)](Result<void> result) {
        if (alive.expired() || activity_ == Activity::kEnded) return;
        activity_ = Activity::kIdle;
        if (result) return save_state(folder);
        fail(within("the histories cannot be written", result.error()).error());
      });
}

void Worker::save_state(const std::string& folder) {
  if (!is_writer()) return next();
  activity_ = Activity::kSaving;
  // Owners: the work and its completion.
  auto files = std::make_shared<std::vector<CheckpointFile>>();
  run(
      kStorageTag,
      [this, folder, files]() -> Result<void> {
        LH_ASSIGN(*files, state_.write(*context_.storage, folder));
        return {};
      },
      [this, files](Result<void> result) {
        if (activity_ == Activity::kEnded) return;
        activity_ = Activity::kIdle;
        if (!result) {
          return fail(within("the checkpoint cannot be written", result.error()).error());
        }
        tell(Saved{saved_, std::move(*files)});
        next();
      });
}

void Worker::kept(const Kept& kept) {
  // Where the coordinator's disk is this one they are gone already.
  run(
      kStorageTag,
      [this, kept]() -> Result<void> {
        const std::string root = checkpoints_root(context_.folder);
        LH_ASSIGN(const std::vector<CheckpointId> ids,
                  list_checkpoints(*context_.storage, root, false));
        for (const CheckpointId& id : ids) {
          if (id.step < kept.oldest) LH_TRY(delete_checkpoint(*context_.storage, root, id));
        }
        return {};
      },
      [this, kept](const Result<void>&) {  // old files that stay do no harm
        if (kept.step != saved_) return;
        kept_ = saved_;
        if (activity_ != Activity::kKept) return;
        activity_ = Activity::kIdle;
        next();
      });
}

// ---- the end

void Worker::on_stop(const Stop& stop) {
  stop_ = stop;
  if (stop.clean) {
    // An updated step completes by itself, and so do a validation and a checkpoint.
    if (activity_ == Activity::kStep && !is_updated_) abandon();
    if (activity_ == Activity::kIdle) next();
    return;
  }
  if (activity_ == Activity::kKept) activity_ = Activity::kIdle;
  abandon();
  if (activity_ == Activity::kIdle) next();
}

/// Ends the step at hand; goes on when the queue no longer uses the stage.
void Worker::abandon() {
  if (!step_ || (activity_ != Activity::kStep && activity_ != Activity::kValidation)) return;
  abandon_exchange();
  committed_ = nullptr;
  step_->abort([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || activity_ == Activity::kEnded) return;
    step_ = nullptr;
    // Hooks may have left work in the queue.
    run(
        kStorageTag, []() -> Result<void> { return {}; },
        [this](const Result<void>&) {
          activity_ = Activity::kIdle;
          next();
        });
  });
}

void Worker::abandon_exchange() {
  if (exchange_ != nullptr) exchange_->abandon();
  exchange_ = nullptr;
}

void Worker::on_coordinator_lost(const Error& why) {
  abandon_exchange();
  if (step_) step_->abort([] {});
  end(false, within("the coordinator is lost", why).error().message);
}

void Worker::end(bool clean, const std::string& reason) {
  if (activity_ == Activity::kEnded) return;
  activity_ = Activity::kEnded;
  context_.loop->post([this, alive = std::weak_ptr(alive_), clean, reason] {
    if (alive.expired()) return;
    if (context_.ended) context_.ended({clean, reason, participant_->committed()});
  });
}

void Worker::fail(const Error& why) {
  participant_->failed(mesh_->rank(), why);
  if (activity_ == Activity::kStep || activity_ == Activity::kValidation) {
    // The step has ended with this error.
    abandon_exchange();
    committed_ = nullptr;
    step_ = nullptr;
    activity_ = Activity::kIdle;
  }
  next();
}

// ---- messages

void Worker::tell(const ControlMessage& message) {
  mesh_->send_control(kCoordinatorRank, control_text(message));
}

void Worker::received(int peer, const std::string& text) {
  if (requests_->received(peer, text)) return;
  if (const auto message = parse_control(text); message && peer == kCoordinatorRank) {
    if (const auto* const is_kept = std::get_if<Kept>(&*message)) return kept(*is_kept);
  }
  participant_->received(peer, text);
}

void Worker::lost(int peer, const Error& why) {
  requests_->lost(peer, why);
  participant_->lost(peer, why);
  if (exchange_) exchange_->peer_lost(peer, why);
}

void Worker::serve(const std::string& what, std::size_t bytes, MeshRequests::Answer answer) {
  if (const auto wanted = parse_resend(what)) {
    return boundaries_->serve(*wanted, std::move(answer));
  }
  serve_file_piece(runner_, *context_.storage, checkpoints_root(context_.folder), what, bytes,
                   std::move(answer));
}

void Worker::measure(const PipelineResult& result) {
  const auto& list = schedule_.tasklets[static_cast<std::size_t>(context_.cell)].instructions;
  Measured measured;
  measured.step = participant_->committed() - 1;
  measured.origin_ns = context_.origin_ns;
  Seconds first = Seconds::infinity();
  Seconds last_backward, prepare;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto [start, end] = result.times[i];
    if (list[i].op == Op::kUpdate) measured.update = (end - start).value();
    if (list[i].op == Op::kPrepare) {
      prepare = start;
      measured.commit = (end - start).value();
    }
    if (lane_of(list[i].op) != Lane::kCompute || list[i].op == Op::kUpdate) continue;
    measured.compute += (end - start).value();
    first = std::min(first, start);
    last_backward = std::max(last_backward, end);
  }
  measured.start = first.value();
  measured.wait = (last_backward - first).value() - measured.compute;
  measured.reduce = (prepare - last_backward).value();
  for (const auto& [rank, bytes] : raw_per_step_) raw_[rank] += bytes;
  for (const auto& [rank, bytes] : mesh_->take_sent()) {
    measured.sent.push_back({rank, bytes, std::exchange(raw_[rank], 0)});
  }
  if (const auto visits = boundaries_->history_visits(measured.step)) tell(*visits);
  tell(measured);
  const TaskletSchedule& tasklet = schedule_.tasklets[static_cast<std::size_t>(context_.cell)];
  for (const Recoded& recoded :
       boundaries_->adapt(measured.step, tasklet, result.times, Seconds(measured.compute))) {
    tell(recoded);
  }
  if (spec_.timeline_step == measured.step && list.size() <= kStageTensorsMax) {
    Times times;
    times.step = measured.step;
    times.origin_ns = context_.origin_ns;
    for (const auto& [start, end] : result.times) {
      times.spans.push_back({start.value(), end.value()});
    }
    // A step of very many instructions has no timeline rather than no end.
    if (control_text(times).size() <= kMaxControlPayload) tell(times);
  }
}

}  // namespace longhaul
