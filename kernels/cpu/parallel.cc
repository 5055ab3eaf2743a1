#include "kernels/parallel.h"

#include <signal.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"

namespace longhaul {
namespace {

using std::ptrdiff_t;

struct Task {
  parallel_detail::Part part = nullptr;
  const void* body = nullptr;
  ptrdiff_t count = 0;
  ptrdiff_t grain = 1;
  ptrdiff_t parts = 0;

  void run(ptrdiff_t index) const {
    if (index >= parts) return;
    const ptrdiff_t units = (count + grain - 1) / grain;
    const ptrdiff_t begin = units * index / parts * grain;
    const ptrdiff_t end = std::min(units * (index + 1) / parts * grain, count);
    if (begin < end) part(body, begin, end);
  }
};

/// Helpers that wait for a task, each for the part of its number. The caller's own part is 0.
class Team {
 public:
  explicit Team(int threads) {
    // Signals are for the threads of the program.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(i); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Team() {
    is_over_ = true;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  void run(const Task& task) {
    task_ = task;
    left_.store(static_cast<int>(helpers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    task.run(0);
    for (int left = left_.load(std::memory_order_acquire); left != 0;
         left = left_.load(std::memory_order_acquire)) {
      left_.wait(left, std::memory_order_acquire);
    }
  }

 private:
  void help(ptrdiff_t index) {
    for (unsigned seen = 0;; ++seen) {
      round_.wait(seen, std::memory_order_acquire);
      if (is_over_) return;
      task_.run(index);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  // Written between rounds, when no helper looks.
  Task task_;
  bool is_over_ = false;
  std::atomic<unsigned> round_ = 0;
  std::atomic<int> left_ = 0;  // helpers that are not done with the round
  std::vector<std::thread> helpers_;
};

std::atomic<int> threads_set = 1;
std::mutex team_mutex;  // held by the operation that has the team
std::unique_ptr<Team> team;
thread_local bool is_in_part = false;

}  // namespace

int operation_threads() {
  return threads_set.load(std::memory_order_relaxed);
}

void set_operation_threads(int threads) {
  LH_CHECK(threads >= 1 && threads <= 1024, "an operation has 1 to 1024 threads");
  const std::lock_guard lock(team_mutex);
  team = nullptr;
  if (threads > 1) team = std::make_unique<Team>(threads);
  threads_set = threads;
}

void parallel_detail::run(ptrdiff_t count, ptrdiff_t grain, Part part, const void* body) {
  if (is_in_part) return part(body, 0, count);
  const std::unique_lock lock(team_mutex, std::try_to_lock);
  if (!lock || team == nullptr) return part(body, 0, count);
  const ptrdiff_t units = (count + grain - 1) / grain;
  struct Marked {
    Part part;
    const void* body;
  } marked = {part, body};
  team->run({.part =
                 [](const void* erased, ptrdiff_t begin, ptrdiff_t end) {
                   const auto& own = *static_cast<const Marked*>(erased);
                   is_in_part = true;
                   own.part(own.body, begin, end);
                   is_in_part = false;
                 },
             .body = &marked,
             .count = count,
             .grain = grain,
             .parts = std::min<ptrdiff_t>(units, operation_threads())});
}

}  // namespace longhaul
