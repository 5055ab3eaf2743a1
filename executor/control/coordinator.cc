#include "executor/control/coordinator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>

#include "executor/control/schedule_of_rates.h"

namespace longhaul {
namespace {

bool same_squares(const Prepared& a, const Prepared& b) {
  return std::equal(a.squares.begin(), a.squares.end(), b.squares.begin(), b.squares.end(),
                    same_number);
}

/// What two replicas of a stage differ in; empty when in nothing.
std::string difference(const Prepared& a, const Prepared& b) {
  if (a.weights_hash != b.weights_hash) return "weights";
  if (a.gradient_hash != b.gradient_hash) return "reduced gradient";
  if (a.finite != b.finite || !same_squares(a, b)) return "sums of squares";
  return "";
}

}  // namespace

std::string Ending::text() const {
  if (!cause) return reason;
  std::string text = "first cause: " + cause->message;
  for (const Failure& victim : victims) text += "\nvictim: " + victim.message;
  return text;
}

Coordinator::Coordinator(EventLoop& loop, Mesh& mesh, CoordinatorConfig config,
                         CoordinatorHooks hooks)
    : loop_(loop),
      mesh_(mesh),
      config_(std::move(config)),
      hooks_(std::move(hooks)),
      step_(config_.first_step),
      skips_(config_.skips_before) {
  LH_CHECK(!config_.stages.empty() && config_.first_step < config_.steps, "there is work to do");
  LH_CHECK(config_.steps <= kControlStepMax + 1, "steps fit the wire");
  LH_CHECK(!config_.tied || (config_.stages.size() > 1 &&
                             config_.tied->in_first_stage < config_.stages.front().tensors &&
                             config_.tied->in_last_stage < config_.stages.back().tensors),
           "a tied tensor is in two stages");
  std::set<int> ranks;
  for (std::size_t s = 0; s < config_.stages.size(); ++s) {
    const StageGroup& stage = config_.stages[s];
    LH_CHECK(!stage.ranks.empty() && stage.tensors <= kStageTensorsMax, "a stage fits a message");
    for (std::size_t d = 0; d < stage.ranks.size(); ++d) {
      const int rank = stage.ranks[d];
      LH_CHECK(rank >= 0 && rank < mesh_.ranks() && rank != mesh_.rank(), "a worker is a peer");
      LH_CHECK(ranks.insert(rank).second, "a worker has one place in the grid");
      Member member;
      member.rank = rank;
      member.stage = s;
      member.pipeline = d;
      members_.push_back(std::move(member));
    }
  }
}

Coordinator::~Coordinator() {
  loop_.cancel(beat_timer_);
  loop_.cancel(deadline_);
}

void Coordinator::start() {
  LH_CHECK(state_ == State::kIdle, "a run starts once");
  collect();
  beat();
}

// ---- members

Coordinator::Member* Coordinator::find(int rank) {
  const auto at = std::ranges::find(members_, rank, &Member::rank);
  return at == members_.end() ? nullptr : &*at;
}

std::string Coordinator::describe(const Member& member) const {
  return fmt::format("rank {} (stage {}, pipeline {})", member.rank, member.stage, member.pipeline);
}

void Coordinator::send(const Member& member, const ControlMessage& message) {
  // Who is only silent is told the reason all the same, should it wake up again.
  if (!member.lost && !member.stopped) mesh_.send_control(member.rank, control_text(message));
}

void Coordinator::broadcast(const ControlMessage& message) {
  for (const Member& member : members_) send(member, message);
}

// ---- what members say

void Coordinator::received(int peer, const std::string& text) {
  Member* const member = find(peer);
  if (state_ == State::kIdle || state_ == State::kEnded || member == nullptr) return;
  if (member->leaving()) return;  // it was given up, or has said its last word
  auto message = parse_control(text);
  if (!message) {
    fail(peer,
         fmt::format("{} sent what it must not: {}", describe(*member), message.error().message));
    return;
  }
  std::visit(
      [&](auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, Prepared>) {
          on_prepared(*member, std::move(m));
        } else if constexpr (std::is_same_v<T, Pong>) {
          on_pong(*member, m);
        } else if constexpr (std::is_same_v<T, Failed>) {
          on_failed(*member, m);
        } else if constexpr (std::is_same_v<T, Stopped>) {
          on_stopped(*member, m);
        } else {
          fail(peer, fmt::format("{} sent what only the coordinator may: {}", describe(*member),
                                 text.substr(0, 40)));
        }
      },
      *message);
}

void Coordinator::on_prepared(Member& member, Prepared prepared) {
  if (state_ == State::kStopping) return;  // it crossed the STOP
  const std::size_t tensors = config_.stages[member.stage].tensors;
  std::string wrong;
  if (prepared.step != step_) {
    wrong = fmt::format("prepared step {} while step {} is at hand", prepared.step, step_);
  } else if (member.prepared) {
    wrong = fmt::format("prepared step {} twice", step_);
  } else if (prepared.squares.size() != tensors) {
    wrong = fmt::format("sent {} sums of squares for {} tensors", prepared.squares.size(), tensors);
  }
  if (!wrong.empty()) return fail(member.rank, describe(member) + " " + wrong);
  member.prepared = std::move(prepared);
  const auto is_prepared = [](const Member& m) { return m.prepared.has_value(); };
  if (!cause_ && std::ranges::all_of(members_, is_prepared)) decide();
}

void Coordinator::on_pong(Member& member, const Pong& pong) {
  if (pong.number == 0 || pong.number > ping_number_) {
    return fail(member.rank, fmt::format("{} answered heartbeat {}, which was never sent",
                                         describe(member), pong.number));
  }
  member.answered = std::max(member.answered, pong.number);
}

void Coordinator::on_failed(Member& member, const Failed& report) {
  const Member* const blamed = find(report.about);
  if (blamed == nullptr || blamed == &member) {
    // The culprit itself may be slower to reach us than those who saw it go.
    if (cause_ && cause_->rank == member.rank && cause_is_hearsay_) {
      cause_->message += "; it says: " + report.reason;
      cause_is_hearsay_ = false;
      return;
    }
    return fail(member.rank, fmt::format("{}: {}", describe(member), report.reason));
  }
  const std::string lost_it =
      fmt::format("{} lost {}: {}", describe(member), describe(*blamed), report.reason);
  if (!cause_) {
    cause_is_hearsay_ = true;
    fail(blamed->rank, lost_it);
  }
  add_victim(member.rank, lost_it);
}

void Coordinator::on_stopped(Member& member, const Stopped& stopped) {
  if (state_ != State::kStopping) {
    return fail(member.rank, describe(member) + " stopped without being asked");
  }
  member.stopped = true;
  if (!cause_ && stopped.committed != step_) {
    fail(member.rank, fmt::format("{} stopped after {} steps of {} that are committed",
                                  describe(member), stopped.committed, step_));
  }
  end_if_all_left();
}

void Coordinator::lost(int peer, const Error& why) {
  Member* const member = find(peer);
  if (member == nullptr) return;
  member->lost = true;
  on_dead(*member, "is lost: " + why.message);
}

// ---- steps

void Coordinator::collect() {
  state_ = State::kCollecting;
  arm(config_.limits.step_deadline, &Coordinator::on_step_deadline);
}

std::string Coordinator::disagreement_of(std::size_t stage) const {
  const auto of_stage = [stage](const Member& m) { return m.stage == stage; };
  const Member& first = *std::ranges::find_if(members_, of_stage);
  std::string what;
  std::string like_first;
  std::string others;
  for (const Member& member : members_) {
    if (!of_stage(member)) continue;
    const std::string differs = difference(*first.prepared, *member.prepared);
    if (what.empty()) what = differs;
    std::string& names = differs.empty() ? like_first : others;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", member.rank);
  }
  if (what.empty()) return "";
  return fmt::format("replicas of stage {} disagree about their {} at step {}: rank {} against {}",
                     stage, what, step_, like_first, others);
}

std::string Coordinator::disagreement() const {
  for (std::size_t s = 0; s < config_.stages.size(); ++s) {
    if (std::string wrong = disagreement_of(s); !wrong.empty()) return wrong;
  }
  if (!config_.tied) return "";
  // Members are in the order of stages, and the replicas of a stage agree.
  const double head = members_.back().prepared->squares[config_.tied->in_last_stage];
  const double embedding = members_.front().prepared->squares[config_.tied->in_first_stage];
  if (same_number(head, embedding)) return "";
  return fmt::format(
      "stages 0 and {} disagree about the gradient of the tied embedding at step {}: its sum of "
      "squares is {} and {}",
      config_.stages.size() - 1, step_, embedding, head);
}

void Coordinator::decide() {
  if (const std::string wrong = disagreement(); !wrong.empty()) return fail(kNobody, wrong);
  std::vector<double> squares;
  bool finite = true;
  double loss = 0;
  for (const Member& member : members_) {
    finite = finite && member.prepared->finite;
    loss += member.prepared->loss;
    if (member.pipeline != 0) continue;  // a stage counts once
    const bool drop_tied = config_.tied && member.stage == config_.stages.size() - 1;
    for (std::size_t t = 0; t < member.prepared->squares.size(); ++t) {
      if (drop_tied && t == config_.tied->in_last_stage) continue;
      squares.push_back(member.prepared->squares[t]);
    }
  }
  JournalEntry entry;
  entry.term = config_.term;
  entry.step = step_;
  entry.norm = gradient_norm(squares);
  entry.loss = loss;
  entry.decision = finite && std::isfinite(entry.norm) ? Decision::kApply : Decision::kSkip;

  state_ = State::kJournalling;
  arm(config_.limits.journal_deadline, &Coordinator::on_journal_deadline);
  hooks_.journal(entry, [this, entry, alive = std::weak_ptr(alive_)](Result<void> written) {
    if (!alive.expired()) on_journalled(entry, std::move(written));
  });
}

void Coordinator::on_journalled(const JournalEntry& entry, Result<void> written) {
  if (state_ != State::kJournalling) return;  // too late: the deadline has stopped the run
  loop_.cancel(deadline_);
  state_ = State::kCollecting;
  if (!written) {
    fail(kNobody, "the coordinator cannot commit: " + written.error().message);
    if (state_ == State::kCollecting) stop();  // something else had failed before
    return;
  }
  broadcast(Commit{entry.step, entry.norm, entry.decision});
  ++step_;
  skips_ = entry.decision == Decision::kSkip ? skips_ + 1 : 0;
  for (Member& member : members_) member.prepared.reset();
  if (hooks_.committed) hooks_.committed(entry);

  if (cause_) return stop();
  if (skips_ >= config_.limits.skips_in_a_row) {
    return fail(kNobody, fmt::format("{} steps in a row were not finite, the last is step {}",
                                     skips_, entry.step));
  }
  if (step_ == config_.steps) {
    clean_reason_ = fmt::format("all {} steps are done", config_.steps);
    return stop();
  }
  if (stop_requested_) {
    clean_reason_ = fmt::format("stopped as asked, after {} steps", step_);
    return stop();
  }
  collect();
}

void Coordinator::on_step_deadline() {
  std::string late;
  int first = kNobody;
  for (const Member& member : members_) {
    if (member.prepared) continue;
    if (first == kNobody) first = member.rank;
    late += (late.empty() ? "" : ", ") + describe(member);
  }
  fail(first, fmt::format("step {} was not prepared within {} s by {}", step_,
                          config_.limits.step_deadline.value(), late));
}

void Coordinator::on_journal_deadline() {
  // Whether the step is committed only the journal knows, once it is opened again. Nobody is told
  // COMMIT, so no worker is ahead of it.
  state_ = State::kCollecting;
  fail(kNobody, fmt::format("the journal did not take step {} within {} s", step_,
                            config_.limits.journal_deadline.value()));
  if (state_ == State::kCollecting) stop();
}

// ---- failures

void Coordinator::beat() {
  const auto missed_max = static_cast<std::uint64_t>(config_.limits.missed_heartbeats);
  for (Member& member : members_) {
    if (member.leaving() || ping_number_ - member.answered < missed_max) continue;
    on_dead(member, fmt::format("answered none of {} heartbeats", missed_max));
  }
  if (state_ == State::kEnded) return;
  broadcast(Ping{++ping_number_});
  beat_timer_ = loop_.after(config_.limits.heartbeat_interval, [this] { beat(); });
}

void Coordinator::on_dead(Member& member, const std::string& how) {
  if (member.leaving() || state_ == State::kEnded) return;
  member.dead = true;
  fail(member.rank, describe(member) + " " + how);
  if (state_ == State::kStopping) end_if_all_left();
}

void Coordinator::add_victim(int rank, std::string message) {
  const bool known =
      rank != kNobody &&
      (rank == cause_->rank || std::ranges::find(victims_, rank, &Failure::rank) != victims_.end());
  if (!known) victims_.push_back({rank, std::move(message)});
}

void Coordinator::fail(int rank, std::string message) {
  if (state_ == State::kEnded) return;
  if (cause_) return add_victim(rank, std::move(message));
  cause_ = Failure{rank, std::move(message)};
  if (state_ == State::kCollecting) stop();
}

void Coordinator::stop() {
  state_ = State::kStopping;
  broadcast(Stop{!cause_, cause_ ? cause_->message : clean_reason_});
  arm(config_.limits.stop_deadline, &Coordinator::on_stop_deadline);
  end_if_all_left();
}

void Coordinator::on_stop_deadline() {
  for (Member& member : members_) {
    on_dead(member, fmt::format("did not stop within {} s", config_.limits.stop_deadline.value()));
  }
}

void Coordinator::end_if_all_left() {
  const auto leaving = [](const Member& m) { return m.leaving(); };
  if (state_ != State::kStopping || !std::ranges::all_of(members_, leaving)) return;
  state_ = State::kEnded;
  loop_.cancel(beat_timer_);
  loop_.cancel(deadline_);
  Ending ending = {cause_ ? cause_->message : clean_reason_, cause_, victims_, step_};
  // Posted, because we are in the middle of somebody's call.
  loop_.post([this, alive = std::weak_ptr(alive_), ending = std::move(ending)] {
    if (alive.expired()) return;
    const auto ended = std::move(hooks_.ended);
    if (ended) ended(ending);
  });
}

void Coordinator::arm(Seconds deadline, void (Coordinator::*then)()) {
  loop_.cancel(deadline_);
  deadline_ = loop_.after(deadline, [this, then] { (this->*then)(); });
}

}  // namespace longhaul
