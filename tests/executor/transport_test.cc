// The two sides of the Transport door keep the same promises, the real one over TCP and over TLS.

#include "executor/transport/transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <thread>

#include "executor/transport/asio_transport.h"
#include "executor/transport/sim_transport.h"

namespace longhaul {
namespace {

/// Two processes that can talk, in wall time over loopback or in virtual time.
class World {
 public:
  virtual ~World() = default;
  virtual EventLoop& loop() = 0;
  virtual std::unique_ptr<Transport> make_transport(const std::string& host) = 0;
  virtual std::string any_address(const std::string& host) = 0;
  /// Runs until `done` says so; fails the test when nothing more can happen.
  virtual void run_until(const std::function<bool()>& done) = 0;
};

class SimWorld : public World {
 public:
  explicit SimWorld(std::uint64_t seed = 1) : network(sim_loop, seed) {}
  EventLoop& loop() override { return sim_loop; }
  std::unique_ptr<Transport> make_transport(const std::string& host) override {
    return network.make_transport(host);
  }
  std::string any_address(const std::string& host) override { return host + ":0"; }
  void run_until(const std::function<bool()>& done) override {
    while (!done()) ASSERT_TRUE(sim_loop.step()) << "nothing more happens";
  }

  SimEventLoop sim_loop;
  SimNetwork network;
};

class AsioWorld : public World {
 public:
  EventLoop& loop() override { return runtime.loop(); }
  std::unique_ptr<Transport> make_transport(const std::string&) override {
    return runtime.make_transport();
  }
  std::string any_address(const std::string&) override { return "127.0.0.1:0"; }
  void run_until(const std::function<bool()>& done) override {
    bool late = false;
    const TimerId deadline = loop().after(Seconds(20), [&] {
      late = true;
      runtime.stop();
    });
    watch(done);
    runtime.run();
    loop().cancel(deadline);
    ASSERT_FALSE(late) << "nothing more happens";
  }

  AsioRuntime runtime;

 private:
  /// Looks after every task: whatever changes `done` is one.
  void watch(const std::function<bool()>& done) {
    if (done()) return runtime.stop();
    loop().post([this, &done] { watch(done); });
  }
};

class TlsWorld : public AsioWorld {
 public:
  std::unique_ptr<Transport> make_transport(const std::string& host) override {
    static const JobAuthority authority = JobAuthority::create(7).value();
    const KeyPair key = make_key().value();
    return runtime
        .make_transport(
            {.who = TlsIdentity{7, authority.certificate_pem(),
                                authority.issue(key.public_pem, host).value(), key.private_pem},
             .limits = {},
             .on_refused = {}})
        .value();
  }
};

/// Keeps whole frames; refuses data that it was told to refuse.
class Recorder : public ConnectionHandler {
 public:
  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override {
    if (refuse) return std::nullopt;
    buffers.emplace_back(header.payload_bytes);
    return std::span(buffers.back());
  }
  void received(Connection& connection, const FrameHeader& header,
                std::span<const std::byte> payload) override {
    headers.push_back(header);
    payloads.emplace_back(payload.begin(), payload.end());
    if (echo) connection.send(header, payloads.back(), [] {});
  }
  void closed(Connection&, const Error& why) override { reason = why.message; }

  bool refuse = false;
  bool echo = false;
  std::vector<FrameHeader> headers;
  std::deque<std::vector<std::byte>> payloads;
  std::deque<std::vector<std::byte>> buffers;
  std::string reason;
};

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + size);
  return bytes;
}

FrameHeader data_frame(std::uint32_t segment) {
  FrameHeader header;
  header.type = FrameType::kData;
  header.segment = segment;
  return header;
}

/// A listener and a connection to it.
struct Pair {
  explicit Pair(World& world_of_pair) : world(world_of_pair) {
    server = world.make_transport("east");
    client = world.make_transport("west");
    const Result<std::string> listening =
        server->listen(world.any_address("east"), [this](std::unique_ptr<Connection> connection) {
          at_server = std::move(connection);
          at_server->set_handler(&server_side);
        });
    EXPECT_TRUE(listening) << listening.error().text();
    address = *listening;
    client->dial(address, Seconds(5), [this](Result<std::unique_ptr<Connection>> connection) {
      ASSERT_TRUE(connection) << connection.error().text();
      at_client = std::move(*connection);
      at_client->set_handler(&client_side);
    });
    world.run_until([this] { return at_server && at_client; });
  }

  World& world;
  Recorder server_side, client_side;
  std::unique_ptr<Transport> server, client;
  std::unique_ptr<Connection> at_server, at_client;
  std::string address;
};

template <class T>
class TransportDoor : public testing::Test {
 protected:
  T world;
};
using Worlds = testing::Types<SimWorld, AsioWorld, TlsWorld>;
TYPED_TEST_SUITE(TransportDoor, Worlds);

TYPED_TEST(TransportDoor, frames_arrive_whole_and_in_order) {
  Pair pair(this->world);
  const std::size_t sizes[] = {0, 1, 63, 64, 65, 70000, kMaxDataPayload};
  std::vector<std::vector<std::byte>> sent;
  for (const std::size_t size : sizes) sent.push_back(pattern(size));
  std::size_t handed_over = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    pair.at_client->send(data_frame(static_cast<std::uint32_t>(i)), sent[i],
                         [&] { ++handed_over; });
  }
  EXPECT_GT(pair.at_client->queued_bytes(), std::size_t{kMaxDataPayload});
  this->world.run_until(
      [&] { return pair.server_side.headers.size() == sent.size() && handed_over == sent.size(); });
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(pair.server_side.headers[i].segment, i);
    EXPECT_EQ(pair.server_side.payloads[i], sent[i]);
  }
  EXPECT_EQ(pair.at_client->queued_bytes(), 0u);
}

TYPED_TEST(TransportDoor, both_directions_carry_frames) {
  Pair pair(this->world);
  pair.server_side.echo = true;
  const std::vector<std::byte> payload = pattern(1000);
  for (std::uint32_t i = 0; i < 50; ++i) pair.at_client->send(data_frame(i), payload, [] {});
  this->world.run_until([&] { return pair.client_side.headers.size() == 50; });
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(pair.client_side.headers[i].segment, i);
}

TYPED_TEST(TransportDoor, a_closed_connection_is_reported_once_to_the_other_end) {
  Pair pair(this->world);
  pair.at_client->close();
  this->world.run_until([&] { return !pair.server_side.reason.empty(); });
  EXPECT_NE(pair.server_side.reason.find("the peer closed the connection"), std::string::npos);
  EXPECT_TRUE(pair.client_side.reason.empty());
}

TYPED_TEST(TransportDoor, a_destroyed_connection_is_closed) {
  Pair pair(this->world);
  pair.at_server.reset();
  this->world.run_until([&] { return !pair.client_side.reason.empty(); });
  EXPECT_TRUE(pair.server_side.reason.empty());
}

TYPED_TEST(TransportDoor, a_frame_that_nobody_waits_for_ends_the_connection) {
  Pair pair(this->world);
  pair.server_side.refuse = true;
  const std::vector<std::byte> payload = pattern(10);
  pair.at_client->send(data_frame(0), payload, [] {});
  this->world.run_until([&] { return !pair.server_side.reason.empty(); });
  EXPECT_NE(pair.server_side.reason.find("nobody waits for"), std::string::npos);
  EXPECT_TRUE(pair.server_side.headers.empty());
}

TYPED_TEST(TransportDoor, each_end_knows_both_addresses) {
  Pair pair(this->world);
  EXPECT_EQ(pair.at_client->peer(), pair.address);
  EXPECT_EQ(pair.at_server->local(), pair.address);
  EXPECT_EQ(pair.at_client->local(), pair.at_server->peer());
  EXPECT_FALSE(pair.at_client->local().empty());
}

TYPED_TEST(TransportDoor, dialling_where_nobody_listens_is_refused_with_the_address) {
  const std::unique_ptr<Transport> transport = this->world.make_transport("west");
  // A port that was free a moment ago.
  std::string address;
  {
    const std::unique_ptr<Transport> other = this->world.make_transport("east");
    address = *other->listen(this->world.any_address("east"), [](std::unique_ptr<Connection>) {});
  }
  std::string error;
  transport->dial(address, Seconds(5), [&](Result<std::unique_ptr<Connection>> connection) {
    ASSERT_FALSE(connection);
    error = connection.error().message;
  });
  this->world.run_until([&] { return !error.empty(); });
  EXPECT_NE(error.find(address), std::string::npos) << error;
  EXPECT_NE(error.find("refused"), std::string::npos) << error;
}

TYPED_TEST(TransportDoor, an_address_in_use_is_refused) {
  const std::unique_ptr<Transport> first = this->world.make_transport("east");
  const std::unique_ptr<Transport> second = this->world.make_transport("east");
  const auto ignore = [](std::unique_ptr<Connection>) {};
  const Result<std::string> address = first->listen(this->world.any_address("east"), ignore);
  ASSERT_TRUE(address);
  const Result<std::string> again = second->listen(*address, ignore);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find(*address), std::string::npos);
}

TYPED_TEST(TransportDoor, timers_run_in_order_unless_cancelled) {
  std::string order;
  EventLoop& loop = this->world.loop();
  loop.after(Seconds(0.02), [&] { order += 'c'; });
  const TimerId cancelled = loop.after(Seconds(0.01), [&] { order += 'x'; });
  loop.after(Seconds(0.001), [&] { order += 'b'; });
  loop.post([&] { order += 'a'; });
  loop.cancel(cancelled);
  loop.cancel(kNoTimer);
  this->world.run_until([&] { return order.ends_with('c'); });
  EXPECT_EQ(order, "abc");
}

// ---- What only the simulated side can show.

TEST(SimTransport, a_transfer_takes_its_bytes_and_its_latency) {
  SimWorld world;
  world.network.set_link("west", "east", {Seconds(0.25), bytes_per_second(1000)});
  Pair pair(world);
  const Seconds before = world.loop().now();
  const std::vector<std::byte> payload = pattern(936);  // 1,000 bytes with the header: 1 s
  pair.at_client->send(data_frame(0), payload, [] {});
  world.run_until([&] { return !pair.server_side.headers.empty(); });
  EXPECT_NEAR((world.loop().now() - before).value(), 1.25, 1e-9);
}

TEST(SimTransport, a_cut_is_told_to_both_ends_and_a_black_hole_to_none) {
  SimWorld world;
  Pair pair(world);
  world.network.cut("east", "west");
  world.run_until(
      [&] { return !pair.server_side.reason.empty() && !pair.client_side.reason.empty(); });

  SimWorld silent;
  Pair other(silent);
  silent.network.black_hole("east", "west");
  const std::vector<std::byte> payload = pattern(10);
  other.at_client->send(data_frame(0), payload, [] {});
  EXPECT_TRUE(silent.sim_loop.run_until_idle(Seconds(100)));
  EXPECT_TRUE(other.server_side.headers.empty());
  EXPECT_TRUE(other.server_side.reason.empty());
}

TEST(SimTransport, a_killed_process_is_never_called_and_its_peer_sees_a_reset) {
  SimWorld world;
  Pair pair(world);
  const std::vector<std::byte> payload = pattern(10);
  pair.at_client->send(data_frame(0), payload, [] {});
  world.network.kill("east");
  world.run_until([&] { return !pair.client_side.reason.empty(); });
  EXPECT_TRUE(pair.server_side.headers.empty());
  EXPECT_TRUE(pair.server_side.reason.empty());
}

TEST(SimTransport, frames_keep_their_order_on_a_loop_that_stretches_timers) {
  SimEventLoop loop(7, 2.0);
  SimNetwork network(loop, 7);
  const std::unique_ptr<Transport> server = network.make_transport("east");
  const std::unique_ptr<Transport> client = network.make_transport("west");
  Recorder server_side, client_side;
  std::unique_ptr<Connection> at_server, at_client;
  const std::string address =
      *server->listen("east:0", [&](std::unique_ptr<Connection> connection) {
        at_server = std::move(connection);
        at_server->set_handler(&server_side);
      });
  client->dial(address, Seconds(60), [&](Result<std::unique_ptr<Connection>> connection) {
    at_client = std::move(*connection);
    at_client->set_handler(&client_side);
  });
  ASSERT_TRUE(loop.run_until_idle(Seconds(100)));
  const std::vector<std::byte> payload = pattern(10);
  for (std::uint32_t i = 0; i < 200; ++i) at_client->send(data_frame(i), payload, [] {});
  ASSERT_TRUE(loop.run_until_idle(Seconds(200)));
  ASSERT_EQ(server_side.headers.size(), 200u);
  for (std::uint32_t i = 0; i < 200; ++i) EXPECT_EQ(server_side.headers[i].segment, i);
}

TEST(SimTransport, a_corrupted_frame_is_never_delivered) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimWorld world(seed);
    Pair pair(world);
    world.network.corrupt_next("west", "east");
    const std::vector<std::byte> payload = pattern(100);
    pair.at_client->send(data_frame(0), payload, [] {});
    world.run_until(
        [&] { return !pair.server_side.reason.empty() && !pair.client_side.reason.empty(); });
    EXPECT_TRUE(pair.server_side.headers.empty());
  }
}

// ---- What only real sockets can show.

template <class T>
class RealTransport : public TransportDoor<T> {};
using RealWorlds = testing::Types<AsioWorld, TlsWorld>;
TYPED_TEST_SUITE(RealTransport, RealWorlds);

TYPED_TEST(RealTransport, buffers_may_go_as_soon_as_a_connection_is_closed) {
  // Closed after more and more of two long frames; a sanitizer build sees who touches what is gone.
  for (int turns = 1; turns <= 12; ++turns) {
    Pair pair(this->world);
    auto payload = std::make_unique<std::vector<std::byte>>(pattern(kMaxDataPayload));
    const auto pass = [&](int count) { this->world.run_until([&count] { return count-- == 0; }); };
    pair.at_client->send(data_frame(0), *payload, [] {});
    pair.at_server->send(data_frame(1), *payload, [] {});
    pass(turns);
    pair.at_server.reset();
    pair.server_side.buffers.clear();
    pair.at_client->close();
    pair.client_side.buffers.clear();
    payload.reset();
    pass(10);
  }
}

TEST(AsioTransport, over_tls_each_end_knows_the_name_in_the_others_certificate) {
  TlsWorld world;
  const Pair pair(world);
  EXPECT_EQ(pair.at_server->identity(), "west");
  EXPECT_EQ(pair.at_client->identity(), "east");
  AsioWorld plain;
  const Pair nobody(plain);
  EXPECT_EQ(nobody.at_server->identity(), "");
}

/// A plain blocking client that writes raw bytes, `piece` at a time.
void write_raw(const std::string& address, std::span<const std::byte> bytes, std::size_t piece) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0)
      << std::strerror(errno);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::size_t size = std::min(piece, bytes.size() - at);
    if (write(socket_fd, bytes.data() + at, size) != static_cast<ssize_t>(size)) break;
  }
  close(socket_fd);
}

/// What a listener gets when a client writes `bytes` and leaves.
Recorder record_raw(std::span<const std::byte> bytes, std::size_t piece) {
  AsioWorld world;
  Recorder recorder;
  std::unique_ptr<Connection> connection;
  const std::unique_ptr<Transport> transport = world.make_transport("");
  const std::string address =
      *transport->listen("127.0.0.1:0", [&](std::unique_ptr<Connection> accepted) {
        connection = std::move(accepted);
        connection->set_handler(&recorder);
      });
  std::thread client([&] { write_raw(address, bytes, piece); });
  world.run_until([&] { return !recorder.reason.empty(); });
  client.join();
  return recorder;
}

std::vector<std::byte> raw_frame(std::size_t size) {
  const std::vector<std::byte> payload = pattern(size);
  FrameHeader header = data_frame(9);
  header.payload_bytes = static_cast<std::uint32_t>(size);
  header.payload_crc = payload_checksum(payload);
  const FrameHeaderBytes head = encode_frame_header(header);
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

TEST(AsioTransport, a_frame_split_at_every_byte_arrives_whole) {
  const Recorder recorder = record_raw(raw_frame(40), 1);
  ASSERT_EQ(recorder.payloads.size(), 1u);
  EXPECT_EQ(recorder.payloads.front(), pattern(40));
}

TEST(AsioTransport, every_truncation_of_a_frame_ends_with_nothing_delivered) {
  const std::vector<std::byte> whole = raw_frame(8);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Recorder recorder = record_raw(std::span(whole).first(size), 4096);
    EXPECT_TRUE(recorder.headers.empty()) << size;
    EXPECT_NE(recorder.reason.find("closed"), std::string::npos) << recorder.reason;
  }
}

TEST(AsioTransport, bytes_of_another_protocol_end_the_connection) {
  const std::string text =
      "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody who dialled wrong\r\n\r\n";
  const Recorder recorder = record_raw(std::as_bytes(std::span(text)), 4096);
  EXPECT_NE(recorder.reason.find("does not speak longhaul"), std::string::npos) << recorder.reason;
  EXPECT_TRUE(recorder.buffers.empty());
}

}  // namespace
}  // namespace longhaul
