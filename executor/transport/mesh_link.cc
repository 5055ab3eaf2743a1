#include "executor/transport/mesh_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

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

MessageName name_of(const FrameHeader& header) {
  return {header.term, header.operation, header.segment};
}

}  // namespace

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
    reading_ = PieceReading::kText;
    if (header.type == FrameType::kControl) link.early_bytes += frame_cost(header.payload_bytes);
  } else {
    reading_ = PieceReading::kIgnored;
  }
  if (reading_ != PieceReading::kDirect) piece_.resize(header.payload_bytes);
  return true;
}

std::optional<std::span<std::byte>> MeshStream::buffer_for(Connection&, const FrameHeader& header) {
  if (link.is_over || !begin(header)) return std::nullopt;
  return reading_ == PieceReading::kDirect ? link.place_of(header) : std::span(piece_);
}

void MeshStream::received(Connection&, const FrameHeader& header,
                          std::span<const std::byte> payload) {
  // No buffer was asked for where there is no payload.
  if (link.is_over || (header.payload_bytes == 0 && !begin(header))) return;
  const PieceReading how = std::exchange(reading_, PieceReading::kNothing);
  const std::shared_ptr<Task> kept = std::exchange(forgotten, nullptr);
  TransportMesh::Core& core = link.core;
  std::string text;
  if (how == PieceReading::kText) {
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
         in_flight_bytes_ + frame_cost(payload) <=
             kFramesInFlight * frame_cost(link.core.limits.chunk_bytes);
}

void MeshStream::send(FrameHeader header, std::span<const std::byte> payload, Task sent) {
  header.stream = static_cast<std::uint16_t>(index);
  const std::size_t bytes = frame_cost(payload.size());
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
  auto message = std::make_shared<OutgoingMessage>(OutgoingMessage{name, payload, std::move(sent)});
  message->piece = piece_bytes(payload.size());
  if (is_growing) message->piece = std::min(message->piece, core.limits.growing_chunk_bytes);
  if (!is_growing) message->ready = payload.size();
  if (window_.may_leave(name, frame_cost(payload.size()))) {
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
  OutgoingMessage& message = in_line != outgoing.end() ? **in_line : *waits->second;
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
  if (early_bytes + frame_cost(payload) <= core.limits.early_bytes) return "";
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

PieceReading MeshLink::claim(const FrameHeader& header) {
  IncomingMessage& incoming = incoming_[name_of(header)];
  incoming.claim(header.offset, header.payload_bytes, (header.flags & kFlagLastPiece) != 0);
  if (incoming.is_posted) return PieceReading::kDirect;
  early_bytes += frame_cost(header.payload_bytes);
  return PieceReading::kEarly;
}

std::span<std::byte> MeshLink::place_of(const FrameHeader& header) {
  return incoming_[name_of(header)].buffer.subspan(header.offset, header.payload_bytes);
}

void MeshLink::take_data(const FrameHeader& header, PieceReading how,
                         std::vector<std::byte>& piece) {
  if (header.term < core.term) {
    if (how == PieceReading::kEarly) early_bytes -= frame_cost(piece.size());
    ++core.dropped_frames;
    return;
  }
  const auto message = incoming_.find(name_of(header));
  LH_CHECK(message != incoming_.end(), "a message waits for the pieces that it has claimed");
  IncomingMessage& incoming = message->second;
  incoming.arrive(header.offset, header.payload_bytes);
  if (how == PieceReading::kEarly) {
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
    early_bytes -= frame_cost(bytes.size());
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
  const std::shared_ptr<OutgoingMessage> message = outgoing[at];
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
    for (const auto& [offset, bytes] : incoming.early) early_bytes -= frame_cost(bytes.size());
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

}  // namespace longhaul
