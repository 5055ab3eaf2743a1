// The memory that all processes of an emulation share: the network, what is on it, the permits to
// compute, and what went late.
//
// A memory-mapped file. The launcher creates it, every process opens it, anybody may open it later
// to read the counters. Put it on /dev/shm: the write-back of a disk would stall who writes there.
//
// There is no process that hands out rates, as DESIGN first had it: whoever makes a channel start
// or stop to be busy takes the page's lock and solves for all (fluid_channels.h). So a change of
// rates takes no message, and no process must live for the others to go on: the lock is robust, and
// the next one to take it after a holder was killed makes the state whole again.
//
// Any thread. Times are wall time in nanoseconds of the given clock, which all processes share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "executor/emulation/emulated_network.h"

namespace longhaul {

using WallClock = std::function<std::int64_t()>;
/// CLOCK_MONOTONIC, in nanoseconds: one clock for all processes of a machine.
std::int64_t monotonic_nanoseconds();

/// What comes later than this after its time counts as late.
inline constexpr std::int64_t kLateNanoseconds = 500'000;
inline constexpr int kPermitsMax = 1024;

struct EmulationCounters {
  std::uint64_t frames = 0;
  std::uint64_t late_frames = 0;
  Seconds frame_lateness_max;
  std::uint64_t completions = 0;
  std::uint64_t late_completions = 0;
  Seconds completion_lateness_max;

  /// The worse of the two fractions; 0 when nothing happened.
  double late_fraction() const;
  /// What was counted after `before`, an earlier reading; the maxima stay those of all.
  EmulationCounters since(const EmulationCounters& before) const;
};

class SharedPage {
 public:
  /// `permits`: pieces of work that may run at a time on the whole machine. Fails when the file
  /// exists.
  static Result<std::unique_ptr<SharedPage>> create(const std::string& path,
                                                    const EmulatedNetwork& network, double dilation,
                                                    int permits);
  static Result<std::unique_ptr<SharedPage>> open(const std::string& path);
  /// The file stays.
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  int ranks() const;
  double dilation() const;
  /// On the wall.
  std::int64_t latency_nanoseconds(int from, int to) const;

  struct Pace {
    std::size_t accepted = 0;              // of the frames given, the first so many wait here now
    std::vector<std::int64_t> departures;  // of frames that have left since the last call
    std::int64_t look_again_at = 0;        // when to call again; far away when nothing waits
  };
  /// Frames with these payloads wait to leave on the channel, behind those that do already. The
  /// clock is read under the lock, so that no process comes with an instant that is over. Only one
  /// process sends on a channel.
  Pace pace(int from, int to, std::span<const std::size_t> payload_bytes, const WallClock& clock);
  /// Forgets what waits on the channel and what has left without being seen by pace().
  void clear(int from, int to, const WallClock& clock);

  /// Waits for a permit to compute; none when `give_up` came true, which may take 50 ms to be
  /// seen. A process that dies does not take its permits with it.
  std::optional<int> take_permit(const std::atomic<bool>& give_up);
  void give_permit(int permit);

  /// Times between when something happened and when it should have.
  void count_frame(std::int64_t lateness);
  void count_completion(std::int64_t lateness);
  EmulationCounters counters() const;

 private:
  struct State;
  class Lock;
  explicit SharedPage(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
