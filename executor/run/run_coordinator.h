// The coordinator's whole run: the commit protocol (control/coordinator.h) with its journal, the
// validation losses, the checkpoints with their manifest, and the data and files that workers ask
// for. Whoever owns it prints and records; nothing here does.
//
// A checkpoint: the writers say which files they have written; those that this disk has not are
// fetched, so that it always has them all; then the manifest makes the checkpoint exist and older
// ones go. One at a time, in the order of their steps.
//
// Belongs to the loop's thread; files are touched on the queue. What the context names outlives it,
// the queue also the mesh.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/control/coordinator.h"
#include "executor/control/journal.h"
#include "executor/run/file_transfer.h"
#include "executor/run/run_data.h"
#include "executor/run/run_spec.h"

namespace longhaul {

struct RunEnding {
  Ending ending;
  std::optional<CheckpointId> checkpoint;  // the newest of this run
  std::optional<Error> checkpoint_error;   // of one that could not be kept
};

/// What is told as it happens; any may be empty.
struct RunHooks {
  std::function<void(const JournalEntry& entry)> committed;
  /// Steps behind the weights, and the mean loss of a target in nats.
  std::function<void(std::uint64_t step, double loss)> validated;
  std::function<void(const CheckpointManifest& manifest)> kept;
  std::function<void(int cell, const Measured& measured)> measured;
  std::function<void(int cell, const Times& times)> times;
  std::function<void(int cell, const HistoryVisits& visits)> histories;
  std::function<void(int cell, const Recoded& recoded)> recoded;
  /// The last call. The coordinator may be destroyed in it.
  std::function<void(const RunEnding& ending)> ended;
};

struct RunCoordinatorContext {
  const RunSpec* spec = nullptr;
  EventLoop* loop = nullptr;
  Mesh* mesh = nullptr;
  ComputeQueue* queue = nullptr;  // for files
  Storage* storage = nullptr;
  std::string folder;  // of the run; it is there
  SequenceSource* train = nullptr;
  SequenceSource* validation = nullptr;  // may be null
  RunHooks hooks;
};

class RunCoordinator {
 public:
  /// Opens the journal; blocks. Errors: those of Journal::open.
  static Result<std::unique_ptr<RunCoordinator>> create(const RunCoordinatorContext& context);
  ~RunCoordinator();
  RunCoordinator(const RunCoordinator&) = delete;
  RunCoordinator& operator=(const RunCoordinator&) = delete;

  /// Takes the mesh's handlers.
  void start();
  /// Ends the run when the step at hand is committed, with a checkpoint.
  void request_stop() { coordinator_->request_stop(); }
  /// A worker's process has ended, as whoever started it says: names causes that a broken
  /// connection does not.
  void worker_exited(int cell, const std::string& how);

 private:
  /// What the writers have said about one checkpoint, by stage.
  using Written = std::vector<std::optional<Saved>>;

  RunCoordinator(const RunCoordinatorContext& context, Journal journal);
  void received(int peer, const std::string& text);
  void on_validated(int cell, const Validated& validated);
  void on_saved(int cell, const Saved& saved);
  void keep_next();
  void write_manifest_of(CheckpointManifest manifest);
  void finish_checkpoint(const CheckpointManifest& manifest, Result<std::uint64_t> oldest);
  void serve(const std::string& what, std::size_t bytes, MeshRequests::Answer answer);
  void run(std::move_only_function<Result<void>()> work,
           std::move_only_function<void(Result<void>)> then);

  const RunCoordinatorContext context_;
  const RunSpec& spec_;
  QueueRunner runner_;
  // Owners: this and the work that appends to it.
  std::shared_ptr<Journal> journal_;
  std::unique_ptr<MeshRequests> requests_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<std::uint64_t, std::vector<std::optional<Validated>>> validated_;  // by step; pipeline
  std::map<std::uint64_t, Written> written_;                                  // by step
  std::map<std::uint64_t, std::uint64_t> updates_;  // applied, by steps behind the weights
  std::uint64_t updates_done_;
  std::unique_ptr<FileFetch> fetch_;  // of the checkpoint at hand
  bool is_keeping_ = false;
  RunEnding ending_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // owned here alone
};

}  // namespace longhaul
