// Inside a TransportMesh: its streams, the links that they make, and the core that holds all of
// them together. For mesh_link.cc and transport_mesh.cc only. One loop's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/topology.h"
#include "executor/transport/incoming_message.h"
#include "executor/transport/send_window.h"
#include "executor/transport/transport_mesh.h"

namespace longhaul {

/// What a frame that waits counts for, so that empty ones are not free either.
inline std::size_t frame_cost(std::size_t payload) {
  return kFrameHeaderBytes + payload;
}

/// A message that is sent in pieces.
struct OutgoingMessage {
  MessageName name{};
  std::span<const std::byte> payload;
  Task sent;
  std::size_t piece = 0;  // bytes of its pieces
  std::size_t ready = 0;  // bytes that are final
  std::size_t given = 0;  // bytes that streams have or had
  bool is_given = false;  // all of it
  int pieces_in_flight = 0;

  /// Of the piece that can leave now; none while it is being made.
  std::optional<std::size_t> next_piece() const {
    const std::size_t size = std::min(piece, payload.size() - given);
    return given + size <= ready ? std::optional(size) : std::nullopt;
  }
};

/// Where the payload of the frame goes that is being read.
enum class PieceReading { kNothing, kDirect, kEarly, kText, kIgnored };

class MeshLink;

/// One connection of a link: what is being read from it, and how much waits to leave on it.
class MeshStream : public ConnectionHandler {
 public:
  MeshStream(MeshLink& owner, std::unique_ptr<Connection> of_stream, int number)
      : link(owner), connection(std::move(of_stream)), index(number) {
    connection->set_handler(this);
  }

  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override;
  void received(Connection&, const FrameHeader& header,
                std::span<const std::byte> payload) override;
  void closed(Connection&, const Error& why) override;

  void send(FrameHeader header, std::span<const std::byte> payload, Task sent);
  bool has_room(std::size_t payload) const;
  /// Bytes that wait to leave.
  std::size_t load() const { return in_flight_bytes_; }
  /// Whether it writes to the buffer of that message.
  bool reads(const MessageName& name) const {
    return reading_ == PieceReading::kDirect && reading_name_ == name;
  }

  MeshLink& link;
  std::unique_ptr<Connection> connection;
  const int index;
  bool is_greeted = false;
  // Of a message forgotten while it is read here: keeps what owns its buffer alive. Owners: the
  // streams that read it.
  std::shared_ptr<Task> forgotten;

 private:
  std::string check(const FrameHeader& header) const;
  bool begin(const FrameHeader& header);

  int frames_in_flight_ = 0;
  std::size_t in_flight_bytes_ = 0;

  // The frame being read, between its header and its last byte.
  PieceReading reading_ = PieceReading::kNothing;
  MessageName reading_name_{};
  std::vector<std::byte> piece_;
};

/// The streams to one rank, and the messages that are on their way over them.
class MeshLink {
 public:
  MeshLink(TransportMesh::Core& owner, int rank, int stream_count);

  MeshStream& add(int index, std::unique_ptr<Connection> connection);
  bool is_established() const { return greeted == streams.size(); }

  void pump();
  /// Of a growing message nothing is ready.
  void send(const MessageName& name, std::span<const std::byte> payload, Task sent,
            bool is_growing);
  void grow(const MessageName& name, std::size_t ready);
  /// Of the two callbacks one.
  void receive(const MessageName& name, std::span<std::byte> buffer, Task task,
               std::shared_ptr<GrowingReceive> growing);
  /// The peer has asked for a message.
  void credited(const FrameHeader& header);
  void set_term(std::uint32_t term);
  void forget_all();

  // For its streams. Empty: the piece can be taken.
  std::string check_piece(const FrameHeader& header) const;
  std::string check_room(std::size_t payload) const;
  /// Takes the place of a piece, until take_data; answers kDirect or kEarly.
  PieceReading claim(const FrameHeader& header);
  std::span<std::byte> place_of(const FrameHeader& header);
  void take_data(const FrameHeader& header, PieceReading how, std::vector<std::byte>& piece);

  TransportMesh::Core& core;
  const int peer;
  std::vector<std::unique_ptr<MeshStream>> streams;  // null until connected
  std::size_t greeted = 0;                           // streams
  bool is_over = false;                              // lost: whatever else it says is ignored

  // Owners: the queue and the frames in flight, which borrow the message's payload.
  std::deque<std::shared_ptr<OutgoingMessage>> outgoing;
  std::deque<std::string> controls;
  std::deque<MessageName> credits;  // to be told
  std::size_t early_bytes = 0;      // with those still being read

 private:
  std::size_t piece_bytes(std::size_t message) const;
  MeshStream* stream_for(std::size_t payload);
  void send_piece(MeshStream& stream, std::size_t at, std::size_t size);
  void tell(IncomingMessage& message);
  void adopt_early(IncomingMessage& message);
  void complete(std::map<MessageName, IncomingMessage>::iterator message);
  std::string describe(const MessageName& name, const std::string& what) const;
  void release(const std::vector<MessageName>& names);

  std::map<MessageName, IncomingMessage> incoming_;
  SendWindow window_;
  std::map<MessageName, std::shared_ptr<OutgoingMessage>> waiting_;  // for the window
  std::size_t last_used_ = 0;                                        // stream
};

struct TransportMesh::Core : std::enable_shared_from_this<TransportMesh::Core> {
  Core(Transport& transport_of_mesh, EventLoop& loop_of_mesh)
      : transport(transport_of_mesh), loop(loop_of_mesh) {}

  void start(const std::shared_ptr<MeshListener>& door, Seconds deadline);
  void dial(int peer, int stream, Seconds backoff);
  void dialled(int peer, int stream, std::unique_ptr<Connection> connection);
  void hello(std::unique_ptr<Connection> connection, const FrameHeader& header);
  void hello_ack(MeshStream& stream, const FrameHeader& header);
  void lose(MeshLink& link, const std::string& why);
  void greeted(MeshStream& stream);
  void finish(std::optional<Error> error);
  void out_of_time(Seconds deadline);
  void shut();
  void flush();
  void post_flush() {
    loop.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->flush();
    });
  }
  /// Runs a completion, unless the mesh is gone by then; it may destroy the mesh.
  void post_for_user(Task task) {
    loop.post([weak = weak_from_this(), completion = std::move(task)]() mutable {
      const auto self = weak.lock();
      if (self && !self->is_shut && completion) completion();
    });
  }
  MeshLink& link(int peer);
  int ranks() const { return static_cast<int>(addresses.size()); }
  FrameHeader header(FrameType type) const {
    FrameHeader header;
    header.type = type;
    header.job = job;
    header.term = term;
    header.sender = static_cast<std::uint32_t>(rank);
    return header;
  }
  FrameHeader greeting(FrameType type, int peer) const {
    FrameHeader greeting = header(type);
    greeting.operation = addresses.size();
    greeting.segment = static_cast<std::uint32_t>(peer);
    greeting.offset = static_cast<std::uint64_t>(streams_with(peer) - 1);
    return greeting;
  }
  int streams_with(int peer) const {
    return streams.empty() ? 1 : streams[static_cast<std::size_t>(peer)];
  }
  BytesPerSecond rate_to(int peer) const {
    return rates.empty() ? BytesPerSecond::infinity() : rates[static_cast<std::size_t>(peer)];
  }
  MeshLink& link_to_be(int peer) {
    auto& place = peers[static_cast<std::size_t>(peer)];
    if (!place) place = std::make_unique<MeshLink>(*this, peer, streams_with(peer));
    return *place;
  }
  std::string check_greeting(const FrameHeader& header, const char* who) const;
  std::string check_streams(const FrameHeader& header, int peer, const char* who) const;
  std::string check_caller(const Connection& connection, const FrameHeader& header) const;
  std::string check_identity(const Connection& connection, int peer) const;

  Transport& transport;
  EventLoop& loop;
  std::vector<std::string> addresses;
  std::vector<std::string> identities;
  std::vector<int> streams;
  std::vector<BytesPerSecond> rates;
  int rank = 0;
  std::uint64_t job = 0;
  std::uint32_t term = 0;
  MeshLimits limits;
  OnMesh on_ready;  // null once it was called
  // Its handler of greetings owns a core that is still being made, and only that.
  std::weak_ptr<MeshListener> listener;
  TimerId timer = kNoTimer;
  Seconds give_up_at;
  bool is_shut = false;

  std::vector<std::unique_ptr<MeshLink>> peers;  // by rank; null until it is known
  std::uint64_t dropped_frames = 0;

  std::function<void(int, const std::string&)> on_control;
  std::function<void(int, const Error&)> on_lost;
  std::deque<std::pair<int, std::string>> controls;  // not yet told, as are these:
  std::deque<std::pair<int, Error>> losses;
};

}  // namespace longhaul
