#include "kernels/cpu/thread_compute_queue.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/simulated_compute_queue.h"

namespace longhaul {

void ThreadComputeQueue::start() {
  worker_ = std::thread([this] { run(); });
}

void ThreadComputeQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (worker_.joinable()) worker_.join();
}

void ThreadComputeQueue::submit(StreamId stream, ComputeWork work) {
  push(stream, {std::move(work.run), nullptr, stamp(work.tag, 0)});
}

void ThreadComputeQueue::copy_to_staging(StreamId stream, std::span<std::byte> staging,
                                         std::span<const std::byte> device) {
  copy(stream, staging, device);
}
void ThreadComputeQueue::copy_to_device(StreamId stream, std::span<std::byte> device,
                                        std::span<const std::byte> staging) {
  copy(stream, device, staging);
}

void ThreadComputeQueue::copy(StreamId stream, std::span<std::byte> to,
                              std::span<const std::byte> from) {
  LH_CHECK(to.size() == from.size(), "both ends of a copy have one size");
  const auto run = [to, from]() -> Result<void> {
    if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
    return {};
  };
  push(stream, {run, nullptr, stamp(kCopyTag, to.size())});
}

// Whatever the event stands for was submitted earlier and therefore runs earlier.
void ThreadComputeQueue::wait(StreamId stream, EventId event) {
  ids_.check(stream);
  ids_.check(event);
}

void ThreadComputeQueue::notify(StreamId stream, Completion completion) {
  push(stream, {nullptr, std::move(completion), {}});
}

void ThreadComputeQueue::push(StreamId stream, Item item) {
  ids_.check(stream);
  {
    const std::lock_guard lock(mutex_);
    LH_CHECK(items_.size() < kPendingMax, "the submitter keeps to the limit");
    items_.push_back(std::move(item));
  }
  wake_.notify_one();
}

void ThreadComputeQueue::run() {
  begin();
  Result<void> status;  // the first failure
  while (std::optional<Item> item = next()) {
    if (!item->completion) {
      if (!perform(item->run, item->stamp, status)) return;
      continue;
    }
    if (!complete()) return;
    post_([completion = std::move(item->completion), status]() mutable {
      completion(std::move(status));
    });
  }
}

std::optional<ThreadComputeQueue::Item> ThreadComputeQueue::next() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !items_.empty(); });
  if (stopping_) return std::nullopt;
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

bool ThreadComputeQueue::wait_until(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_until(lock, time, [this] { return stopping_.load(); });
}

}  // namespace longhaul
