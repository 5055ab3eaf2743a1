// What every ComputeQueue of this machine is: a worker thread for each stream, which takes what was
// submitted to it in its order. Streams run side by side, as far as there are cores, and wait for
// one another at events only. A queue says what running a piece and completing means (a CPU that
// simply does it, or an emulated device that takes its time).
//
// The functions of ComputeQueue belong to the owner's thread, begin(), perform() and complete()
// to the streams' threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "core/units.h"
#include "kernels/compute_queue.h"
#include "kernels/cpu/host_buffer.h"

namespace longhaul {

class ThreadComputeQueue : public ComputeQueue {
 public:
  static constexpr std::size_t kStreamsMax = 8;

  void close() override { stop(); }
  Result<ComputeBuffer> allocate(std::size_t bytes) override { return allocate_host_buffer(bytes); }
  Result<ComputeBuffer> allocate_staging(std::size_t bytes) override {
    return allocate_host_buffer(bytes);
  }
  bool is_host_memory() const override { return true; }

  /// At most kStreamsMax.
  StreamId create_stream() override;
  void submit(StreamId stream, ComputeWork work) override;
  void copy_to_staging(StreamId stream, std::span<std::byte> staging,
                       std::span<const std::byte> device) override;
  void copy_to_device(StreamId stream, std::span<std::byte> device,
                      std::span<const std::byte> staging) override;
  EventId record(StreamId stream) override;
  void wait(StreamId stream, EventId event) override;
  void notify(StreamId stream, Completion completion) override;

 protected:
  /// When a piece was submitted and what it takes by a table; unused where there is none.
  struct Stamp {
    std::int64_t submitted = 0;
    Seconds table;
  };

  explicit ThreadComputeQueue(Post post) : post_(std::move(post)) {}
  /// A queue stops its threads first in its destructor, so that they never meet half of it. May be
  /// called again.
  void stop();

  /// On the owner's thread. `bytes` is 0 except for copies.
  virtual Stamp stamp(std::uint64_t /*tag*/, std::size_t /*bytes*/) { return {}; }
  /// The first call on a stream's thread.
  virtual void begin() {}
  /// Runs a piece, unless the device has failed; a failure goes into `status`. False: the queue
  /// ends.
  virtual bool perform(StreamId stream, std::move_only_function<Result<void>()>& run,
                       const Stamp& stamp, Result<void>& status) = 0;
  /// What comes before a completion. False: the queue ends.
  virtual bool complete(StreamId) { return true; }

  const std::atomic<bool>& stopping() const { return stopping_; }
  /// Waits on the steady clock; false when the queue ends before.
  bool wait_until(std::chrono::steady_clock::time_point time);

 private:
  /// Work to run, a completion to post, an event that has happened, or one to wait for.
  struct Item {
    std::move_only_function<Result<void>()> run = nullptr;
    Completion completion = nullptr;
    std::optional<EventId> happens = std::nullopt, awaited = std::nullopt;
    Stamp stamp = {};
  };
  struct Stream {
    std::deque<Item> items;  // under mutex_
    std::condition_variable wake;
    std::thread thread;
  };

  void copy(StreamId stream, std::span<std::byte> to, std::span<const std::byte> from);
  void push(StreamId stream, Item item);
  void run(StreamId id, Stream& stream);
  bool perform_next(StreamId id, Item& item);
  std::optional<Item> next(Stream& stream);

  const Post post_;
  ComputeIds ids_;                                // the owner's thread only
  std::vector<std::unique_ptr<Stream>> streams_;  // grows on the owner's thread only
  std::mutex mutex_;
  std::size_t pending_ = 0;           // under mutex_: items of all streams
  std::set<EventId> events_to_come_;  // under mutex_
  std::condition_variable happened_;
  Result<void> status_;  // under mutex_: the first failure
  std::atomic<bool> stopping_ = false;
};

}  // namespace longhaul
