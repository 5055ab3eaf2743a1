// Messages that leave while they are made, and receives that are told as they arrive.

#include <algorithm>
#include <map>
#include <memory>

#include "core/rng.h"
#include "executor/transport/mesh.h"
#include "tests/executor/mesh_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AsioMeshWorld;
using fixtures::pattern;
using fixtures::SimMeshWorld;
using fixtures::WithStreams;

template <class T>
class GrowingMesh : public testing::Test {
 protected:
  T world;
};
using Worlds = testing::Types<SimMeshWorld, AsioMeshWorld, WithStreams<SimMeshWorld, 3>,
                              WithStreams<AsioMeshWorld, 3>>;
TYPED_TEST_SUITE(GrowingMesh, Worlds);

/// Small pieces, so that short messages have many.
constexpr MeshLimits kSmallPieces = {.chunk_bytes = 1000, .growing_chunk_bytes = 300};

/// A growing receive that checks what it is told.
struct Receipt {
  explicit Receipt(std::size_t room) : buffer(room, std::byte{0xee}) {}
  Mesh::Arrived taker() {
    return [this](std::size_t bytes, bool is_last) {
      EXPECT_FALSE(is_whole) << "told after the last";
      EXPECT_TRUE(is_last || bytes > told) << "told of nothing new";
      EXPECT_GE(bytes, told);
      told = bytes;
      is_whole = is_last;
      ++calls;
      seen.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
    };
  }
  std::vector<std::byte> buffer, seen;
  std::size_t told = 0;
  bool is_whole = false;
  int calls = 0;
};

TYPED_TEST(GrowingMesh, any_growth_arrives_whoever_asks_when_in_a_buffer_of_any_room) {
  const std::size_t sizes[] = {0, 1, 299, 300, 301, 999, 1000, 1001, 54321};
  this->world.connect(2, kSmallPieces);
  Mesh& from = this->world.mesh(0);
  Mesh& to = this->world.mesh(1);
  Rng rng("growth", 1);
  struct Sending {
    std::vector<std::byte> whole, payload;
    std::size_t ready = 0;
  };
  std::vector<Sending> sendings;
  std::vector<std::unique_ptr<Receipt>> receipts;
  for (const std::size_t size : sizes) {
    sendings.push_back({pattern(size), std::vector<std::byte>(size, std::byte{0xaa})});
    // Room that is just right, or more.
    receipts.push_back(std::make_unique<Receipt>(size + (size % 2 == 0 ? 0 : 77)));
  }
  std::size_t sent = 0;
  const auto post = [&](std::uint32_t i) {
    to.receive_growing(0, 5, i, receipts[i]->buffer, receipts[i]->taker());
  };
  for (std::uint32_t i = 0; i < sendings.size(); ++i) {
    if (i % 3 != 0) post(i);
    from.send_growing(1, 5, i, sendings[i].payload, [&] { ++sent; });
  }
  const std::function<void()> grow = [&] {
    bool is_over = true;
    for (std::uint32_t i = 0; i < sendings.size(); ++i) {
      Sending& s = sendings[i];
      if (s.ready == s.whole.size()) continue;
      const std::size_t end =
          std::min(s.whole.size(), s.ready + 1 + static_cast<std::size_t>(4000 * rng.uniform()));
      std::copy(s.whole.begin() + static_cast<std::ptrdiff_t>(s.ready),
                s.whole.begin() + static_cast<std::ptrdiff_t>(end),
                s.payload.begin() + static_cast<std::ptrdiff_t>(s.ready));
      s.ready = end;
      from.grow(1, 5, i, end);
      is_over = is_over && end == s.whole.size();
    }
    if (!is_over) this->world.event_loop().after(Seconds(0.001), grow);
  };
  grow();
  EXPECT_EQ(sent, 0u) << "completions are tasks of their own";
  this->world.run_until([&] { return sent == sendings.size(); });
  for (std::uint32_t i = 0; i < sendings.size(); i += 3) post(i);
  this->world.run_until([&] {
    return std::ranges::all_of(receipts, [](const auto& receipt) { return receipt->is_whole; });
  });
  for (std::size_t i = 0; i < sendings.size(); ++i) {
    EXPECT_EQ(receipts[i]->seen, sendings[i].whole) << i;
  }
  EXPECT_GT(receipts.back()->calls, 1) << "54321 bytes are 182 pieces";
}

TYPED_TEST(GrowingMesh, growing_and_plain_ends_of_a_message_fit) {
  this->world.connect(2, kSmallPieces);
  const std::vector<std::byte> first = pattern(5000, 1), second = pattern(5000, 2);
  Receipt receipt(6000);
  std::vector<std::byte> got(5000);
  bool is_received = false;
  this->world.mesh(1).receive_growing(0, 1, 0, receipt.buffer, receipt.taker());
  this->world.mesh(1).receive(0, 2, 0, got, [&] { is_received = true; });
  this->world.mesh(0).send(1, 1, 0, first, [] {});
  this->world.mesh(0).send_growing(1, 2, 0, second, [] {});
  this->world.mesh(0).grow(1, 2, 0, 1234);
  this->world.mesh(0).grow(1, 2, 0, 5000);
  this->world.run_until([&] { return receipt.is_whole && is_received; });
  EXPECT_EQ(receipt.seen, first);
  EXPECT_EQ(got, second);
}

TYPED_TEST(GrowingMesh, a_message_that_is_not_made_on_holds_up_nobody) {
  this->world.connect(2, kSmallPieces);
  const std::vector<std::byte> stuck(2000), plain = pattern(3000), growing = pattern(700);
  std::vector<std::byte> got(3000);
  Receipt partly(2000), whole(700);
  bool is_received = false;
  this->world.mesh(1).receive_growing(0, 1, 0, partly.buffer, partly.taker());
  this->world.mesh(1).receive(0, 2, 0, got, [&] { is_received = true; });
  this->world.mesh(1).receive_growing(0, 3, 0, whole.buffer, whole.taker());
  this->world.mesh(0).send_growing(1, 1, 0, stuck, [] { FAIL() << "it is not all sent"; });
  this->world.mesh(0).grow(1, 1, 0, 650);  // two pieces, and 50 bytes that wait for more
  this->world.mesh(0).send(1, 2, 0, plain, [] {});
  this->world.mesh(0).send_growing(1, 3, 0, growing, [] {});
  this->world.mesh(0).grow(1, 3, 0, 700);
  this->world.run_until([&] { return is_received && whole.is_whole && partly.told == 600; });
  EXPECT_EQ(got, plain);
  EXPECT_EQ(whole.seen, growing);
  EXPECT_FALSE(partly.is_whole);
}

// Pieces of 936 + 64 bytes at 1,000 B/s: one a second. 3,000 bytes are ready at once, three pieces,
// which are told of at 1, 2 and 3 s. The rest is ready at 3.5 s: a fourth piece, told of at 4.5 s,
// and 256 + 64 bytes.
TEST(GrowingMeshTimes, the_receiver_uses_the_first_piece_while_the_last_is_made) {
  SimMeshWorld world;
  world.connect(2, {.chunk_bytes = 5000, .growing_chunk_bytes = 936});
  world.network.set_link("h0", "h1", {Seconds(0), bytes_per_second(1000)});
  const Seconds start = world.loop.now();
  const std::vector<std::byte> message = pattern(4000);
  std::vector<std::byte> buffer(4000);
  std::vector<std::pair<double, std::size_t>> told;
  world.mesh(1).receive_growing(0, 1, 0, buffer, [&](std::size_t bytes, bool) {
    told.emplace_back((world.loop.now() - start).value(), bytes);
  });
  world.mesh(0).send_growing(1, 1, 0, message, [] {});
  world.mesh(0).grow(1, 1, 0, 3000);
  world.loop.after(Seconds(3.5), [&] { world.mesh(0).grow(1, 1, 0, 4000); });
  world.run();
  ASSERT_EQ(told.size(), 5u);
  const std::pair<double, std::size_t> expected[] = {
      {1, 936}, {2, 1872}, {3, 2808}, {4.5, 3744}, {4.5 + 0.32, 4000}};
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_NEAR(told[i].first, expected[i].first, 0.01) << i;
    EXPECT_EQ(told[i].second, expected[i].second) << i;
  }
}

TEST(GrowingMeshRules, a_message_longer_than_the_room_ends_the_connection) {
  for (const bool asked_first : {true, false}) {
    SimMeshWorld world;
    world.connect(2, kSmallPieces);
    std::string text;
    world.mesh(1).on_lost([&](int, const Error& why) { text = why.message; });
    const std::vector<std::byte> message = pattern(1001);
    Receipt receipt(1000);
    const auto post = [&] {
      world.mesh(1).receive_growing(0, 1, 0, receipt.buffer, receipt.taker());
    };
    if (asked_first) post();
    world.mesh(0).send(1, 1, 0, message, [] {});
    world.run();
    if (!asked_first) post();
    world.run();
    EXPECT_NE(text.find("does not have the at most 1000 bytes that were asked for"),
              std::string::npos)
        << text;
    EXPECT_FALSE(receipt.is_whole);
  }
}

// What is under way is dropped, on both sides; what owns the buffers goes with it.
TEST(GrowingMeshRules, a_term_that_ends_in_the_middle_lets_go_of_both_ends) {
  for (const bool asked_first : {true, false}) {
    SimMeshWorld world;
    world.connect(2, kSmallPieces);
    const auto payload = std::make_shared<std::vector<std::byte>>(pattern(5000));
    const auto buffer = std::make_shared<std::vector<std::byte>>(5000);
    std::size_t told = 0;
    const auto post = [&] {
      world.mesh(1).receive_growing(0, 1, 0, *buffer,
                                    [&told, buffer](std::size_t bytes, bool) { told = bytes; });
    };
    if (asked_first) post();
    world.mesh(0).send_growing(1, 1, 0, *payload, [payload] { FAIL() << "it is not all sent"; });
    world.mesh(0).grow(1, 1, 0, 2000);
    world.run();
    if (!asked_first) post();
    world.run();
    EXPECT_EQ(told, 1800u);  // six pieces of 300
    EXPECT_EQ(payload.use_count(), 2);
    EXPECT_EQ(buffer.use_count(), 2);
    for (const int rank : {0, 1}) world.mesh(rank).set_term(1);
    world.run();
    EXPECT_EQ(payload.use_count(), 1);
    EXPECT_EQ(buffer.use_count(), 1);
    world.mesh(0).grow(1, 1, 0, 5000);  // of no message any more

    // The names are free again.
    Receipt receipt(5000);
    world.mesh(1).receive_growing(0, 1, 0, receipt.buffer, receipt.taker());
    world.mesh(0).send_growing(1, 1, 0, *payload, [] {});
    world.mesh(0).grow(1, 1, 0, 5000);
    world.run();
    EXPECT_EQ(receipt.seen, *payload);
  }
}

// The window counts the whole message from the start: one that the peer has no room for waits until
// it is asked for, and one that fits takes its room before it is made.
TEST(GrowingMeshRules, the_window_counts_what_a_message_will_have) {
  SimMeshWorld world;
  world.connect(2, {.early_bytes = 10000, .chunk_bytes = 1000, .growing_chunk_bytes = 300});
  const std::vector<std::byte> first = pattern(4000), second = pattern(4000, 1);
  world.mesh(0).send_growing(1, 1, 0, first, [] {});
  bool is_sent = false;
  world.mesh(0).send_growing(1, 2, 0, second, [&] { is_sent = true; });
  world.mesh(0).grow(1, 2, 0, 4000);
  world.run();
  EXPECT_FALSE(is_sent) << "a window of 5,000 bytes has room for one of them";
  world.mesh(0).grow(1, 1, 0, 4000);
  world.run();
  EXPECT_FALSE(is_sent);
  Receipt receipt(4000);
  world.mesh(1).receive_growing(0, 1, 0, receipt.buffer, receipt.taker());
  world.run();
  EXPECT_TRUE(receipt.is_whole);
  EXPECT_TRUE(is_sent);
}

TEST(GrowingMeshRules, a_lost_peer_lets_go_of_both_ends) {
  SimMeshWorld world;
  world.connect(2, kSmallPieces);
  const auto payload = std::make_shared<std::vector<std::byte>>(pattern(5000));
  const auto buffer = std::make_shared<std::vector<std::byte>>(5000);
  world.mesh(1).receive_growing(0, 1, 0, *buffer,
                                [buffer](std::size_t, bool is_last) { EXPECT_FALSE(is_last); });
  world.mesh(0).send_growing(1, 1, 0, *payload, [payload] { FAIL(); });
  world.mesh(0).grow(1, 1, 0, 2000);
  world.run();
  world.network.cut("h0", "h1");
  world.run();
  EXPECT_EQ(payload.use_count(), 1);
  EXPECT_EQ(buffer.use_count(), 1);
  world.mesh(0).grow(1, 1, 0, 5000);
}

}  // namespace
}  // namespace longhaul
