#include "executor/run/run_coordinator.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace longhaul {

RunCoordinator::RunCoordinator(const RunCoordinatorContext& context, Journal journal)
    : context_(context),
      spec_(*context.spec),
      runner_{context.queue, context.queue->create_stream()},
      journal_(std::make_shared<Journal>(std::move(journal))),
      updates_done_(spec_.updates) {
  requests_ = std::make_unique<MeshRequests>(
      *context_.mesh,
      [this](const std::string& what, std::size_t bytes, MeshRequests::Answer answer) {
        serve(what, bytes, std::move(answer));
      });
}

RunCoordinator::~RunCoordinator() = default;

Result<std::unique_ptr<RunCoordinator>> RunCoordinator::create(
    const RunCoordinatorContext& context) {
  LH_ASSIGN(Journal journal,
            Journal::open(*context.storage, context.folder + "/journal", context.spec->id));
  return std::unique_ptr<RunCoordinator>(new RunCoordinator(context, std::move(journal)));
}

void RunCoordinator::start() {
  CoordinatorHooks hooks;
  hooks.journal = [this](const JournalEntry& entry, CoordinatorHooks::OnJournalled done) {
    run([journal = journal_, entry] { return journal->append(entry); }, std::move(done));
  };
  hooks.committed = [this](const JournalEntry& entry) {
    if (entry.decision == Decision::kApply) ++updates_done_;
    if (saves_after(spec_, entry.step + 1)) updates_[entry.step + 1] = updates_done_;
    if (context_.hooks.committed) context_.hooks.committed(entry);
  };
  hooks.ended = [this](const Ending& ending) {
    ending_.ending = ending;
    fetch_ = nullptr;
    const auto ended = context_.hooks.ended;
    if (ended) ended(ending_);
  };
  coordinator_ = std::make_unique<Coordinator>(*context_.loop, *context_.mesh,
                                               coordinator_config(spec_), std::move(hooks));
  context_.mesh->on_control(
      [this, alive = std::weak_ptr(alive_)](int peer, const std::string& text) {
        if (!alive.expired()) received(peer, text);
      });
  context_.mesh->on_lost([this, alive = std::weak_ptr(alive_)](int peer, const Error& why) {
    if (alive.expired()) return;
    coordinator_->lost(peer, why);
    if (!alive.expired()) requests_->lost(peer, why);
  });
  coordinator_->start();
}

void RunCoordinator::run(std::move_only_function<Result<void>()> work,
                         std::move_only_function<void(Result<void>)> then) {
  runner_.run(kStorageTag, std::move(work),
              [alive = std::weak_ptr(alive_), t = std::move(then)](Result<void> result) mutable {
                if (!alive.expired()) t(std::move(result));
              });
}

void RunCoordinator::worker_exited(int cell, const std::string& how) {
  Error why;
  why.message = how;
  coordinator_->lost(RunSpec::rank_of_cell(cell), why);
}

void RunCoordinator::received(int peer, const std::string& text) {
  if (requests_->received(peer, text)) return;
  const int cell = peer - 1;
  // What is not told beside the protocol is the protocol's, and so is what cannot be read.
  const auto message = parse_control(text);
  if (message) {
    if (const auto* const validated = std::get_if<Validated>(&*message)) {
      return on_validated(cell, *validated);
    }
    if (const auto* const saved = std::get_if<Saved>(&*message)) return on_saved(cell, *saved);
    if (const auto* const measured = std::get_if<Measured>(&*message)) {
      if (context_.hooks.measured) context_.hooks.measured(cell, *measured);
      return;
    }
    if (const auto* const visits = std::get_if<HistoryVisits>(&*message)) {
      if (context_.hooks.histories) context_.hooks.histories(cell, *visits);
      return;
    }
    if (const auto* const recoded = std::get_if<Recoded>(&*message)) {
      if (context_.hooks.recoded) context_.hooks.recoded(cell, *recoded);
      return;
    }
    if (const auto* const times = std::get_if<Times>(&*message)) {
      if (context_.hooks.times) context_.hooks.times(cell, *times);
      return;
    }
  }
  coordinator_->received(peer, text);
}

// ---- validation

void RunCoordinator::on_validated(int cell, const Validated& validated) {
  auto& parts = validated_[validated.step];
  parts.resize(static_cast<std::size_t>(spec_.plan.pipelines()));
  parts[static_cast<std::size_t>(spec_.pipeline_of(cell))] = validated;
  if (!std::ranges::all_of(parts, [](const auto& part) { return part.has_value(); })) return;
  double loss = 0;
  double targets = 0;
  for (const auto& part : parts) {  // in the order of the pipelines, whoever was first
    loss += part->loss;
    targets += static_cast<double>(part->targets);
  }
  const std::uint64_t step = validated.step;
  validated_.erase(step);
  if (context_.hooks.validated) context_.hooks.validated(step, loss / targets);
}

// ---- checkpoints

void RunCoordinator::on_saved(int cell, const Saved& saved) {
  if (spec_.pipeline_of(cell) != 0) return;  // only pipeline 0 writes
  Written& written = written_[saved.step];
  written.resize(static_cast<std::size_t>(spec_.plan.stages()));
  written[static_cast<std::size_t>(spec_.stage_of(cell))] = saved;
  keep_next();
}

void RunCoordinator::keep_next() {
  if (is_keeping_ || written_.empty()) return;
  const auto& [step, written] = *written_.begin();
  if (!std::ranges::all_of(written, [](const auto& part) { return part.has_value(); })) return;
  is_keeping_ = true;

  CheckpointManifest manifest;
  manifest.id = {spec_.term, step};
  // A run that was stopped between two that are due ends with a checkpoint, too.
  manifest.updates = updates_.contains(step) ? updates_.at(step) : updates_done_;
  manifest.seed = spec_.job.training->seed;
  manifest.job_hash = spec_.job.hash;
  const auto batch = static_cast<std::uint64_t>(spec_.job.global_batch);
  manifest.data = {.sequences = step * batch, .batch = batch, .batch_since_step = 0};
  manifest.model = spec_.job.model;

  FileFetch::Options options;
  options.runner = runner_;
  options.storage = context_.storage;
  options.requests = requests_.get();
  options.root = checkpoints_root(context_.folder);
  options.checkpoint = manifest.id;
  for (int stage = 0; stage < spec_.plan.stages(); ++stage) {
    const auto& saved = written[static_cast<std::size_t>(stage)];
    for (const CheckpointFile& file : saved->files) {
      options.files.push_back({file, RunSpec::rank_of_cell(stage)});
      manifest.files.push_back({file, {spec_.place_of_cell(stage).name, spec_.ranks[0].name}});
    }
  }
  fetch_ = std::make_unique<FileFetch>(std::move(options), [this, manifest](Result<void> fetched) {
    if (!fetched) return finish_checkpoint(manifest, std::unexpected(std::move(fetched).error()));
    write_manifest_of(manifest);
  });
  fetch_->start();
}

void RunCoordinator::write_manifest_of(CheckpointManifest manifest) {
  const std::string root = checkpoints_root(context_.folder);
  // Owners: the work and its completion.
  auto oldest = std::make_shared<std::uint64_t>(0);
  run(
      [this, root, manifest, oldest]() -> Result<void> {
        // parse_manifest is what reads it again: what it would refuse must not be written.
        LH_TRY(parse_manifest(manifest_text(manifest), "the manifest"));
        LH_TRY(write_manifest(*context_.storage, root, manifest));
        LH_TRY(
            delete_old_checkpoints(*context_.storage, root, spec_.job.training->checkpoints_kept));
        LH_ASSIGN(const auto ids, list_checkpoints(*context_.storage, root, true));
        *oldest = manifest.id.step;
        for (const CheckpointId& id : ids) *oldest = std::min(*oldest, id.step);
        return {};
      },
      [this, manifest, oldest](Result<void> written) {
        if (!written) {
          return finish_checkpoint(manifest, std::unexpected(std::move(written).error()));
        }
        finish_checkpoint(manifest, *oldest);
      });
}

void RunCoordinator::finish_checkpoint(const CheckpointManifest& manifest,
                                       Result<std::uint64_t> oldest) {
  fetch_ = nullptr;
  is_keeping_ = false;
  const std::uint64_t step = manifest.id.step;
  written_.erase(step);
  if (oldest) {
    ending_.checkpoint = manifest.id;
    ending_.checkpoint_error = std::nullopt;
  } else {
    ending_.checkpoint_error =
        within(fmt::format("the checkpoint of step {}", step), std::move(oldest).error()).error();
  }
  const std::string text = control_text(Kept{step, oldest ? *oldest : 0});
  for (int cell = 0; cell < spec_.cells(); ++cell) {
    context_.mesh->send_control(RunSpec::rank_of_cell(cell), text);
  }
  if (oldest && context_.hooks.kept) context_.hooks.kept(manifest);
  keep_next();
}

// ---- what workers ask for

void RunCoordinator::serve(const std::string& what, std::size_t bytes,
                           MeshRequests::Answer answer) {
  if (const auto wanted = parse_wanted_sequences(what)) {
    SequenceSource* const source =
        wanted->part == DataPart::kTrain ? context_.train : context_.validation;
    return serve_sequences(source, *wanted, std::move(answer));
  }
  serve_file_piece(runner_, *context_.storage, checkpoints_root(context_.folder), what, bytes,
                   std::move(answer));
}

}  // namespace longhaul
