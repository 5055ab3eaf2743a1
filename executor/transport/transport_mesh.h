// A Mesh on a Transport: a link between every two ranks of a job, of one or more warm streams. A
// stream is a connection: one TCP connection carries at most a window a round trip, so that a long
// fast path takes several (see tcp_streams in core/topology.h).
//
// Every rank listens (mesh_listener.h) and, once it knows all addresses, dials all lower ranks:
// stream 0, and when that is answered the others. The dialler opens each with HELLO, the listener
// answers HELLO_ACK, or ERROR with a sentence and the end of the connection. Both frames have no
// payload; of their header (frame.h) they use
//
//   job, term     those of the mesh           operation   number of ranks
//   sender        the rank that sends         segment     the rank that is meant
//   stream        this one, from 0            offset      the last one: number of streams - 1
//
// and all seven are checked, so that a rank of another job, a wrong address list, a second process
// of one rank and another idea of the streams are refused by name. Where it is known whose
// certificate each rank shows, both sides refuse another, on each stream. A refused dialler fails
// at once; a listener that refused somebody goes on waiting for the right one until its deadline.
//
// Data frames carry pieces of messages: term, operation and segment name the message, `offset` is
// the piece's place in it, and flag 2 marks the piece that ends it, so that a message has no length
// limit and its receiver allocates nothing on the word of a header. Pieces are cut so that every
// stream has one of a long message, each takes the stream that is least busy, and they may come in
// any order. They are read straight into the posted buffer; before it is posted, into pieces of
// their own, at most MeshLimits::early_bytes of one peer. Few frames are with a stream at any time:
// enough to keep it busy, few enough that a control message soon has its turn. Messages leave in
// the order of the calls, but for growing ones that have nothing ready: the next in line passes.
// Pieces of growing messages are shorter, and leave when they are whole or the message's last.
// Control messages travel on stream 0, which data takes last, and before the data that waits. The
// header's `stream` is that of the connection in every frame.
//
// A CREDIT frame (term, operation, segment) asks for a message: its receive has been posted.
//
// Control messages have no term: they are what terms are agreed with. A peer of whose streams one
// ends is lost with all of them, and stays lost.
//
// Belongs to the thread of the event loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/transport/mesh.h"
#include "executor/transport/mesh_listener.h"
#include "executor/transport/transport.h"

namespace longhaul {

class TransportMesh : public Mesh {
 public:
  /// Closes every connection; nothing is called any more, and buffers are free at once.
  ~TransportMesh() override;
  TransportMesh(const TransportMesh&) = delete;
  TransportMesh& operator=(const TransportMesh&) = delete;

  int rank() const override;
  int ranks() const override;
  void send(int peer, std::uint64_t operation, std::uint32_t segment,
            std::span<const std::byte> payload, Task sent) override;
  void receive(int peer, std::uint64_t operation, std::uint32_t segment,
               std::span<std::byte> buffer, Task received) override;
  void send_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                    std::span<const std::byte> payload, Task sent) override;
  void grow(int peer, std::uint64_t operation, std::uint32_t segment, std::size_t ready) override;
  void receive_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                       std::span<std::byte> buffer, Arrived arrived) override;
  void send_control(int peer, const std::string& text) override;
  void on_control(std::function<void(int peer, const std::string& text)> handler) override;
  void on_lost(std::function<void(int peer, const Error& why)> handler) override;
  void set_term(std::uint32_t term) override;

  /// Data frames of older terms that came and were dropped.
  std::uint64_t dropped_frames() const;

  struct Core;
  explicit TransportMesh(std::shared_ptr<Core> core);  // for connect_mesh

 private:
  // Owners: this, and before it is handed over what makes it. Everything else (frames sent, timers,
  // a stranger who calls) holds it weakly.
  std::shared_ptr<Core> core_;
};

using OnMesh = std::move_only_function<void(Result<std::unique_ptr<TransportMesh>>)>;

struct MeshConfig {
  std::vector<std::string> addresses;  // where each rank listens
  /// Whose certificate each rank shows (Connection::identity); empty: not checked.
  std::vector<std::string> identities;
  int rank = 0;
  std::uint64_t job = 0;
  std::uint32_t term = 0;
  MeshLimits limits;
  Seconds deadline{60};
  /// Streams of the link to each rank, 1 to kMaxStreams, the same at both ends; empty: 1 each.
  std::vector<int> streams{};
  /// What the path to each rank carries, so that the streams of its link together send at no more
  /// than kPaceHeadroom times as much; infinite, or all empty: they are not limited. TCP finds a
  /// path's rate itself, but BBR does not leave its start-up, where it sends at 2.9 times what the
  /// path carries, while messages are short and far between.
  std::vector<BytesPerSecond> rates{};
};
/// A path may be that much faster than it was measured.
inline constexpr double kPaceHeadroom = 1.25;

/// Joins the ranks that listen at the addresses; this one listens at `listener`, whose handler of
/// greetings it takes. Calls `on_ready` once, in a task of its own: with the mesh when every rank
/// is connected, or with what is missing after the deadline, or at once when this rank is refused
/// or a connected peer leaves. Peers may send as soon as they are complete: what they send before
/// this rank is waits for its receives and handlers. The transport and the loop must outlive the
/// mesh; a mesh still in the making is abandoned, and `on_ready` not called, when the listener is
/// closed or the transport destroyed.
void connect_mesh(Transport& transport, EventLoop& loop,
                  const std::shared_ptr<MeshListener>& listener, MeshConfig config,
                  OnMesh on_ready);

/// The same where this rank's address is known before it listens there.
void connect_mesh(Transport& transport, EventLoop& loop, MeshConfig config, OnMesh on_ready);

}  // namespace longhaul
