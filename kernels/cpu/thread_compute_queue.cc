#include "kernels/cpu/thread_compute_queue.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/simulated_compute_queue.h"

namespace longhaul {

StreamId ThreadComputeQueue::create_stream() {
  LH_CHECK(streams_.size() < kStreamsMax, "a device of this machine has a few streams");
  const StreamId id = ids_.create_stream();
  Stream& stream = *streams_.emplace_back(std::make_unique<Stream>());
  if (!stopping_) stream.thread = std::thread([this, id, &stream] { run(id, stream); });
  return id;
}

void ThreadComputeQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  happened_.notify_all();
  for (const auto& stream : streams_) {
    stream->wake.notify_one();
    if (stream->thread.joinable()) stream->thread.join();
  }
}

void ThreadComputeQueue::submit(StreamId stream, ComputeWork work) {
  push(stream, {.run = std::move(work.run), .stamp = stamp(work.tag, 0)});
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
  push(stream, {.run = run, .stamp = stamp(kCopyTag, to.size())});
}

EventId ThreadComputeQueue::record(StreamId stream) {
  const EventId event = ids_.record(stream);
  {
    const std::lock_guard lock(mutex_);
    events_to_come_.insert(event);
  }
  push(stream, {.happens = event});
  return event;
}

void ThreadComputeQueue::wait(StreamId stream, EventId event) {
  ids_.check(event);
  push(stream, {.awaited = event});
}

void ThreadComputeQueue::notify(StreamId stream, Completion completion) {
  push(stream, {.completion = std::move(completion)});
}

void ThreadComputeQueue::push(StreamId id, Item item) {
  ids_.check(id);
  Stream& stream = *streams_[static_cast<std::size_t>(id)];
  {
    const std::lock_guard lock(mutex_);
    LH_CHECK(pending_ < kPendingMax, "the submitter keeps to the limit");
    ++pending_;
    stream.items.push_back(std::move(item));
  }
  stream.wake.notify_one();
}

void ThreadComputeQueue::run(StreamId id, Stream& stream) {
  begin();
  while (std::optional<Item> item = next(stream)) {
    if (!perform_next(id, *item)) return;
  }
}

/// False: the queue ends.
bool ThreadComputeQueue::perform_next(StreamId id, Item& item) {
  Result<void> status;
  {
    std::unique_lock lock(mutex_);
    if (item.happens) {
      events_to_come_.erase(*item.happens);
      happened_.notify_all();
      return true;
    }
    if (item.awaited) {
      happened_.wait(lock,
                     [&] { return stopping_.load() || !events_to_come_.contains(*item.awaited); });
      return true;
    }
    status = status_;
  }
  if (!item.completion) {
    const bool was_sound = status.has_value();
    if (!perform(id, item.run, item.stamp, status)) return false;
    if (status || !was_sound) return true;
    const std::lock_guard lock(mutex_);
    if (status_) status_ = status;
    return true;
  }
  if (!complete(id)) return false;
  post_([completion = std::move(item.completion), s = std::move(status)]() mutable {
    completion(std::move(s));
  });
  return true;
}

std::optional<ThreadComputeQueue::Item> ThreadComputeQueue::next(Stream& stream) {
  std::unique_lock lock(mutex_);
  stream.wake.wait(lock, [&] { return stopping_ || !stream.items.empty(); });
  if (stopping_) return std::nullopt;
  Item item = std::move(stream.items.front());
  stream.items.pop_front();
  --pending_;
  return item;
}

bool ThreadComputeQueue::wait_until(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  return !happened_.wait_until(lock, time, [this] { return stopping_.load(); });
}

}  // namespace longhaul
