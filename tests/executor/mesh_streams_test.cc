// Links of several streams. What holds for one stream holds for several: mesh_test.cc.
#include <algorithm>
#include <map>
#include <optional>

#include "core/rng.h"
#include "core/topology.h"
#include "executor/transport/mesh.h"
#include "tests/executor/mesh_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AsioMeshWorld;
using fixtures::kTestJob;
using fixtures::pattern;
using fixtures::SimMeshWorld;
using fixtures::WithStreams;

struct Losses {
  explicit Losses(TransportMesh& mesh) {
    mesh.on_lost([this](int, const Error& why) {
      ++count;
      text = why.message;
    });
  }
  int count = 0;
  std::string text;
};

// ---- Worlds that note what each host sends.

struct SentFrame {
  FrameType type;
  int stream;
  std::size_t bytes;  // of payload
};

struct Watch {
  std::vector<SentFrame> sent;
  std::vector<Connection*> connections;                 // dialled or accepted, oldest first
  std::function<std::string(std::size_t)> identity_of;  // of the n-th; may be empty
  /// Data frames on each stream, and their bytes.
  std::map<int, std::pair<int, std::size_t>> data() const {
    std::map<int, std::pair<int, std::size_t>> by_stream;
    for (const SentFrame& frame : sent) {
      if (frame.type != FrameType::kData) continue;
      ++by_stream[frame.stream].first;
      by_stream[frame.stream].second += frame.bytes;
    }
    return by_stream;
  }
};

class WatchedConnection : public Connection {
 public:
  WatchedConnection(std::unique_ptr<Connection> inner, Watch& watch)
      : inner_(std::move(inner)), watch_(watch) {
    if (watch_.identity_of) identity_ = watch_.identity_of(watch_.connections.size());
    watch_.connections.push_back(this);
  }
  void set_handler(ConnectionHandler* handler) override { inner_->set_handler(handler); }
  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) override {
    watch_.sent.push_back({header.type, header.stream, payload.size()});
    inner_->send(header, payload, std::move(sent));
  }
  std::size_t queued_bytes() const override { return inner_->queued_bytes(); }
  void close() override { inner_->close(); }
  std::string peer() const override { return inner_->peer(); }
  std::string identity() const override { return identity_; }

 private:
  std::unique_ptr<Connection> inner_;
  Watch& watch_;
  std::string identity_;
};

class WatchedTransport : public Transport {
 public:
  WatchedTransport(std::unique_ptr<Transport> inner, Watch& watch)
      : inner_(std::move(inner)), watch_(watch) {}
  Result<std::string> listen(const std::string& address, OnConnection task) override {
    return inner_->listen(address, [task, &watch = watch_](auto connection) {
      task(std::make_unique<WatchedConnection>(std::move(connection), watch));
    });
  }
  void dial(const std::string& address, Seconds deadline, OnDialled task) override {
    inner_->dial(address, deadline,
                 [task = std::move(task), &watch = watch_](auto connection) mutable {
                   if (!connection) return task(std::move(connection));
                   task(std::make_unique<WatchedConnection>(std::move(*connection), watch));
                 });
  }

 private:
  std::unique_ptr<Transport> inner_;
  Watch& watch_;
};

template <class World>
struct Watched : World {
  ~Watched() override {
    this->meshes.clear();  // they send to the watches
    this->transports.clear();
  }
  std::unique_ptr<Transport> make_transport(int host) override {
    return std::make_unique<WatchedTransport>(World::make_transport(host), watches[host]);
  }
  std::map<int, Watch> watches;
};
using ThreeStreams = Watched<WithStreams<SimMeshWorld, 3>>;

/// Rank 0 sends, rank 1 receives.
template <class World>
void deliver(World& world, const std::vector<std::byte>& message, std::uint32_t segment = 0) {
  int done = 0;
  std::vector<std::byte> buffer(message.size());
  world.mesh(1).receive(0, 1, segment, buffer, [&] { ++done; });
  world.mesh(0).send(1, 1, segment, message, [&] { ++done; });
  world.run_until([&] { return done == 2; });
  EXPECT_EQ(buffer, message);
}

template <class T>
class MeshStreams : public testing::Test {};
using WatchedWorlds = testing::Types<ThreeStreams, Watched<WithStreams<AsioMeshWorld, 3>>>;
TYPED_TEST_SUITE(MeshStreams, WatchedWorlds);

TYPED_TEST(MeshStreams, every_stream_has_a_piece_of_a_long_message) {
  // 900,000 / 3 = 300,000, in whole KiB 293 x 1,024 = 300,032; the last piece has the rest.
  TypeParam world;
  world.connect(2);
  deliver(world, pattern(900'000));
  const std::map<int, std::pair<int, std::size_t>> expected = {
      {0, {1, 299'936}}, {1, {1, 300'032}}, {2, {1, 300'032}}};
  EXPECT_EQ(world.watches[0].data(), expected);
}

TYPED_TEST(MeshStreams, a_message_of_many_pieces_arrives_both_ways_at_once) {
  TypeParam world;
  world.connect(2, {.chunk_bytes = 5000});
  const std::vector<std::byte> there = pattern(1'000'001), back = pattern(777'777);
  std::vector<std::byte> at_1(there.size()), at_0(back.size());
  int done = 0;
  world.mesh(0).send(1, 1, 0, there, [&] { ++done; });
  world.mesh(1).send(0, 1, 0, back, [&] { ++done; });
  world.mesh(0).receive(1, 1, 0, at_0, [&] { ++done; });
  world.mesh(1).receive(0, 1, 0, at_1, [&] { ++done; });
  world.run_until([&] { return done == 4; });
  EXPECT_EQ(at_1, there);
  EXPECT_EQ(at_0, back);
  for (const int stream : {0, 1, 2}) {
    EXPECT_GT(world.watches[0].data()[stream].first, 0) << stream;
    EXPECT_GT(world.watches[1].data()[stream].first, 0) << stream;
  }
}

TYPED_TEST(MeshStreams, a_lost_stream_loses_the_peer_once_and_ends_the_others) {
  for (const std::size_t lost : {0u, 1u, 2u}) {
    TypeParam world;
    world.connect(2);
    Losses at_0(world.mesh(0)), at_1(world.mesh(1));
    const auto owner = std::make_shared<int>(0);
    std::vector<std::byte> buffer(10);
    world.mesh(0).receive(1, 1, 0, buffer, [owner] { FAIL(); });
    ASSERT_EQ(world.watches[1].connections.size(), 3u);
    // Rank 1 is not told of what is closed at its end; it learns from its other two streams.
    world.watches[1].connections[lost]->close();
    world.run_until([&] { return at_0.count > 0 && at_1.count > 0; });
    EXPECT_EQ(owner.use_count(), 1) << "its messages are forgotten";
    world.mesh(0).send(1, 2, 0, buffer, [] { FAIL(); });
    bool later = false;
    world.event_loop().after(Seconds(0.02), [&] { later = true; });
    world.run_until([&] { return later; });
    EXPECT_EQ(at_0.count, 1);
    EXPECT_EQ(at_1.count, 1);
    EXPECT_NE(at_1.text.find("the peer closed the connection"), std::string::npos) << at_1.text;
  }
}

// ---- How a message is cut, and who takes what.

TEST(MeshPieces, are_as_long_as_keeps_every_stream_busy) {
  struct Case {
    const char* what;
    int streams;
    std::size_t message;
    std::size_t chunk;
    std::vector<std::size_t> pieces;
  };
  constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
  const Case cases[] = {
      {"nothing", 3, 0, kMiB, {0}},
      {"a short message stays whole", 3, 64 * kKiB, kMiB, {64 * kKiB}},
      {"no piece but the last is shorter than 64 KiB", 3, 64 * kKiB + 1, kMiB, {64 * kKiB, 1}},
      {"a share for each stream", 3, 300 * kKiB, kMiB, {100 * kKiB, 100 * kKiB, 100 * kKiB}},
      {"shares are whole KiB", 2, 300 * kKiB + 2, kMiB, {151 * kKiB, 149 * kKiB + 2}},
      {"at most a chunk", 2, 3 * kMiB, kMiB, {kMiB, kMiB, kMiB}},
      {"a chunk may be short", 2, 2500, 1000, {1000, 1000, 500}},
      {"one stream: chunks", 1, 2 * kMiB + 1, kMiB, {kMiB, kMiB, 1}},
      {"a frame has a longest payload", 1, 5 * kMiB, 64 * kMiB, {4 * kMiB, kMiB}},
  };
  for (const Case& row : cases) {
    Watched<SimMeshWorld> world;
    world.streams = row.streams;
    world.connect(2, {.chunk_bytes = row.chunk});
    deliver(world, pattern(row.message));
    std::vector<std::size_t> pieces;
    for (const SentFrame& frame : world.watches[0].sent) {
      if (frame.type == FrameType::kData) pieces.push_back(frame.bytes);
    }
    EXPECT_EQ(pieces, row.pieces) << row.what;
  }
}

TEST(MeshPieces, short_messages_take_turns_on_the_streams_that_carry_no_control) {
  ThreeStreams world;
  world.connect(2);
  for (std::uint32_t i = 0; i < 6; ++i) deliver(world, pattern(100), i);
  const std::map<int, std::pair<int, std::size_t>> expected = {{1, {3, 300}}, {2, {3, 300}}};
  EXPECT_EQ(world.watches[0].data(), expected);
}

TEST(MeshPieces, a_busy_stream_is_passed_over) {
  // Four messages at once: streams 1, 2 and 0 have one each, then 1 again.
  ThreeStreams world;
  world.connect(2);
  const std::vector<std::byte> message = pattern(100);
  std::vector<int> streams;
  for (std::uint32_t i = 0; i < 4; ++i) world.mesh(0).send(1, 1, i, message, [] {});
  for (const SentFrame& frame : world.watches[0].sent) {
    if (frame.type == FrameType::kData) streams.push_back(frame.stream);
  }
  EXPECT_EQ(streams, (std::vector<int>{1, 2, 0, 1}));
}

TEST(MeshPieces, streams_carry_their_windows_side_by_side) {
  // Each connection gets 1 MB/s, as one with a window of its own would. 3 MB leave one stream in
  // three pieces after 3 + 3 x 64e-6 s. Three streams have one of 977 KiB = 1,000,448 bytes or
  // less each, so that all is there after 1.000448 + 64e-6 s.
  for (const int streams : {1, 3}) {
    SimMeshWorld world;
    world.streams = streams;
    world.connect(2);
    world.network.set_link("h0", "h1", {Seconds(0), bytes_per_second(1e6)});
    const Seconds start = world.loop.now();
    deliver(world, pattern(3'000'000));
    EXPECT_NEAR((world.loop.now() - start).value(), streams == 1 ? 3.000192 : 1.000512, 1e-9);
  }
}

TEST(MeshPieces, small_frames_may_be_four_on_a_stream_and_long_ones_two) {
  // A chunk of 1,000: two frames of 1,064 bytes at most, or four of together no more than 2,128.
  // Of 468 bytes with their headers fit 4 x 532 = 2,128, of 469 only three.
  struct Case {
    std::size_t bytes;
    int in_flight;
  };
  for (const Case& row : {Case{1000, 2}, Case{469, 3}, Case{468, 4}, Case{0, 4}}) {
    Watched<SimMeshWorld> world;
    world.connect(2, {.chunk_bytes = 1000});
    const std::vector<std::byte> message = pattern(row.bytes);
    for (std::uint32_t i = 0; i < 10; ++i) world.mesh(0).send(1, 1, i, message, [] {});
    EXPECT_EQ(world.watches[0].data()[0].first, row.in_flight) << row.bytes;
  }
}

TEST(MeshPieces, a_control_message_waits_for_no_more_than_what_is_with_its_stream) {
  // 30 pieces of 936 + 64 bytes at 1,000 B/s a connection. Each stream has two when the control
  // message is sent, so it leaves stream 0 third, after 2 s, in half a second.
  ThreeStreams world;
  world.connect(2, {.chunk_bytes = 936});
  world.network.set_link("h0", "h1", {Seconds(0), bytes_per_second(1000)});
  const Seconds start = world.loop.now();
  const std::vector<std::byte> message = pattern(28'080);
  std::vector<std::byte> buffer(message.size());
  Seconds control_at;
  bool received = false;
  world.mesh(1).receive(0, 1, 0, buffer, [&] { received = true; });
  world.mesh(1).on_control([&](int, const std::string&) { control_at = world.loop.now(); });
  world.mesh(0).send(1, 1, 0, message, [] {});
  world.mesh(0).send_control(1, std::string(436, 'x'));
  world.run();
  EXPECT_NEAR((control_at - start).value(), 2.5, 1e-9);
  EXPECT_TRUE(received);
  EXPECT_EQ(buffer, message);
}

TEST(MeshPieces, early_messages_count_by_peer_whatever_their_stream) {
  // Three messages of 436 bytes count 3 x (436 + 64) = 1,500 bytes, half of the peer's room, each
  // on another stream; the fourth waits.
  ThreeStreams world;
  world.connect(2, {.early_bytes = 3000, .chunk_bytes = 1000});
  Losses at_1(world.mesh(1));
  const std::vector<std::byte> message = pattern(436);
  int sent = 0;
  for (std::uint32_t i = 0; i < 4; ++i) world.mesh(0).send(1, 1, i, message, [&] { ++sent; });
  world.run();
  EXPECT_EQ(sent, 3);
  EXPECT_EQ(at_1.count, 0);
}

// ---- Greetings.

TEST(MeshStreamGreetings, both_sides_must_count_the_same_streams) {
  for (const int listener : {1, 3}) {
    SimMeshWorld world;
    world.addresses = {"h0:7000", "h1:7000"};
    world.meshes.resize(2);
    world.errors.resize(2);
    world.streams = listener;
    world.join(0);
    world.streams = 4 - listener;
    world.join(1);
    world.loop.run_until_idle(Seconds(3));
    EXPECT_NE(world.errors[1].find(
                  fmt::format("it says: the caller counts {} streams between ranks 0 and 1, here "
                              "are {}",
                              4 - listener, listener)),
              std::string::npos)
        << world.errors[1];
    // The right one is still welcome.
    world.transports.pop_back();
    world.streams = listener;
    world.join(1);
    world.run();
    EXPECT_TRUE(world.meshes[0]) << world.errors[0];
    EXPECT_TRUE(world.meshes[1]) << world.errors[1];
  }
}

TEST(MeshStreamGreetings, links_of_one_mesh_may_have_different_numbers) {
  Watched<SimMeshWorld> world;
  world.addresses = {"h0:7000", "h1:7000", "h2:7000"};
  world.meshes.resize(3);
  world.errors.resize(3);
  const std::vector<std::vector<int>> streams = {{1, 2, 3}, {2, 1, 1}, {3, 1, 1}};
  for (const int rank : {0, 1, 2}) {
    world.transports.push_back(world.make_transport(rank));
    MeshConfig config = world.config(rank);
    config.streams = streams[static_cast<std::size_t>(rank)];
    connect_mesh(*world.transports.back(), world.loop, std::move(config), world.taker(rank));
  }
  world.run();
  for (const auto& mesh : world.meshes) ASSERT_TRUE(mesh);
  EXPECT_EQ(world.watches[0].connections.size(), 2u + 3u);
  EXPECT_EQ(world.watches[1].connections.size(), 2u + 1u);
}

TEST(MeshStreamGreetings, all_streams_of_a_large_mesh_may_call_at_once) {
  // 126 streams reach rank 0 at one instant and say HELLO a latency later: more than the 64 silent
  // callers that a listener keeps of strangers.
  WithStreams<SimMeshWorld, kMaxStreams> world;
  world.connect(3);
}

TEST(MeshStreamGreetings, each_stream_shows_the_ranks_certificate) {
  for (const int liar : {0, 1}) {
    ThreeStreams world;
    world.addresses = {"h0:7000", "h1:7000"};
    world.identities = {"h0", "h1"};
    world.meshes.resize(2);
    world.errors.resize(2);
    // What rank `other` sees: the second stream of rank `liar` has another certificate.
    for (const int other : {0, 1}) {
      world.watches[other].identity_of = [=](std::size_t stream) -> std::string {
        return other != liar && stream == 1 ? "hx" : fmt::format("h{}", 1 - other);
      };
    }
    world.join(0);
    world.join(1);
    world.loop.run_until_idle(Seconds(2));
    EXPECT_NE(
        world.errors[1].find(fmt::format(
            "rank {} belongs to `h{}`, and the certificate shown is that of `hx`", liar, liar)),
        std::string::npos)
        << world.errors[1];
  }
}

// ---- Rank 1 of two, by hand: frames arrive in two halves, in any order between streams.

class HandConnection : public Connection {
 public:
  void set_handler(ConnectionHandler* to) override { handler = to; }
  void send(FrameHeader header, std::span<const std::byte>, Task sent) override {
    frames.push_back(header);
    handed_over.push_back(std::move(sent));
  }
  std::size_t queued_bytes() const override { return 0; }
  void close() override { is_closed = true; }
  std::string peer() const override { return "by hand"; }
  void limit_rate(BytesPerSecond rate) override { rate_max = rate; }

  ConnectionHandler* handler = nullptr;
  BytesPerSecond rate_max = BytesPerSecond::infinity();
  std::vector<FrameHeader> frames;
  std::vector<Task> handed_over;
  bool is_closed = false;
};

struct HandTransport : Transport {
  Result<std::string> listen(const std::string& address, OnConnection task) override {
    accept = std::move(task);
    return address;
  }
  void dial(const std::string&, Seconds, OnDialled task) override {
    dials.push_back(std::move(task));
  }
  OnConnection accept;
  std::vector<OnDialled> dials;
};

struct HandLink {
  explicit HandLink(int stream_count, MeshLimits limits = {}, int rank = 0,
                    std::vector<BytesPerSecond> rates = {})
      : streams(stream_count) {
    MeshConfig config{{"a:1", "b:1"}, {}, rank, kTestJob, 0, limits, Seconds(5)};
    config.streams = {stream_count, stream_count};
    config.rates = std::move(rates);
    connect_mesh(transport, loop, std::move(config), [this](auto made) {
      if (made) {
        mesh = std::move(*made);
      } else {
        error = made.error().text();
      }
    });
  }
  ~HandLink() { mesh = nullptr; }

  FrameHeader header(FrameType type, int stream) const {
    FrameHeader header;
    header.type = type;
    header.job = kTestJob;
    header.sender = 1;
    header.stream = static_cast<std::uint16_t>(stream);
    return header;
  }
  FrameHeader greeting(FrameType type, int stream) const {
    FrameHeader greeting = header(type, stream);
    greeting.operation = 2;
    greeting.offset = static_cast<std::uint64_t>(streams - 1);
    return greeting;
  }
  FrameHeader data(int stream, std::uint64_t offset, std::uint32_t bytes, bool is_last,
                   std::uint64_t operation = 1) const {
    FrameHeader data = header(FrameType::kData, stream);
    data.operation = operation;
    data.offset = offset;
    data.payload_bytes = bytes;
    data.flags = is_last ? 2 : 0;
    return data;
  }
  /// Calls and says HELLO. What becomes of the connection is told by what it is sent.
  HandConnection& call(int stream) {
    auto connection = std::make_unique<HandConnection>();
    HandConnection& made = *connection;
    transport.accept(std::move(connection));
    made.handler->received(made, greeting(FrameType::kHello, stream), {});
    return made;
  }
  void connect() {
    for (int stream = 0; stream < streams; ++stream) connections.push_back(&call(stream));
    loop.run_until_idle(loop.now() + Seconds(1));
    ASSERT_TRUE(mesh) << error;
    mesh->on_lost([this](int, const Error& why) {
      ++losses;
      lost = why.message;
    });
  }
  HandConnection& connection(int stream) { return *connections[static_cast<std::size_t>(stream)]; }
  /// The first half of a frame: where its payload goes.
  std::optional<std::span<std::byte>> announce(const FrameHeader& header) {
    HandConnection& on = connection(header.stream);
    return on.handler->buffer_for(on, header);
  }
  /// The second half: its bytes count up from the offset.
  void arrive(const FrameHeader& header, std::span<std::byte> place) {
    for (std::size_t i = 0; i < place.size(); ++i) {
      place[i] = static_cast<std::byte>(header.offset + i);
    }
    HandConnection& on = connection(header.stream);
    on.handler->received(on, header, place);
    run();
  }
  void run() { loop.run_until_idle(loop.now() + Seconds(1)); }

  int streams;
  SimEventLoop loop;
  HandTransport transport;
  std::unique_ptr<TransportMesh> mesh;
  std::vector<HandConnection*> connections;
  std::string error, lost;
  int losses = 0;
};

std::vector<std::byte> counting(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(MeshStreamGreetings, a_stream_that_stays_away_is_told_at_the_deadline) {
  HandLink link(3);
  link.call(0);
  link.call(2);
  link.loop.run_until_idle(Seconds(6));
  EXPECT_NE(link.error.find("rank 0: no connection with rank 1 (2 of 3 streams) after 5 s"),
            std::string::npos)
      << link.error;
}

TEST(MeshStreamGreetings, a_stream_that_is_not_answered_is_told_at_the_deadline) {
  // This is rank 1, which dials: the others only once stream 0 is answered.
  HandLink link(2, {}, 1);
  ASSERT_EQ(link.transport.dials.size(), 1u);
  std::vector<HandConnection*> made;
  const auto answer_dial = [&] {
    auto connection = std::make_unique<HandConnection>();
    made.push_back(connection.get());
    link.transport.dials[made.size() - 1](std::move(connection));
  };
  answer_dial();
  ASSERT_EQ(made[0]->frames.size(), 1u);
  EXPECT_EQ(made[0]->frames[0].type, FrameType::kHello);
  EXPECT_EQ(made[0]->frames[0].offset, 1u);
  FrameHeader ack = link.greeting(FrameType::kHelloAck, 0);
  ack.sender = 0;
  ack.segment = 1;
  made[0]->handler->received(*made[0], ack, {});
  ASSERT_EQ(link.transport.dials.size(), 2u);
  answer_dial();
  ASSERT_EQ(made[1]->frames.size(), 1u);
  EXPECT_EQ(made[1]->frames[0].stream, 1u);
  link.loop.run_until_idle(Seconds(6));
  EXPECT_NE(link.error.find("rank 1: no connection with rank 0 (1 of 2 streams) after 5 s"),
            std::string::npos)
      << link.error;
}

TEST(MeshStreamGreetings, an_answer_for_another_stream_or_number_of_streams_is_refused) {
  for (const bool is_other_stream : {true, false}) {
    HandLink link(2, {}, 1);
    auto connection = std::make_unique<HandConnection>();
    HandConnection& made = *connection;
    link.transport.dials[0](std::move(connection));
    FrameHeader ack = link.greeting(FrameType::kHelloAck, is_other_stream ? 1 : 0);
    ack.sender = 0;
    ack.segment = 1;
    if (!is_other_stream) ack.offset = 2;
    made.handler->received(made, ack, {});
    link.run();
    const std::string expected = is_other_stream
                                     ? "the answer is of stream 1, this is stream 0"
                                     : "the answer counts 3 streams between ranks 0 and 1, here";
    EXPECT_NE(link.error.find(expected), std::string::npos) << link.error;
  }
}

TEST(MeshStreamGreetings, streams_that_do_not_belong_to_the_link_are_refused_by_name) {
  // A refusal is an ERROR frame; its text is the listener's last trouble.
  struct Case {
    std::vector<int> before;
    int stream;
    const char* error;
  };
  const Case cases[] = {
      {{}, 1, "rank 1 calls with stream 1 before stream 0"},
      {{0}, 3, "the caller is of stream 3, and the last one is 2"},
      {{0}, 0, "rank 1 is already connected"},
      {{0, 1}, 1, "stream 1 of rank 1 is already connected"},
  };
  for (const Case& row : cases) {
    HandLink link(3);
    for (const int stream : row.before) {
      EXPECT_EQ(link.call(stream).frames[0].type, FrameType::kHelloAck);
    }
    EXPECT_EQ(link.call(row.stream).frames[0].type, FrameType::kError);
    link.loop.run_until_idle(Seconds(6));
    EXPECT_NE(link.error.find(row.error), std::string::npos) << link.error;
  }
}

TEST(MeshStreamGreetings, streams_share_what_the_path_carries_and_a_quarter_more) {
  const BytesPerSecond none = BytesPerSecond::infinity();
  // 1.25 x 300 / 3.
  HandLink limited(3, {}, 0, {none, BytesPerSecond(300)});
  limited.connect();
  for (const HandConnection* connection : limited.connections) {
    EXPECT_EQ(connection->rate_max, BytesPerSecond(125));
  }
  HandLink unknown(3, {}, 0, {none, none});
  unknown.connect();
  EXPECT_EQ(unknown.connections[0]->rate_max, none);
}

TEST(MeshStreamGreetings, data_may_come_on_an_answered_stream_before_the_others_are) {
  HandLink link(2);
  link.connections = {&link.call(0)};
  const FrameHeader piece = link.data(0, 0, 10, true);
  const auto place = link.announce(piece);
  ASSERT_TRUE(place);
  link.arrive(piece, *place);
  link.connections.push_back(&link.call(1));
  link.run();
  ASSERT_TRUE(link.mesh);
  std::vector<std::byte> buffer(10);
  bool received = false;
  link.mesh->receive(1, 1, 0, buffer, [&] { received = true; });
  link.run();
  EXPECT_TRUE(received);
  EXPECT_EQ(buffer, counting(10));
}

// ---- Pieces on their way over several streams at once.

TEST(MeshPieces, a_message_is_complete_when_no_piece_is_under_way) {
  HandLink link(3);
  link.connect();
  std::vector<std::byte> buffer(100);
  bool received = false;
  link.mesh->receive(1, 1, 0, buffer, [&] { received = true; });
  const FrameHeader first = link.data(0, 0, 40, false), middle = link.data(2, 40, 20, false),
                    last = link.data(1, 60, 40, true);
  const auto at_first = link.announce(first), at_middle = link.announce(middle),
             at_last = link.announce(last);
  ASSERT_TRUE(at_first && at_middle && at_last);
  link.arrive(last, *at_last);
  link.arrive(first, *at_first);
  EXPECT_FALSE(received);
  link.arrive(middle, *at_middle);
  EXPECT_TRUE(received);
  EXPECT_EQ(buffer, counting(100));
}

TEST(MeshPieces, two_streams_never_write_to_one_place) {
  // Else a message would be complete, and its buffer free, while the other stream writes to it.
  struct Case {
    std::uint64_t offset;
    std::uint32_t bytes;
    bool is_last;
    const char* error;
  };
  const Case cases[] = {
      {0, 40, false, "came twice"}, {39, 10, false, "came twice"},
      {0, 100, true, "came twice"}, {0, 30, true, "came twice"},
      {40, 60, true, ""},
  };
  for (const bool is_posted : {true, false}) {
    for (const Case& row : cases) {
      HandLink link(2);
      link.connect();
      const auto owner = std::make_shared<int>(0);
      std::vector<std::byte> buffer(100);
      if (is_posted) link.mesh->receive(1, 1, 0, buffer, [owner] {});
      ASSERT_TRUE(link.announce(link.data(0, 0, 40, false)));
      const bool is_taken =
          link.announce(link.data(1, row.offset, row.bytes, row.is_last)).has_value();
      link.run();
      EXPECT_EQ(is_taken, row.error[0] == '\0');
      EXPECT_EQ(link.losses, is_taken ? 0 : 1);
      const bool is_size = is_posted && row.is_last && row.offset + row.bytes != 100;
      EXPECT_NE(link.lost.find(is_size ? "does not have the 100 bytes" : row.error),
                std::string::npos)
          << link.lost;
      if (is_taken) continue;
      EXPECT_TRUE(link.connection(0).is_closed && link.connection(1).is_closed);
      EXPECT_EQ(owner.use_count(), 1) << "nothing writes to the buffer any more";
    }
  }
}

TEST(MeshPieces, early_pieces_count_while_they_are_read) {
  // 68 + 64 bytes each: three fit into 400.
  HandLink link(4, {.early_bytes = 400});
  link.connect();
  std::vector<std::optional<std::span<std::byte>>> places;
  for (int stream = 0; stream < 3; ++stream) {
    places.push_back(
        link.announce(link.data(stream, 0, 68, true, 7 + static_cast<unsigned>(stream))));
    ASSERT_TRUE(places.back());
  }
  // Those of an old term make room again when they have been read.
  link.mesh->set_term(1);
  for (int stream = 0; stream < 3; ++stream) {
    link.arrive(link.data(stream, 0, 68, true, 7 + static_cast<unsigned>(stream)),
                *places[static_cast<std::size_t>(stream)]);
  }
  EXPECT_EQ(link.mesh->dropped_frames(), 3u);
  for (int stream = 0; stream < 4; ++stream) {
    FrameHeader piece = link.data(stream, 0, 68, true, 7 + static_cast<unsigned>(stream));
    piece.term = 1;
    EXPECT_EQ(link.announce(piece).has_value(), stream < 3);
  }
  link.run();
  EXPECT_NE(link.lost.find("more than the 400 bytes"), std::string::npos) << link.lost;
}

TEST(MeshPieces, a_message_asked_for_while_its_pieces_are_read_is_taken_over) {
  HandLink link(2);
  link.connect();
  const FrameHeader first = link.data(0, 0, 60, false), last = link.data(1, 60, 40, true);
  const auto at_first = link.announce(first), at_last = link.announce(last);
  std::vector<std::byte> buffer(100);
  bool received = false;
  link.mesh->receive(1, 1, 0, buffer, [&] { received = true; });
  link.arrive(last, *at_last);
  EXPECT_FALSE(received);
  link.arrive(first, *at_first);
  EXPECT_TRUE(received);
  EXPECT_EQ(buffer, counting(100));
}

TEST(MeshPieces, a_buffer_of_an_old_term_is_kept_until_no_stream_writes_to_it) {
  HandLink link(3);
  link.connect();
  const auto owner = std::make_shared<int>(0);
  std::vector<std::byte> buffer(100);
  link.mesh->receive(1, 1, 0, buffer, [owner] { FAIL(); });
  const FrameHeader first = link.data(0, 0, 60, false), last = link.data(1, 60, 40, true);
  const auto at_first = link.announce(first), at_last = link.announce(last);
  ASSERT_TRUE(at_first && at_last);
  link.mesh->set_term(1);
  link.mesh->set_term(2);
  EXPECT_EQ(owner.use_count(), 2);
  link.arrive(first, *at_first);
  EXPECT_EQ(owner.use_count(), 2);
  link.arrive(last, *at_last);
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(link.mesh->dropped_frames(), 2u);
}

TEST(MeshPieces, a_message_is_sent_when_its_last_piece_is_gone_whichever_that_is) {
  // 100 KiB: 64 KiB on stream 1, then 36 KiB on stream 0. The streams hand over in either order.
  for (const int first : {0, 1}) {
    HandLink link(2);
    link.connect();
    const std::vector<std::byte> message = pattern(100 * 1024);
    bool sent = false;
    link.mesh->send(1, 1, 0, message, [&] { sent = true; });
    ASSERT_EQ(link.connection(0).frames.size(), 2u);  // with HELLO_ACK
    ASSERT_EQ(link.connection(1).frames.size(), 2u);
    link.connection(first).handed_over[1]();
    link.run();
    EXPECT_FALSE(sent);
    link.connection(1 - first).handed_over[1]();
    link.run();
    EXPECT_TRUE(sent);
  }
}

TEST(MeshPieces, data_does_not_overtake_a_control_message_that_waits_for_room) {
  // Room for 2 x 1,064 bytes: two small frames of 532 leave 1,064, enough for a third but not for a
  // control message of 1,100.
  HandLink link(1, {.chunk_bytes = 1000});
  link.connect();
  const std::vector<std::byte> message = pattern(468);
  for (std::uint32_t i = 0; i < 2; ++i) link.mesh->send(1, 1, i, message, [] {});
  link.mesh->send_control(1, std::string(1100, 'x'));
  link.mesh->send(1, 1, 2, message, [] {});
  HandConnection& on = link.connection(0);
  ASSERT_EQ(on.frames.size(), 1u + 2u);  // after HELLO_ACK
  on.handed_over[1]();
  ASSERT_EQ(on.frames.size(), 1u + 3u);
  EXPECT_EQ(on.frames[3].type, FrameType::kControl);
}

TEST(MeshPieces, frames_on_the_wrong_stream_end_the_link) {
  for (const bool is_control : {true, false}) {
    HandLink link(2);
    link.connect();
    FrameHeader frame = is_control ? link.header(FrameType::kControl, 1) : link.data(0, 0, 8, true);
    frame.payload_bytes = 8;
    HandConnection& on = link.connection(1);
    EXPECT_FALSE(on.handler->buffer_for(on, frame));
    link.run();
    EXPECT_NE(link.lost.find(is_control ? "rank 1 sent a control message on stream 1"
                                        : "a frame of stream 0 of rank 1 came on stream 1"),
              std::string::npos)
        << link.lost;
  }
}

TEST(MeshPieces, random_halves_of_frames_never_write_where_nobody_waits) {
  struct Reading {
    FrameHeader header;
    std::span<std::byte> place;
  };
  struct Posted {
    std::vector<std::byte> buffer;
    bool is_posted = false;
    bool is_done = false;
    std::vector<std::uint64_t> pieces = {0, 25, 50, 75};  // offsets still to be sent
  };
  constexpr int kStreams = 3;
  int completed = 0, lost = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    HandLink link(kStreams, {.early_bytes = 1000});
    link.connect();
    Rng rng("mesh streams", seed);
    std::vector<Posted> messages(4);
    std::map<int, Reading> reading;  // by stream
    for (Posted& message : messages) message.buffer.resize(100);
    for (int i = 0; i < 100 && link.losses == 0; ++i) {
      const std::size_t which = rng.index(messages.size());
      Posted& message = messages[which];
      const int stream = static_cast<int>(rng.below(kStreams));
      if (!message.is_posted && rng.below(4) == 0) {
        message.is_posted = true;
        link.mesh->receive(1, which, 0, message.buffer, [&, which] {
          Posted& done = messages[which];
          done.is_done = true;
          ++completed;
          EXPECT_EQ(done.buffer, counting(100)) << seed;
          for (const auto& [on, frame] : reading) {
            EXPECT_TRUE(frame.place.data() < done.buffer.data() ||
                        frame.place.data() >= done.buffer.data() + done.buffer.size())
                << "seed " << seed << ": stream " << on << " still writes to it";
          }
        });
        link.run();
      } else if (const auto frame = reading.find(stream); frame != reading.end()) {
        const Reading read = frame->second;
        reading.erase(frame);
        link.arrive(read.header, read.place);
      } else if (!message.pieces.empty()) {
        const std::size_t at = rng.index(message.pieces.size());
        const std::uint64_t offset = message.pieces[at];
        FrameHeader header = link.data(stream, offset, 25, offset == 75, which);
        if (rng.below(60) == 0) {
          header.payload_bytes += 1;
        } else if (rng.below(60) > 0) {  // else it comes again
          message.pieces.erase(message.pieces.begin() + static_cast<std::ptrdiff_t>(at));
        }
        const auto place = link.announce(header);
        if (place) {
          EXPECT_EQ(place->size(), header.payload_bytes);
          reading[stream] = {header, *place};
        }
        link.run();
      }
    }
    lost += link.losses;
    if (link.losses == 0) continue;
    EXPECT_EQ(link.losses, 1) << seed;
    for (const HandConnection* connection : link.connections) EXPECT_TRUE(connection->is_closed);
  }
  EXPECT_GT(completed, 100);
  EXPECT_GT(lost, 20);
}

}  // namespace
}  // namespace longhaul
