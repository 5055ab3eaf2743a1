#include "executor/transport/mesh.h"

#include <algorithm>

#include "core/rng.h"
#include "tests/executor/mesh_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AsioMeshWorld;
using fixtures::kTestJob;
using fixtures::pattern;
using fixtures::SimMeshWorld;
using fixtures::WithStreams;

template <class T>
class MeshDoor : public testing::Test {
 protected:
  T world;
};
using Worlds = testing::Types<SimMeshWorld, AsioMeshWorld, WithStreams<SimMeshWorld, 3>,
                              WithStreams<AsioMeshWorld, 3>>;
TYPED_TEST_SUITE(MeshDoor, Worlds);

/// Losses that a rank is told of.
struct Losses {
  explicit Losses(TransportMesh& mesh) {
    mesh.on_lost([this](int peer, const Error& why) {
      ++count;
      last_peer = peer;
      text = why.message;
    });
  }
  int count = 0;
  int last_peer = -1;
  std::string text;
};

TYPED_TEST(MeshDoor, messages_of_every_size_arrive_whether_asked_for_before_or_after) {
  // Around the ends of pieces of 1,000 bytes.
  const std::size_t sizes[] = {0, 1, 999, 1000, 1001, 2000, 2001, 54321};
  this->world.connect(3, {.chunk_bytes = 1000});
  std::vector<std::vector<std::byte>> sent, got;
  for (const std::size_t size : sizes) {
    sent.push_back(pattern(size));
    got.emplace_back(size);
    got.emplace_back(size);
  }
  int handed_over = 0, received = 0;
  const auto post = [&](std::size_t i, int from) {
    this->world.mesh(1).receive(from, 77, static_cast<std::uint32_t>(i),
                                got[2 * i + static_cast<std::size_t>(from) / 2],
                                [&] { ++received; });
  };
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (i % 2 == 0) post(i, 0), post(i, 2);
    for (const int from : {0, 2}) {
      this->world.mesh(from).send(1, 77, static_cast<std::uint32_t>(i), sent[i],
                                  [&] { ++handed_over; });
    }
  }
  EXPECT_EQ(handed_over + received, 0) << "completions are tasks of their own";
  this->world.run_until([&] { return handed_over == 16; });
  for (std::size_t i = 1; i < sent.size(); i += 2) post(i, 0), post(i, 2);
  this->world.run_until([&] { return received == 16; });
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], sent[i / 2]) << i;
}

TYPED_TEST(MeshDoor, a_peer_that_leaves_is_lost_once_and_its_messages_never_complete) {
  this->world.connect(3);
  Losses at_0(this->world.mesh(0)), at_2(this->world.mesh(2));
  std::vector<std::byte> buffer(10);
  this->world.mesh(0).receive(1, 1, 0, buffer, [] { FAIL(); });
  this->world.meshes[1].reset();
  this->world.run_until([&] { return at_0.count > 0 && at_2.count > 0; });
  EXPECT_EQ(at_0.last_peer, 1);
  EXPECT_EQ(at_2.last_peer, 1);
  EXPECT_NE(at_0.text.find("the peer closed the connection"), std::string::npos) << at_0.text;
  // What is sent to it is forgotten, and it is not reported again; the others go on.
  this->world.mesh(0).send(1, 2, 0, buffer, [] { FAIL(); });
  this->world.mesh(0).send_control(1, "hello?");
  bool received = false;
  this->world.mesh(2).receive(0, 3, 0, buffer, [&] { received = true; });
  const std::vector<std::byte> message = pattern(10);
  this->world.mesh(0).send(2, 3, 0, message, [] {});
  this->world.run_until([&] { return received; });
  EXPECT_EQ(at_0.count, 1);
  EXPECT_EQ(at_2.count, 1);
}

TYPED_TEST(MeshDoor, control_messages_arrive_in_order_and_wait_for_their_handler) {
  this->world.connect(2);
  std::string got, expected;
  for (int i = 0; i < 100; ++i) {
    const std::string text = i == 50 ? "" : fmt::format("{} ", i);
    this->world.mesh(0).send_control(1, text);
    expected += text;
  }
  int count = 0;
  this->world.event_loop().after(Seconds(0.02), [&] {
    this->world.mesh(1).on_control([&](int peer, const std::string& text) {
      EXPECT_EQ(peer, 0);
      got += text;
      ++count;
    });
  });
  this->world.run_until([&] { return count == 100; });
  EXPECT_EQ(got, expected);
}

TYPED_TEST(MeshDoor, a_mesh_may_be_destroyed_by_its_own_handler) {
  this->world.connect(2);
  const std::vector<std::byte> message = pattern(5000);
  std::vector<std::byte> buffer(5000);
  for (std::uint32_t i = 0; i < 5; ++i) this->world.mesh(0).send(1, 1, i, message, [] {});
  for (std::uint32_t i = 0; i < 5; ++i) {
    this->world.mesh(1).receive(0, 1, i, buffer, [&] {
      ASSERT_TRUE(this->world.meshes[1]) << "called after its end";
      this->world.meshes[1].reset();
    });
  }
  Losses at_0(this->world.mesh(0));
  this->world.run_until([&] { return at_0.count == 1; });
  EXPECT_FALSE(this->world.meshes[1]);
}

TEST(Mesh, a_control_message_overtakes_a_long_one) {
  // 10 pieces of 936 + 64 bytes at 1,000 B/s: one a second. Two pieces are with the connection when
  // the control message is sent, so it leaves third and arrives before the message is complete.
  SimMeshWorld world;
  world.connect(2, {.chunk_bytes = 936});
  world.network.set_link("h0", "h1", {Seconds(0), bytes_per_second(1000)});
  const Seconds start = world.loop.now();
  const std::vector<std::byte> message = pattern(9360);
  std::vector<std::byte> buffer(9360);
  Seconds control_at, message_at;
  world.mesh(1).receive(0, 1, 0, buffer, [&] { message_at = world.loop.now(); });
  world.mesh(1).on_control([&](int, const std::string&) { control_at = world.loop.now(); });
  world.mesh(0).send(1, 1, 0, message, [] {});
  world.mesh(0).send_control(1, std::string(436, 'x'));
  world.run();
  EXPECT_NEAR((control_at - start).value(), 2.5, 1e-9);
  EXPECT_NEAR((message_at - start).value(), 10.5, 1e-9);
  EXPECT_EQ(buffer, message);
}

TEST(Mesh, who_runs_ahead_waits_before_the_peer_is_full) {
  // A message of 436 bytes counts 436 + 64 = 500: two fill half of the peer's 2,000 bytes.
  SimMeshWorld world;
  world.connect(2, {.early_bytes = 2000, .chunk_bytes = 1000});
  Losses at_0(world.mesh(0)), at_1(world.mesh(1));
  const std::vector<std::byte> message = pattern(436);
  int sent = 0;
  for (std::uint32_t i = 0; i < 5; ++i) world.mesh(0).send(1, 1, i, message, [&] { ++sent; });
  world.run();
  EXPECT_EQ(sent, 2);
  // What is asked for leaves at once, whatever waits before it.
  std::vector<std::vector<std::byte>> buffers(5, std::vector<std::byte>(436));
  std::vector<std::uint32_t> received;
  const auto receive = [&](std::uint32_t i) {
    world.mesh(1).receive(0, 1, i, buffers[i], [&, i] { received.push_back(i); });
    world.run();
  };
  receive(4);
  EXPECT_EQ(received, std::vector<std::uint32_t>{4});
  EXPECT_EQ(sent, 3);
  // One that had left is asked for: there is room for the next that waits.
  receive(0);
  EXPECT_EQ(sent, 4);
  for (const std::uint32_t i : {1u, 2u, 3u}) receive(i);
  EXPECT_EQ(received, (std::vector<std::uint32_t>{4, 0, 1, 2, 3}));
  for (const auto& buffer : buffers) EXPECT_EQ(buffer, message);
  EXPECT_EQ(at_0.count + at_1.count, 0);
}

TEST(Mesh, a_message_longer_than_the_room_waits_until_it_is_asked_for) {
  SimMeshWorld world;
  world.connect(2, {.early_bytes = 2000, .chunk_bytes = 1000});
  const std::vector<std::byte> message = pattern(100'000);
  bool is_sent = false, is_received = false;
  world.mesh(0).send(1, 1, 0, message, [&] { is_sent = true; });
  world.run();
  EXPECT_FALSE(is_sent);
  std::vector<std::byte> buffer(message.size());
  world.mesh(1).receive(0, 1, 0, buffer, [&] { is_received = true; });
  world.run();
  EXPECT_TRUE(is_sent && is_received);
  EXPECT_EQ(buffer, message);
  // Asked for before it is sent: the same.
  is_received = false;
  world.mesh(1).receive(0, 2, 0, buffer, [&] { is_received = true; });
  world.run();
  world.mesh(0).send(1, 2, 0, message, [] {});
  world.run();
  EXPECT_TRUE(is_received);
}

TEST(Mesh, a_message_of_another_size_ends_the_connection) {
  for (const std::size_t asked : {std::size_t{0}, std::size_t{99}, std::size_t{101}}) {
    for (const bool is_early : {false, true}) {
      SimMeshWorld world;
      world.connect(2, {.chunk_bytes = 50});
      Losses at_1(world.mesh(1));
      const std::vector<std::byte> message = pattern(100);
      std::vector<std::byte> buffer(asked);
      if (is_early) {
        world.mesh(0).send(1, 5, 3, message, [] {});
        world.run();
      }
      world.mesh(1).receive(0, 5, 3, buffer, [] { FAIL(); });
      if (!is_early) world.mesh(0).send(1, 5, 3, message, [] {});
      world.run();
      EXPECT_EQ(at_1.count, 1) << asked;
      EXPECT_NE(at_1.text.find("message 0x5/3 of rank 0 does not have the"), std::string::npos)
          << at_1.text;
    }
  }
}

TEST(Mesh, older_terms_are_dropped_and_newer_ones_wait) {
  SimMeshWorld world;
  world.connect(2);
  const auto owner = std::make_shared<int>(0);
  const std::vector<std::byte> old_message = pattern(10, 1), new_message = pattern(10, 2);
  std::vector<std::byte> forgotten(10), buffer(10);
  world.mesh(1).receive(0, 1, 0, forgotten, [owner] { FAIL(); });
  world.mesh(1).set_term(1);
  EXPECT_EQ(owner.use_count(), 1) << "a forgotten receive lets go of its buffer";
  world.mesh(0).send(1, 1, 0, old_message, [] {});
  world.run();
  EXPECT_EQ(world.mesh(1).dropped_frames(), 1u);

  // Rank 0 is in term 2 before rank 1.
  world.mesh(0).set_term(2);
  world.mesh(0).send(1, 1, 0, new_message, [] {});
  world.run();
  bool received = false;
  world.mesh(1).receive(0, 1, 0, forgotten, [] { FAIL(); });  // of term 1
  world.mesh(1).set_term(2);
  world.mesh(1).receive(0, 1, 0, buffer, [&] { received = true; });
  world.run();
  EXPECT_TRUE(received);
  EXPECT_EQ(buffer, new_message);
  EXPECT_EQ(world.mesh(1).dropped_frames(), 1u);
  EXPECT_EQ(forgotten, std::vector<std::byte>(10));
}

TEST(Mesh, what_has_not_left_is_dropped_with_its_term) {
  SimMeshWorld world;
  world.connect(2, {.chunk_bytes = 10});
  const std::vector<std::byte> message = pattern(100);
  std::vector<std::byte> buffer(100);
  const auto owner = std::make_shared<int>(0);
  world.mesh(0).send(1, 1, 0, message, [owner] { FAIL(); });
  world.mesh(0).set_term(1);
  EXPECT_EQ(owner.use_count(), 2) << "two pieces are still with the connection";
  world.mesh(1).receive(0, 1, 0, buffer, [] { FAIL(); });
  world.run();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Mesh, a_cut_is_told_to_both_sides) {
  SimMeshWorld world;
  world.connect(3);
  Losses at_0(world.mesh(0)), at_1(world.mesh(1)), at_2(world.mesh(2));
  world.network.cut("h0", "h1");
  world.run();
  EXPECT_EQ(at_0.last_peer, 1);
  EXPECT_EQ(at_1.last_peer, 0);
  EXPECT_EQ(at_0.count + at_1.count, 2);
  EXPECT_EQ(at_2.count, 0);
}

// ---- Who is let in.

TEST(MeshHandshake, one_rank_is_a_mesh_of_its_own) {
  SimMeshWorld world;
  world.connect(1);
  EXPECT_EQ(world.mesh(0).ranks(), 1);
}

TEST(MeshHandshake, a_rank_that_starts_late_is_waited_for) {
  SimMeshWorld world;
  world.addresses = {"h0:7000", "h1:7000"};
  world.meshes.resize(2);
  world.errors.resize(2);
  world.join(1);
  world.loop.after(Seconds(3), [&] { world.join(0); });
  world.run();
  EXPECT_TRUE(world.meshes[0]) << world.errors[0];
  EXPECT_TRUE(world.meshes[1]) << world.errors[1];
}

TEST(MeshHandshake, who_is_missing_is_named_at_the_deadline) {
  SimMeshWorld world;
  world.addresses = {"h0:7000", "h1:7000", "h2:7000", "h3:7000"};
  world.meshes.resize(4);
  world.errors.resize(4);
  world.join(0);
  world.join(2);
  world.run();
  EXPECT_NE(world.errors[0].find("rank 0: no connection with rank 1, 3 after 5 s"),
            std::string::npos)
      << world.errors[0];
  EXPECT_NE(world.errors[2].find("cannot reach h1:7000: connection refused"), std::string::npos)
      << world.errors[2];
}

/// Ranks 0 and 1 of a job of three are there; what a third one is told.
struct Refusal {
  Refusal() {
    world.addresses = {"h0:7000", "h1:7000", "h2:7000"};
    world.meshes.resize(3);
    world.errors.resize(3);
    world.join(0);
    world.join(1);
  }
  void expect(const std::string& text) {
    world.loop.run_until_idle(Seconds(4));
    EXPECT_NE(world.errors[2].find(text), std::string::npos) << world.errors[2];
    EXPECT_FALSE(world.meshes[2]);
    // The right one is still welcome.
    world.addresses = {"h0:7000", "h1:7000", "h2:7000"};
    world.transports.pop_back();
    world.errors[2] = "";
    world.join(2);
    world.run();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(world.meshes[static_cast<std::size_t>(rank)])
          << world.errors[static_cast<std::size_t>(rank)];
    }
  }
  SimMeshWorld world;
};

TEST(MeshHandshake, another_job_is_refused) {
  Refusal refusal;
  refusal.world.join(2, {}, 0xbad);
  refusal.expect("it says: the caller is of job 0xbad, this is job 0x10b");
}

TEST(MeshHandshake, another_term_is_refused) {
  Refusal refusal;
  refusal.world.join(2, {}, kTestJob, 7);
  refusal.expect("it says: the caller is at term 7, this is term 0");
}

TEST(MeshHandshake, another_number_of_ranks_is_refused) {
  Refusal refusal;
  refusal.world.addresses.push_back("h3:7000");
  refusal.world.join(2);
  refusal.expect("it says: the caller knows 4 ranks, here are 3");
}

TEST(MeshHandshake, addresses_in_another_order_are_refused) {
  Refusal refusal;
  std::swap(refusal.world.addresses[0], refusal.world.addresses[1]);
  refusal.world.join(2);
  refusal.expect("it says: the caller looks for rank");
}

TEST(MeshHandshake, a_second_process_of_a_rank_is_refused) {
  SimMeshWorld world;
  world.connect(2);
  world.addresses[1] = "h9:7000";
  const std::unique_ptr<TransportMesh> first = std::move(world.meshes[1]);
  world.join(1);
  world.run();
  EXPECT_NE(world.errors[1].find("it says: rank 1 is already connected"), std::string::npos)
      << world.errors[1];
  // The first is not disturbed.
  bool received = false;
  std::vector<std::byte> buffer(3);
  const std::vector<std::byte> message = pattern(3);
  first->receive(0, 1, 0, buffer, [&] { received = true; });
  world.mesh(0).send(1, 1, 0, message, [] {});
  world.run();
  EXPECT_TRUE(received);
}

TEST(MeshHandshake, a_peer_that_leaves_too_soon_ends_it_at_once) {
  SimMeshWorld world;
  world.addresses = {"h0:7000", "h1:7000", "h2:7000"};
  world.meshes.resize(3);
  world.errors.resize(3);
  world.join(0);
  world.join(1);
  world.loop.run_until_idle(Seconds(1));
  world.network.kill("h0");
  world.loop.run_until_idle(Seconds(2));
  EXPECT_NE(world.errors[1].find("rank 1: rank 0 is lost: the connection was reset"),
            std::string::npos)
      << world.errors[1];
}

// ---- A port that is open before the peers are known.

TYPED_TEST(MeshDoor, ranks_may_listen_first_and_learn_the_addresses_later) {
  std::vector<std::shared_ptr<MeshListener>> listeners;
  this->world.meshes.resize(3);
  this->world.errors.resize(3);
  for (int rank = 0; rank < 3; ++rank) {
    this->world.transports.push_back(this->world.make_transport(rank));
    const std::string host = this->world.free_address(rank);
    listeners.push_back(*MeshListener::open(*this->world.transports.back(),
                                            this->world.event_loop(),
                                            host.substr(0, host.rfind(':')) + ":0"));
    this->world.addresses.push_back(listeners.back()->address());
  }
  // The highest rank comes first, so that its greetings wait at listeners without a mesh.
  for (const int rank : {2, 1, 0}) {
    const auto place = static_cast<std::size_t>(rank);
    this->world.event_loop().after(Seconds(0.02 * (2 - rank)), [this, rank, place, &listeners] {
      connect_mesh(*this->world.transports[place], this->world.event_loop(), listeners[place],
                   this->world.config(rank), this->world.taker(rank));
    });
  }
  this->world.run_until([&] {
    return std::ranges::all_of(this->world.meshes, [](const auto& mesh) { return !!mesh; });
  });
  bool received = false;
  std::vector<std::byte> buffer(3);
  const std::vector<std::byte> message = pattern(3);
  this->world.mesh(0).receive(2, 1, 0, buffer, [&] { received = true; });
  this->world.mesh(2).send(0, 1, 0, message, [] {});
  this->world.run_until([&] { return received; });
}

TEST(MeshListener, takes_the_address_once) {
  SimMeshWorld world;
  const auto transport = world.make_transport(0);
  const auto first = MeshListener::open(*transport, world.loop, "h0:7000");
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->address(), "h0:7000");
  const auto second = MeshListener::open(*transport, world.loop, "h0:7000");
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos);
}

TEST(MeshListener, an_address_in_use_fails_a_mesh_in_a_task_of_its_own) {
  SimMeshWorld world;
  const auto taker = world.make_transport(0);
  ASSERT_TRUE(taker->listen("h0:7000", [](std::unique_ptr<Connection>) {}));
  world.addresses = {"h0:7000", "h1:7000"};
  world.meshes.resize(2);
  world.errors.resize(2);
  world.join(0);
  EXPECT_EQ(world.errors[0], "");
  world.run();
  EXPECT_NE(world.errors[0].find("rank 0: cannot listen on h0:7000"), std::string::npos)
      << world.errors[0];
}

TEST(MeshListener, abandons_a_mesh_in_the_making_when_it_closes) {
  SimMeshWorld world;
  const auto transport = world.make_transport(0);
  const auto listener = *MeshListener::open(*transport, world.loop, "h0:7000");
  world.addresses = {"h0:7000", "h1:7000"};
  connect_mesh(*transport, world.loop, listener, world.config(0), [](auto) { FAIL(); });
  world.loop.run_until_idle(Seconds(1));
  listener->close();
  world.run();
}

// ---- Whose certificate a rank shows.

/// A connection whose other end has shown a certificate.
class NamedConnection : public Connection {
 public:
  NamedConnection(std::unique_ptr<Connection> inner, std::string name)
      : inner_(std::move(inner)), name_(std::move(name)) {}
  void set_handler(ConnectionHandler* handler) override { inner_->set_handler(handler); }
  void send(FrameHeader header, std::span<const std::byte> payload, Task sent) override {
    inner_->send(header, payload, std::move(sent));
  }
  std::size_t queued_bytes() const override { return inner_->queued_bytes(); }
  void close() override { inner_->close(); }
  std::string peer() const override { return inner_->peer(); }
  std::string identity() const override { return name_; }

 private:
  std::unique_ptr<Connection> inner_;
  std::string name_;
};

/// Every host shows a certificate in its own name, `h0`, `h1`, ...
class NamedTransport : public Transport {
 public:
  explicit NamedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  Result<std::string> listen(const std::string& address, OnConnection task) override {
    return inner_->listen(address, [task](auto connection) { task(named(std::move(connection))); });
  }
  void dial(const std::string& address, Seconds deadline, OnDialled task) override {
    inner_->dial(address, deadline, [task = std::move(task)](auto connection) mutable {
      if (!connection) return task(std::move(connection));
      task(named(std::move(*connection)));
    });
  }

 private:
  static std::unique_ptr<Connection> named(std::unique_ptr<Connection> connection) {
    const std::string peer = connection->peer();
    return std::make_unique<NamedConnection>(std::move(connection), peer.substr(0, 2));
  }
  std::unique_ptr<Transport> inner_;
};

struct NamedMeshWorld : SimMeshWorld {
  std::unique_ptr<Transport> make_transport(int host) override {
    return std::make_unique<NamedTransport>(SimMeshWorld::make_transport(host));
  }
};

TEST(MeshIdentity, everybody_shows_the_expected_certificate) {
  NamedMeshWorld world;
  world.identities = {"h0", "h1", "h2"};
  world.connect(3);
  EXPECT_EQ(world.mesh(0).ranks(), 3);
}

TEST(MeshIdentity, a_caller_with_another_certificate_is_refused_by_name) {
  NamedMeshWorld world;
  world.addresses = {"h0:7000", "h1:7000", "h2:7000"};
  world.meshes.resize(3);
  world.errors.resize(3);
  world.identities = {"h0", "h1", "hx"};
  world.join(0);
  world.identities = {"h0", "h1", "h2"};
  world.join(1);
  world.join(2);
  world.loop.run_until_idle(Seconds(4));
  EXPECT_NE(world.errors[2].find("it says: rank 2 belongs to `hx`, and the certificate shown is "
                                 "that of `h2`"),
            std::string::npos)
      << world.errors[2];
}

TEST(MeshIdentity, a_listener_with_another_certificate_is_left_at_once) {
  NamedMeshWorld world;
  world.addresses = {"h0:7000", "h1:7000"};
  world.meshes.resize(2);
  world.errors.resize(2);
  world.join(0);
  world.identities = {"hx", "h1"};
  world.join(1);
  world.loop.run_until_idle(Seconds(1));
  EXPECT_NE(world.errors[1].find("rank 0 belongs to `hx`, and the certificate shown is that of "
                                 "`h0`"),
            std::string::npos)
      << world.errors[1];
}

TEST(MeshIdentity, a_connection_without_a_certificate_is_refused) {
  SimMeshWorld world;
  world.identities = {"h0", "h1"};
  world.begin(2);
  world.run();
  EXPECT_NE(world.errors[1].find("the certificate shown is none"), std::string::npos)
      << world.errors[1];
}

// ---- Peers that do not keep to the rules.

/// Rank 1 of two, by hand.
struct Stranger : ConnectionHandler {
  explicit Stranger(SimMeshWorld& world_of_mesh) : world(world_of_mesh) {
    transport = world.make_transport(1);
    transport->dial("h0:7000", Seconds(5), [this](auto dialled) {
      ASSERT_TRUE(dialled);
      connection = std::move(*dialled);
      connection->set_handler(this);
    });
    world.run_until([&] { return connection != nullptr; });
  }
  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override {
    buffer.resize(header.payload_bytes);
    return std::span(buffer);
  }
  void received(Connection&, const FrameHeader&, std::span<const std::byte>) override {}
  void closed(Connection&, const Error&) override { is_closed = true; }
  void send(FrameHeader header, std::span<const std::byte> payload) {
    connection->send(header, payload, [] {});
  }
  FrameHeader header(FrameType type) const {
    FrameHeader header;
    header.type = type;
    header.job = kTestJob;
    header.sender = 1;
    return header;
  }
  void greet() {
    FrameHeader hello = header(FrameType::kHello);
    hello.operation = 2;
    send(hello, {});
  }

  SimMeshWorld& world;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Connection> connection;
  std::vector<std::byte> buffer;
  bool is_closed = false;
};

struct OneRank : SimMeshWorld {
  OneRank() {
    addresses = {"h0:7000", "h1:7000"};
    meshes.resize(2);
    errors.resize(2);
    join(0, {.early_bytes = 400, .chunk_bytes = 100});
  }
};

TEST(MeshRules, data_before_the_greeting_is_refused_and_the_right_rank_still_welcome) {
  OneRank world;
  Stranger stranger(world);
  const std::vector<std::byte> payload = pattern(8);
  stranger.send(stranger.header(FrameType::kData), payload);
  world.loop.run_until_idle(Seconds(1));
  EXPECT_TRUE(stranger.is_closed);
  Stranger second(world);
  second.greet();
  world.run_until([&] { return world.meshes[0] != nullptr; });
}

TEST(MeshRules, callers_who_say_nothing_are_kept_in_bounds) {
  OneRank world;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 65; ++i) strangers.push_back(std::make_unique<Stranger>(world));
  world.loop.run_until_idle(Seconds(1));
  EXPECT_TRUE(strangers[0]->is_closed);
  EXPECT_FALSE(strangers[1]->is_closed);
}

TEST(MeshRules, the_first_frame_decides_who_takes_a_caller) {
  SimMeshWorld world;
  const auto transport = world.make_transport(0);
  const auto listener = *MeshListener::open(*transport, world.loop, "h0:7000");
  const std::vector<std::byte> join = pattern(MeshListener::kJoinBytesMax);
  const std::vector<std::byte> too_long = pattern(MeshListener::kJoinBytesMax + 1);

  Stranger refused(world);
  refused.send(refused.header(FrameType::kControl), join);
  world.loop.run_until_idle(Seconds(1));
  EXPECT_TRUE(refused.is_closed);
  EXPECT_NE(listener->last_trouble().find("was refused: nobody can join here"), std::string::npos);

  std::unique_ptr<Connection> joined;
  std::size_t bytes = 0;
  listener->on_join([&](std::unique_ptr<Connection> connection, const std::string& text) {
    joined = std::move(connection);
    bytes = text.size();
    struct Ignore : ConnectionHandler {
      std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader&) override {
        return std::nullopt;
      }
      void received(Connection&, const FrameHeader&, std::span<const std::byte>) override {}
      void closed(Connection&, const Error&) override {}
    };
    static Ignore ignore;
    joined->set_handler(&ignore);
  });
  Stranger welcome(world), long_winded(world), greeter(world), impatient(world), wrong(world);
  welcome.send(welcome.header(FrameType::kControl), join);
  long_winded.send(long_winded.header(FrameType::kControl), too_long);
  greeter.greet();
  impatient.greet();
  impatient.send(impatient.header(FrameType::kData), join);
  wrong.send(wrong.header(FrameType::kPing), {});
  world.loop.run_until_idle(Seconds(2));
  EXPECT_TRUE(joined);
  EXPECT_EQ(bytes, join.size());
  EXPECT_FALSE(welcome.is_closed);
  EXPECT_TRUE(long_winded.is_closed);
  EXPECT_FALSE(greeter.is_closed);
  EXPECT_TRUE(impatient.is_closed);
  EXPECT_TRUE(wrong.is_closed);

  int greetings = 0;
  listener->on_greeting([&](std::unique_ptr<Connection>, const FrameHeader& hello) {
    ++greetings;
    EXPECT_EQ(hello.sender, 1u);
  });
  EXPECT_EQ(greetings, 1) << "it has waited";
  listener->close();
}

TEST(MeshRules, pieces_that_do_not_make_a_message_are_refused_by_name) {
  struct Piece {
    std::uint64_t offset;
    std::size_t size;
    bool is_last;
  };
  struct Case {
    std::vector<Piece> pieces;
    bool is_posted;  // a receive of 100 bytes
    std::string error;
  };
  const Case cases[] = {
      {{{50, 50, true}, {0, 50, false}}, true, ""},  // in another order
      {{{50, 50, true}, {0, 50, false}}, false, ""},
      {{{0, 50, false}, {49, 51, true}}, true, "came twice"},
      {{{0, 50, false}, {49, 51, true}}, false, "came twice"},
      {{{50, 50, true}, {100, 0, true}}, true, "came twice"},
      {{{50, 51, false}}, true, "does not have the 100 bytes"},
      {{{101, 0, true}}, true, "does not have the 100 bytes"},
      {{{0, 99, true}}, true, "does not have the 100 bytes"},
      {{{~std::uint64_t{0}, 2, true}}, false, "does not have the"},
      {{{0, 50, true}, {50, 10, false}}, false, "goes on after its end"},
      {{{50, 50, false}, {0, 50, true}}, false, "goes on after its end"},
      {{{0, 0, false}}, true, "has an empty piece"},
      // Early pieces of 68 + 64 bytes: three fit into 400, four do not.
      {{{0, 68, false}, {68, 68, false}, {136, 68, false}}, false, ""},
      {{{0, 68, false}, {68, 68, false}, {136, 68, false}, {204, 68, false}}, false, "more than"},
  };
  for (const Case& row : cases) {
    OneRank world;
    Stranger stranger(world);
    stranger.greet();
    world.run_until([&] { return world.meshes[0] != nullptr; });
    Losses losses(world.mesh(0));
    std::vector<std::byte> buffer(100);
    bool received = false;
    if (row.is_posted) world.mesh(0).receive(1, 0, 0, buffer, [&] { received = true; });
    const std::vector<std::byte> message = pattern(100);
    for (const Piece& piece : row.pieces) {
      FrameHeader header = stranger.header(FrameType::kData);
      header.offset = piece.offset;
      header.flags = piece.is_last ? 2 : 0;
      stranger.send(header, std::span(message).first(piece.size));
    }
    world.run();
    EXPECT_EQ(losses.count, row.error.empty() ? 0 : 1) << row.error << losses.text;
    EXPECT_NE(losses.text.find(row.error), std::string::npos) << losses.text;
    EXPECT_EQ(received, row.error.empty() && row.is_posted);
  }
}

TEST(MeshRules, random_frames_never_do_more_than_end_the_connection) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    OneRank world;
    Rng rng("mesh rules", seed);
    Stranger stranger(world);
    if (rng.below(10) > 0) stranger.greet();
    world.loop.run_until_idle(Seconds(1));
    if (!world.meshes[0]) continue;
    Losses losses(world.mesh(0));
    std::vector<std::byte> buffer(100);
    world.mesh(0).receive(1, 0, 0, buffer, [] {});
    const std::vector<std::byte> message = pattern(200);
    for (int i = 0; i < 20; ++i) {
      FrameHeader header = stranger.header(
          rng.below(4) > 0 ? FrameType::kData : static_cast<FrameType>(1 + rng.below(9)));
      header.flags = static_cast<std::uint16_t>(rng.below(4));
      header.operation = rng.below(3);
      header.term = static_cast<std::uint32_t>(rng.below(3));
      header.offset = rng.below(5) * 25;
      if (rng.below(20) == 0) header.sender = 0;
      const std::size_t size = rng.below(6) * 25;
      const bool has_payload = header.type == FrameType::kData ||
                               header.type == FrameType::kControl ||
                               header.type == FrameType::kError;
      stranger.send(header, std::span(message).first(has_payload ? size : 0));
      if (rng.below(10) == 0) world.mesh(0).set_term(1);
    }
    world.run();
    EXPECT_LE(losses.count, 1);
    lost += losses.count;
  }
  EXPECT_GT(lost, 100);
}

}  // namespace
}  // namespace longhaul
