// ComputeQueue of an emulated device: the work runs for real on a thread of this process for each
// stream, and is done when the device would have been done.
//
// A stream works off one piece after the other; streams of a device overlap freely, as in
// simulated_compute_queue.h. A piece is done at max(submission, end of the piece before) + k x its
// time in the table, k being the dilation of the page, and never before the real work is done. For
// the real work one of the page's permits is taken, so that no more of it runs at a time than the
// machine has cores for. Work that was really done late holds up its device; it is counted in the
// page where that is more than 0.5 ms, and a run with more than a few such pieces measures this
// machine instead of the emulated one. A piece whose time in the table is 0 takes what it really
// takes, and is never late.
//
// Copies are priced like work, under kCopyTag, as in simulated_compute_queue.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "executor/emulation/shared_page.h"
#include "kernels/cpu/simulated_compute_queue.h"

namespace longhaul {

/// When a stream of an emulated device is done with what. Times in nanoseconds on the wall.
class DeviceTime {
 public:
  explicit DeviceTime(double dilation) : dilation_(dilation) {}

  std::int64_t due(std::int64_t submitted, Seconds table) const {
    return std::max(submitted, free_at_) + std::llround(table.value() * 1e9 * dilation_);
  }
  /// The piece with this end is really done. Answers how much too late.
  std::int64_t finish(std::int64_t due, std::int64_t really_done) {
    free_at_ = std::max(due, really_done);
    return free_at_ - due;
  }
  /// The end of all that is finished.
  std::int64_t free_at() const { return free_at_; }

 private:
  double dilation_;
  std::int64_t free_at_ = 0;
};

/// `post` must be safe to call from the streams' threads until the queue is gone. `times` (emulated
/// time) is called by the owner's thread. The page must outlive the queue.
std::unique_ptr<ComputeQueue> make_emulated_compute_queue(ComputeQueue::Post post, WorkTimes times,
                                                          SharedPage& page);

}  // namespace longhaul
