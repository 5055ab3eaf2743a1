#include "executor/emulation/emulated_compute_queue.h"

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/cpu/host_buffer.h"

namespace longhaul {
namespace {

class EmulatedComputeQueue final : public ComputeQueue {
 public:
  EmulatedComputeQueue(Post post, WorkTimes times, SharedPage& page)
      : post_(std::move(post)), times_(std::move(times)), page_(page), worker_([this] { run(); }) {}

  ~EmulatedComputeQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    worker_.join();
  }

  Result<ComputeBuffer> allocate(std::size_t bytes) override { return allocate_host_buffer(bytes); }
  Result<ComputeBuffer> allocate_staging(std::size_t bytes) override {
    return allocate_host_buffer(bytes);
  }
  bool is_host_memory() const override { return true; }

  StreamId create_stream() override { return ids_.create_stream(); }

  void submit(StreamId stream, ComputeWork work) override {
    push(stream, {std::move(work.run), nullptr, monotonic_nanoseconds(), times_(work.tag, 0)});
  }
  void copy_to_staging(StreamId stream, std::span<std::byte> staging,
                       std::span<const std::byte> device) override {
    copy(stream, staging, device);
  }
  void copy_to_device(StreamId stream, std::span<std::byte> device,
                      std::span<const std::byte> staging) override {
    copy(stream, device, staging);
  }

  EventId record(StreamId stream) override { return ids_.record(stream); }

  // Whatever the event stands for was submitted earlier and therefore runs earlier.
  void wait(StreamId stream, EventId event) override {
    ids_.check(stream);
    ids_.check(event);
  }

  void notify(StreamId stream, Completion completion) override {
    push(stream, {nullptr, std::move(completion), 0, Seconds(0)});
  }

 private:
  /// Work to run, or a completion to post.
  struct Item {
    std::move_only_function<Result<void>()> run;
    Completion completion;
    std::int64_t submitted;
    Seconds table;
  };

  void copy(StreamId stream, std::span<std::byte> to, std::span<const std::byte> from) {
    LH_CHECK(to.size() == from.size(), "both ends of a copy have one size");
    const auto run = [to, from]() -> Result<void> {
      if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
      return {};
    };
    push(stream, {run, nullptr, monotonic_nanoseconds(), times_(kCopyTag, to.size())});
  }

  void push(StreamId stream, Item item) {
    ids_.check(stream);
    {
      const std::lock_guard lock(mutex_);
      LH_CHECK(items_.size() < kPendingMax, "the submitter keeps to the limit");
      items_.push_back(std::move(item));
    }
    wake_.notify_one();
  }

  void run() {
    prctl(PR_SET_TIMERSLACK, 1UL);  // wake in time, instead of together with others
    Result<void> status;            // the first failure
    DeviceTime device(page_.dilation());
    while (std::optional<Item> item = next()) {
      if (item->completion) {
        if (!wait_until(device.free_at())) return;
        post_([completion = std::move(item->completion), status]() mutable {
          completion(std::move(status));
        });
        continue;
      }
      const std::int64_t due = device.due(item->submitted, item->table);
      if (status) {
        const std::optional<int> permit = page_.take_permit(stopping_);
        if (!permit) return;
        status = item->run();
        page_.give_permit(*permit);
      }
      const std::int64_t lateness = device.finish(due, monotonic_nanoseconds());
      // What the table does not price takes what it takes: it cannot be late.
      if (item->table > Seconds(0)) page_.count_completion(lateness);
    }
  }

  std::optional<Item> next() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !items_.empty(); });
    if (stopping_) return std::nullopt;
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  /// False when the queue ends before.
  bool wait_until(std::int64_t time) {
    // The steady clock is CLOCK_MONOTONIC, like the page's.
    const std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(time)};
    std::unique_lock lock(mutex_);
    return !wake_.wait_until(lock, end, [this] { return stopping_.load(); });
  }

  const Post post_;
  const WorkTimes times_;
  SharedPage& page_;
  ComputeIds ids_;  // the owner's thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;  // under mutex_
  std::atomic<bool> stopping_ = false;
  std::thread worker_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<ComputeQueue> make_emulated_compute_queue(ComputeQueue::Post post, WorkTimes times,
                                                          SharedPage& page) {
  return std::make_unique<EmulatedComputeQueue>(std::move(post), std::move(times), page);
}

}  // namespace longhaul
