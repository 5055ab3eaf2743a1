// Virtual time for tests: tasks run in the order of their time, those of one instant in the order
// in which they were posted, or in an order drawn by a seed, to find code that relies on an order
// which the real world does not promise. Belongs to one thread.
#pragma once

#include <set>

#include "core/event_queue.h"
#include "core/rng.h"
#include "executor/runtime/event_loop.h"

namespace longhaul {

class SimEventLoop : public EventLoop {
 public:
  SimEventLoop() : rng_("sim event loop", 0) {}
  /// Timers are stretched by up to `jitter` of their delay, as drawn by the seed.
  SimEventLoop(std::uint64_t seed, double jitter) : rng_("sim event loop", seed), jitter_(jitter) {}

  Seconds now() const override { return now_.seconds(); }
  void post(Task task) override { after(Seconds(0), std::move(task)); }
  TimerId after(Seconds delay, Task task) override;
  void cancel(TimerId timer) override { pending_.erase(timer); }

  /// Runs the next task; false when there is none.
  bool step();
  /// Runs tasks until none is left or `deadline` has passed; true when none is left.
  bool run_until_idle(Seconds deadline);

 private:
  struct Entry {
    TimerId id;
    Task task;
  };
  EventQueue<Entry> queue_;
  std::set<TimerId> pending_;
  SimTime now_;
  TimerId next_id_ = 1;
  Rng rng_;
  double jitter_ = 0;
};

}  // namespace longhaul
