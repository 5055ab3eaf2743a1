// Messages between the ranks of a job, by name. What collectives, pipelines and control speak; a
// Mesh hides connections, frames and chunks.
//
// A message is named by (term, operation, segment, sender): see encode_operation in frame.h. It is
// sent once and received once; the receiver posts a buffer of exactly its size, or for a growing
// receive of at least its size, before or after it arrives. What arrives before its receive is
// posted waits in a store of bounded size (see MeshLimits); a sender that runs ahead waits before
// it is full (send_window.h), and overflow is an error of the peer's connection. Order between
// messages is not promised.
//
// A growing message is sent while it is made: its size is known from the start, its bytes become
// final from the front, and what is final leaves while later ones are made; meanwhile other
// messages pass it. A growing receive learns the size from the message and is told as the arrived
// prefix grows, so that its owner can use it while the rest travels. The two go together or with
// plain ones: on the wire they are the same.
//
// Everything happens in tasks of the process's event loop; completions are posted, never called
// from inside send or receive.
//
// A buffer is in use until its completion is called or destroyed. A message that is forgotten (its
// term is over, its peer lost) has its completion destroyed as soon as no byte of the buffer will
// be read or written any more: a completion that owns the buffer keeps it exactly long enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/result.h"
#include "executor/runtime/event_loop.h"

namespace longhaul {

struct MeshLimits {
  std::size_t early_bytes = std::size_t{64} << 20;  // of one peer, not yet asked for, with headers
  std::size_t chunk_bytes = std::size_t{1} << 20;   // of one frame's payload
  /// Of a growing message's frames, so that making, sending and using it overlap.
  std::size_t growing_chunk_bytes = std::size_t{256} << 10;
};

class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// Sends `payload`, which must stay valid as said above. To oneself is not allowed.
  virtual void send(int peer, std::uint64_t operation, std::uint32_t segment,
                    std::span<const std::byte> payload, Task sent) = 0;
  /// Receives into `buffer`, which must stay valid as said above; a message of another size is an
  /// error of the peer's connection. A name is posted once.
  virtual void receive(int peer, std::uint64_t operation, std::uint32_t segment,
                       std::span<std::byte> buffer, Task received) = 0;

  /// How much of a growing receive is there, from the front; `is_last`: all of it. Each call but
  /// the last tells of more than the one before.
  using Arrived = std::move_only_function<void(std::size_t bytes, bool is_last)>;
  /// As send, of a message of which nothing is final yet: grow() tells. The payload's other bytes
  /// may be written until then.
  virtual void send_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                            std::span<const std::byte> payload, Task sent) = 0;
  /// The first `ready` bytes of a growing message are final: no fewer than before. No effect on a
  /// message that is forgotten.
  virtual void grow(int peer, std::uint64_t operation, std::uint32_t segment,
                    std::size_t ready) = 0;
  /// As receive, of a message of at most the buffer's size. `arrived` is called again and again,
  /// and owns the buffer like a completion; the mesh does not write to the prefix that it has told.
  virtual void receive_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                               std::span<std::byte> buffer, Arrived arrived) = 0;

  /// A short text (at most kMaxControlPayload bytes) to a peer, in order with other control
  /// messages between the two.
  virtual void send_control(int peer, const std::string& text) = 0;
  /// Called for each control message, and once for each peer that is lost (its messages will never
  /// complete); `why` says how, without its name. Must be set before the first task that could
  /// deliver one ends.
  virtual void on_control(std::function<void(int peer, const std::string& text)> handler) = 0;
  virtual void on_lost(std::function<void(int peer, const Error& why)> handler) = 0;

  /// Messages of older terms are dropped and counted; posted receives and what has not left of sent
  /// messages of older terms are forgotten. Messages of newer terms wait as early ones.
  virtual void set_term(std::uint32_t term) = 0;
};

}  // namespace longhaul
