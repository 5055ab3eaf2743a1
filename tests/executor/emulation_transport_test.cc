// The emulated transport: exact times in virtual time, on SimTransport; meshes on both doors.

#include "executor/emulation/emulated_transport.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/transport/sim_transport.h"
#include "tests/executor/emulation_fixtures.h"
#include "tests/executor/mesh_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AsioMeshWorld;
using fixtures::PageFile;
using fixtures::pattern;
using fixtures::plain_network;
using fixtures::SimMeshWorld;
using fixtures::uplink_network;

constexpr double kNanosecond = 1e-9;

WallClock clock_of(const EventLoop& loop) {
  return [&loop] { return static_cast<std::int64_t>(std::llround(loop.now().value() * 1e9)); };
}

/// What one end of a connection has seen, and when.
class Recorder : public ConnectionHandler {
 public:
  explicit Recorder(EventLoop& event_loop) : loop(event_loop) {}

  std::optional<std::span<std::byte>> buffer_for(Connection&, const FrameHeader& header) override {
    if (refuse) return std::nullopt;
    buffer.resize(header.payload_bytes);
    return buffer;
  }
  void received(Connection&, const FrameHeader& header,
                std::span<const std::byte> payload) override {
    segments.push_back(header.segment);
    types.push_back(header.type);
    payloads.emplace_back(payload.begin(), payload.end());
    times.push_back(loop.now().value());
    if (on_received) on_received();
  }
  void closed(Connection&, const Error& why) override {
    closed_at = loop.now().value();
    reason = why.message;
  }

  EventLoop& loop;
  bool refuse = false;
  std::function<void()> on_received;
  std::vector<std::byte> buffer;
  std::vector<std::uint32_t> segments;
  std::vector<FrameType> types;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<double> times;
  double closed_at = -1;
  std::string reason;
};

/// Ranks in one thread, each with its own emulated transport. Bytes themselves take no time.
class World {
 public:
  explicit World(const EmulatedNetwork& network, double dilation = 1)
      : page(file.create(network, dilation)) {
    sim.set_default_link({.latency = Seconds(0)});
    for (int rank = 0; rank < network.ranks; ++rank) {
      transports.push_back(
          make_emulated_transport(sim.make_transport(host(rank)), loop, *page, clock_of(loop)));
    }
  }

  /// One connection. Rank `from` dials and says HELLO.
  struct Pair {
    explicit Pair(EventLoop& loop) : dialler(loop), listener(loop) {}
    Recorder dialler, listener;
    std::unique_ptr<Connection> at_dialler, at_listener;
  };
  std::unique_ptr<Pair> connect(int from, int to, bool greet = true) {
    auto pair = std::make_unique<Pair>(loop);
    const auto address = transports[static_cast<std::size_t>(to)]->listen(
        host(to) + ":0", [&](std::unique_ptr<Connection> connection) {
          pair->at_listener = std::move(connection);
          pair->at_listener->set_handler(&pair->listener);
        });
    transports[static_cast<std::size_t>(from)]->dial(
        *address, Seconds(1), [&](Result<std::unique_ptr<Connection>> connection) {
          pair->at_dialler = std::move(*connection);
          pair->at_dialler->set_handler(&pair->dialler);
        });
    while (!pair->at_dialler) EXPECT_TRUE(loop.step());
    if (greet) say_hello(*pair, from, to);
    return pair;
  }
  void say_hello(Pair& pair, int from, int to) {
    FrameHeader hello;
    hello.type = FrameType::kHello;
    hello.sender = static_cast<std::uint32_t>(from);
    hello.segment = static_cast<std::uint32_t>(to);
    pair.at_dialler->send(hello, {}, [] {});
    const auto is_hello = [](FrameType type) { return type == FrameType::kHello; };
    while (std::ranges::none_of(pair.listener.types, is_hello)) ASSERT_TRUE(loop.step());
    pair.listener.types.clear();
    pair.listener.segments.clear();
    pair.listener.payloads.clear();
    pair.listener.times.clear();
  }
  /// A data frame at a time; `name` is its segment. When it has left is in `left`.
  void send_at(double time, Connection& connection, std::size_t size, std::uint32_t name = 0) {
    loop.after(Seconds(time) - loop.now(),
               [this, &connection, size, name] { send(connection, size, name); });
  }
  void send(Connection& connection, std::size_t size, std::uint32_t name = 0) {
    FrameHeader header;
    header.type = FrameType::kData;
    header.segment = name;
    payloads.push_back(pattern(size, name));
    connection.send(header, payloads.back(), [this, name] { left[name] = loop.now().value(); });
  }
  void send_control(Connection& connection) {
    FrameHeader header;
    header.type = FrameType::kControl;
    connection.send(header, {}, [] {});
  }
  void run() { ASSERT_TRUE(loop.run_until_idle(Seconds(1e6))); }

  static std::string host(int rank) { return fmt::format("h{}", rank); }

  SimEventLoop loop;
  SimNetwork sim{loop, 1};
  PageFile file;
  std::unique_ptr<SharedPage> page;
  std::vector<std::unique_ptr<Transport>> transports;
  std::deque<std::vector<std::byte>> payloads;
  std::map<std::uint32_t, double> left;
};

void expect_times(const std::vector<double>& times, const std::vector<double>& expected) {
  ASSERT_EQ(times.size(), expected.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(times[i], expected[i], kNanosecond) << "frame " << i;
  }
}

TEST(EmulatedTransport, a_frame_takes_its_wire_bytes_over_the_rate_and_then_the_latency) {
  // 1000 x 1.25 bytes at 500 bytes/s = 2.5 s, then 0.25 s.
  EmulatedNetwork network = plain_network(2, 500, 0.25);
  network.wire_factor = 1.25;
  World world(network);
  const auto pair = world.connect(0, 1);
  world.send(*pair->at_dialler, 1000, 7);
  EXPECT_EQ(pair->at_dialler->queued_bytes(), 1064u);
  world.run();
  EXPECT_NEAR(world.left[7], 2.5, kNanosecond);
  expect_times(pair->listener.times, {2.75});
  EXPECT_EQ(pair->listener.payloads[0], pattern(1000, 7));
  EXPECT_EQ(pair->at_dialler->queued_bytes(), 0u);
  EXPECT_EQ(world.page->counters().frames, 1u);
  EXPECT_EQ(world.page->counters().late_frames, 0u);
}

TEST(EmulatedTransport, frames_queue_and_arrive_in_the_order_of_the_calls) {
  // 100 bytes/s: 1, 0, 2.5 and then sixteen times 0.1 s, which is more than the page holds.
  World world(plain_network(2, 100, 10));
  const auto pair = world.connect(0, 1);
  std::vector<double> expected = {11, 11, 13.5};
  std::vector<std::uint32_t> names = {0, 1, 2};
  world.send(*pair->at_dialler, 100, 0);
  world.send(*pair->at_dialler, 0, 1);
  world.send(*pair->at_dialler, 250, 2);
  for (std::uint32_t i = 1; i <= 16; ++i) {
    world.send(*pair->at_dialler, 10, 2 + i);
    expected.push_back(13.5 + 0.1 * i);
    names.push_back(2 + i);
  }
  world.run();
  expect_times(pair->listener.times, expected);
  EXPECT_EQ(pair->listener.segments, names);
}

TEST(EmulatedTransport, both_directions_have_their_own_rate_and_latency) {
  EmulatedNetwork network = plain_network(2, 100, 1);
  network.path(1, 0) = {.latency = seconds(3), .rate_cap = bytes_per_second(10), .resources = {}};
  World world(network);
  const auto pair = world.connect(0, 1);
  world.send(*pair->at_dialler, 100);
  world.send(*pair->at_listener, 100);
  world.run();
  expect_times(pair->listener.times, {1 + 1});
  expect_times(pair->dialler.times, {10 + 3});
}

TEST(EmulatedTransport, short_flow_that_leaves_speeds_up_the_other) {
  // As in tests/netsim/flow_network_test.cc: at 50 bytes/s the short one ends at 4 s; the long one
  // has 800 left, at 100 bytes/s: 12 s.
  World world(uplink_network(3, 100));
  const auto longer = world.connect(0, 1);
  const auto shorter = world.connect(0, 2);
  world.send(*longer->at_dialler, 1000);
  world.send(*shorter->at_dialler, 200);
  world.run();
  expect_times(shorter->listener.times, {4});
  expect_times(longer->listener.times, {12});
}

TEST(EmulatedTransport, second_flow_arriving_halfway_delays_the_first_by_half) {
  // As in tests/netsim/flow_network_test.cc: 15 s and 20 s. The first one in two frames: the first
  // frame of 400 bytes is through before, at 4 s.
  World world(uplink_network(3, 100));
  const auto first = world.connect(0, 1);
  const auto second = world.connect(0, 2);
  world.send_at(0, *first->at_dialler, 400);
  world.send_at(0, *first->at_dialler, 600);
  world.send_at(5, *second->at_dialler, 1000);
  world.run();
  expect_times(first->listener.times, {4, 15});
  expect_times(second->listener.times, {20});
}

TEST(EmulatedTransport, change_travels_along_a_chain_of_links) {
  // As in tests/netsim/flow_network_test.cc: w ends at 10 s, x and z at 20 s, y at 25 s.
  EmulatedNetwork network = plain_network(5, 1000);
  network.capacities = {bytes_per_second(10), bytes_per_second(6)};
  network.path(0, 4).resources = {0};
  network.path(1, 4).resources = {0, 1};
  network.path(2, 4).resources = {1};
  network.path(3, 4).resources = {1};
  World world(network);
  std::vector<std::unique_ptr<World::Pair>> pairs;
  for (int rank = 0; rank < 4; ++rank) pairs.push_back(world.connect(rank, 4));
  const std::size_t sizes[] = {150, 80, 50, 20};
  for (std::size_t i = 0; i < 4; ++i) world.send(*pairs[i]->at_dialler, sizes[i]);
  world.run();
  expect_times(pairs[0]->listener.times, {20});
  expect_times(pairs[1]->listener.times, {25});
  expect_times(pairs[2]->listener.times, {20});
  expect_times(pairs[3]->listener.times, {10});
}

TEST(EmulatedTransport, dilation_stretches_everything) {
  // (1000 / 100 + 0.5) s x 3.
  World world(plain_network(2, 100, 0.5), 3);
  const auto pair = world.connect(0, 1);
  world.send(*pair->at_dialler, 1000);
  world.run();
  expect_times(pair->listener.times, {31.5});
}

TEST(EmulatedTransport, control_frames_take_a_latency_and_no_turn) {
  // The data takes 10 s + 0.5 s. At 0 s and at 10.25 s, when its bytes are on their way, control
  // frames are sent.
  World world(plain_network(2, 100, 0.5));
  const auto pair = world.connect(0, 1);
  world.send(*pair->at_dialler, 1000);
  world.send_control(*pair->at_dialler);
  world.loop.after(Seconds(10.25), [&] { world.send_control(*pair->at_dialler); });
  world.run();
  EXPECT_EQ(pair->listener.types,
            (std::vector{FrameType::kControl, FrameType::kData, FrameType::kControl}));
  expect_times(pair->listener.times, {0.5, 10.5, 10.75});
}

TEST(EmulatedTransport, nothing_is_delayed_before_the_greeting_or_after_a_wrong_one) {
  World world(plain_network(2, 100, 0.5));
  const auto pair = world.connect(0, 1, false);
  world.send(*pair->at_dialler, 1000);
  world.run();
  expect_times(pair->listener.times, {0});
  world.say_hello(*pair, 0, 2);  // there is no rank 2
  world.send(*pair->at_dialler, 1000);
  world.run();
  expect_times(pair->listener.times, {0});
  EXPECT_EQ(world.page->counters().frames, 0u);
}

TEST(EmulatedTransport, connections_between_two_ranks_take_turns_on_their_channel) {
  // 100 bytes/s together, first come first served.
  World world(plain_network(2, 100));
  const auto one = world.connect(0, 1);
  const auto two = world.connect(0, 1);
  world.send(*one->at_dialler, 100);
  world.send(*two->at_dialler, 200);
  world.send(*one->at_dialler, 300);
  world.run();
  expect_times(one->listener.times, {1, 6});
  expect_times(two->listener.times, {3});
}

TEST(EmulatedTransport, what_had_left_arrives_before_the_end_of_a_connection_and_the_rest_is_lost) {
  // 1 s and 2 s to leave, 5 s on the way; closed at 1.5 s, which is told at 6.5 s.
  World world(plain_network(2, 100, 5));
  const auto pair = world.connect(0, 1);
  world.send(*pair->at_dialler, 100, 1);
  world.send(*pair->at_dialler, 200, 2);
  world.loop.after(Seconds(1.5), [&] { pair->at_dialler->close(); });
  world.run();
  expect_times(pair->listener.times, {6});
  EXPECT_NEAR(pair->listener.closed_at, 6.5, kNanosecond);
  EXPECT_TRUE(world.left.contains(1));
  EXPECT_FALSE(world.left.contains(2));
}

TEST(EmulatedTransport, a_closed_connection_gives_its_share_to_the_others) {
  // Two connections to rank 1 and one to rank 2 over 100 bytes/s. Until 4 s both channels have 50:
  // 200 of 1000 bytes each. Then the connection whose frame is leaving to rank 1 ends; the frame
  // behind it (300) starts at 4 s: 10 s. The 800 for rank 2 have 50 bytes/s until then, and 500 are
  // left for 100 bytes/s: 15 s.
  World world(uplink_network(3, 100));
  const auto ends = world.connect(0, 1);
  const auto stays = world.connect(0, 1);
  const auto other = world.connect(0, 2);
  world.send(*ends->at_dialler, 1000);
  world.send(*stays->at_dialler, 300);
  world.send(*other->at_dialler, 1000);
  world.loop.after(Seconds(4), [&] { ends->at_dialler.reset(); });
  world.run();
  expect_times(ends->listener.times, {});
  expect_times(stays->listener.times, {10});
  expect_times(other->listener.times, {15});
}

TEST(EmulatedTransport, a_refused_frame_ends_the_connection_at_both_ends) {
  World world(plain_network(2, 100, 1));
  const auto pair = world.connect(0, 1);
  pair->listener.refuse = true;
  world.send(*pair->at_dialler, 100);
  world.run();
  // Refused when it is due, at 2 s; the other end hears of it a latency later.
  EXPECT_NEAR(pair->listener.closed_at, 2, kNanosecond);
  EXPECT_NE(pair->listener.reason.find("nobody waits for"), std::string::npos);
  EXPECT_NEAR(pair->dialler.closed_at, 3, kNanosecond);
}

TEST(EmulatedTransport, a_handler_may_destroy_its_connection) {
  World world(plain_network(2, 100, 1));
  const auto pair = world.connect(0, 1);
  pair->listener.on_received = [&] { pair->at_listener.reset(); };
  world.send(*pair->at_dialler, 100);
  world.send(*pair->at_dialler, 100);
  world.run();
  expect_times(pair->listener.times, {2});
  EXPECT_EQ(pair->listener.reason, "");  // it knows
  EXPECT_NE(pair->dialler.reason, "");
}

TEST(EmulatedTransport, frames_that_the_machine_brings_too_late_are_counted) {
  // The bytes take 10 ms, the emulated link 4 ms: 6 ms late. Those of the slower direction are not.
  EmulatedNetwork network = plain_network(2, 1e9, 0.004);
  network.path(1, 0).latency = seconds(0.010);
  World world(network);
  const auto pair = world.connect(0, 1);
  world.sim.set_default_link({.latency = Seconds(0.010)});
  world.send(*pair->at_dialler, 0);
  world.send(*pair->at_listener, 0);
  world.run();
  const EmulationCounters counters = world.page->counters();
  EXPECT_EQ(counters.frames, 2u);
  EXPECT_EQ(counters.late_frames, 1u);
  EXPECT_NEAR(counters.frame_lateness_max.value(), 0.006, kNanosecond);
}

// ---- Meshes.

/// A world of meshes whose transports are emulated.
template <class Base>
class Emulated : public Base {
 public:
  explicit Emulated(const EmulatedNetwork& network) : page_(file_.create(network)) {}
  ~Emulated() override {
    this->meshes.clear();
    this->transports.clear();
  }
  std::unique_ptr<Transport> make_transport(int host) override {
    if constexpr (std::is_same_v<Base, SimMeshWorld>) {
      this->network.set_default_link({.latency = Seconds(0)});
      return make_emulated_transport(Base::make_transport(host), this->event_loop(), *page_,
                                     clock_of(this->loop));
    } else {
      return make_emulated_transport(Base::make_transport(host), this->event_loop(), *page_);
    }
  }
  SharedPage& page() { return *page_; }

 private:
  PageFile file_;
  std::unique_ptr<SharedPage> page_;
};

TEST(EmulatedMesh, messages_come_at_the_times_of_the_links) {
  // Rank 0 has an uplink of 100 bytes/s; messages travel in pieces of 1000 bytes. 5000 bytes to
  // rank 1 and 2000 to rank 2: at 50 bytes/s each the shorter one has left after 40 s; the longer
  // one then has 3000 left, at 100 bytes/s: 70 s. Latency 0.5 s. Rank 2 answers at once with 100
  // bytes, which no rate delays: 0.5 s later.
  Emulated<SimMeshWorld> world(uplink_network(3, 100, 0.5));
  world.connect(3, {.chunk_bytes = 1000});
  const double start = world.loop.now().value();
  std::map<int, double> times;
  const auto note = [&](int what) {
    return [&times, &world, what, start] { times[what] = world.loop.now().value() - start; };
  };
  const auto longer = pattern(5000), shorter = pattern(2000), answer = pattern(100);
  std::vector<std::byte> got_longer(5000), got_shorter(2000), got_answer(100);
  world.mesh(1).receive(0, 1, 0, got_longer, note(1));
  world.mesh(2).receive(0, 2, 0, got_shorter, [&] {
    note(2)();
    world.mesh(2).send(0, 3, 0, answer, [] {});
  });
  world.mesh(0).receive(2, 3, 0, got_answer, note(3));
  world.mesh(0).send(1, 1, 0, longer, note(11));
  world.mesh(0).send(2, 2, 0, shorter, note(12));
  world.run();
  EXPECT_NEAR(times[12], 40, kNanosecond);
  EXPECT_NEAR(times[2], 40.5, kNanosecond);
  EXPECT_NEAR(times[3], 41, kNanosecond);
  EXPECT_NEAR(times[11], 70, kNanosecond);
  EXPECT_NEAR(times[1], 70.5, kNanosecond);
  EXPECT_EQ(got_longer, longer);
  EXPECT_EQ(got_shorter, shorter);
  EXPECT_EQ(got_answer, answer);
  EXPECT_EQ(world.page().counters().late_frames, 0u);
}

TEST(EmulatedMesh, messages_on_their_way_together_are_asked_for_when_they_are_due) {
  // Ten messages are in flight at a time: 0.1 s each to leave, 2 s on the way. The first five are
  // not asked for before all have come.
  Emulated<SimMeshWorld> world(plain_network(2, 1000, 2));
  world.connect(2);
  const double start = world.loop.now().value();
  std::vector<double> times(10);
  std::deque<std::vector<std::byte>> sent, got;
  for (std::size_t i = 0; i < 10; ++i) {
    sent.push_back(pattern(100, i));
    got.emplace_back(100);
    world.mesh(0).send(1, i, 0, sent.back(), [] {});
  }
  const auto receive = [&](std::size_t i) {
    world.mesh(1).receive(0, i, 0, got[i], [&, i] { times[i] = world.loop.now().value() - start; });
  };
  for (std::size_t i = 5; i < 10; ++i) receive(i);
  world.loop.after(Seconds(20), [&] {
    for (std::size_t i = 0; i < 5; ++i) receive(i);
  });
  world.run();
  EXPECT_EQ(got, sent);
  for (std::size_t i = 0; i < 10; ++i) {
    const double expected = i < 5 ? 20 : 2.1 + 0.1 * static_cast<double>(i);
    EXPECT_NEAR(times[i], expected, kNanosecond) << i;
  }
}

TEST(EmulatedMesh, a_rank_that_leaves_is_lost_a_latency_later) {
  Emulated<SimMeshWorld> world(plain_network(2, 1000, 2));
  world.connect(2);
  const double start = world.loop.now().value();
  double lost_at = -1;
  world.mesh(0).on_lost([&](int, const Error&) { lost_at = world.loop.now().value() - start; });
  world.meshes[1].reset();
  world.run();
  EXPECT_NEAR(lost_at, 2, kNanosecond);
}

TEST(EmulatedMesh, messages_survive_real_sockets_and_a_real_clock) {
  // Three ranks over loopback: 1 ms, 100 Mbyte/s. What is asserted is what arrives, and that the
  // frames were emulated: each message of 50,000 bytes is five pieces and a credit, and each rank
  // that listens has sent a HELLO_ACK to each that dialled.
  Emulated<AsioMeshWorld> world(plain_network(3, 1e8, 0.001));
  world.connect(3, {.chunk_bytes = 10'000});
  std::deque<std::vector<std::byte>> sent, got;
  int received = 0;
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      sent.push_back(pattern(50'000, static_cast<std::size_t>(3 * from + to)));
      got.emplace_back(50'000);
      world.mesh(to).receive(from, 1, 0, got.back(), [&] { ++received; });
      world.mesh(from).send(to, 1, 0, sent.back(), [] {});
    }
  }
  world.run_until([&] { return received == 6; });
  EXPECT_EQ(got, sent);
  EXPECT_EQ(world.page().counters().frames, 6u * (5 + 1) + 3);
}

}  // namespace
}  // namespace longhaul
