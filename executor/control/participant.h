// The worker's side of the commit: says when its gradients are reduced, and updates only what the
// coordinator has committed.
//
//   computing --prepared()--> prepared --COMMIT--> updating --updated()--> computing
//   computing, prepared --STOP--> stopping --stopped()--> stopped
//   updating --STOP, then updated()--> stopping     any of these --failed() about itself--> broken
//   broken --STOP--> stopping                       all but stopped --silence--> orphaned
//
// Invariants: the update hook runs once for each step, in order, and only for a COMMIT; an update
// that has begun is finished before `stop` is called, unless the worker broke in it; `stop` and
// `coordinator_lost` are called at most once and not both. Whoever waits here for the coordinator
// is bounded by its heartbeats: it is dead when 6 of them are missing, 3 to 3.5 s after the last;
// while it lives, its own deadlines bound it.
//
// All functions are called from tasks of the loop, and hooks from within them. The owner hands over
// what its Mesh hears.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"
#include "executor/control/limits.h"
#include "executor/control/messages.h"
#include "executor/control/schedule_of_rates.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/mesh.h"

namespace longhaul {

struct ParticipantConfig {
  int coordinator = 0;  // its rank
  std::uint64_t first_step = 0;
  RateSchedule rates;
  double norm_max = kDefaultClip;  // or kNoClip
  ControlLimits limits;
};

/// All that an update needs besides what the worker has.
struct StepUpdate {
  std::uint64_t step = 0;
  Decision decision = Decision::kApply;  // skip: weights, m and v stay as they are
  double norm = 0;
  double learning_rate = 0;
  double gradient_scale = 0;  // from clipping; 0 where the step is skipped
};

struct ParticipantHooks {
  /// Does the update and then calls updated(), at once or later.
  std::function<void(const StepUpdate& update)> update;
  /// Ends the work at hand, which is not committed, and then calls stopped(), at once or later.
  std::function<void(const Stop& order)> stop;
  /// The coordinator is dead. What was not committed is void.
  std::function<void(const Error& why)> coordinator_lost;
};

class Participant {
 public:
  enum class State { kComputing, kPrepared, kUpdating, kBroken, kStopping, kStopped, kOrphaned };

  /// Waits for heartbeats from now on.
  Participant(EventLoop& loop, Mesh& mesh, ParticipantConfig config, ParticipantHooks hooks);
  ~Participant();
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  State state() const { return state_; }
  /// Steps behind the weights: the number of the step at hand.
  std::uint64_t committed() const { return step_; }

  /// The reduced gradient of the step at hand is there. No effect once this worker is to stop.
  void prepared(Prepared message);
  void updated();
  void stopped();
  /// This worker cannot go on: for its own reasons (`about` is its rank), or because it lost
  /// `about`. The first report is sent; a STOP follows.
  void failed(int about, const Error& why);

  /// What the mesh hears.
  void received(int peer, const std::string& text);
  void lost(int peer, const Error& why);

 private:
  void send(const ControlMessage& message);
  void on_commit(const Commit& commit);
  void on_stop(Stop stop);
  void obey_stop();
  void beat();
  void orphan(const Error& why);
  void refuse(const std::string& what);

  EventLoop& loop_;
  Mesh& mesh_;
  ParticipantConfig config_;
  ParticipantHooks hooks_;
  State state_ = State::kComputing;
  std::uint64_t step_;
  bool updating_ = false;      // the update hook was called and updated() was not
  bool stop_pending_ = false;  // while updating
  bool reported_ = false;
  Stop stop_;
  int quiet_beats_ = 0;  // ticks of our own clock since we last heard of the coordinator
  TimerId beat_timer_ = kNoTimer;
};

}  // namespace longhaul
