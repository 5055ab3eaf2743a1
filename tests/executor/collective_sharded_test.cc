// Every expected sum is made here by the formula: ((g_0 + g_1) + g_2) ... in member order.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/rng.h"
#include "executor/collective/sharded_all_reduce.h"
#include "tests/executor/mesh_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AsioMeshWorld;
using fixtures::MeshWorld;
using fixtures::SimMeshWorld;

std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

std::size_t sum_of(const std::vector<std::size_t>& lengths) {
  std::size_t sum = 0;
  for (const std::size_t length : lengths) sum += length;
  return sum;
}

/// One exchange of all or some ranks of a world, with gradients drawn by a seed. Magnitudes span
/// 2^20, so that another order of the sum has other bits.
struct Exchange {
  Exchange(MeshWorld& world_of_ranks, ExchangeOptions exchange, std::uint64_t seed,
           std::uint64_t operation_of_mesh = 1)
      : world(world_of_ranks), options(std::move(exchange)), operation(operation_of_mesh) {
    Rng rng("gradients", seed);
    for (std::size_t i = 0; i < options.members.size(); ++i) {
      std::vector<float>& gradient = local.emplace_back(sum_of(options.tensor_lengths));
      for (float& value : gradient) {
        value =
            static_cast<float>(std::ldexp(rng.uniform() - 0.5, static_cast<int>(rng.below(20))));
      }
    }
    buffers = local;
    outcomes.resize(local.size());
    parts.resize(local.size());
  }
  void start(std::size_t i) {
    auto part =
        ShardedAllReduce::create(world.mesh(options.members[i].rank), world.event_loop(), options);
    ASSERT_TRUE(part) << part.error().text();
    parts[i] = std::move(*part);
    parts[i]->start(operation, buffers[i], [this, i](Result<void> outcome) {
      EXPECT_EQ(outcomes[i], "") << "told twice";
      outcomes[i] = outcome ? "done" : outcome.error().text();
    });
  }
  void start() {
    for (std::size_t i = 0; i < parts.size(); ++i) start(i);
  }
  bool is_over() const {
    return std::ranges::none_of(outcomes, [](const auto& outcome) { return outcome.empty(); });
  }
  bool is_done() const {
    return std::ranges::all_of(outcomes, [](const auto& outcome) { return outcome == "done"; });
  }
  std::vector<float> plain_sum() const {
    std::vector<float> sum = local[0];
    for (std::size_t i = 1; i < local.size(); ++i) {
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += local[i][k];
    }
    return sum;
  }
  void expect_equal_buffers() const {
    for (const std::vector<float>& buffer : buffers) EXPECT_EQ(bits(buffer), bits(buffers[0]));
  }
  void expect_plain_sum() const {
    for (const std::vector<float>& buffer : buffers) EXPECT_EQ(bits(buffer), bits(plain_sum()));
  }

  MeshWorld& world;
  ExchangeOptions options;
  std::uint64_t operation;
  std::vector<std::vector<float>> local, buffers;
  std::vector<std::string> outcomes;
  std::vector<std::unique_ptr<ShardedAllReduce>> parts;
};

/// Ranks 0 to n - 1, each a site of its own.
std::vector<ExchangeMember> members(int n, const std::vector<double>& shares = {}) {
  std::vector<ExchangeMember> result;
  for (int i = 0; i < n; ++i) {
    const auto place = static_cast<std::size_t>(i);
    result.push_back({.rank = i, .site = i, .share = shares.empty() ? 1 : shares[place]});
  }
  return result;
}

// ---- Shards.

struct CutCase {
  std::vector<std::size_t> lengths;
  std::vector<double> shares;
  std::vector<std::size_t> cuts;
};

TEST(CutShards, cuts_lie_at_the_nearest_block_of_4096_that_restarts_at_each_tensor) {
  const CutCase cases[] = {
      {{16384}, {1, 1}, {0, 8192, 16384}},
      {{16384}, {1, 1, 2}, {0, 4096, 8192, 16384}},
      {{12288}, {1, 1}, {0, 4096, 12288}},       // 6,144 is halfway: the lower
      {{12290}, {1, 1}, {0, 8192, 12290}},       // 6,145 is nearer to 8,192
      {{100, 16384}, {1, 1}, {0, 8292, 16484}},  // 8,242: blocks begin at 100
      {{4097}, {1, 1}, {0, 4096, 4097}},         // 2,049 is nearer to 4,096
      {{4095}, {1, 1}, {0, 4095, 4095}},         // 2,048 is nearer to the end
      {{1}, {1, 1, 1}, {0, 0, 1, 1}},            // targets 0.33, 0.67, 1
      {{}, {1, 1}, {0, 0, 0}},
      {{0, 4096, 0, 4096, 0}, {1, 1}, {0, 4096, 8192}},
      {{16384}, {0, 1, 0}, {0, 0, 16384, 16384}},  // a server
  };
  for (const CutCase& row : cases) EXPECT_EQ(cut_shards(row.lengths, row.shares), row.cuts);
}

// ---- The sum.

TEST(ShardedAllReduce, every_member_gets_the_plain_sum_in_member_order) {
  for (int n = 1; n <= 8; ++n) {
    SimMeshWorld world;
    world.connect(n);
    std::uint64_t operation = 0;
    for (const std::vector<std::size_t>& lengths : std::vector<std::vector<std::size_t>>{
             {}, {0}, {1}, {4095}, {4096}, {4097}, {40000}, {4097, 1, 0, 9000, 4096}}) {
      ++operation;
      Exchange exchange(world, {.members = members(n), .tensor_lengths = lengths}, operation,
                        operation);
      exchange.start();
      EXPECT_FALSE(exchange.is_over()) << "the end is a task of its own";
      world.run();
      ASSERT_TRUE(exchange.is_done()) << n;
      exchange.expect_plain_sum();
    }
  }
}

TEST(ShardedAllReduce, uneven_shares_and_another_member_order_change_no_rule) {
  for (const std::vector<double>& shares : std::vector<std::vector<double>>{
           {0.1, 0.2, 0.3, 0.4}, {0, 1, 0, 0}, {5, 0, 0, 1}, {1e-9, 1, 1, 1}}) {
    SimMeshWorld world;
    world.connect(5);  // rank 1 takes no part
    std::vector<ExchangeMember> group = members(4, shares);
    const int ranks[] = {4, 0, 3, 2};
    for (std::size_t i = 0; i < 4; ++i) group[i].rank = ranks[i];
    Exchange exchange(world, {.members = group, .tensor_lengths = {30000, 77, 5000}}, 1);
    exchange.start();
    world.run();
    ASSERT_TRUE(exchange.is_done());
    exchange.expect_plain_sum();
  }
}

TEST(ShardedAllReduce, a_negative_zero_stays_one) {
  // (-0) + (-0) = -0, but 0 + (-0) + (-0) would be 0.
  SimMeshWorld world;
  world.connect(2);
  Exchange exchange(world, {.members = members(2), .tensor_lengths = {3}}, 1);
  for (auto* gradients : {&exchange.local, &exchange.buffers}) {
    for (std::vector<float>& gradient : *gradients) gradient.assign(3, -0.0f);
  }
  exchange.start();
  world.run();
  EXPECT_EQ(bits(exchange.buffers[0])[0], 0x80000000u);
  exchange.expect_plain_sum();
}

TEST(ShardedAllReduce, two_exchanges_at_once_keep_apart) {
  SimMeshWorld world;
  world.connect(3, {.chunk_bytes = 1000});
  Exchange one(world, {.members = members(3), .tensor_lengths = {20000}}, 1, 1);
  Exchange two(world, {.members = members(3), .tensor_lengths = {500, 30000}}, 2, 2);
  one.start(0), two.start(1), two.start(0), one.start(2), one.start(1), two.start(2);
  world.run();
  ASSERT_TRUE(one.is_done() && two.is_done());
  one.expect_plain_sum();
  two.expect_plain_sum();
}

TEST(ShardedAllReduce, works_over_sockets) {
  AsioMeshWorld world;
  world.connect(3, {.chunk_bytes = 10000});
  Exchange plain(world, {.members = members(3), .tensor_lengths = {300000, 5}}, 1, 1);
  Exchange coded(world,
                 {.members = members(3, {1, 2, 3}),
                  .tensor_lengths = {100000},
                  .codec = TensorCodec::kQ8,
                  .bucket_elements = 4096},
                 2, 2);
  plain.start();
  coded.start();
  world.run_until([&] { return plain.is_over() && coded.is_over(); });
  ASSERT_TRUE(plain.is_done() && coded.is_done());
  plain.expect_plain_sum();
  coded.expect_equal_buffers();
}

TEST(ShardedAllReduce, delays_change_no_bit) {
  // Links of all speeds, members that begin late, pieces of any size.
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimMeshWorld world(seed);
    Rng rng("delays", seed);
    const int n = 2 + static_cast<int>(rng.below(4));
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) {
        world.network.set_link(
            fmt::format("h{}", from), fmt::format("h{}", to),
            {Seconds(rng.uniform()), bytes_per_second(1e3 + 1e6 * rng.uniform())});
      }
    }
    world.connect(n, {.chunk_bytes = 100 + rng.below(20000)});
    const TensorCodec codecs[] = {TensorCodec::kRaw, TensorCodec::kBf16, TensorCodec::kQ8};
    const TensorCodec codec = codecs[seed % 3];
    Exchange exchange(
        world, {.members = members(n), .tensor_lengths = {4500, 3, 4000}, .codec = codec}, 7);
    for (std::size_t i = 0; i < exchange.parts.size(); ++i) {
      world.loop.after(Seconds(rng.uniform()), [&exchange, i] { exchange.start(i); });
    }
    world.run();
    ASSERT_TRUE(exchange.is_done()) << "seed " << seed;
    if (codec == TensorCodec::kRaw) exchange.expect_plain_sum();
    // The same without any delay.
    SimMeshWorld calm;
    calm.network.set_default_link({Seconds(0)});
    calm.connect(n);
    Exchange again(calm, exchange.options, 7);
    again.start();
    calm.run();
    for (const std::vector<float>& buffer : exchange.buffers) {
      ASSERT_EQ(bits(buffer), bits(again.buffers[0])) << "seed " << seed;
    }
  }
}

// ---- Codecs.

TEST(ShardedAllReduce, members_of_all_sites_end_equal_with_every_codec) {
  // Ranks 0 and 1 share a site. Part and sum are each rounded once, so of each value the error is
  // at most that of 4 parts and a sum. bf16 rounds by at most 2^-9 of a value; int8 by half a step,
  // a 254th (with the rounded scale a 253rd) of the largest of its 64 neighbours. No part exceeds
  // 2^18 (draws below half of 2^19), no sum 2^20: together 4 x 2^18 + 2^20 = 2^21 of these.
  struct Case {
    TensorCodec codec;
    double error_max;
  };
  for (const Case& row : {Case{TensorCodec::kRaw, 0}, Case{TensorCodec::kBf16, 0x1p21 / 512},
                          Case{TensorCodec::kQ8, 0x1p21 / 253}}) {
    SimMeshWorld world;
    world.connect(4);
    std::vector<ExchangeMember> group = members(4, {3, 1, 2, 0});
    group[1].site = 0;
    Exchange exchange(
        world, {.members = group, .tensor_lengths = {20000, 130, 9001}, .codec = row.codec}, 3);
    exchange.start();
    world.run();
    ASSERT_TRUE(exchange.is_done());
    exchange.expect_equal_buffers();
    const std::vector<float> plain = exchange.plain_sum();
    double error = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      error = std::max(error, std::abs(double{exchange.buffers[0][i]} - double{plain[i]}));
    }
    EXPECT_LE(error, row.error_max);
    if (row.codec != TensorCodec::kRaw) EXPECT_GT(error, 0);
  }
}

TEST(ShardedAllReduce, one_site_is_exact_whatever_the_codec) {
  SimMeshWorld world;
  world.connect(3);
  std::vector<ExchangeMember> group = members(3);
  for (ExchangeMember& member : group) member.site = 5;
  Exchange exchange(world, {.members = group, .tensor_lengths = {9000}, .codec = TensorCodec::kQ8},
                    1);
  exchange.start();
  world.run();
  exchange.expect_plain_sum();
}

TEST(ShardedAllReduce, what_a_codec_cannot_hold_makes_its_shard_nan_everywhere) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  for (const TensorCodec codec : {TensorCodec::kBf16, TensorCodec::kQ8}) {
    for (const std::size_t sick : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      for (const float value : {infinity, std::numeric_limits<float>::quiet_NaN(), largest}) {
        SimMeshWorld world;
        world.connect(3);
        std::vector<ExchangeMember> group = members(3);
        group[1].site = 0;
        Exchange exchange(world, {.members = group, .tensor_lengths = {3 * 4096}, .codec = codec},
                          1);
        exchange.buffers[sick][5000] = value;  // of the shard of rank 1
        exchange.start();
        world.run();
        ASSERT_TRUE(exchange.is_done());
        exchange.expect_equal_buffers();
        const std::vector<float>& result = exchange.buffers[0];
        // Int8 holds the largest float. As a sum it may still be out of range, never half so.
        if (value != largest) EXPECT_TRUE(std::isnan(result[5000]));
        const bool is_nan = std::isnan(result[5000]);
        for (std::size_t i = 4096; i < 8192; ++i) ASSERT_EQ(std::isnan(result[i]), is_nan);
        EXPECT_TRUE(std::isfinite(result[4095]) && std::isfinite(result[8192]));
      }
    }
  }
}

TEST(ShardedAllReduce, a_plain_exchange_carries_infinities_as_they_are) {
  SimMeshWorld world;
  world.connect(2);
  Exchange exchange(world, {.members = members(2), .tensor_lengths = {10}}, 1);
  exchange.buffers[1][3] = std::numeric_limits<float>::infinity();
  exchange.start();
  world.run();
  exchange.expect_equal_buffers();
  EXPECT_TRUE(std::isinf(exchange.buffers[0][3]));
  EXPECT_TRUE(std::isfinite(exchange.buffers[0][4]));
}

// ---- Bytes and time.

TEST(ShardedAllReduce, an_even_exchange_takes_two_shards_and_two_latencies) {
  // Four shards of 4,096 elements: a message is 16,384 bytes in four pieces, with headers 16,640.
  // At 16,640 B/s on each link all parts arrive after 1 s and the latency of 0.25 s, all sums the
  // same later: 2.5 s. With int8, a frame has 68 + 64 x 2 + 4,096 = 4,292 bytes in two pieces.
  for (const TensorCodec codec : {TensorCodec::kRaw, TensorCodec::kQ8}) {
    SimMeshWorld world;
    world.connect(4, {.chunk_bytes = 4096});
    const double rate = codec == TensorCodec::kRaw ? 16640 : 4292 + 128;
    world.network.set_default_link({Seconds(0.25), bytes_per_second(rate)});
    const Seconds start = world.loop.now();
    const std::uint64_t before = world.network.delivered();
    Exchange exchange(world, {.members = members(4), .tensor_lengths = {4 * 4096}, .codec = codec},
                      1);
    exchange.start();
    world.run_until([&] { return exchange.is_over(); });
    ASSERT_TRUE(exchange.is_done());
    // The credit of each message is a frame of 64 bytes, two of them before a rank's last part.
    EXPECT_NEAR((world.loop.now() - start).value(), 2.5, 2 * 64 / rate + 1e-9);
    // 12 parts and 12 sums, and the credit of each.
    EXPECT_EQ(world.network.delivered() - before,
              codec == TensorCodec::kRaw ? 24 * (4u + 1) : 24 * (2u + 1));
  }
}

TEST(ShardedAllReduce, who_begins_late_sends_its_parts_before_its_sums) {
  // As above. Member 0's part has come when member 1 begins, so that its sum is known at once. Its
  // part leaves first and arrives after 1.25 s, the sum with it comes back 1.25 s later; with the
  // own sum in front of it these 2.5 s were 3.5.
  SimMeshWorld world;
  world.connect(2, {.chunk_bytes = 4096});
  world.network.set_default_link({Seconds(0.25), bytes_per_second(16640)});
  Exchange exchange(world, {.members = members(2), .tensor_lengths = {2 * 4096}}, 1);
  exchange.start(0);
  bool is_late = false;
  world.loop.after(Seconds(5), [&] { is_late = true; });
  world.run_until([&] { return is_late; });
  const Seconds start = world.loop.now();
  exchange.start(1);
  world.run_until([&] { return exchange.is_over(); });
  exchange.expect_plain_sum();
  EXPECT_NEAR((world.loop.now() - start).value(), 2.5, 2 * 64 / 16640.0 + 1e-9);
}

TEST(ShardedAllReduce, a_shard_is_published_without_waiting_for_others) {
  // Member 1 owns nothing, so member 0 needs one part and one message answers it: at infinite rate
  // member 0 is done after one latency, member 1 after two.
  SimMeshWorld world;
  world.connect(2);
  world.network.set_default_link({Seconds(1)});
  const Seconds start = world.loop.now();
  Exchange exchange(world, {.members = members(2, {1, 0}), .tensor_lengths = {10000}}, 1);
  exchange.start();
  world.run_until([&] { return !exchange.outcomes[0].empty(); });
  EXPECT_NEAR((world.loop.now() - start).value(), 1, 1e-9);
  world.run_until([&] { return exchange.is_over(); });
  EXPECT_NEAR((world.loop.now() - start).value(), 2, 1e-9);
}

// ---- Failures.

TEST(ShardedAllReduce, a_lost_member_is_told_to_all_who_have_not_the_whole_sum) {
  // Killed at 40 moments from before the first byte to after the last. Every survivor is done and
  // has the whole sum, or hears of the loss.
  int failed_somewhere = 0, done_somewhere = 0;
  for (int moment = 0; moment < 40; ++moment) {
    SimMeshWorld world;
    world.connect(4, {.chunk_bytes = 1000});
    world.network.set_default_link({Seconds(0.1), bytes_per_second(16384)});
    Exchange exchange(world, {.members = members(4), .tensor_lengths = {4 * 4096}}, 1);
    for (const std::size_t i : {0u, 1u, 3u}) {
      world.meshes[i]->on_lost([&exchange, i](int peer, const Error& why) {
        EXPECT_EQ(peer, 2);
        exchange.parts[i]->peer_lost(peer, why);
      });
    }
    exchange.start();
    world.loop.after(Seconds(0.075 * moment), [&] { world.network.kill("h2"); });
    world.run();
    for (const std::size_t i : {0u, 1u, 3u}) {
      if (exchange.outcomes[i] == "done") {
        EXPECT_EQ(bits(exchange.buffers[i]), bits(exchange.plain_sum()));
        ++done_somewhere;
      } else {
        EXPECT_NE(exchange.outcomes[i].find("rank 2 is lost: the connection was reset"),
                  std::string::npos)
            << moment << exchange.outcomes[i];
        ++failed_somewhere;
      }
    }
  }
  EXPECT_GT(failed_somewhere, 30);
  EXPECT_GT(done_somewhere, 10);
}

TEST(ShardedAllReduce, a_failed_exchange_can_be_repeated_in_a_new_term_without_the_lost_member) {
  SimMeshWorld world;
  world.connect(3, {.chunk_bytes = 1000});
  world.network.set_default_link({Seconds(0.1), bytes_per_second(16384)});
  Exchange first(world, {.members = members(3), .tensor_lengths = {20000}}, 1);
  for (const std::size_t i : {0u, 1u}) {
    world.meshes[i]->on_lost(
        [&first, i](int peer, const Error& why) { first.parts[i]->peer_lost(peer, why); });
  }
  first.start();
  world.loop.after(Seconds(0.5), [&] { world.network.kill("h2"); });
  world.run_until([&] { return !first.outcomes[0].empty() && !first.outcomes[1].empty(); });
  // The same operation and the same buffers, while messages of the first try are still on the way.
  Exchange second(world, {.members = members(2), .tensor_lengths = {20000}}, 1);
  second.local = {first.local[0], first.local[1]};  // the step is computed again
  second.buffers = second.local;
  for (int rank = 0; rank < 2; ++rank) world.mesh(rank).set_term(1);
  second.start();
  first.parts.clear();
  world.run();
  ASSERT_TRUE(second.is_done());
  second.expect_plain_sum();
}

TEST(ShardedAllReduce, an_abandoned_exchange_tells_nothing_and_touches_nothing) {
  for (int moment = 0; moment < 10; ++moment) {
    SimMeshWorld world;
    world.connect(2);
    world.network.set_default_link({Seconds(0.1), bytes_per_second(16384)});
    Exchange exchange(world, {.members = members(2), .tensor_lengths = {8192}}, 1);
    exchange.start();
    world.loop.after(Seconds(0.2 * moment), [&] {
      exchange.parts[0].reset();
      if (exchange.outcomes[0].empty()) exchange.buffers[0] = {};  // freed: ASan watches
    });
    world.run();
    EXPECT_TRUE(exchange.outcomes[0].empty() || moment > 5) << moment;
  }
}

TEST(ShardedAllReduce, a_member_with_other_tensors_is_refused_by_the_first_message) {
  SimMeshWorld world;
  world.connect(2);
  Exchange one(world, {.members = members(2), .tensor_lengths = {8192}}, 1);
  Exchange other(world, {.members = members(2), .tensor_lengths = {8193}}, 1);
  int lost = 0;
  std::string text;
  for (int rank = 0; rank < 2; ++rank) {
    world.mesh(rank).on_lost([&](int, const Error& why) {
      ++lost;
      text += why.message;
    });
  }
  one.start(0);
  other.start(1);
  world.run();
  EXPECT_EQ(lost, 2);
  EXPECT_NE(text.find("does not have the 16388 bytes"), std::string::npos) << text;
}

TEST(ShardedAllReduce, options_that_make_no_sense_are_refused) {
  SimMeshWorld world;
  world.connect(3);
  const auto error_of = [&](ExchangeOptions options) {
    auto part = ShardedAllReduce::create(world.mesh(1), world.loop, std::move(options));
    return part ? std::string("accepted") : part.error().message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    std::vector<ExchangeMember> members;
    std::size_t length;
    std::string error;
  };
  const Case cases[] = {
      {{{0}, {2}}, 10, "rank 1 is not a member of its exchange"},
      {{{0}, {1}, {0}}, 10, "rank 0 is a member of the exchange twice"},
      {{{1}, {3}}, 10, "rank 3 is not one of the 3 ranks"},
      {{{1}, {-1}}, 10, "rank -1 is not one of the 3 ranks"},
      {{{0}, {1, 0, -1}}, 10, "rank 1 cannot own the share -1"},
      {{{0}, {1, 0, nan}}, 10, "rank 1 cannot own the share nan"},
      {{{0, 0, 0}, {1, 0, 0}}, 10, "nobody owns a share"},
  };
  for (const Case& row : cases) {
    const std::string error = error_of({.members = row.members, .tensor_lengths = {row.length}});
    EXPECT_NE(error.find(row.error), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace longhaul
