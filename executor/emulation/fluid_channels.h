// Channels as a fluid, in wall time: frames that wait at the sending end of a channel leave at the
// rate that max-min fairness gives it among all channels that have something to send.
//
// It is netsim/flow_network.h driven by a real clock, with the state in memory that several
// processes share. Nobody has to be punctual: `advance(now)` plays back everything since the last
// call, each departure and each change of rates at the instant where it belongs, so a process that
// looks late learns when its frame has left all the same, and nobody else's rates were wrong
// meanwhile. Errors are the rounding of departures to whole nanoseconds.
//
// The caller holds the lock of the shared memory for every call. Times are nanoseconds of one
// clock, amounts are bytes on the wire, rates are bytes per nanosecond.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/max_min.h"

namespace longhaul {

/// Frames of one channel that the fluid knows at a time; more wait in their process.
inline constexpr std::uint32_t kFramesAhead = 8;
/// A sender looks again at least this often, because a rate may have grown.
inline constexpr std::int64_t kLookAgainNanoseconds = 2'000'000;
inline constexpr std::int64_t kNeverNanoseconds = std::numeric_limits<std::int64_t>::max();

// What lies in shared memory. All zeros is the state in which nothing has been sent.

struct FluidFrame {
  double bytes_left;
  std::int64_t departed_at;
};
/// A ring of frames: [taken, departed) have left and wait to be taken, [departed, end) wait to
/// leave. A channel with something in the second part is busy.
struct FluidChannel {
  double rate;
  FluidFrame frames[kFramesAhead];
  std::uint32_t taken;
  std::uint32_t departed;
  std::uint32_t end;
};
struct FluidState {
  std::int64_t now;
  std::int32_t busy_count;
};

/// What does not change. Channel c crosses path[path_begin[c] .. path_begin[c + 1]).
struct FluidNetwork {
  std::span<const double> capacities;
  std::span<const double> caps;
  std::span<const std::int32_t> path_begin;
  std::span<const std::int32_t> path;
};

class FluidChannels {
 public:
  /// `busy` has room for every channel.
  FluidChannels(FluidNetwork network, FluidState& state, std::span<std::int32_t> busy,
                std::span<FluidChannel> channels);

  /// Time only grows: a `now` of the past counts as the last one.
  void advance(std::int64_t now);

  bool has_room(std::size_t channel) const;
  /// The frame starts to wait now. There must be room.
  void push(std::size_t channel, double bytes);
  /// When the oldest frame left that was not taken yet.
  std::optional<std::int64_t> take_departed(std::size_t channel);
  /// When the sender should advance again to see its next frame leave.
  std::int64_t look_again_at(std::size_t channel) const;
  /// Forgets the channel's frames.
  void clear(std::size_t channel);

  /// Makes everything consistent after a process died in the middle of a call.
  void recover();

 private:
  FluidFrame& head(std::int32_t channel);
  bool is_busy(std::size_t channel) const;
  void stop(std::size_t channel);
  void solve();

  const FluidNetwork network_;
  FluidState& state_;
  const std::span<std::int32_t> busy_;
  const std::span<FluidChannel> channels_;
  std::vector<double> alone_;  // by channel: what it gets when nobody else sends

  // Of this process.
  MaxMinSolver solver_;
  std::vector<std::int32_t> path_begin_, path_;
  std::vector<double> caps_, rates_;
};

}  // namespace longhaul
