// The Transport door: connections that carry frames between processes.
//
// A Transport listens on one address and dials others; a Connection is an ordered stream of frames
// in both directions, with either side allowed to have dialled. Two sides: AsioTransport over TCP
// or TLS, and SimTransport in virtual time. Everything happens on the process's event loop:
// handlers are called from its tasks, and all functions here must be called from them.
//
// Memory is never driven by the wire: a payload is read into the buffer that the receiver's handler
// names for exactly that header, and a header that no buffer was named for closes the connection.
// Deadlines, heartbeats and retries are the caller's (executor/control), except that a connection
// whose peer has closed or reset it reports so once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/result.h"
#include "executor/runtime/event_loop.h"
#include "executor/transport/frame.h"

namespace longhaul {

class Connection;

/// What a connection tells its owner. Handlers may send on and close any connection.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  /// Where the payload of this frame goes: a buffer of exactly header.payload_bytes that stays
  /// valid until `received` or `closed`, or nothing to refuse it, which closes the connection. Not
  /// called for frames without a payload.
  virtual std::optional<std::span<std::byte>> buffer_for(Connection& connection,
                                                         const FrameHeader& header) = 0;
  /// A whole frame, its checksums verified. `payload` is the buffer named above.
  virtual void received(Connection& connection, const FrameHeader& header,
                        std::span<const std::byte> payload) = 0;
  /// The last call for this connection; `why` says what ended it. Not called after close().
  virtual void closed(Connection& connection, const Error& why) = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;
  /// Must be set once, before the task that got the connection ends. Must outlive the connection or
  /// be replaced before.
  virtual void set_handler(ConnectionHandler* handler) = 0;
  /// Queues a frame; frames leave in the order of the calls. Fills in payload length and checksum.
  /// `payload` must stay valid until `sent` is called, which happens when the last byte has been
  /// handed to the network; it is not called when the connection ends before.
  virtual void send(FrameHeader header, std::span<const std::byte> payload, Task sent) = 0;
  /// Sends no faster from now on, where the network can be told so. Finite, above 0.
  virtual void limit_rate(BytesPerSecond /*rate*/) {}
  /// Bytes queued and not yet handed to the network.
  virtual std::size_t queued_bytes() const = 0;
  /// Ends the connection at once; no handler is called any more.
  virtual void close() = 0;
  /// The other end, for messages: `10.0.0.2:7000`.
  virtual std::string peer() const = 0;
  /// This end, as `peer` reads at the other one when nobody translates addresses between them.
  virtual std::string local() const { return ""; }
  /// The name in the other end's certificate, which the job's authority has issued to it; empty
  /// where it has shown none (plain TCP, or a caller who is still to join, and may do nothing
  /// else).
  virtual std::string identity() const { return ""; }
};

using OnConnection = std::function<void(std::unique_ptr<Connection>)>;
using OnDialled = std::move_only_function<void(Result<std::unique_ptr<Connection>>)>;

class Transport {
 public:
  virtual ~Transport() = default;
  /// Accepts connections on `address` (`host:port`; port 0 takes a free one) until destroyed.
  /// Answers the address with the real port.
  virtual Result<std::string> listen(const std::string& address, OnConnection on_connection) = 0;
  /// Tries once, for at most `deadline`.
  virtual void dial(const std::string& address, Seconds deadline, OnDialled on_dialled) = 0;
};

}  // namespace longhaul
