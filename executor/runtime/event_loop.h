// The Clock door: what the executor's state machines run on. One loop a process, one thread a loop;
// everything that a worker, an agent or the coordinator does happens in a task of its loop, so
// their state needs no locks.
//
// Two sides: AsioEventLoop (executor/transport/asio_transport.h) runs in wall time, SimEventLoop in
// virtual time, where a whole job runs in one thread and the same way every time.
#pragma once

#include <cstdint>
#include <functional>

#include "core/units.h"

namespace longhaul {

using Task = std::move_only_function<void()>;
using TimerId = std::uint64_t;
inline constexpr TimerId kNoTimer = 0;

class EventLoop {
 public:
  virtual ~EventLoop() = default;

  /// Monotonic time since the loop was made. Only for deadlines and measurements, never for
  /// anything that training depends on.
  virtual Seconds now() const = 0;
  /// Runs `task` after the tasks already posted. The only function that other threads may call.
  virtual void post(Task task) = 0;
  /// Runs `task` once `delay` (>= 0) has passed, unless it is cancelled before.
  virtual TimerId after(Seconds delay, Task task) = 0;
  /// No effect on a timer that has run or was cancelled, nor on kNoTimer.
  virtual void cancel(TimerId timer) = 0;
};

}  // namespace longhaul
