// An agent's connection with the coordinator, at either end: texts in order, and heartbeats.
//
// A PING frame without payload leaves every heartbeat interval. A peer of which nothing has come
// for as many intervals as may be missed is given up, once it is watched: a long first text may
// take longer than that.
//
// Belongs to the thread of the event loop. It may be destroyed in its own hooks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/control/limits.h"
#include "executor/launch/launch_messages.h"
#include "executor/transport/transport.h"

namespace longhaul {

struct ControlLinkHooks {
  std::function<void(LaunchMessage message)> received;
  /// The last call: the connection has ended, the peer has fallen silent, refused us (`it says:
  /// ...`) or sent what cannot be read.
  std::function<void(const Error& why)> closed;
};

class ControlLink : public ConnectionHandler {
 public:
  ControlLink(EventLoop& loop, std::unique_ptr<Connection> connection, std::uint64_t job,
              const ControlLimits& limits, ControlLinkHooks hooks);
  /// Ends the connection; no hook is called any more.
  ~ControlLink() override;

  void send(const LaunchMessage& message);
  void watch();
  /// The hosts and ports of both ends.
  std::string peer() const { return connection_->peer(); }
  std::string local() const { return connection_->local(); }

 private:
  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override;
  void received(Connection&, const FrameHeader& header, std::span<const std::byte>) override;
  void closed(Connection&, const Error& why) override { end(why); }
  void end(const Error& why);
  void beat();

  EventLoop& loop_;
  std::unique_ptr<Connection> connection_;
  std::uint64_t job_;
  ControlLimits limits_;
  ControlLinkHooks hooks_;
  std::string text_;  // being read
  TimerId timer_ = kNoTimer;
  int silent_beats_ = 0;
  bool is_watched_ = false;
};

}  // namespace longhaul
