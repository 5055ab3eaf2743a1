#include "kernels/cpu/simulated_compute_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/host_buffer.h"

namespace longhaul {
namespace {

class SimulatedComputeQueue final : public ComputeQueue {
 public:
  SimulatedComputeQueue(VirtualClock clock, WorkTimes times)
      : clock_(std::move(clock)), times_(std::move(times)), alive_(std::make_shared<Alive>()) {}

  void close() override { alive_ = nullptr; }
  Result<ComputeBuffer> allocate(std::size_t bytes) override { return allocate_host_buffer(bytes); }
  Result<ComputeBuffer> allocate_staging(std::size_t bytes) override {
    return allocate_host_buffer(bytes);
  }
  bool is_host_memory() const override { return true; }

  StreamId create_stream() override {
    stream_free_.emplace_back();
    return ids_.create_stream();
  }

  void submit(StreamId stream, ComputeWork work) override {
    run(stream, work.tag, 0, std::move(work.run));
  }
  void copy_to_staging(StreamId stream, std::span<std::byte> staging,
                       std::span<const std::byte> device) override {
    copy(stream, staging, device);
  }
  void copy_to_device(StreamId stream, std::span<std::byte> device,
                      std::span<const std::byte> staging) override {
    copy(stream, device, staging);
  }

  EventId record(StreamId stream) override {
    const EventId event = ids_.record(stream);
    event_time_.push_back(free_at(stream));
    return event;
  }

  void wait(StreamId stream, EventId event) override {
    ids_.check(event);
    const SimTime time = event_time_[static_cast<std::size_t>(event)];
    free_at(stream) = std::max(free_at(stream), time);
  }

  void notify(StreamId stream, Completion completion) override {
    const SimTime time = std::max(clock_.now(), free_at(stream));
    clock_.at(time, [alive = std::weak_ptr(alive_), status = status_,
                     completion = std::move(completion)]() mutable {
      if (!alive.expired()) completion(std::move(status));
    });
  }

 private:
  struct Alive {};

  SimTime& free_at(StreamId stream) {
    ids_.check(stream);
    return stream_free_[static_cast<std::size_t>(stream)];
  }

  void run(StreamId stream, std::uint64_t tag, std::size_t bytes,
           std::move_only_function<Result<void>()> work) {
    SimTime& free = free_at(stream);
    free = std::max(free, clock_.now()) + SimTime::from(times_(tag, bytes));
    if (status_ && alive_) status_ = work();
  }

  void copy(StreamId stream, std::span<std::byte> to, std::span<const std::byte> from) {
    LH_CHECK(to.size() == from.size(), "both ends of a copy have one size");
    run(stream, kCopyTag, to.size(), [to, from]() -> Result<void> {
      if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
      return {};
    });
  }

  const VirtualClock clock_;
  const WorkTimes times_;
  ComputeIds ids_;
  std::vector<SimTime> stream_free_;  // when each stream is done with what it has
  std::vector<SimTime> event_time_;
  Result<void> status_;  // the first failure
  /// Owned here alone, null when closed; completions hold weak references, to do nothing once the
  /// queue is closed or gone.
  std::shared_ptr<Alive> alive_;
};

}  // namespace

std::unique_ptr<ComputeQueue> make_simulated_compute_queue(VirtualClock clock, WorkTimes times) {
  return std::make_unique<SimulatedComputeQueue>(std::move(clock), std::move(times));
}

}  // namespace longhaul
