#include "executor/control/participant.h"

#include <fmt/core.h>

#include <utility>
#include <variant>

namespace longhaul {

Participant::Participant(EventLoop& loop, Mesh& mesh, ParticipantConfig config,
                         ParticipantHooks hooks)
    : loop_(loop),
      mesh_(mesh),
      config_(std::move(config)),
      hooks_(std::move(hooks)),
      step_(config_.first_step) {
  LH_CHECK(config_.coordinator != mesh_.rank(), "the coordinator is a peer");
  beat_timer_ = loop_.after(config_.limits.heartbeat_interval, [this] { beat(); });
}

Participant::~Participant() {
  loop_.cancel(beat_timer_);
}

void Participant::send(const ControlMessage& message) {
  mesh_.send_control(config_.coordinator, control_text(message));
}

// ---- what the worker says

void Participant::prepared(Prepared message) {
  if (state_ != State::kComputing) {
    LH_CHECK(state_ != State::kPrepared && state_ != State::kUpdating, "a step is prepared once");
    return;  // it crossed a STOP or a failure
  }
  LH_CHECK(message.step == step_, "the step at hand is prepared");
  state_ = State::kPrepared;
  send(std::move(message));
}

void Participant::updated() {
  LH_CHECK(updating_, "an update ends once");
  updating_ = false;
  ++step_;  // whatever has happened since: the weights are those of this step
  if (state_ != State::kUpdating) return;
  state_ = State::kComputing;
  if (stop_pending_) obey_stop();
}

void Participant::stopped() {
  if (state_ == State::kOrphaned) return;
  LH_CHECK(state_ == State::kStopping, "a worker stops when it is told to");
  state_ = State::kStopped;
  loop_.cancel(beat_timer_);
  send(Stopped{step_});
}

void Participant::failed(int about, const Error& why) {
  if (state_ == State::kStopping || state_ == State::kStopped || state_ == State::kOrphaned) return;
  if (about == mesh_.rank()) state_ = State::kBroken;
  // A second report would be an effect of the first.
  if (!reported_) send(Failed{about, why.message});
  reported_ = true;
  if (state_ == State::kBroken && stop_pending_) obey_stop();
}

// ---- what the coordinator says

void Participant::received(int peer, const std::string& text) {
  if (state_ == State::kStopped || state_ == State::kOrphaned) return;
  if (peer != config_.coordinator) {
    return refuse(fmt::format("rank {} sent a message of the coordinator's", peer));
  }
  quiet_beats_ = 0;
  auto message = parse_control(text);
  if (!message) return refuse(message.error().message);
  if (const auto* const ping = std::get_if<Ping>(&*message)) {
    send(Pong{ping->number});
  } else if (const auto* const commit = std::get_if<Commit>(&*message)) {
    on_commit(*commit);
  } else if (auto* const stop = std::get_if<Stop>(&*message)) {
    on_stop(std::move(*stop));
  } else {
    refuse("the coordinator sent a worker's message: " + text.substr(0, 40));
  }
}

void Participant::on_commit(const Commit& commit) {
  if (state_ == State::kBroken) return;  // it is committed, but not here
  if (state_ != State::kPrepared || commit.step != step_) {
    return refuse(fmt::format("step {} was committed while step {} is at hand and {} prepared",
                              commit.step, step_, state_ == State::kPrepared ? "is" : "is not"));
  }
  state_ = State::kUpdating;
  updating_ = true;
  const bool apply = commit.decision == Decision::kApply;
  hooks_.update({.step = commit.step,
                 .decision = commit.decision,
                 .norm = commit.norm,
                 .learning_rate = config_.rates.rate(commit.step),
                 .gradient_scale = apply ? gradient_scale(commit.norm, config_.norm_max) : 0});
}

void Participant::on_stop(Stop stop) {
  if (state_ == State::kStopping || stop_pending_) return refuse("STOP was sent twice");
  stop_ = std::move(stop);
  stop_pending_ = true;
  if (state_ != State::kUpdating) obey_stop();
}

void Participant::obey_stop() {
  stop_pending_ = false;
  state_ = State::kStopping;
  hooks_.stop(stop_);
}

void Participant::refuse(const std::string& what) {
  Error error;
  error.message = what;
  failed(mesh_.rank(), error);
}

// ---- death of others

void Participant::lost(int peer, const Error& why) {
  if (peer == config_.coordinator) return orphan(why);
  failed(peer, why);
}

void Participant::beat() {
  // Ticks are counted, not seconds: a process that was suspended finds one tick when it wakes, and
  // the heartbeats that waited for it. The seventh tick without one is 3 to 3.5 s after the last,
  // when six have been missed.
  if (++quiet_beats_ > config_.limits.missed_heartbeats) {
    Error error;
    error.message =
        fmt::format("the coordinator sent none of {} heartbeats", config_.limits.missed_heartbeats);
    return orphan(error);
  }
  beat_timer_ = loop_.after(config_.limits.heartbeat_interval, [this] { beat(); });
}

void Participant::orphan(const Error& why) {
  if (state_ == State::kStopped || state_ == State::kOrphaned) return;
  const bool told_to_stop = state_ == State::kStopping;
  state_ = State::kOrphaned;
  loop_.cancel(beat_timer_);
  // Who is stopping already has nothing to learn.
  if (!told_to_stop) hooks_.coordinator_lost(why);
}

}  // namespace longhaul
