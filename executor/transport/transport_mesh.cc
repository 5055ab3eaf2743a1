#include "executor/transport/transport_mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/topology.h"
#include "executor/transport/incoming_message.h"
#include "executor/transport/send_window.h"

namespace longhaul {
namespace {

constexpr std::uint16_t kFlagLastPiece = 2;
// Frames that are with a stream at a time: two of any size, or more small ones that are together no
// longer than two of the longest. So a process that is not run for a moment leaves its streams
// something to send, and what a control message waits for, and the memory that frames hold on to,
// stay within two chunks.
constexpr int kFramesInFlight = 2;
constexpr int kSmallFramesInFlight = 4;
// Pieces of a message: not so short that headers and wake-ups count, and of whole KiB.
constexpr std::size_t kPieceMin = std::size_t{64} << 10;
constexpr std::size_t kPieceGrain = std::size_t{1} << 10;
constexpr std::size_t kRefusalMax = 1024;  // bytes of a refusal's text that are taken
constexpr Seconds kRedialMin{0.05};
constexpr Seconds kRedialMax{1.0};

MessageName name_of(const FrameHeader& header) {
  return {header.term, header.operation, header.segment};
}

/// What a frame that waits counts for, so that empty ones are not free either.
std::size_t cost(std::size_t payload) {
  return kFrameHeaderBytes + payload;
}

struct Outgoing {
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

}  // namespace

/// Where the payload of the frame goes that is being read.
enum class Reading { kNothing, kDirect, kEarly, kText, kIgnored };

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
    return reading_ == Reading::kDirect && reading_name_ == name;
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
  Reading reading_ = Reading::kNothing;
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
  Reading claim(const FrameHeader& header);
  std::span<std::byte> place_of(const FrameHeader& header);
  void take_data(const FrameHeader& header, Reading how, std::vector<std::byte>& piece);

  TransportMesh::Core& core;
  const int peer;
  std::vector<std::unique_ptr<MeshStream>> streams;  // null until connected
  std::size_t greeted = 0;                           // streams
  bool is_over = false;                              // lost: whatever else it says is ignored

  // Owners: the queue and the frames in flight, which borrow the message's payload.
  std::deque<std::shared_ptr<Outgoing>> outgoing;
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
  std::map<MessageName, std::shared_ptr<Outgoing>> waiting_;  // for the window
  std::size_t last_used_ = 0;                                 // stream
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

// ---- Frames of one stream.

/// Why the frame cannot come now; empty when it can.
std::string MeshStream::check(const FrameHeader& header) const {
  const TransportMesh::Core& core = link.core;
  if (header.type == FrameType::kError) {
    return header.payload_bytes <= kRefusalMax ? "" : "the peer's error is too long to read";
  }
  if (!is_greeted) {
    const bool is_answer = header.type == FrameType::kHelloAck && header.payload_bytes == 0;
    return is_answer ? "" : "a frame came before the greeting's answer";
  }
  if (header.job != core.job || header.sender != static_cast<std::uint32_t>(link.peer)) {
    return fmt::format("a frame of rank {} of job {:#x} came from rank {}", header.sender,
                       header.job, link.peer);
  }
  if (header.stream != index) {
    return fmt::format("a frame of stream {} of rank {} came on stream {}", header.stream,
                       link.peer, index);
  }
  switch (header.type) {
    case FrameType::kData:
      return header.term < core.term ? "" : link.check_piece(header);
    case FrameType::kControl:
      if (index == 0) return link.check_room(header.payload_bytes);
      return fmt::format("rank {} sent a control message on stream {}", link.peer, index);
    case FrameType::kHello:
    case FrameType::kHelloAck:
      return fmt::format("rank {} greeted twice", link.peer);
    default:
      if ((header.flags & kFlagCritical) != 0) {
        return fmt::format("rank {} sent a frame of type {}, which this version does not know",
                           link.peer, static_cast<int>(header.type));
      }
      return "";
  }
}

/// Checks a frame and takes room for it. False: the peer is lost for it.
bool MeshStream::begin(const FrameHeader& header) {
  if (const std::string fault = check(header); !fault.empty()) {
    link.core.lose(link, fault);
    return false;
  }
  if (header.type == FrameType::kData && header.term >= link.core.term) {
    reading_ = link.claim(header);
    reading_name_ = name_of(header);
  } else if (header.type == FrameType::kControl || header.type == FrameType::kError) {
    reading_ = Reading::kText;
    if (header.type == FrameType::kControl) link.early_bytes += cost(header.payload_bytes);
  } else {
    reading_ = Reading::kIgnored;
  }
  if (reading_ != Reading::kDirect) piece_.resize(header.payload_bytes);
  return true;
}

std::optional<std::span<std::byte>> MeshStream::buffer_for(Connection&, const FrameHeader& header) {
  if (link.is_over || !begin(header)) return std::nullopt;
  return reading_ == Reading::kDirect ? link.place_of(header) : std::span(piece_);
}

void MeshStream::received(Connection&, const FrameHeader& header,
                          std::span<const std::byte> payload) {
  // No buffer was asked for where there is no payload.
  if (link.is_over || (header.payload_bytes == 0 && !begin(header))) return;
  const Reading how = std::exchange(reading_, Reading::kNothing);
  const std::shared_ptr<Task> kept = std::exchange(forgotten, nullptr);
  TransportMesh::Core& core = link.core;
  std::string text;
  if (how == Reading::kText) {
    text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  }
  switch (header.type) {
    case FrameType::kHelloAck:
      return core.hello_ack(*this, header);
    case FrameType::kError:
      return core.lose(link, fmt::format("it says: {}", text));
    case FrameType::kControl:
      core.controls.emplace_back(link.peer, text);
      return core.post_flush();
    case FrameType::kData:
      return link.take_data(header, how, piece_);
    case FrameType::kCredit:
      return link.credited(header);
    default:
      return;
  }
}

void MeshStream::closed(Connection&, const Error& why) {
  if (!link.is_over) link.core.lose(link, why.message);
}

bool MeshStream::has_room(std::size_t payload) const {
  if (frames_in_flight_ < kFramesInFlight) return true;
  return frames_in_flight_ < kSmallFramesInFlight &&
         in_flight_bytes_ + cost(payload) <= kFramesInFlight * cost(link.core.limits.chunk_bytes);
}

void MeshStream::send(FrameHeader header, std::span<const std::byte> payload, Task sent) {
  header.stream = static_cast<std::uint16_t>(index);
  const std::size_t bytes = cost(payload.size());
  ++frames_in_flight_;
  in_flight_bytes_ += bytes;
  connection->send(
      header, payload,
      [this, bytes, weak = link.core.weak_from_this(), task = std::move(sent)]() mutable {
        // A stream lives as long as its core.
        const auto self = weak.lock();
        if (!self || link.is_over) return;
        --frames_in_flight_;
        in_flight_bytes_ -= bytes;
        task();
        link.pump();
      });
}

// ---- Messages over the streams of a link.

/// Half of what the peer takes: frames' headers and control messages need room, too.
MeshLink::MeshLink(TransportMesh::Core& owner, int rank, int stream_count)
    : core(owner),
      peer(rank),
      streams(static_cast<std::size_t>(stream_count)),
      window_(owner.limits.early_bytes / 2) {}

MeshStream& MeshLink::add(int index, std::unique_ptr<Connection> connection) {
  const BytesPerSecond rate = core.rate_to(peer);
  if (rate.finite()) {
    connection->limit_rate(kPaceHeadroom * rate / static_cast<double>(streams.size()));
  }
  auto& place = streams[static_cast<std::size_t>(index)];
  place = std::make_unique<MeshStream>(*this, std::move(connection), index);
  return *place;
}

void MeshLink::send(const MessageName& name, std::span<const std::byte> payload, Task sent,
                    bool is_growing) {
  auto message = std::make_shared<Outgoing>(Outgoing{name, payload, std::move(sent)});
  message->piece = piece_bytes(payload.size());
  if (is_growing) message->piece = std::min(message->piece, core.limits.growing_chunk_bytes);
  if (!is_growing) message->ready = payload.size();
  if (window_.may_leave(name, cost(payload.size()))) {
    outgoing.push_back(std::move(message));
    return pump();
  }
  waiting_[name] = std::move(message);
}

void MeshLink::grow(const MessageName& name, std::size_t ready) {
  if (is_over) return;
  const auto in_line = std::ranges::find(outgoing, name, [](const auto& m) { return m->name; });
  const auto waits = waiting_.find(name);
  if (in_line == outgoing.end() && waits == waiting_.end()) return;
  Outgoing& message = in_line != outgoing.end() ? **in_line : *waits->second;
  LH_CHECK(ready >= message.ready && ready <= message.payload.size(),
           "a message grows, up to its size");
  message.ready = ready;
  pump();
}

void MeshLink::credited(const FrameHeader& header) {
  if (header.term < core.term) return;
  release(window_.credit(name_of(header)));
  if (window_.has_too_many_credits()) {
    core.lose(*this, fmt::format("rank {} asks for more messages than a step has", peer));
  }
}

void MeshLink::release(const std::vector<MessageName>& names) {
  for (const MessageName& name : names) {
    const auto message = waiting_.find(name);
    if (message == waiting_.end()) continue;
    outgoing.push_back(std::move(message->second));
    waiting_.erase(message);
  }
  if (!names.empty()) pump();
}

std::string MeshLink::describe(const MessageName& name, const std::string& what) const {
  return fmt::format("message {:#x}/{} of rank {} {}", name.operation, name.segment, peer, what);
}

std::string MeshLink::check_room(std::size_t payload) const {
  if (early_bytes + cost(payload) <= core.limits.early_bytes) return "";
  return fmt::format("rank {} sent more than the {} bytes that may wait to be asked for", peer,
                     core.limits.early_bytes);
}

std::string MeshLink::check_piece(const FrameHeader& header) const {
  const auto message = incoming_.find(name_of(header));
  const IncomingMessage none;
  const std::string misfit =
      (message == incoming_.end() ? none : message->second)
          .misfit(header.offset, header.payload_bytes, (header.flags & kFlagLastPiece) != 0);
  if (!misfit.empty()) return describe(name_of(header), misfit);
  const bool is_early = message == incoming_.end() || !message->second.is_posted;
  return is_early ? check_room(header.payload_bytes) : "";
}

Reading MeshLink::claim(const FrameHeader& header) {
  IncomingMessage& incoming = incoming_[name_of(header)];
  incoming.claim(header.offset, header.payload_bytes, (header.flags & kFlagLastPiece) != 0);
  if (incoming.is_posted) return Reading::kDirect;
  early_bytes += cost(header.payload_bytes);
  return Reading::kEarly;
}

std::span<std::byte> MeshLink::place_of(const FrameHeader& header) {
  return incoming_[name_of(header)].buffer.subspan(header.offset, header.payload_bytes);
}

void MeshLink::take_data(const FrameHeader& header, Reading how, std::vector<std::byte>& piece) {
  if (header.term < core.term) {
    if (how == Reading::kEarly) early_bytes -= cost(piece.size());
    ++core.dropped_frames;
    return;
  }
  const auto message = incoming_.find(name_of(header));
  LH_CHECK(message != incoming_.end(), "a message waits for the pieces that it has claimed");
  IncomingMessage& incoming = message->second;
  incoming.arrive(header.offset, header.payload_bytes);
  if (how == Reading::kEarly) {
    incoming.early.emplace(header.offset, std::exchange(piece, {}));
    if (incoming.is_posted) adopt_early(incoming);  // it was posted while this piece was read
  }
  if (incoming.is_complete()) return complete(message);
  tell(incoming);
}

void MeshLink::adopt_early(IncomingMessage& message) {
  for (const auto& [offset, bytes] : message.early) {
    std::copy(bytes.begin(), bytes.end(),
              message.buffer.begin() + static_cast<std::ptrdiff_t>(offset));
    early_bytes -= cost(bytes.size());
  }
  message.early.clear();
}

void MeshLink::receive(const MessageName& name, std::span<std::byte> buffer, Task task,
                       std::shared_ptr<GrowingReceive> growing) {
  if (is_over) return;
  const auto message = incoming_.try_emplace(name).first;
  IncomingMessage& incoming = message->second;
  LH_CHECK(!incoming.is_posted, "a message is received once");
  incoming.is_posted = true;
  incoming.buffer = buffer;
  incoming.received = std::move(task);
  incoming.growing = std::move(growing);
  if (incoming.claimed.end() > buffer.size() ||
      (incoming.size && !incoming.growing && *incoming.size != buffer.size())) {
    return core.lose(*this, describe(name, incoming.wrong_size()));
  }
  adopt_early(incoming);
  credits.push_back(name);
  if (incoming.is_complete()) {
    complete(message);
  } else {
    tell(incoming);
  }
  pump();
}

/// Tells a growing receive what is there by now.
void MeshLink::tell(IncomingMessage& message) {
  if (!message.growing) return;
  GrowingReceive& growing = *message.growing;
  const std::uint64_t prefix = message.there.prefix();
  const bool is_last = message.is_complete();
  if (prefix == growing.prefix && !is_last) return;
  growing.prefix = prefix;
  growing.is_last = is_last;
  if (growing.is_posted) return;
  growing.is_posted = true;
  core.post_for_user([told = message.growing] {
    told->is_posted = false;
    told->arrived(told->prefix, told->is_last);
  });
}

void MeshLink::complete(std::map<MessageName, IncomingMessage>::iterator message) {
  if (message->second.growing) {
    tell(message->second);
  } else {
    core.post_for_user(std::move(message->second.received));
  }
  incoming_.erase(message);
}

/// How long the pieces of a message are: every stream has one, if it is long enough.
std::size_t MeshLink::piece_bytes(std::size_t message) const {
  const std::size_t share = (message + streams.size() - 1) / streams.size();
  const std::size_t whole = (share + kPieceGrain - 1) / kPieceGrain * kPieceGrain;
  return std::min(
      {core.limits.chunk_bytes, std::size_t{kMaxDataPayload}, std::max(kPieceMin, whole)});
}

/// The stream that a piece takes now: the least busy one; of equal ones stream 0 last, because
/// control messages travel there, and else the next in turn, so that all stay warm.
MeshStream* MeshLink::stream_for(std::size_t payload) {
  MeshStream* best = nullptr;
  for (std::size_t i = 1; i <= streams.size(); ++i) {
    MeshStream& stream = *streams[(last_used_ + i) % streams.size()];
    const bool is_for_control = stream.index == 0 && !controls.empty();
    if (is_for_control || !stream.has_room(payload)) continue;
    if (best == nullptr || stream.load() < best->load() ||
        (stream.load() == best->load() && best->index == 0)) {
      best = &stream;
    }
  }
  return best;
}

/// Gives the streams their next frames.
void MeshLink::pump() {
  while (!is_over) {
    if (!credits.empty() && streams[0] && streams[0]->has_room(0)) {
      FrameHeader header = core.header(FrameType::kCredit);
      header.term = credits.front().term;
      header.operation = credits.front().operation;
      header.segment = credits.front().segment;
      credits.pop_front();
      streams[0]->send(header, {}, [] {});
      continue;
    }
    if (!controls.empty() && streams[0]->has_room(controls.front().size())) {
      const auto text = std::make_shared<const std::string>(std::move(controls.front()));
      controls.pop_front();
      streams[0]->send(core.header(FrameType::kControl), std::as_bytes(std::span(*text)),
                       [text] {});  // owner: the frame
      continue;
    }
    const auto next =
        std::ranges::find_if(outgoing, [](const auto& m) { return m->next_piece().has_value(); });
    if (next == outgoing.end()) return;
    const std::size_t size = *(*next)->next_piece();
    MeshStream* const stream = stream_for(size);
    if (stream == nullptr) return;
    last_used_ = static_cast<std::size_t>(stream->index);
    send_piece(*stream, static_cast<std::size_t>(next - outgoing.begin()), size);
  }
}

/// The next piece of the message at that place in the line.
void MeshLink::send_piece(MeshStream& stream, std::size_t at, std::size_t size) {
  const std::shared_ptr<Outgoing> message = outgoing[at];
  FrameHeader header = core.header(FrameType::kData);
  header.operation = message->name.operation;
  header.segment = message->name.segment;
  header.offset = message->given;
  header.raw_bytes = static_cast<std::uint32_t>(size);
  const auto piece = message->payload.subspan(message->given, size);
  message->given += size;
  message->is_given = message->given == message->payload.size();
  if (message->is_given) {
    header.flags = kFlagLastPiece;
    outgoing.erase(outgoing.begin() + static_cast<std::ptrdiff_t>(at));
  }
  ++message->pieces_in_flight;
  stream.send(header, piece, [this, message] {
    --message->pieces_in_flight;
    if (message->is_given && message->pieces_in_flight == 0) {
      core.post_for_user(std::move(message->sent));
    }
  });
}

void MeshLink::set_term(std::uint32_t term) {
  std::erase_if(outgoing, [&](const auto& message) { return message->name.term < term; });
  std::erase_if(waiting_, [&](const auto& message) { return message.first.term < term; });
  std::erase_if(credits, [&](const MessageName& name) { return name.term < term; });
  release(window_.set_term(term));
  for (auto message = incoming_.begin();
       message != incoming_.end() && message->first.term < term;) {
    IncomingMessage& incoming = message->second;
    for (const auto& [offset, bytes] : incoming.early) early_bytes -= cost(bytes.size());
    Task kept = std::move(incoming.received);
    if (incoming.growing) kept = [growing = std::move(incoming.growing)] {};
    const auto task = std::make_shared<Task>(std::move(kept));
    for (const auto& stream : streams) {
      if (stream && stream->reads(message->first)) stream->forgotten = task;
    }
    message = incoming_.erase(message);
  }
}

void MeshLink::forget_all() {
  is_over = true;
  std::vector<std::shared_ptr<Task>> forgotten;
  for (const auto& stream : streams) {
    if (!stream) continue;
    stream->connection->close();
    forgotten.push_back(std::exchange(stream->forgotten, nullptr));
  }
  controls.clear();
  // The tasks' destructors are the callers' code, so they run when this link is in order again.
  const auto messages = std::exchange(incoming_, {});
  const auto not_sent = std::exchange(outgoing, {});
  const auto not_admitted = std::exchange(waiting_, {});
}

// ---- Making the mesh, and losing parts of it.

void TransportMesh::Core::start(const std::shared_ptr<MeshListener>& door, Seconds deadline) {
  peers.resize(addresses.size());
  give_up_at = loop.now() + deadline;
  listener = door;
  timer = loop.after(deadline, [weak = weak_from_this(), deadline] {
    if (const auto self = weak.lock(); self && self->on_ready) self->out_of_time(deadline);
  });
  std::size_t callers = 0;
  for (int peer = rank + 1; peer < ranks(); ++peer) {
    callers += static_cast<std::size_t>(streams_with(peer));
  }
  door->on_greeting([self = shared_from_this()](
                        std::unique_ptr<Connection> connection,
                        const FrameHeader& header) { self->hello(std::move(connection), header); },
                    callers);
  if (on_ready && ranks() == 1) return finish(std::nullopt);
  for (int peer = 0; peer < rank; ++peer) dial(peer, 0, kRedialMin);
}

void TransportMesh::Core::dial(int peer, int stream, Seconds backoff) {
  const Seconds left = give_up_at - loop.now();
  if (is_shut || left <= Seconds(0)) return;
  transport.dial(addresses[static_cast<std::size_t>(peer)], left,
                 [weak = weak_from_this(), peer, stream, backoff](auto connection) {
                   const auto self = weak.lock();
                   if (!self || self->is_shut) return;
                   if (connection) return self->dialled(peer, stream, std::move(*connection));
                   if (const auto door = self->listener.lock()) {
                     door->set_last_trouble(connection.error().message);
                   }
                   // It may not listen yet.
                   self->loop.after(backoff, [weak, peer, stream, backoff] {
                     const auto again = weak.lock();
                     if (again) again->dial(peer, stream, std::min(backoff * 2, kRedialMax));
                   });
                 });
}

void TransportMesh::Core::dialled(int peer, int stream, std::unique_ptr<Connection> connection) {
  MeshLink& link = link_to_be(peer);
  MeshStream& added = link.add(stream, std::move(connection));
  if (const std::string wrong = check_identity(*added.connection, peer); !wrong.empty()) {
    return lose(link, wrong);
  }
  added.send(greeting(FrameType::kHello, peer), {}, [] {});
}

/// What is wrong with a greeting but its sender; empty when nothing is.
std::string TransportMesh::Core::check_greeting(const FrameHeader& header, const char* who) const {
  if (header.job != job) {
    return fmt::format("{} is of job {:#x}, this is job {:#x}", who, header.job, job);
  }
  if (header.operation != addresses.size()) {
    return fmt::format("{} knows {} ranks, here are {}", who, header.operation, addresses.size());
  }
  if (header.segment != static_cast<std::uint32_t>(rank)) {
    return fmt::format("{} looks for rank {}, this is rank {}", who, header.segment, rank);
  }
  if (header.term != term) {
    return fmt::format("{} is at term {}, this is term {}", who, header.term, term);
  }
  return "";
}

/// What is wrong with the streams that a greeting speaks of; empty when nothing is.
std::string TransportMesh::Core::check_streams(const FrameHeader& header, int peer,
                                               const char* who) const {
  const auto last = static_cast<std::uint64_t>(streams_with(peer) - 1);
  if (header.offset != last) {
    return fmt::format("{} counts {} streams between ranks {} and {}, here are {}", who,
                       header.offset + 1, std::min(peer, rank), std::max(peer, rank), last + 1);
  }
  if (header.stream <= last) return "";
  return fmt::format("{} is of stream {}, and the last one is {}", who, header.stream, last);
}

/// Why the certificate at the other end is not the rank's; empty when it is.
std::string TransportMesh::Core::check_identity(const Connection& connection, int peer) const {
  if (identities.empty()) return "";
  const std::string& expected = identities[static_cast<std::size_t>(peer)];
  const std::string shown = connection.identity();
  if (shown == expected) return "";
  return fmt::format("rank {} belongs to `{}`, and the certificate shown is {}", peer, expected,
                     shown.empty() ? "none" : fmt::format("that of `{}`", shown));
}

/// Why the caller is not let in; empty when it is.
std::string TransportMesh::Core::check_caller(const Connection& connection,
                                              const FrameHeader& header) const {
  if (std::string wrong = check_greeting(header, "the caller"); !wrong.empty()) return wrong;
  if (header.sender <= static_cast<std::uint32_t>(rank) || header.sender >= addresses.size()) {
    return fmt::format("rank {} does not dial rank {}", header.sender, rank);
  }
  const int peer = static_cast<int>(header.sender);
  if (std::string wrong = check_identity(connection, peer); !wrong.empty()) return wrong;
  if (std::string wrong = check_streams(header, peer, "the caller"); !wrong.empty()) return wrong;
  const auto& link = peers[header.sender];
  if (header.stream == 0) return link ? fmt::format("rank {} is already connected", peer) : "";
  // So that the streams of two processes never make one link.
  if (!link)
    return fmt::format("rank {} calls with stream {} before stream 0", peer, header.stream);
  return link->streams[header.stream]
             ? fmt::format("stream {} of rank {} is already connected", header.stream, peer)
             : "";
}

void TransportMesh::Core::hello(std::unique_ptr<Connection> connection, const FrameHeader& header) {
  const auto door = listener.lock();
  if (is_shut || !door) return;
  if (const std::string wrong = check_caller(*connection, header); !wrong.empty()) {
    return door->refuse(std::move(connection), wrong);
  }
  const int peer = static_cast<int>(header.sender);
  MeshStream& added = link_to_be(peer).add(header.stream, std::move(connection));
  added.send(greeting(FrameType::kHelloAck, peer), {}, [] {});
  greeted(added);
}

void TransportMesh::Core::hello_ack(MeshStream& stream, const FrameHeader& header) {
  MeshLink& link = stream.link;
  std::string wrong = check_greeting(header, "the answer");
  if (wrong.empty() && header.sender != static_cast<std::uint32_t>(link.peer)) {
    wrong = fmt::format("rank {} answers at the address of rank {}", header.sender, link.peer);
  }
  if (wrong.empty()) wrong = check_streams(header, link.peer, "the answer");
  if (wrong.empty() && header.stream != stream.index) {
    wrong =
        fmt::format("the answer is of stream {}, this is stream {}", header.stream, stream.index);
  }
  if (!wrong.empty()) return lose(link, wrong);
  greeted(stream);
  if (stream.index != 0) return;
  for (int next = 1; next < streams_with(link.peer); ++next) dial(link.peer, next, kRedialMin);
}

void TransportMesh::Core::greeted(MeshStream& stream) {
  stream.is_greeted = true;
  ++stream.link.greeted;
  const bool is_complete = std::ranges::count_if(peers, [](const auto& peer) {
                             return peer && peer->is_established();
                           }) == ranks() - 1;
  if (is_complete && on_ready) finish(std::nullopt);
}

void TransportMesh::Core::lose(MeshLink& link, const std::string& why) {
  if (link.is_over) return;
  link.forget_all();
  if (on_ready) {
    const char* const what =
        link.is_established() ? "rank {} is lost: {}" : "no connection with rank {}: {}";
    return finish(failed(fmt::format(fmt::runtime(what), link.peer, why)).error());
  }
  losses.emplace_back(link.peer, failed(why).error());
  post_flush();
}

void TransportMesh::Core::out_of_time(Seconds deadline) {
  std::string missing;
  for (int peer = 0; peer < ranks(); ++peer) {
    const auto& link = peers[static_cast<std::size_t>(peer)];
    if (peer == rank || (link && link->is_established())) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peer);
    if (!link || link->greeted == 0) continue;
    missing += fmt::format(" ({} of {} streams)", link->greeted, link->streams.size());
  }
  const auto door = listener.lock();
  const std::string trouble = door ? door->last_trouble() : "";
  finish(failed(fmt::format("no connection with rank {} after {} s{}{}", missing, deadline.value(),
                            trouble.empty() ? "" : "; last trouble: ", trouble))
             .error());
}

void TransportMesh::Core::finish(std::optional<Error> error) {
  loop.cancel(timer);
  if (error) shut();
  // From here the task keeps the core alive, until the mesh that owns it is handed over.
  loop.post([self = shared_from_this(), task = std::exchange(on_ready, nullptr),
             why = std::move(error)]() mutable {
    if (why) return task(within(fmt::format("rank {}", self->rank), std::move(*why)));
    task(std::make_unique<TransportMesh>(std::move(self)));
  });
  if (const auto door = listener.lock()) {
    door->on_greeting([weak = weak_from_this()](auto connection, const FrameHeader& header) {
      if (const auto self = weak.lock()) self->hello(std::move(connection), header);
    });
  }
}

void TransportMesh::Core::shut() {
  is_shut = true;
  for (const auto& link : peers) {
    if (link) link->forget_all();
  }
  on_control = nullptr;
  on_lost = nullptr;
}

/// Tells what has happened to whoever wants to know by now.
void TransportMesh::Core::flush() {
  const auto self = shared_from_this();  // a handler may destroy the mesh
  while (on_control && !controls.empty()) {
    const auto [peer, text] = std::move(controls.front());
    controls.pop_front();
    link(peer).early_bytes -= cost(text.size());
    const auto handler = on_control;
    handler(peer, text);
  }
  while (on_lost && !losses.empty()) {
    const auto [peer, why] = std::move(losses.front());
    losses.pop_front();
    const auto handler = on_lost;
    handler(peer, why);
  }
}

MeshLink& TransportMesh::Core::link(int peer) {
  LH_CHECK(peer >= 0 && peer < ranks() && peer != rank, "a peer is another rank of the mesh");
  return *peers[static_cast<std::size_t>(peer)];
}

// ---- The mesh.

TransportMesh::TransportMesh(std::shared_ptr<Core> core) : core_(std::move(core)) {}
TransportMesh::~TransportMesh() {
  core_->shut();
}

int TransportMesh::rank() const {
  return core_->rank;
}
int TransportMesh::ranks() const {
  return core_->ranks();
}
std::uint64_t TransportMesh::dropped_frames() const {
  return core_->dropped_frames;
}

void TransportMesh::send(int peer, std::uint64_t operation, std::uint32_t segment,
                         std::span<const std::byte> payload, Task sent) {
  MeshLink& link = core_->link(peer);
  if (link.is_over) return;
  link.send({core_->term, operation, segment}, payload, std::move(sent), false);
}

void TransportMesh::send_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                                 std::span<const std::byte> payload, Task sent) {
  MeshLink& link = core_->link(peer);
  if (link.is_over) return;
  link.send({core_->term, operation, segment}, payload, std::move(sent), true);
}

void TransportMesh::grow(int peer, std::uint64_t operation, std::uint32_t segment,
                         std::size_t ready) {
  core_->link(peer).grow({core_->term, operation, segment}, ready);
}

void TransportMesh::receive_growing(int peer, std::uint64_t operation, std::uint32_t segment,
                                    std::span<std::byte> buffer, Arrived arrived) {
  // Owners: see GrowingReceive.
  auto growing = std::make_shared<GrowingReceive>();
  growing->arrived = std::move(arrived);
  core_->link(peer).receive({core_->term, operation, segment}, buffer, nullptr, std::move(growing));
}

void TransportMesh::receive(int peer, std::uint64_t operation, std::uint32_t segment,
                            std::span<std::byte> buffer, Task received) {
  core_->link(peer).receive({core_->term, operation, segment}, buffer, std::move(received),
                            nullptr);
}

void TransportMesh::send_control(int peer, const std::string& text) {
  LH_CHECK(text.size() <= kMaxControlPayload, "control messages are short");
  MeshLink& link = core_->link(peer);
  if (link.is_over) return;
  link.controls.push_back(text);
  link.pump();
}

void TransportMesh::on_control(std::function<void(int peer, const std::string& text)> handler) {
  core_->on_control = std::move(handler);
  core_->post_flush();
}

void TransportMesh::on_lost(std::function<void(int peer, const Error& why)> handler) {
  core_->on_lost = std::move(handler);
  core_->post_flush();
}

void TransportMesh::set_term(std::uint32_t term) {
  LH_CHECK(term >= core_->term, "terms only grow");
  core_->term = term;
  for (const auto& link : core_->peers) {
    if (link) link->set_term(term);
  }
}

void connect_mesh(Transport& transport, EventLoop& loop,
                  const std::shared_ptr<MeshListener>& listener, MeshConfig config,
                  OnMesh on_ready) {
  LH_CHECK(config.rank >= 0 && static_cast<std::size_t>(config.rank) < config.addresses.size(),
           "every rank has an address");
  LH_CHECK(config.identities.empty() || config.identities.size() == config.addresses.size(),
           "every rank has an identity, or none has");
  LH_CHECK(config.streams.empty() || config.streams.size() == config.addresses.size(),
           "the streams to every rank are given, or to none");
  LH_CHECK(std::ranges::all_of(config.streams, [](int n) { return n >= 1 && n <= kMaxStreams; }),
           "a link has a stream, and no more than can be");
  LH_CHECK(config.rates.empty() || config.rates.size() == config.addresses.size(),
           "the rates to every rank are given, or to none");
  LH_CHECK(config.limits.chunk_bytes > 0, "messages travel in pieces of at least a byte");
  const auto core = std::make_shared<TransportMesh::Core>(transport, loop);
  core->addresses = std::move(config.addresses);
  core->identities = std::move(config.identities);
  core->streams = std::move(config.streams);
  core->rates = std::move(config.rates);
  core->rank = config.rank;
  core->job = config.job;
  core->term = config.term;
  core->limits = config.limits;
  core->on_ready = std::move(on_ready);
  core->start(listener, config.deadline);
}

void connect_mesh(Transport& transport, EventLoop& loop, MeshConfig config, OnMesh on_ready) {
  LH_CHECK(config.rank >= 0 && static_cast<std::size_t>(config.rank) < config.addresses.size(),
           "every rank has an address");
  auto listener =
      MeshListener::open(transport, loop, config.addresses[static_cast<std::size_t>(config.rank)]);
  if (!listener) {
    loop.post([task = std::move(on_ready), rank = config.rank,
               why = std::move(listener.error())]() mutable {
      task(within(fmt::format("rank {}", rank), std::move(why)));
    });
    return;
  }
  connect_mesh(transport, loop, *listener, std::move(config), std::move(on_ready));
}

}  // namespace longhaul
