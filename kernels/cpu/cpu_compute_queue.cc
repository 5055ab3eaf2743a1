#include "kernels/cpu/cpu_compute_queue.h"

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

class CpuComputeQueue final : public ComputeQueue {
 public:
  explicit CpuComputeQueue(Post post) : post_(std::move(post)), worker_([this] { run(); }) {}

  ~CpuComputeQueue() override {
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
    ids_.check(stream);
    push({std::move(work.run), nullptr});
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
    ids_.check(stream);
    push({nullptr, std::move(completion)});
  }

 private:
  /// Work to run, or a completion to post.
  struct Item {
    std::move_only_function<Result<void>()> run;
    Completion completion;
  };

  void copy(StreamId stream, std::span<std::byte> to, std::span<const std::byte> from) {
    LH_CHECK(to.size() == from.size(), "both ends of a copy have one size");
    submit(stream, {.tag = 0, .run = [to, from]() -> Result<void> {
                      if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
                      return {};
                    }});
  }

  void push(Item item) {
    {
      const std::lock_guard lock(mutex_);
      LH_CHECK(items_.size() < kPendingMax, "the submitter keeps to the limit");
      items_.push_back(std::move(item));
    }
    wake_.notify_one();
  }

  void run() {
    Result<void> status;  // the first failure
    while (std::optional<Item> item = next()) {
      if (item->completion) {
        post_([completion = std::move(item->completion), status]() mutable {
          completion(std::move(status));
        });
      } else if (status) {
        status = item->run();
      }
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

  const Post post_;
  ComputeIds ids_;  // the owner's thread only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;  // under mutex_
  bool stopping_ = false;   // under mutex_
  std::thread worker_;      // last: it uses all of the above
};

}  // namespace

std::unique_ptr<ComputeQueue> make_cpu_compute_queue(ComputeQueue::Post post) {
  return std::make_unique<CpuComputeQueue>(std::move(post));
}

}  // namespace longhaul
