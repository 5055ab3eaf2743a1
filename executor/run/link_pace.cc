#include "executor/run/link_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/result.h"

namespace longhaul {

LinkPace::LinkPace(std::vector<double> bits, std::size_t rung)
    : bits_(std::move(bits)), rung_(rung) {
  LH_CHECK(rung_ < bits_.size(), "a link begins on its ladder");
  LH_CHECK(std::ranges::is_sorted(bits_, std::greater<>()), "the finest first");
}

void LinkPace::go_to(std::size_t rung) {
  const bool is_finer = rung < rung_;
  if (!is_finer && is_on_trial_) patience_ = std::min(2 * patience_, kPatienceMax);
  is_on_trial_ = is_finer;
  rung_ = rung;
  settling_ = kSettleSteps;
  slow_steps_ = roomy_steps_ = 0;
}

std::size_t LinkPace::next(const PaceSample& sample) {
  const double load = sample.busy / sample.compute;
  if (!(sample.busy > 0 && sample.compute > 0 && std::isfinite(load))) return rung_;
  if (settling_ > 0) {
    --settling_;
    return rung_;
  }
  const auto load_at = [&](double now, std::size_t rung) {
    return now * bits_[rung] / bits_[rung_];
  };
  slow_load_ = slow_steps_ == 0 ? load : std::min(slow_load_, load);
  slow_steps_ = load > kSlow ? slow_steps_ + 1 : 0;
  const bool is_roomy = rung_ > 0 && load_at(load, rung_ - 1) <= kRoomy;
  roomy_steps_ = is_roomy ? roomy_steps_ + 1 : 0;
  if (slow_steps_ == kSlowSteps && rung_ + 1 < bits_.size()) {
    std::size_t to = rung_ + 1;
    while (to + 1 < bits_.size() && load_at(slow_load_, to) > 1) ++to;
    go_to(to);
  } else if (roomy_steps_ >= kRoomySteps * patience_) {
    go_to(rung_ - 1);
  }
  slow_steps_ = std::min(slow_steps_, kSlowSteps - 1);  // on the last rung it goes on being slow
  return rung_;
}

}  // namespace longhaul
