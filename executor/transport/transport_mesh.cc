#include "executor/transport/transport_mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace longhaul {
namespace {

constexpr std::uint16_t kFlagLastPiece = 2;
constexpr int kFramesInFlight = 2;
constexpr std::size_t kRefusalMax = 1024;  // bytes of a refusal's text that are taken
constexpr Seconds kRedialMin{0.05};
constexpr Seconds kRedialMax{1.0};

struct MessageName {
  std::uint32_t term;
  std::uint64_t operation;
  std::uint32_t segment;
  auto operator<=>(const MessageName&) const = default;
};

/// The parts of a message that have come, as disjoint ranges; in order, that is one.
class Ranges {
 public:
  bool overlaps(std::uint64_t begin, std::uint64_t end) const {
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first < end) return true;
    return next != ranges_.begin() && std::prev(next)->second > begin;
  }
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    auto at = ranges_.emplace(begin, end).first;
    if (const auto next = std::next(at); next != ranges_.end() && next->first == end) {
      at->second = next->second;
      ranges_.erase(next);
    }
    if (at == ranges_.begin()) return;
    if (const auto before = std::prev(at); before->second == begin) {
      before->second = at->second;
      ranges_.erase(at);
    }
  }
  std::uint64_t end() const { return ranges_.empty() ? 0 : ranges_.rbegin()->second; }
  bool is_all_of(std::uint64_t size) const {
    if (size == 0) return true;
    return ranges_.size() == 1 && ranges_.begin()->first == 0 && end() == size;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

struct Incoming {
  bool is_posted = false;
  std::span<std::byte> buffer;
  Task received;
  std::optional<std::uint64_t> size;  // once its last piece has come
  Ranges arrived;
  std::map<std::uint64_t, std::vector<std::byte>> early;  // by offset; empty once posted

  /// Why the piece cannot belong to the message; empty when it can.
  std::string misfit(std::uint64_t offset, std::uint64_t bytes, bool is_last) const {
    const std::uint64_t most = is_posted ? buffer.size() : std::uint64_t{1} << 62;
    if (offset > most || bytes > most - offset ||
        (is_posted && is_last && offset + bytes != buffer.size())) {
      return fmt::format("does not have the {} bytes that were asked for", buffer.size());
    }
    const std::uint64_t end = offset + bytes;
    if (bytes == 0 && !is_last) return "has an empty piece";
    if (arrived.overlaps(offset, end) || (is_last && size)) return "came twice";
    if ((size && end > *size) || (is_last && arrived.end() > end)) return "goes on after its end";
    return "";
  }
  void add(std::uint64_t offset, std::uint64_t bytes, bool is_last) {
    arrived.add(offset, offset + bytes);
    if (is_last) size = offset + bytes;
  }
  bool is_complete() const { return is_posted && size && arrived.is_all_of(*size); }
};

/// What a frame that waits counts for, so that empty ones are not free either.
std::size_t cost(std::size_t payload) {
  return kFrameHeaderBytes + payload;
}

struct Outgoing {
  MessageName name{};
  std::span<const std::byte> payload;
  Task sent;
  std::size_t given = 0;  // bytes that the connection has
};

}  // namespace

/// One connection and all that is known of the rank at its other end.
class MeshLink : public ConnectionHandler {
 public:
  MeshLink(TransportMesh::Core& owner, std::unique_ptr<Connection> link, int rank)
      : core(owner), connection(std::move(link)), peer(rank) {
    connection->set_handler(this);
  }

  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override;
  void received(Connection&, const FrameHeader& header,
                std::span<const std::byte> payload) override;
  void closed(Connection&, const Error& why) override;

  void send_frame(FrameHeader header, std::span<const std::byte> payload, Task sent);
  void pump();
  void receive(const MessageName& name, std::span<std::byte> buffer, Task task);
  void set_term(std::uint32_t term);
  void forget_all();

  TransportMesh::Core& core;
  std::unique_ptr<Connection> connection;
  int peer;
  bool is_established = false;
  bool is_over = false;  // lost: whatever else it says is ignored

  // Owners: the queue and the frames in flight, which borrow the message's payload.
  std::deque<std::shared_ptr<Outgoing>> outgoing;
  std::deque<std::string> controls;
  std::size_t early_bytes = 0;

 private:
  enum class Reading { kNothing, kDirect, kEarly, kText, kIgnored };

  std::string check(const FrameHeader& header) const;
  void take_data(const FrameHeader& header, Reading how);
  void adopt_early(Incoming& message);
  void complete(std::map<MessageName, Incoming>::iterator message);
  std::string check_room(std::size_t payload) const;
  std::string describe(const MessageName& name, const std::string& what) const;
  static MessageName name_of(const FrameHeader& header) {
    return {header.term, header.operation, header.segment};
  }

  int in_flight_ = 0;
  std::map<MessageName, Incoming> incoming_;

  // The frame being read, between buffer_for and received.
  Reading reading_ = Reading::kNothing;
  std::vector<std::byte> piece_;
  Task forgotten_;  // of a message forgotten while read: keeps what owns its buffer alive
};

struct TransportMesh::Core : std::enable_shared_from_this<TransportMesh::Core> {
  Core(Transport& transport_of_mesh, EventLoop& loop_of_mesh)
      : transport(transport_of_mesh), loop(loop_of_mesh) {}

  void start(const std::shared_ptr<MeshListener>& door, Seconds deadline);
  void dial(int peer, Seconds backoff);
  void dialled(int peer, std::unique_ptr<Connection> connection);
  void hello(std::unique_ptr<Connection> connection, const FrameHeader& header);
  void hello_ack(MeshLink& link, const FrameHeader& header);
  void lose(MeshLink& link, const std::string& why);
  void established(MeshLink& link);
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
    return greeting;
  }
  std::string check_greeting(const FrameHeader& header, const char* who) const;
  std::string check_caller(const Connection& connection, const FrameHeader& header) const;
  std::string check_identity(const Connection& connection, int peer) const;

  Transport& transport;
  EventLoop& loop;
  std::vector<std::string> addresses;
  std::vector<std::string> identities;
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

// ---- Messages over one connection.

std::string MeshLink::describe(const MessageName& name, const std::string& what) const {
  return fmt::format("message {:#x}/{} of rank {} {}", name.operation, name.segment, peer, what);
}

std::string MeshLink::check_room(std::size_t payload) const {
  if (early_bytes + cost(payload) <= core.limits.early_bytes) return "";
  return fmt::format("rank {} sent more than the {} bytes that may wait to be asked for", peer,
                     core.limits.early_bytes);
}

/// Why the frame cannot come now; empty when it can.
std::string MeshLink::check(const FrameHeader& header) const {
  if (header.type == FrameType::kError) {
    return header.payload_bytes <= kRefusalMax ? "" : "the peer's error is too long to read";
  }
  if (!is_established) {
    const bool is_answer = header.type == FrameType::kHelloAck && header.payload_bytes == 0;
    return is_answer ? "" : "a frame came before the greeting's answer";
  }
  if (header.job != core.job || header.sender != static_cast<std::uint32_t>(peer)) {
    return fmt::format("a frame of rank {} of job {:#x} came from rank {}", header.sender,
                       header.job, peer);
  }
  switch (header.type) {
    case FrameType::kData: {
      if (header.term < core.term) return "";
      const auto message = incoming_.find(name_of(header));
      const Incoming none;
      const std::string misfit =
          (message == incoming_.end() ? none : message->second)
              .misfit(header.offset, header.payload_bytes, (header.flags & kFlagLastPiece) != 0);
      if (!misfit.empty()) return describe(name_of(header), misfit);
      const bool is_early = message == incoming_.end() || !message->second.is_posted;
      return is_early ? check_room(header.payload_bytes) : "";
    }
    case FrameType::kControl:
      return check_room(header.payload_bytes);
    case FrameType::kHello:
    case FrameType::kHelloAck:
      return fmt::format("rank {} greeted twice", peer);
    default:
      if ((header.flags & kFlagCritical) != 0) {
        return fmt::format("rank {} sent a frame of type {}, which this version does not know",
                           peer, static_cast<int>(header.type));
      }
      return "";
  }
}

std::optional<std::span<std::byte>> MeshLink::buffer_for(Connection&, const FrameHeader& header) {
  if (const std::string fault = is_over ? "" : check(header); !fault.empty()) {
    core.lose(*this, fault);
    return std::nullopt;
  }
  const bool is_data = header.type == FrameType::kData && header.term >= core.term;
  if (is_over) {
    reading_ = Reading::kIgnored;
  } else if (is_data) {
    const auto message = incoming_.find(name_of(header));
    if (message != incoming_.end() && message->second.is_posted) {
      reading_ = Reading::kDirect;
      return message->second.buffer.subspan(header.offset, header.payload_bytes);
    }
    reading_ = Reading::kEarly;
  } else if (header.type == FrameType::kControl || header.type == FrameType::kError) {
    reading_ = Reading::kText;
  } else {
    reading_ = Reading::kIgnored;
  }
  piece_.resize(header.payload_bytes);
  return std::span(piece_);
}

void MeshLink::received(Connection&, const FrameHeader& header,
                        std::span<const std::byte> payload) {
  const Reading how = std::exchange(reading_, Reading::kNothing);
  const Task forgotten = std::exchange(forgotten_, nullptr);
  if (is_over) return;
  // A frame without payload was not checked yet, and a direct one was found to fit before.
  if (const std::string fault = how == Reading::kDirect ? "" : check(header); !fault.empty()) {
    return core.lose(*this, fault);
  }
  std::string text;
  if (header.type == FrameType::kError || header.type == FrameType::kControl) {
    text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  }
  switch (header.type) {
    case FrameType::kHelloAck:
      return core.hello_ack(*this, header);
    case FrameType::kError:
      return core.lose(*this, fmt::format("it says: {}", text));
    case FrameType::kControl:
      early_bytes += cost(text.size());
      core.controls.emplace_back(peer, text);
      return core.post_flush();
    case FrameType::kData:
      return take_data(header, how);
    default:
      return;
  }
}

void MeshLink::take_data(const FrameHeader& header, Reading how) {
  if (header.term < core.term) {
    ++core.dropped_frames;
    return;
  }
  const auto message = incoming_.try_emplace(name_of(header)).first;
  Incoming& incoming = message->second;
  incoming.add(header.offset, header.payload_bytes, (header.flags & kFlagLastPiece) != 0);
  if (how == Reading::kEarly || !incoming.is_posted) {  // a piece without bytes is not read
    if (how != Reading::kEarly) piece_.clear();
    early_bytes += cost(piece_.size());
    incoming.early.emplace(header.offset, std::exchange(piece_, {}));
    if (incoming.is_posted) adopt_early(incoming);  // it was posted while this piece was read
  }
  if (incoming.is_complete()) complete(message);
}

void MeshLink::adopt_early(Incoming& message) {
  for (const auto& [offset, bytes] : message.early) {
    std::copy(bytes.begin(), bytes.end(),
              message.buffer.begin() + static_cast<std::ptrdiff_t>(offset));
    early_bytes -= cost(bytes.size());
  }
  message.early.clear();
}

void MeshLink::receive(const MessageName& name, std::span<std::byte> buffer, Task task) {
  if (is_over) return;
  const auto message = incoming_.try_emplace(name).first;
  Incoming& incoming = message->second;
  LH_CHECK(!incoming.is_posted, "a message is received once");
  incoming.is_posted = true;
  incoming.buffer = buffer;
  incoming.received = std::move(task);
  if (incoming.arrived.end() > buffer.size() ||
      (incoming.size && *incoming.size != buffer.size())) {
    return core.lose(*this, describe(name, fmt::format("does not have the {} bytes that were "
                                                       "asked for",
                                                       buffer.size())));
  }
  adopt_early(incoming);
  if (incoming.is_complete()) complete(message);
}

void MeshLink::complete(std::map<MessageName, Incoming>::iterator message) {
  core.post_for_user(std::move(message->second.received));
  incoming_.erase(message);
}

/// Gives the connection its next frames.
void MeshLink::pump() {
  while (!is_over && in_flight_ < kFramesInFlight) {
    if (!controls.empty()) {
      const auto text = std::make_shared<const std::string>(std::move(controls.front()));
      controls.pop_front();
      send_frame(core.header(FrameType::kControl), std::as_bytes(std::span(*text)),
                 [text] {});  // owner: the frame
    } else if (!outgoing.empty()) {
      const std::shared_ptr<Outgoing> message = outgoing.front();
      const std::size_t size = std::min({message->payload.size() - message->given,
                                         core.limits.chunk_bytes, std::size_t{kMaxDataPayload}});
      FrameHeader header = core.header(FrameType::kData);
      header.operation = message->name.operation;
      header.segment = message->name.segment;
      header.offset = message->given;
      header.raw_bytes = static_cast<std::uint32_t>(size);
      const auto piece = message->payload.subspan(message->given, size);
      message->given += size;
      const bool is_last = message->given == message->payload.size();
      if (is_last) {
        header.flags = kFlagLastPiece;
        outgoing.pop_front();
      }
      send_frame(header, piece, [this, message, is_last] {
        if (is_last) core.post_for_user(std::move(message->sent));
      });
    } else {
      return;
    }
  }
}

void MeshLink::send_frame(FrameHeader header, std::span<const std::byte> payload, Task sent) {
  ++in_flight_;
  connection->send(header, payload,
                   [this, weak = core.weak_from_this(), task = std::move(sent)]() mutable {
                     // A link that was established lives as long as its core.
                     const auto self = weak.lock();
                     if (!self || is_over) return;
                     --in_flight_;
                     task();
                     pump();
                   });
}

void MeshLink::set_term(std::uint32_t term) {
  std::erase_if(outgoing, [&](const auto& message) { return message->name.term < term; });
  for (auto message = incoming_.begin();
       message != incoming_.end() && message->first.term < term;) {
    Incoming& incoming = message->second;
    for (const auto& [offset, bytes] : incoming.early) early_bytes -= cost(bytes.size());
    // Which message is being read is not known here; keeping all that could be is harmless.
    if (reading_ == Reading::kDirect && incoming.received) {
      forgotten_ = [previous = std::move(forgotten_), task = std::move(incoming.received)] {};
    }
    message = incoming_.erase(message);
  }
}

void MeshLink::forget_all() {
  is_over = true;
  connection->close();
  outgoing.clear();
  controls.clear();
  // The tasks' destructors are the callers' code, so they run when this link is in order again.
  const auto messages = std::exchange(incoming_, {});
  const Task forgotten = std::exchange(forgotten_, nullptr);
}

void MeshLink::closed(Connection&, const Error& why) {
  if (!is_over) core.lose(*this, why.message);
}

// ---- Making the mesh, and losing parts of it.

void TransportMesh::Core::start(const std::shared_ptr<MeshListener>& door, Seconds deadline) {
  peers.resize(addresses.size());
  give_up_at = loop.now() + deadline;
  listener = door;
  timer = loop.after(deadline, [weak = weak_from_this(), deadline] {
    if (const auto self = weak.lock(); self && self->on_ready) self->out_of_time(deadline);
  });
  door->on_greeting([self = shared_from_this()](std::unique_ptr<Connection> connection,
                                                const FrameHeader& header) {
    self->hello(std::move(connection), header);
  });
  if (on_ready && ranks() == 1) return finish(std::nullopt);
  for (int peer = 0; peer < rank; ++peer) dial(peer, kRedialMin);
}

void TransportMesh::Core::dial(int peer, Seconds backoff) {
  const Seconds left = give_up_at - loop.now();
  if (is_shut || left <= Seconds(0)) return;
  transport.dial(addresses[static_cast<std::size_t>(peer)], left,
                 [weak = weak_from_this(), peer, backoff](auto connection) {
                   const auto self = weak.lock();
                   if (!self || self->is_shut) return;
                   if (connection) return self->dialled(peer, std::move(*connection));
                   if (const auto door = self->listener.lock()) {
                     door->set_last_trouble(connection.error().message);
                   }
                   // It may not listen yet.
                   self->loop.after(backoff, [weak, peer, backoff] {
                     const auto again = weak.lock();
                     if (again) again->dial(peer, std::min(backoff * 2, kRedialMax));
                   });
                 });
}

void TransportMesh::Core::dialled(int peer, std::unique_ptr<Connection> connection) {
  auto& link = peers[static_cast<std::size_t>(peer)];
  link = std::make_unique<MeshLink>(*this, std::move(connection), peer);
  if (const std::string wrong = check_identity(*link->connection, peer); !wrong.empty()) {
    return lose(*link, wrong);
  }
  link->send_frame(greeting(FrameType::kHello, peer), {}, [] {});
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
  return peers[header.sender] ? fmt::format("rank {} is already connected", peer) : "";
}

void TransportMesh::Core::hello(std::unique_ptr<Connection> connection, const FrameHeader& header) {
  const auto door = listener.lock();
  if (is_shut || !door) return;
  if (const std::string wrong = check_caller(*connection, header); !wrong.empty()) {
    return door->refuse(std::move(connection), wrong);
  }
  const int peer = static_cast<int>(header.sender);
  auto& link = peers[header.sender];
  link = std::make_unique<MeshLink>(*this, std::move(connection), peer);
  link->send_frame(greeting(FrameType::kHelloAck, peer), {}, [] {});
  established(*link);
}

void TransportMesh::Core::hello_ack(MeshLink& link, const FrameHeader& header) {
  std::string wrong = check_greeting(header, "the answer");
  if (wrong.empty() && header.sender != static_cast<std::uint32_t>(link.peer)) {
    wrong = fmt::format("rank {} answers at the address of rank {}", header.sender, link.peer);
  }
  if (!wrong.empty()) return lose(link, wrong);
  established(link);
}

void TransportMesh::Core::established(MeshLink& link) {
  link.is_established = true;
  const bool is_complete = std::ranges::count_if(peers, [](const auto& peer) {
                             return peer && peer->is_established;
                           }) == ranks() - 1;
  if (is_complete && on_ready) finish(std::nullopt);
}

void TransportMesh::Core::lose(MeshLink& link, const std::string& why) {
  if (link.is_over) return;
  link.forget_all();
  if (on_ready) {
    const char* const what =
        link.is_established ? "rank {} is lost: {}" : "no connection with rank {}: {}";
    return finish(failed(fmt::format(fmt::runtime(what), link.peer, why)).error());
  }
  losses.emplace_back(link.peer, failed(why).error());
  post_flush();
}

void TransportMesh::Core::out_of_time(Seconds deadline) {
  std::string missing;
  for (int peer = 0; peer < ranks(); ++peer) {
    const auto& link = peers[static_cast<std::size_t>(peer)];
    if (peer == rank || (link && link->is_established)) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peer);
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
  const MessageName name{core_->term, operation, segment};
  link.outgoing.push_back(std::make_shared<Outgoing>(Outgoing{name, payload, std::move(sent)}));
  link.pump();
}

void TransportMesh::receive(int peer, std::uint64_t operation, std::uint32_t segment,
                            std::span<std::byte> buffer, Task received) {
  core_->link(peer).receive({core_->term, operation, segment}, buffer, std::move(received));
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
  LH_CHECK(config.limits.chunk_bytes > 0, "messages travel in pieces of at least a byte");
  const auto core = std::make_shared<TransportMesh::Core>(transport, loop);
  core->addresses = std::move(config.addresses);
  core->identities = std::move(config.identities);
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
