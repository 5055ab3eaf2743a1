#include "executor/runtime/sim_event_loop.h"

#include "core/result.h"

namespace longhaul {

TimerId SimEventLoop::after(Seconds delay, Task task) {
  LH_CHECK(delay >= Seconds(0), "nothing happens in the past");
  if (jitter_ > 0) delay = delay * (1 + jitter_ * rng_.uniform());
  const TimerId id = next_id_++;
  pending_.insert(id);
  queue_.push(now_ + SimTime::from(delay), {id, std::move(task)});
  return id;
}

bool SimEventLoop::step() {
  while (!queue_.empty()) {
    const SimTime time = queue_.next_time();
    Entry entry = queue_.pop();
    if (pending_.erase(entry.id) == 0) continue;  // cancelled
    now_ = time;
    entry.task();
    return true;
  }
  return false;
}

bool SimEventLoop::run_until_idle(Seconds deadline) {
  const SimTime end = SimTime::from(deadline);
  while (queue_.next_time() <= end) {
    if (!step()) return true;
  }
  return queue_.empty();
}

}  // namespace longhaul
