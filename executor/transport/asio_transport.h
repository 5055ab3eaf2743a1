// The real side of the Clock and Transport doors: Boost.Asio on one thread, plain TCP.
//
// run() drives everything; all functions but EventLoop::post belong to the thread that calls it.
// Sockets have TCP_NODELAY set and keep the kernel's own buffer sizes (setting them would switch
// auto-tuning off). Header and payload leave in one gather write and arrive straight in the buffer
// that the handler names.
#pragma once

#include <memory>

#include "executor/runtime/event_loop.h"
#include "executor/transport/transport.h"

namespace longhaul {

class AsioRuntime {
 public:
  AsioRuntime();
  ~AsioRuntime();
  AsioRuntime(const AsioRuntime&) = delete;
  AsioRuntime& operator=(const AsioRuntime&) = delete;

  EventLoop& loop();
  /// Transports must be destroyed before the runtime.
  std::unique_ptr<Transport> make_transport();

  /// Runs tasks until stop(), or until no task, timer or connection is left.
  void run();
  /// Ends run() after the task at hand; any thread.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
