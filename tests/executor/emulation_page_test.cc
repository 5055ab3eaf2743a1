// The page between processes. Clocks are given, so that times are exact; processes are real.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "executor/emulation/shared_page.h"
#include "tests/executor/emulation_fixtures.h"

namespace longhaul {
namespace {

using fixtures::PageFile;
using fixtures::plain_network;
using fixtures::uplink_network;

constexpr std::int64_t kSecond = 1'000'000'000;

WallClock clock_at(double time) {
  return [time] { return static_cast<std::int64_t>(time * 1e9); };
}

using Times = std::vector<std::int64_t>;

/// Another process that runs a function; killed at the end if it still does.
class Child {
 public:
  explicit Child(const std::function<void()>& run) : process_(fork()) {
    if (process_ != 0) return;
    run();
    _exit(0);
  }
  ~Child() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    wait();
  }
  /// Its wait status.
  int wait() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return status;
  }
  int kill_and_wait() {
    kill(process_, SIGKILL);
    return wait();
  }

 private:
  pid_t process_;
};

/// Says a word from one process to another.
class Signal {
 public:
  Signal() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void give() { EXPECT_EQ(write(ends_[1], "!", 1), 1); }
  void await() {
    char byte = 0;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }

 private:
  std::array<int, 2> ends_{};
};

std::unique_ptr<SharedPage> open_page(const std::string& path) {
  auto page = SharedPage::open(path);
  if (!page) {
    ADD_FAILURE() << page.error().text();
    _exit(1);
  }
  return std::move(*page);
}

TEST(SharedPage, a_page_that_was_created_can_be_opened) {
  const PageFile file;
  EmulatedNetwork network = uplink_network(3, 100, 0.5);
  network.path(1, 1) = {.latency = seconds(-1), .resources = {8, 9}};  // means nothing
  const auto page = file.create(network, 4, 7);
  const auto other = open_page(file.path);
  EXPECT_EQ(other->ranks(), 3);
  EXPECT_EQ(other->dilation(), 4);
  EXPECT_EQ(other->latency_nanoseconds(0, 2), 2 * kSecond);  // 0.5 s x 4
}

TEST(SharedPage, a_page_is_not_written_over) {
  const PageFile file;
  const auto page = file.create(plain_network(2, 100));
  const auto again = SharedPage::create(file.path, plain_network(2, 100), 1, 1);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().hint.find("remove the file"), std::string::npos);
}

TEST(SharedPage, impossible_pages_are_not_created) {
  const PageFile file;
  EXPECT_FALSE(SharedPage::create(file.path, plain_network(2, 0), 1, 1));
  EXPECT_FALSE(SharedPage::create(file.path, plain_network(2, 1), 1, 0));
  EXPECT_FALSE(SharedPage::create(file.path, plain_network(2, 1), 1, kPermitsMax + 1));
  EXPECT_FALSE(SharedPage::create("/no/such/folder/page", plain_network(2, 1), 1, 1));
  EXPECT_FALSE(std::filesystem::exists(file.path));
  EXPECT_TRUE(SharedPage::create(file.path, plain_network(2, 1), 1, kPermitsMax));
}

TEST(SharedPage, wrong_files_are_refused_by_name) {
  struct Row {
    const char* part_of_message;
    void (*spoil)(std::string&);
  };
  // Places are those of the page's header: version at 8, ranks at 24, path entries at 32.
  const Row rows[] = {
      {"empty", [](std::string& bytes) { bytes.clear(); }},
      {"only 63 bytes", [](std::string& bytes) { bytes.resize(63); }},
      {"starts with other bytes", [](std::string& bytes) { bytes[0] = 'L'; }},
      {"another version", [](std::string& bytes) { ++bytes[8]; }},
      {"sizes make no sense", [](std::string& bytes) { bytes[27] = '\x7f'; }},
      {"sizes make no sense", [](std::string& bytes) { bytes[35] = '\x7f'; }},
      {"bytes instead of", [](std::string& bytes) { bytes[24] = 4; }},
      {"bytes instead of", [](std::string& bytes) { bytes.pop_back(); }},
      {"bytes instead of", [](std::string& bytes) { bytes.push_back('x'); }},
      // The capacity of 100 bytes/s becomes -100 bytes/s.
      {"network makes no sense",
       [](std::string& bytes) {
         const double capacity = 100 / 1e9;
         const std::string as_bytes(reinterpret_cast<const char*>(&capacity), sizeof(capacity));
         bytes[bytes.find(as_bytes) + sizeof(capacity) - 1] ^= '\x80';
       }},
  };
  for (const Row& row : rows) {
    const PageFile file;
    file.create(uplink_network(3, 100));
    std::stringstream text;
    text << std::ifstream(file.path, std::ios::binary).rdbuf();
    std::string bytes = text.str();
    row.spoil(bytes);
    std::ofstream(file.path, std::ios::binary | std::ios::trunc) << bytes;
    const auto page = SharedPage::open(file.path);
    ASSERT_FALSE(page) << row.part_of_message;
    EXPECT_NE(page.error().message.find(row.part_of_message), std::string::npos)
        << page.error().message;
    EXPECT_NE(page.error().message.find(file.path), std::string::npos);
  }
  EXPECT_FALSE(SharedPage::open("/no/such/page"));
}

TEST(SharedPage, channels_of_different_processes_share_a_resource) {
  // 100 bytes/s for both: 50 each until the child's 200 bytes are gone at 4 s; the other then has
  // 800 left: 12 s.
  const PageFile file;
  const auto page = file.create(uplink_network(3, 100));
  const std::size_t sizes[] = {1000};
  page->pace(0, 1, sizes, clock_at(0));
  Child child([&] {
    const std::size_t size[] = {200};
    open_page(file.path)->pace(0, 2, size, clock_at(0));
  });
  EXPECT_EQ(child.wait(), 0);
  const auto early = page->pace(0, 1, {}, clock_at(11.9));
  EXPECT_EQ(early.departures, Times());
  EXPECT_EQ(early.look_again_at, 12 * kSecond);
  EXPECT_EQ(page->pace(0, 1, {}, clock_at(13)).departures, Times{12 * kSecond});
  EXPECT_EQ(page->pace(0, 2, {}, clock_at(13)).departures, Times{4 * kSecond});
}

TEST(SharedPage, more_frames_than_fit_are_taken_as_room_comes) {
  // 100 bytes each at 100 bytes/s. Eight fit.
  const PageFile file;
  const auto page = file.create(plain_network(2, 100));
  const std::vector<std::size_t> sizes(10, 100);
  EXPECT_EQ(page->pace(0, 1, sizes, clock_at(0)).accepted, 8u);
  const auto later = page->pace(0, 1, std::span(sizes).first(2), clock_at(1.5));
  EXPECT_EQ(later.departures, Times{kSecond});
  EXPECT_EQ(later.accepted, 1u);
  EXPECT_EQ(later.look_again_at, 2 * kSecond);
}

TEST(SharedPage, frames_that_take_no_time_leave_however_many_they_are) {
  const PageFile file;
  const auto page = file.create(plain_network(2, 100));
  const std::vector<std::size_t> sizes(20, 0);
  const auto pace = page->pace(0, 1, sizes, clock_at(3));
  EXPECT_EQ(pace.accepted, 20u);
  EXPECT_EQ(pace.departures, Times(20, 3 * kSecond));
}

TEST(SharedPage, a_process_killed_inside_the_lock_does_not_stop_the_others) {
  // The child dies where the clock is read, which is under the lock.
  const PageFile file;
  const auto page = file.create(plain_network(2, 100));
  const std::size_t sizes[] = {1000};
  page->pace(0, 1, sizes, clock_at(0));
  Child child([&] {
    const auto mine = open_page(file.path);
    mine->pace(1, 0, {}, [] {
      raise(SIGKILL);
      return std::int64_t{0};
    });
  });
  const int status = child.wait();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(page->pace(0, 1, {}, clock_at(20)).departures, Times{10 * kSecond});
  // The lock is whole again, for everybody.
  EXPECT_EQ(page->pace(0, 1, sizes, clock_at(20)).look_again_at, 30 * kSecond);
}

TEST(SharedPage, permits_are_counted_over_all_processes) {
  const PageFile file;
  const auto page = file.create(plain_network(2, 100), 1, 2);
  const std::atomic<bool> wait = false;
  Signal taken, give_back;
  Child child([&] {
    const auto mine = open_page(file.path);
    const auto permit = mine->take_permit(wait);
    taken.give();
    give_back.await();
    mine->give_permit(*permit);
  });
  taken.await();
  const auto first = page->take_permit(wait);
  ASSERT_TRUE(first);
  // Both are out. Who gives up does not get one.
  std::atomic<bool> give_up = false;
  std::thread impatient([&] { EXPECT_FALSE(page->take_permit(give_up)); });
  give_up = true;
  impatient.join();
  give_back.give();
  const auto second = page->take_permit(wait);
  ASSERT_TRUE(second);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(child.wait(), 0);
}

TEST(SharedPage, permits_of_a_killed_process_come_back) {
  const PageFile file;
  const auto page = file.create(plain_network(2, 100), 1, 1);
  const std::atomic<bool> wait = false;
  Signal taken;
  Child child([&] {
    const auto mine = open_page(file.path);
    if (mine->take_permit(wait)) taken.give();
    pause();
  });
  taken.await();
  child.kill_and_wait();
  EXPECT_TRUE(page->take_permit(wait));
}

TEST(SharedPage, everybody_reads_what_was_late) {
  // Late is above 0.5 ms.
  const PageFile file;
  const auto page = file.create(plain_network(2, 100));
  EXPECT_EQ(page->counters().late_fraction(), 0);
  for (const std::int64_t lateness : {0, 500'000, 500'001, 4'000'000}) page->count_frame(lateness);
  Child child([&] {
    const auto mine = open_page(file.path);
    for (int i = 0; i < 9; ++i) mine->count_completion(0);
    mine->count_completion(600'000);
  });
  EXPECT_EQ(child.wait(), 0);
  const EmulationCounters counters = page->counters();
  EXPECT_EQ(counters.frames, 4u);
  EXPECT_EQ(counters.late_frames, 2u);
  EXPECT_DOUBLE_EQ(counters.frame_lateness_max.value(), 0.004);
  EXPECT_EQ(counters.completions, 10u);
  EXPECT_EQ(counters.late_completions, 1u);
  EXPECT_DOUBLE_EQ(counters.completion_lateness_max.value(), 0.0006);
  EXPECT_DOUBLE_EQ(counters.late_fraction(), 0.5);  // of 2 / 4 and 1 / 10 the worse

  for (const std::int64_t lateness : {0, 0, 0, 0, 600'000}) page->count_frame(lateness);
  page->count_completion(0);
  const EmulationCounters later = page->counters().since(counters);
  EXPECT_EQ(later.frames, 5u);
  EXPECT_EQ(later.late_frames, 1u);
  EXPECT_EQ(later.completions, 1u);
  EXPECT_EQ(later.late_completions, 0u);
  EXPECT_DOUBLE_EQ(later.late_fraction(), 0.2);
}

}  // namespace
}  // namespace longhaul
