// The real side of the Clock and Transport doors: Boost.Asio on one thread, TCP or TLS 1.3 over it.
//
// run() drives everything; all functions but EventLoop::post belong to the thread that calls it.
// Sockets have TCP_NODELAY set and keep the kernel's own buffer sizes (setting them would switch
// auto-tuning off); off loopback they use BBR where the kernel has it, and keep little unsent.
// Header and payload leave in one gather write and arrive straight in the buffer that the handler
// names.
//
// Over TLS a stream of frames is the same, with one byte (1) before it: the listener sends it after
// the handshake, when it has let the dialler in. A dial answers only then, so its error says which
// end refused which certificate, and why.
#pragma once

#include <memory>

#include "executor/runtime/event_loop.h"
#include "executor/security/tls_context.h"
#include "executor/transport/transport.h"

namespace boost::asio {
class io_context;
}

namespace longhaul {

class AsioRuntime {
 public:
  AsioRuntime();
  ~AsioRuntime();
  AsioRuntime(const AsioRuntime&) = delete;
  AsioRuntime& operator=(const AsioRuntime&) = delete;

  EventLoop& loop();
  /// For other servers on the same thread.
  boost::asio::io_context& context();
  /// Plain TCP. Transports must be destroyed before the runtime.
  std::unique_ptr<Transport> make_transport();
  /// TLS. With a TlsIdentity it shows its certificate wherever it listens or dials, and an
  /// accepted caller may still have shown none: Connection::identity() is empty then, and its owner
  /// must let it do nothing but join. A TlsJoiner can only dial. Errors: see TlsContext::create.
  Result<std::unique_ptr<Transport>> make_transport(TlsOptions options);

  /// Runs tasks until stop(), or until no task, timer or connection is left.
  void run();
  /// Ends run() after the task at hand; any thread.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
