// What every ComputeQueue of this machine is: one worker thread that takes what was submitted, over
// all streams, in its order. That is in order for each stream, an event has always happened before
// what waits for it, and a run is the same every time. A queue says what running a piece and
// completing means (a CPU that simply does it, or an emulated device that takes its time).
//
// The functions of ComputeQueue belong to the owner's thread, begin(), perform() and complete()
// on the worker's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "core/units.h"
#include "kernels/compute_queue.h"
#include "kernels/cpu/host_buffer.h"

namespace longhaul {

class ThreadComputeQueue : public ComputeQueue {
 public:
  void close() override { stop(); }
  Result<ComputeBuffer> allocate(std::size_t bytes) override { return allocate_host_buffer(bytes); }
  Result<ComputeBuffer> allocate_staging(std::size_t bytes) override {
    return allocate_host_buffer(bytes);
  }
  bool is_host_memory() const override { return true; }

  StreamId create_stream() override { return ids_.create_stream(); }
  void submit(StreamId stream, ComputeWork work) override;
  void copy_to_staging(StreamId stream, std::span<std::byte> staging,
                       std::span<const std::byte> device) override;
  void copy_to_device(StreamId stream, std::span<std::byte> device,
                      std::span<const std::byte> staging) override;
  EventId record(StreamId stream) override { return ids_.record(stream); }
  void wait(StreamId stream, EventId event) override;
  void notify(StreamId stream, Completion completion) override;

 protected:
  /// When a piece was submitted and what it takes by a table; unused where there is none.
  struct Stamp {
    std::int64_t submitted = 0;
    Seconds table;
  };

  explicit ThreadComputeQueue(Post post) : post_(std::move(post)) {}
  /// A queue starts its thread last in its constructor and stops it first in its destructor, so
  /// that the thread never meets half of it. stop() may be called again.
  void start();
  void stop();

  /// On the owner's thread. `bytes` is 0 except for copies.
  virtual Stamp stamp(std::uint64_t /*tag*/, std::size_t /*bytes*/) { return {}; }
  /// The first call on the thread.
  virtual void begin() {}
  /// Runs a piece, unless the device has failed; a failure goes into `status`. False: the queue
  /// ends.
  virtual bool perform(std::move_only_function<Result<void>()>& run, const Stamp& stamp,
                       Result<void>& status) = 0;
  /// What comes before a completion. False: the queue ends.
  virtual bool complete() { return true; }

  const std::atomic<bool>& stopping() const { return stopping_; }
  /// Waits on the steady clock; false when the queue ends before.
  bool wait_until(std::chrono::steady_clock::time_point time);

 private:
  /// Work to run, or a completion to post.
  struct Item {
    std::move_only_function<Result<void>()> run;
    Completion completion;
    Stamp stamp;
  };

  void copy(StreamId stream, std::span<std::byte> to, std::span<const std::byte> from);
  void push(StreamId stream, Item item);
  void run();
  std::optional<Item> next();

  const Post post_;
  ComputeIds ids_;  // the owner's thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;  // under mutex_
  std::atomic<bool> stopping_ = false;
  std::thread worker_;
};

}  // namespace longhaul
