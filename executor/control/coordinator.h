// The coordinator's side of the commit: decides what becomes of each step, notices who has died,
// and stops the run so that everybody knows the first cause.
//
//   collecting --every rank PREPARED--> journalling --line durable, COMMIT sent--> collecting
//   collecting --a failure--> stopping           journalling --COMMIT sent, and now a failure, a
//   stopping --all STOPPED or dead--> ended          stop request or the last step--> stopping
//
// Invariants: COMMIT is sent only after the journal has answered that the step is durable (so a
// step committed at a worker is in the journal, whenever the coordinator dies); nothing is
// committed after STOP; STOP is sent once and `ended` called once. A failure while the journal
// works waits for its answer: the step is then committed and everybody is told so before STOP.
//
// A step needs every rank once. Replicas of a stage must agree in both hashes, finiteness and all
// sums, and the tied tensor must have one sum in both its stages; else the run stops. A step that
// is not finite anywhere is committed as `skip`.
//
// All functions are called from tasks of the loop. The owner hands over what its Mesh hears.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/control/journal.h"
#include "executor/control/limits.h"
#include "executor/control/messages.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"

namespace longhaul {

struct StageGroup {
  std::vector<int> ranks;   // its replicas: one a pipeline, in their order
  std::size_t tensors = 0;  // sums of squares in its PREPARED
};

/// Where the tied tensor is among the tensors of its two stages. It counts once, for the first.
struct TiedTensor {
  std::size_t in_first_stage = 0;
  std::size_t in_last_stage = 0;
};

struct CoordinatorConfig {
  std::vector<StageGroup> stages;  // in model order
  std::optional<TiedTensor> tied;  // only with two stages or more
  std::uint32_t term = 0;
  std::uint64_t first_step = 0;
  std::uint64_t steps = 1;  // the run ends before this step
  int skips_before = 0;     // in a row, before first_step (Journal::trailing_skips)
  ControlLimits limits;
};

/// Of a failure that is no worker's.
inline constexpr int kNobody = -1;
struct Failure {
  int rank = kNobody;
  std::string message;  // names the rank and its place in the grid
};

struct Ending {
  std::string reason;            // of a clean end, or the first cause's message
  std::optional<Failure> cause;  // the first failure; none: a clean end
  std::vector<Failure> victims;  // what failed after it, in order; each rank once
  std::uint64_t committed = 0;   // steps

  bool clean() const { return !cause; }
  /// For a person: the first cause once, then the victims by name.
  std::string text() const;
};

struct CoordinatorHooks {
  using OnJournalled = std::move_only_function<void(Result<void>)>;
  /// Makes the entry durable on a thread that may block, and answers in a task of the loop.
  std::function<void(const JournalEntry& entry, OnJournalled done)> journal;
  /// A step was committed. May be empty; may call request_stop.
  std::function<void(const JournalEntry& entry)> committed;
  /// The last call. The coordinator may be destroyed in it.
  std::function<void(const Ending& ending)> ended;
};

class Coordinator {
 public:
  /// The grid must fit the mesh: it comes from a plan that was checked when it was loaded.
  Coordinator(EventLoop& loop, Mesh& mesh, CoordinatorConfig config, CoordinatorHooks hooks);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Once every worker is connected.
  void start();
  /// Ends the run when the step at hand is committed. Again: no effect.
  void request_stop() { stop_requested_ = true; }

  /// What the mesh hears.
  void received(int peer, const std::string& text);
  void lost(int peer, const Error& why);

 private:
  enum class State { kIdle, kCollecting, kJournalling, kStopping, kEnded };
  struct Member {
    int rank = 0;
    std::size_t stage = 0;
    std::size_t pipeline = 0;
    std::optional<Prepared> prepared;  // of the step at hand
    std::uint64_t answered = 0;        // number of the last ping that it answered
    bool lost = false;                 // the mesh has given it up
    bool dead = false;                 // lost or silent
    bool stopped = false;
    bool leaving() const { return dead || stopped; }
  };

  Member* find(int rank);
  std::string describe(const Member& member) const;
  void send(const Member& member, const ControlMessage& message);
  void broadcast(const ControlMessage& message);

  void collect();
  void on_prepared(Member& member, Prepared prepared);
  void on_pong(Member& member, const Pong& pong);
  void on_failed(Member& member, const Failed& report);
  void on_stopped(Member& member, const Stopped& stopped);

  /// Why the prepared step must not be committed; empty when it may.
  std::string disagreement() const;
  std::string disagreement_of(std::size_t stage) const;
  void decide();
  void on_journalled(const JournalEntry& entry, Result<void> written);
  void on_step_deadline();
  void on_journal_deadline();

  void beat();
  void on_dead(Member& member, const std::string& how);
  /// The first one stops the run; later ones are victims.
  void fail(int rank, std::string message);
  void add_victim(int rank, std::string message);
  void stop();
  void on_stop_deadline();
  void end_if_all_left();
  void arm(Seconds deadline, void (Coordinator::*then)());

  EventLoop& loop_;
  Mesh& mesh_;
  CoordinatorConfig config_;
  CoordinatorHooks hooks_;
  std::vector<Member> members_;  // by stage, then pipeline
  State state_ = State::kIdle;
  std::uint64_t step_;  // at hand; = steps committed
  int skips_;           // in a row
  bool stop_requested_ = false;
  std::string clean_reason_;
  std::optional<Failure> cause_;
  bool cause_is_hearsay_ = false;  // another rank reported it
  std::vector<Failure> victims_;
  std::uint64_t ping_number_ = 0;
  TimerId beat_timer_ = kNoTimer;
  TimerId deadline_ = kNoTimer;  // of the state
  // Owned here alone; answers of the journal and posted tasks look whether it is still there.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace longhaul
