#include "executor/transport/transport_mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "executor/transport/mesh_link.h"

namespace longhaul {
namespace {

constexpr Seconds kRedialMin{0.05};
constexpr Seconds kRedialMax{1.0};

}  // namespace

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
    link(peer).early_bytes -= frame_cost(text.size());
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
