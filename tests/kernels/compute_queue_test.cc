#include "kernels/compute_queue.h"

#include <condition_variable>
#include <deque>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include "core/event_queue.h"
#include "kernels/cpu/cpu_compute_queue.h"
#include "kernels/cpu/simulated_compute_queue.h"
#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

using Function = std::move_only_function<void()>;

/// An owner's thread for the real queue: functions posted from anywhere, run here.
class Mailbox {
 public:
  ComputeQueue::Post post() {
    return [this](Function function) {
      const std::lock_guard lock(mutex_);
      functions_.push_back(std::move(function));
      wake_.notify_one();
    };
  }
  void run_until(const bool& done) {
    while (!done) next()();
  }

 private:
  Function next() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return !functions_.empty(); });
    Function function = std::move(functions_.front());
    functions_.pop_front();
    return function;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Function> functions_;
};

/// Virtual time for the simulated queue.
class Simulation {
 public:
  VirtualClock clock() {
    return {.now = [this] { return now_; },
            .at = [this](SimTime time, Function f) { events_.push(time, std::move(f)); }};
  }
  void at(Seconds time, Function f) { events_.push(SimTime::from(time), std::move(f)); }
  void run_until(const bool& done) {
    while (!done && !events_.empty()) {
      now_ = events_.next_time();
      events_.pop()();
    }
  }
  Seconds now() const { return now_.seconds(); }

 private:
  EventQueue<Function> events_;
  SimTime now_;
};

/// The same tests run on both implementations.
struct Backend {
  std::unique_ptr<Mailbox> mailbox;
  std::unique_ptr<Simulation> simulation;
  std::unique_ptr<ComputeQueue> queue;

  /// Until everything submitted to the stream is done; its status.
  Result<void> drain(StreamId stream) {
    bool done = false;
    Result<void> result;
    queue->notify(stream, [&](Result<void> status) {
      result = std::move(status);
      done = true;
    });
    mailbox ? mailbox->run_until(done) : simulation->run_until(done);
    EXPECT_TRUE(done);
    return result;
  }
};

Backend make_backend(const std::string& kind) {
  Backend backend;
  if (kind == "cpu") {
    backend.mailbox = std::make_unique<Mailbox>();
    backend.queue = make_cpu_compute_queue(backend.mailbox->post());
  } else {
    backend.simulation = std::make_unique<Simulation>();
    backend.queue = make_simulated_compute_queue(
        backend.simulation->clock(), [](std::uint64_t tag, std::size_t) {
          return tag == kCopyTag ? Seconds(0.5) : Seconds(static_cast<double>(tag));
        });
  }
  return backend;
}

class ComputeQueues : public testing::TestWithParam<std::string> {
 protected:
  Backend backend_ = make_backend(GetParam());
  ComputeQueue& queue_ = *backend_.queue;
};

TEST_P(ComputeQueues, a_stream_runs_in_the_order_submitted) {
  const StreamId stream = queue_.create_stream();
  std::vector<std::uint64_t> order;
  for (std::uint64_t tag = 0; tag < 100; ++tag) {
    queue_.submit(stream, {tag, [&order, tag]() -> Result<void> {
                             order.push_back(tag);
                             return {};
                           }});
  }
  EXPECT_TRUE(backend_.drain(stream).has_value());
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(ComputeQueues, a_closed_one_uses_nothing_any_more) {
  const StreamId stream = queue_.create_stream();
  auto numbers = std::make_unique<std::vector<int>>(1);
  const auto add = [numbers = numbers.get()]() -> Result<void> {
    numbers->push_back(1);
    return {};
  };
  for (int i = 0; i < 1000; ++i) queue_.submit(stream, {0, add});
  queue_.close();
  numbers = nullptr;  // the sanitizers would see a use
  queue_.submit(stream, {0, add});
  queue_.close();
}

TEST_P(ComputeQueues, data_goes_through_staging_to_the_device_and_back) {
  const StreamId compute = queue_.create_stream();
  const StreamId copies = queue_.create_stream();
  const ComputeBuffer in = queue_.allocate_staging(16).value();
  const ComputeBuffer device = queue_.allocate(16).value();
  const ComputeBuffer out = queue_.allocate_staging(16).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device.address()) % 64, 0u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out.as<float>()[i], 0.0f);
    in.as<float>()[i] = static_cast<float>(i);
  }
  queue_.copy_to_device(copies, device.as<std::byte>(), in.as<std::byte>());
  queue_.wait(compute, queue_.record(copies));
  queue_.submit(compute, {1, [numbers = device.as<float>()]() -> Result<void> {
                            for (float& number : numbers) number *= 10;
                            return {};
                          }});
  queue_.wait(copies, queue_.record(compute));
  queue_.copy_to_staging(copies, out.as<std::byte>(), device.as<std::byte>());
  EXPECT_TRUE(backend_.drain(copies).has_value());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(out.as<float>()[i], 10 * static_cast<float>(i));
}

TEST_P(ComputeQueues, the_first_failure_reaches_every_later_completion) {
  const StreamId stream = queue_.create_stream();
  const StreamId other = queue_.create_stream();
  EXPECT_TRUE(backend_.drain(stream).has_value());
  bool ran = false;
  queue_.submit(stream, {1, [] { return Result<void>(failed("the device fell off the bus")); }});
  EXPECT_FALSE(backend_.drain(stream).has_value());
  queue_.submit(other, {1, [&ran]() -> Result<void> {
                          ran = true;
                          return {};
                        }});
  for (const StreamId s : {stream, other, stream}) {
    const Result<void> status = backend_.drain(s);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().message, "the device fell off the bus");
  }
  EXPECT_FALSE(ran);
}

TEST_P(ComputeQueues, memory_that_is_not_there_is_an_error) {
  const auto buffer = queue_.allocate(std::size_t{1} << 60);
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::kFailed);
  EXPECT_EQ(queue_.allocate(0).value().size(), 0u);
}

TEST_P(ComputeQueues, a_queue_may_go_with_work_left) {
  const StreamId stream = queue_.create_stream();
  auto counter = std::make_shared<int>(0);  // owned by this test and the work
  for (std::uint64_t i = 0; i < 50; ++i) {
    queue_.submit(stream, {i, [counter]() -> Result<void> {
                             ++*counter;
                             return {};
                           }});
    queue_.notify(stream, [counter](Result<void>) { ++*counter; });
  }
  backend_.queue.reset();
  EXPECT_LE(*counter, 50);
  backend_.simulation.reset();
  backend_.mailbox.reset();
  EXPECT_EQ(counter.use_count(), 1);
}

INSTANTIATE_TEST_SUITE_P(, ComputeQueues, testing::Values("cpu", "simulated"),
                         [](const auto& info) { return info.param; });

TEST(CpuComputeQueue, completions_run_on_the_owners_thread_and_work_does_not) {
  Backend backend = make_backend("cpu");
  const StreamId stream = backend.queue->create_stream();
  std::optional<std::thread::id> worker;
  backend.queue->submit(stream, {0, [&]() -> Result<void> {
                                   worker = std::this_thread::get_id();
                                   return {};
                                 }});
  bool done = false;
  std::optional<std::thread::id> owner;
  backend.queue->notify(stream, [&](Result<void>) {
    owner = std::this_thread::get_id();
    done = true;
  });
  backend.mailbox->run_until(done);
  EXPECT_TRUE(owner == std::this_thread::get_id());
  EXPECT_TRUE(worker && worker != owner);
}

// The first stream's work ends only when the second stream's has begun; what waits for an event of
// the first finds what it has done.
TEST(CpuComputeQueue, streams_run_side_by_side_and_wait_for_one_another_at_events) {
  Backend backend = make_backend("cpu");
  ComputeQueue& queue = *backend.queue;
  const StreamId first = queue.create_stream();
  const StreamId second = queue.create_stream();
  const StreamId third = queue.create_stream();
  std::latch is_begun(1);
  int done = 0, found = 0;
  queue.submit(first, {0, [&]() -> Result<void> {
                         is_begun.wait();
                         done = 7;
                         return {};
                       }});
  queue.wait(third, queue.record(first));
  queue.submit(third, {0, [&]() -> Result<void> {
                         found = done;
                         return {};
                       }});
  queue.submit(second, {0, [&]() -> Result<void> {
                          is_begun.count_down();
                          return {};
                        }});
  EXPECT_TRUE(backend.drain(third).has_value());
  EXPECT_EQ(found, 7);
}

// Work of 2 s, then 3 s on one stream: done at 2 and 5. A second stream runs beside it: 4 s, done
// at 4; it then waits for the first (5), works 1 s and copies 0.5 s: done at 6.5. What is submitted
// at 10 starts at 10.
TEST(SimulatedComputeQueue, work_ends_when_the_table_says) {
  Backend backend = make_backend("simulated");
  ComputeQueue& queue = *backend.queue;
  Simulation& simulation = *backend.simulation;
  const StreamId first = queue.create_stream();
  const StreamId second = queue.create_stream();
  const auto work = [](std::uint64_t tag) {
    return ComputeWork{tag, []() -> Result<void> { return {}; }};
  };
  std::vector<double> ends;
  const auto note = [&](StreamId stream) {
    queue.notify(stream, [&](Result<void>) { ends.push_back(simulation.now().value()); });
  };
  queue.submit(first, work(2));
  note(first);
  queue.submit(first, work(3));
  note(first);
  queue.submit(second, work(4));
  note(second);
  queue.wait(second, queue.record(first));
  queue.submit(second, work(1));
  queue.copy_to_staging(second, {}, {});
  note(second);
  bool done = false;
  simulation.at(Seconds(10), [&] {
    queue.submit(first, work(7));
    note(first);
    queue.notify(first, [&](Result<void>) { done = true; });
  });
  simulation.run_until(done);
  EXPECT_EQ(ends, (std::vector<double>{2, 4, 5, 6.5, 17}));
}

TEST(ComputeQueueDeathTest, what_comes_from_another_queue_stops_the_program) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a queue has a thread already
  for (const char* kind : {"cpu", "simulated"}) {
    Backend backend = make_backend(kind);
    const StreamId stream = backend.queue->create_stream();
    EXPECT_DEATH(backend.queue->record(StreamId{1}), "stream comes from this queue");
    EXPECT_DEATH(backend.queue->wait(stream, EventId{0}), "recorded before");
    EXPECT_DEATH(backend.queue->copy_to_device(
                     stream, {}, std::span<const std::byte>(std::vector<std::byte>(1))),
                 "one size");
  }
}

}  // namespace
}  // namespace longhaul
