#include "executor/emulation/fluid_channels.h"

#include <algorithm>
#include <cmath>

#include "core/result.h"

namespace longhaul {
namespace {

static_assert((kFramesAhead & (kFramesAhead - 1)) == 0, "the ring's counters wrap around");

constexpr std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

FluidChannels::FluidChannels(FluidNetwork network, FluidState& state, std::span<std::int32_t> busy,
                             std::span<FluidChannel> channels)
    : network_(network), state_(state), busy_(busy), channels_(channels) {
  for (std::size_t c = 0; c < channels.size(); ++c) {
    double rate = network_.caps[c];
    for (std::int32_t i = network_.path_begin[c]; i < network_.path_begin[c + 1]; ++i) {
      rate = std::min(rate, network_.capacities[at(network_.path[at(i)])]);
    }
    alone_.push_back(rate);
  }
}

FluidFrame& FluidChannels::head(std::int32_t channel) {
  FluidChannel& c = channels_[at(channel)];
  return c.frames[c.departed % kFramesAhead];
}

bool FluidChannels::is_busy(std::size_t channel) const {
  return channels_[channel].departed != channels_[channel].end;
}

void FluidChannels::advance(std::int64_t now) {
  while (state_.now < now || state_.busy_count > 0) {
    const auto busy = busy_.first(at(state_.busy_count));
    const std::int64_t limit = std::max<std::int64_t>(now - state_.now, 0);
    double soonest = std::numeric_limits<double>::infinity();
    for (const std::int32_t c : busy) {
      soonest = std::min(soonest, head(c).bytes_left / channels_[at(c)].rate);
    }
    if (soonest >= static_cast<double>(limit) + 0.5) {  // nothing leaves by `now`
      for (const std::int32_t c : busy) {
        head(c).bytes_left -= channels_[at(c)].rate * static_cast<double>(limit);
      }
      state_.now += limit;
      return;
    }
    const std::int64_t step = std::llround(soonest);
    state_.now += step;
    bool is_somebody_done = false;
    for (const std::int32_t c : busy) {
      FluidChannel& channel = channels_[at(c)];
      FluidFrame& frame = head(c);
      // What would leave within half a nanosecond leaves now.
      const double moved = channel.rate * (static_cast<double>(step) + 0.5);
      if (frame.bytes_left > moved) {
        frame.bytes_left -= channel.rate * static_cast<double>(step);
        continue;
      }
      frame.departed_at = state_.now;
      ++channel.departed;
      is_somebody_done |= channel.departed == channel.end;
    }
    if (!is_somebody_done) continue;
    const auto still =
        std::remove_if(busy.begin(), busy.end(), [&](std::int32_t c) { return !is_busy(at(c)); });
    state_.busy_count = static_cast<std::int32_t>(still - busy.begin());
    solve();
  }
}

bool FluidChannels::has_room(std::size_t channel) const {
  return channels_[channel].end - channels_[channel].taken < kFramesAhead;
}

void FluidChannels::push(std::size_t channel, double bytes) {
  LH_CHECK(has_room(channel), "a channel's frames fit its ring");
  FluidChannel& c = channels_[channel];
  const bool was_busy = is_busy(channel);
  c.frames[c.end % kFramesAhead] = {bytes, 0};
  ++c.end;
  if (was_busy) return;
  busy_[at(state_.busy_count++)] = static_cast<std::int32_t>(channel);
  solve();
}

std::optional<std::int64_t> FluidChannels::take_departed(std::size_t channel) {
  FluidChannel& c = channels_[channel];
  if (c.taken == c.departed) return std::nullopt;
  return c.frames[c.taken++ % kFramesAhead].departed_at;
}

std::int64_t FluidChannels::look_again_at(std::size_t channel) const {
  if (!is_busy(channel)) return kNeverNanoseconds;
  const FluidChannel& c = channels_[channel];
  const double left = c.frames[c.departed % kFramesAhead].bytes_left;
  // No change of rates makes the frame leave before it would if it were alone; until then there
  // is nothing to see, which spares most of the wake-ups.
  const double earliest =
      std::max(left / alone_[channel], static_cast<double>(kLookAgainNanoseconds));
  return state_.now + std::llround(std::min(left / c.rate, earliest));
}

void FluidChannels::clear(std::size_t channel) {
  const bool was_busy = is_busy(channel);
  FluidChannel& c = channels_[channel];
  c.taken = c.departed = c.end;
  if (was_busy) stop(channel);
}

void FluidChannels::stop(std::size_t channel) {
  const auto busy = busy_.first(at(state_.busy_count));
  const auto place = std::ranges::find(busy, static_cast<std::int32_t>(channel));
  LH_CHECK(place != busy.end(), "a busy channel is listed");
  *place = busy.back();
  --state_.busy_count;
  solve();
}

void FluidChannels::recover() {
  state_.busy_count = 0;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    FluidChannel& c = channels_[i];
    if (c.end - c.taken > kFramesAhead || c.departed - c.taken > c.end - c.taken) {
      c.taken = c.departed = c.end;
    }
    if (is_busy(i)) busy_[at(state_.busy_count++)] = static_cast<std::int32_t>(i);
  }
  solve();
}

/// The rates of all busy channels.
void FluidChannels::solve() {
  const auto busy = busy_.first(at(state_.busy_count));
  path_begin_.assign(1, 0);
  path_.clear();
  caps_.clear();
  for (const std::int32_t c : busy) {
    for (std::int32_t i = network_.path_begin[at(c)]; i < network_.path_begin[at(c) + 1]; ++i) {
      path_.push_back(network_.path[at(i)]);
    }
    path_begin_.push_back(static_cast<std::int32_t>(path_.size()));
    caps_.push_back(network_.caps[at(c)]);
  }
  rates_.resize(busy.size());
  solver_.solve(network_.capacities, path_begin_, path_, caps_, rates_);
  for (std::size_t i = 0; i < busy.size(); ++i) channels_[at(busy[i])].rate = rates_[i];
}

}  // namespace longhaul
