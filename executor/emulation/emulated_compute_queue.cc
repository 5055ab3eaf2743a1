#include "executor/emulation/emulated_compute_queue.h"

#include <sys/prctl.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_compute_queue.h"

namespace longhaul {
namespace {

class EmulatedComputeQueue final : public ThreadComputeQueue {
 public:
  EmulatedComputeQueue(Post post, WorkTimes times, SharedPage& page)
      : ThreadComputeQueue(std::move(post)),
        times_(std::move(times)),
        page_(page),
        devices_(kStreamsMax, DeviceTime(page.dilation())) {}
  ~EmulatedComputeQueue() override { stop(); }

 private:
  Stamp stamp(std::uint64_t tag, std::size_t bytes) override {
    return {monotonic_nanoseconds(), times_(tag, bytes)};
  }

  /// To wake in time, instead of together with others.
  void begin() override { prctl(PR_SET_TIMERSLACK, 1UL); }

  bool perform(StreamId stream, std::move_only_function<Result<void>()>& run, const Stamp& stamp,
               Result<void>& status) override {
    DeviceTime& device = devices_[static_cast<std::size_t>(stream)];
    const std::int64_t due = device.due(stamp.submitted, stamp.table);
    if (status) {
      const std::optional<int> permit = page_.take_permit(stopping());
      if (!permit) return false;
      status = run();
      page_.give_permit(*permit);
    }
    const std::int64_t lateness = device.finish(due, monotonic_nanoseconds());
    // What the table does not price takes what it takes: it cannot be late.
    if (stamp.table > Seconds(0)) page_.count_completion(lateness);
    return true;
  }

  bool complete(StreamId stream) override {
    const DeviceTime& device = devices_[static_cast<std::size_t>(stream)];
    // The steady clock is CLOCK_MONOTONIC, like the page's.
    return wait_until(
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(device.free_at())));
  }

  const WorkTimes times_;
  SharedPage& page_;
  std::vector<DeviceTime> devices_;  // each the thread's of its stream
};

}  // namespace

std::unique_ptr<ComputeQueue> make_emulated_compute_queue(ComputeQueue::Post post, WorkTimes times,
                                                          SharedPage& page) {
  return std::make_unique<EmulatedComputeQueue>(std::move(post), std::move(times), page);
}

}  // namespace longhaul
