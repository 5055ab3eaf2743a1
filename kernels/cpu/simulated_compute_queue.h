// ComputeQueue in virtual time: work runs at once, for real, inside submit, and is done at the time
// that a table gives it. Nothing here reads a clock or starts a thread, so one thread can hold a
// whole simulated cluster and its run is the same every time.
//
// A stream is busy from max(now, end of its earlier work, events waited for) for as long as the
// table says; streams of a device overlap freely. Copies are priced like work, under kCopyTag.
//
// Results exist before their time has come. That is visible only to an owner that breaks the rule
// to touch no buffer before its completion.
#pragma once

#include <functional>
#include <memory>

#include "core/units.h"
#include "kernels/compute_queue.h"

namespace longhaul {

/// The simulation's clock, as the queue needs it. `at(time, f)` runs f on the one thread at that
/// time, never inside the call; calls for equal times run in the order made.
struct VirtualClock {
  std::function<SimTime()> now;
  std::function<void(SimTime, std::move_only_function<void()>)> at;
};

/// How long the device takes for work with this tag; `bytes` is 0 except for copies.
using WorkTimes = std::function<Seconds(std::uint64_t tag, std::size_t bytes)>;
inline constexpr std::uint64_t kCopyTag = ~std::uint64_t{0};

std::unique_ptr<ComputeQueue> make_simulated_compute_queue(VirtualClock clock, WorkTimes times);

}  // namespace longhaul
