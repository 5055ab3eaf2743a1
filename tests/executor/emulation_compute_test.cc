// The emulated device. Its times are checked as arithmetic; with a real thread only order is.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/emulation/emulated_compute_queue.h"
#include "tests/executor/emulation_fixtures.h"

namespace longhaul {
namespace {

using fixtures::PageFile;
using fixtures::plain_network;

TEST(DeviceTime, work_is_done_a_dilated_table_time_after_it_could_start) {
  // Submitted at 1000 to a free device; 2 us x 3 = 6000 ns.
  DeviceTime device(3);
  EXPECT_EQ(device.due(1000, microseconds(2)), 7000);
  EXPECT_EQ(device.finish(7000, 5000), 0);  // the real work was faster
  EXPECT_EQ(device.free_at(), 7000);
  // Submitted at 2000, while the device is busy until 7000: 10000. At 8000: 11000.
  EXPECT_EQ(device.due(2000, microseconds(1)), 10000);
  EXPECT_EQ(device.due(8000, microseconds(1)), 11000);
}

TEST(DeviceTime, work_that_is_late_holds_up_the_device) {
  // Due at 7000 and really done at 9500: 2500 too late, and the next one starts there.
  DeviceTime device(1);
  EXPECT_EQ(device.finish(7000, 9500), 2500);
  EXPECT_EQ(device.due(0, microseconds(1)), 10500);
}

/// The owner's thread: runs what is posted, until told.
class Owner {
 public:
  ComputeQueue::Post post() {
    return [this](std::move_only_function<void()> task) {
      {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
      }
      wake_.notify_one();
    };
  }
  void run_one() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return !tasks_.empty(); });
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::move_only_function<void()>> tasks_;
};

WorkTimes tag_microseconds() {
  return [](std::uint64_t tag, std::size_t) {
    return microseconds(tag == kCopyTag ? 0 : static_cast<double>(tag));
  };
}

class EmulatedDevice : public testing::Test {
 protected:
  PageFile file;
  std::unique_ptr<SharedPage> page = file.create(plain_network(2, 100), 2, 1);
  Owner owner;
  std::unique_ptr<ComputeQueue> queue =
      make_emulated_compute_queue(owner.post(), tag_microseconds(), *page);
  StreamId stream = queue->create_stream();
};

TEST_F(EmulatedDevice, completions_come_in_order_and_never_before_their_time) {
  // The table says 1000, 3000, 0 us, the dilation is 2: not before 2, 8, 8 ms.
  const std::int64_t start = monotonic_nanoseconds();
  std::atomic<int> works_done = 0;
  std::vector<std::uint64_t> order;
  std::vector<std::int64_t> times;
  for (const std::uint64_t tag : {1000u, 3000u, 0u}) {
    queue->submit(stream, {.tag = tag, .run = [&]() -> Result<void> {
                             ++works_done;
                             return {};
                           }});
    queue->notify(stream, [&, tag](Result<void> result) {
      EXPECT_TRUE(result);
      order.push_back(tag);
      times.push_back(monotonic_nanoseconds());
      EXPECT_GE(works_done, static_cast<int>(order.size()));
    });
  }
  for (int i = 0; i < 3; ++i) owner.run_one();
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1000, 3000, 0}));
  EXPECT_GE(times[0], start + 2'000'000);
  EXPECT_GE(times[1], start + 8'000'000);
  EXPECT_GE(times[2], start + 8'000'000);
  // What the table does not price is never late, and not counted.
  EXPECT_EQ(page->counters().completions, 2u);
}

TEST_F(EmulatedDevice, streams_and_events_keep_the_order_of_submission) {
  const StreamId copies = queue->create_stream();
  auto device = queue->allocate(4);
  auto staging = queue->allocate_staging(4);
  ASSERT_TRUE(device && staging);
  EXPECT_TRUE(queue->is_host_memory());
  queue->submit(stream, {.tag = 10, .run = [&]() -> Result<void> {
                           std::memcpy(device->address(), "1234", 4);
                           return {};
                         }});
  queue->wait(copies, queue->record(stream));
  queue->copy_to_staging(copies, staging->as<std::byte>(), device->as<std::byte>());
  bool is_done = false;
  queue->notify(copies, [&](Result<void> result) { is_done = result.has_value(); });
  owner.run_one();
  EXPECT_TRUE(is_done);
  EXPECT_EQ(std::memcmp(staging->address(), "1234", 4), 0);
}

TEST_F(EmulatedDevice, first_failure_goes_to_all_later_completions_and_stops_the_work) {
  bool ran_after = false;
  std::vector<std::string> results;
  const auto note = [&](Result<void> result) {
    results.push_back(result ? "" : result.error().message);
  };
  queue->notify(stream, note);
  queue->submit(stream, {.tag = 0, .run = [] { return Result<void>(failed("it burns")); }});
  queue->notify(stream, note);
  queue->submit(stream, {.tag = 0, .run = [&]() -> Result<void> {
                           ran_after = true;
                           return {};
                         }});
  for (int i = 0; i < 2; ++i) owner.run_one();
  queue->notify(queue->create_stream(), note);
  owner.run_one();
  EXPECT_EQ(results, (std::vector<std::string>{"", "it burns", "it burns"}));
  EXPECT_FALSE(ran_after);
}

TEST_F(EmulatedDevice, no_more_work_runs_than_there_are_permits) {
  // Two devices, one permit.
  Owner other_owner;
  const auto other = make_emulated_compute_queue(other_owner.post(), tag_microseconds(), *page);
  const StreamId other_stream = other->create_stream();
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  const auto work = [&]() -> Result<void> {
    if (const int now = ++running; now > most) most = now;
    std::this_thread::yield();
    --running;
    return {};
  };
  for (int i = 0; i < 200; ++i) {
    queue->submit(stream, {.tag = 1, .run = work});
    other->submit(other_stream, {.tag = 1, .run = work});
  }
  queue->notify(stream, [](Result<void>) {});
  other->notify(other_stream, [](Result<void>) {});
  owner.run_one();
  other_owner.run_one();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(page->counters().completions, 400u);
}

TEST_F(EmulatedDevice, a_queue_can_end_while_it_waits_for_a_permit_or_for_its_time) {
  const std::atomic<bool> wait = false;
  const auto permit = page->take_permit(wait);
  ASSERT_TRUE(permit);
  bool ran = false;
  queue->submit(stream, {.tag = 0, .run = [&]() -> Result<void> {
                           ran = true;
                           return {};
                         }});
  queue->notify(stream, [](Result<void>) {});
  queue.reset();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(owner.is_idle());
  page->give_permit(*permit);

  queue = make_emulated_compute_queue(owner.post(), tag_microseconds(), *page);
  stream = queue->create_stream();
  std::promise<void> worked;
  queue->submit(stream, {.tag = 3'600'000'000, .run = [&]() -> Result<void> {  // an hour
                           worked.set_value();
                           return {};
                         }});
  queue->notify(stream, [](Result<void>) {});
  worked.get_future().wait();
  queue.reset();
  EXPECT_TRUE(owner.is_idle());
}

}  // namespace
}  // namespace longhaul
