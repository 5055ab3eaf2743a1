// Where tensor work runs: one device, given work and told when it is done. One of the five doors to
// the outside (with Transport, Clock, Storage and ProcessHost): the executor sees a CPU thread, a
// GPU, or a device in simulated time, and runs the same code.
//
// Work goes to a stream. A stream's work runs one piece at a time in the order submitted; streams
// wait for one another only where `wait` says so. An implementation may run more in order than
// that. The order of results is then fixed: whether and when streams overlap changes no value.
//
//   submit(compute, forward)                 event = record(compute)
//   wait(copy, event)                        copy_to_staging(copy, staging, boundary)
//   notify(copy, send the staging buffer)
//
// Threads: every method is called by the owner, one thread (the worker's event loop). Completions
// are handed to the owner's `post`, given when a queue is made, and so run on the owner's thread.
// Work itself runs wherever the device is and touches only its buffers.
//
// Device memory may be out of the host's reach: only work and copies touch it. Staging buffers are
// host memory that the device can reach, and the host may read or write one whenever no submitted
// copy uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/result.h"

namespace longhaul {

/// Memory of a device. Freed with the object, which the queue must outlive and which must outlive
/// the work that uses it. `address` is the device's: only where is_host_memory may the host follow
/// it.
class ComputeBuffer {
 public:
  using Free = std::function<void(void*)>;
  ComputeBuffer() = default;
  ComputeBuffer(void* address, std::size_t size, Free free)
      : address_(address, std::move(free)), size_(size) {}

  void* address() const { return address_.get(); }
  std::size_t size() const { return size_; }  // bytes

  /// The buffer as numbers of one type. For work that runs on the device, and for staging buffers.
  template <class T>
  std::span<T> as() const {
    LH_CHECK(size_ % sizeof(T) == 0, "a buffer holds whole numbers of its type");
    return {static_cast<T*>(address_.get()), size_ / sizeof(T)};
  }

 private:
  std::unique_ptr<void, Free> address_{nullptr, [](void*) {}};
  std::size_t size_ = 0;
};

/// What a piece of work is, for whoever prices or records it: the tag is the submitter's, for
/// example an instruction's place in its schedule.
struct ComputeWork {
  std::uint64_t tag = 0;
  /// Runs once, on the device's thread. Fails only where the device does.
  std::move_only_function<Result<void>()> run;
};

enum class StreamId : std::uint32_t {};
/// A point in a stream.
enum class EventId : std::uint64_t {};

class ComputeQueue {
 public:
  /// Called on the owner's thread. The first failure of the device is given to this completion and
  /// to all later ones, of whatever stream: its buffers are not to be trusted any more.
  using Completion = std::move_only_function<void(Result<void>)>;
  /// Runs a function on the owner's thread, later; functions run in the order posted. Any thread
  /// may call it.
  using Post = std::function<void(std::move_only_function<void()>)>;

  /// Pieces of work submitted and not done; more is a mistake of the submitter.
  static constexpr std::size_t kPendingMax = std::size_t{1} << 16;

  ComputeQueue() = default;
  ComputeQueue(const ComputeQueue&) = delete;
  ComputeQueue& operator=(const ComputeQueue&) = delete;
  /// Ends what is running and drops the rest: no completion is posted after it.
  virtual ~ComputeQueue() = default;
  /// The same, for an owner whose work uses things that end before the queue does. What is
  /// submitted afterwards is dropped.
  virtual void close() = 0;

  /// Zeroed, aligned to 64 bytes at least. Fails (kFailed) when memory is out.
  virtual Result<ComputeBuffer> allocate(std::size_t bytes) = 0;
  virtual Result<ComputeBuffer> allocate_staging(std::size_t bytes) = 0;
  /// The device's memory is host memory too, so `as` on its buffers is for the host as well.
  virtual bool is_host_memory() const = 0;

  virtual StreamId create_stream() = 0;
  virtual void submit(StreamId stream, ComputeWork work) = 0;
  /// Byte copies of equal sizes. The spans are of a staging buffer and of a device buffer.
  virtual void copy_to_staging(StreamId stream, std::span<std::byte> staging,
                               std::span<const std::byte> device) = 0;
  virtual void copy_to_device(StreamId stream, std::span<std::byte> device,
                              std::span<const std::byte> staging) = 0;

  /// The event happens when all work submitted to the stream so far is done.
  virtual EventId record(StreamId stream) = 0;
  /// Later work of the stream starts after the event, which was recorded before.
  virtual void wait(StreamId stream, EventId event) = 0;
  /// Posts the completion when all work submitted to the stream so far is done.
  virtual void notify(StreamId stream, Completion completion) = 0;
};

}  // namespace longhaul
