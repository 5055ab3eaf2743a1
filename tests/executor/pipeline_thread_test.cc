// The same steps with tensor work on real threads.

#include <condition_variable>
#include <deque>
#include <latch>
#include <mutex>

#include "executor/pipeline/pipeline_step.h"
#include "kernels/cpu/cpu_compute_queue.h"
#include "tests/executor/piece_boundary.h"
#include "tests/executor/pipeline_fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Runs tasks in the order posted; a delay is over at once. Its time is the number of tasks run.
class ThreadLoop final : public EventLoop {
 public:
  Seconds now() const override { return seconds(static_cast<double>(ran_)); }
  void post(Task task) override {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  TimerId after(Seconds, Task task) override {
    post(std::move(task));
    return kNoTimer;
  }
  void cancel(TimerId) override {}

  void run_until(const std::function<bool()>& done) {
    while (!done()) run_one();
  }
  /// Runs what has been posted so far.
  void run_posted() {
    bool is_over = false;
    post([&is_over] { is_over = true; });
    run_until([&] { return is_over; });
  }

 private:
  void run_one() {
    Task task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    ++ran_;
    task();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;  // under mutex_
  std::int64_t ran_ = 0;    // the loop's thread only
};

Pipeline::MakeQueue cpu_queues(ThreadLoop& loop) {
  return [&loop](const TaskletSchedule&) {
    return make_cpu_compute_queue(
        [&loop](std::move_only_function<void()> task) { loop.post(std::move(task)); });
  };
}

TEST(PipelineThreads, real_compute_threads_have_the_bits_of_one_stage) {
  const Pipeline::MakeFormat in_pieces = [](int) {
    return std::make_unique<PieceBoundary>(kSequences);
  };
  for (const auto& [recompute, format] : {std::pair<bool, Pipeline::MakeFormat>{false, nullptr},
                                          {true, nullptr},
                                          {true, in_pieces}}) {
    const PipelineOptions options = {{1, 2, 1}, 5, {3, 2, 1}, true, recompute, 0};
    ThreadLoop loop;
    Pipeline pipeline(loop, options, cpu_queues(loop), format);
    for (std::uint32_t s = 0; s < 3; ++s) {
      pipeline.start(s);
      loop.run_until([&] { return pipeline.all_done(); });
      pipeline.collect();
      pipeline.expect_times_keep_the_schedule();
    }
    pipeline.collect_weights();
    expect_same(pipeline.outcome, run_single(options, 3));
  }
}

// The device is held up by other work, so that the step's first forward, which would zero the
// gradients, waits in the queue when the step is aborted.
TEST(PipelineThreads, work_in_the_queue_of_an_aborted_step_leaves_the_stage_alone) {
  ThreadLoop loop;
  Pipeline pipeline(loop, {{1, 1}, 2, {2, 1}, false, false, 0}, cpu_queues(loop));
  auto& cell = *pipeline.cells[0];
  std::ranges::fill(cell.stage.gradients(), 3.0f);
  std::latch is_running(1), may_end(1);
  cell.queue->submit(cell.context.stream, {.tag = 0, .run = [&]() -> Result<void> {
                                             is_running.count_down();
                                             may_end.wait();
                                             return {};
                                           }});
  is_running.wait();
  pipeline.start(0);
  loop.run_posted();

  int released = 0;
  pipeline.abort(released);
  loop.run_posted();
  EXPECT_EQ(released, 1) << "stage 1 has no work; stage 0 has";
  may_end.count_down();
  loop.run_until([&] { return released == 2; });
  EXPECT_TRUE(std::ranges::all_of(cell.stage.gradients(), [](float g) { return g == 3; }));
}

// Destroyed while the device is busy with it; its memory goes with the last piece of work.
TEST(PipelineThreads, a_step_may_be_destroyed_while_its_work_runs) {
  for (int tasks = 0; tasks < 40; ++tasks) {
    ThreadLoop loop;
    Pipeline pipeline(loop, {{1, 1}, 3, {2, 1}, false, false, 0}, cpu_queues(loop),
                      [](int) { return std::make_unique<PieceBoundary>(kSequences); });
    pipeline.start(0);
    int ran = 0;
    loop.run_until([&] { return pipeline.all_done() || ran++ == tasks; });
    for (auto& cell : pipeline.cells) cell->step.reset();
  }
}

}  // namespace
}  // namespace longhaul
