#include "core/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/hash.h"

namespace longhaul {
namespace {

std::array<std::uint64_t, 4> first_of(std::string_view name, std::uint64_t seed) {
  Rng rng(name, seed);
  return {rng.next(), rng.next(), rng.next(), rng.next()};
}

// The expected numbers come from a separate implementation in Python of what the header names
// (FNV-1a, splitmix64, xoshiro256** 1.0). Plans depend on them: they must never change.
TEST(Rng, gives_the_same_numbers_on_every_machine) {
  EXPECT_EQ(first_of("placement", 1),
            (std::array<std::uint64_t, 4>{0x45d2fa498d498f45u, 0x096611c5ef866003u,
                                          0x18a628a6f15d7970u, 0xfd66a07b7cfe9ce8u}));
  EXPECT_EQ(first_of("placement", 2),
            (std::array<std::uint64_t, 4>{0xe003013f5fb33e41u, 0x1c46d6d508c2e224u,
                                          0xe793c12c193a45c1u, 0x03456ad388c6dc7au}));
  EXPECT_EQ(first_of("breeding", 1),
            (std::array<std::uint64_t, 4>{0x5ec3b3a0ff5bb3d1u, 0xff7e0079dba3a564u,
                                          0x7e2f21100b63dfd3u, 0x56913a7fd6a2d9b7u}));
  EXPECT_EQ(first_of("", 0),
            (std::array<std::uint64_t, 4>{0x21382ef092ed7068u, 0x5b54c052757adf62u,
                                          0xa64cb2cf68795072u, 0xd35c15d5962035afu}));
}

TEST(Rng, below_and_shuffle_give_the_same_on_every_machine) {
  Rng dice("dice", 7);
  const std::array<std::uint64_t, 16> expected = {3, 0, 5, 4, 1, 5, 2, 4, 2, 0, 3, 4, 0, 3, 4, 2};
  for (const std::uint64_t number : expected) EXPECT_EQ(dice.below(6), number);
  std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Rng("shuffle", 3).shuffle(std::span(items));
  EXPECT_EQ(items, (std::vector{6, 4, 1, 0, 2, 7, 8, 3, 9, 5}));
}

TEST(Rng, below_rejects_what_would_bias_it) {
  // With a bound just above 2^63 nearly half of the draws must be rejected; the values after
  // rejection are those of the separate implementation.
  Rng rng("dice", 7);
  constexpr std::uint64_t bound = (std::uint64_t{1} << 63) + 1;
  EXPECT_EQ(rng.below(bound), 8519479928371007917u);
  EXPECT_EQ(rng.below(bound), 7828080779895932743u);
  EXPECT_EQ(rng.below(bound), 3599742078041850116u);
  EXPECT_EQ(rng.below(bound), 1270716922398991175u);
}

TEST(Rng, below_stays_below_for_every_bound) {
  Rng rng("bounds", 1);
  for (std::uint64_t bound = 1; bound <= 40; ++bound) {
    for (int i = 0; i < 100; ++i) EXPECT_LT(rng.below(bound), bound);
  }
  for (const std::uint64_t bound : {std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    for (int i = 0; i < 100; ++i) EXPECT_LT(rng.below(bound), bound);
  }
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(Rng, below_hits_every_number_equally_often) {
  // 60,000 throws of a die: each face is binomial with mean 10,000 and deviation
  // sqrt(60000 x 1/6 x 5/6) = 91; five deviations are 456.
  Rng rng("fair", 1);
  std::array<int, 6> faces{};
  for (int i = 0; i < 60000; ++i) ++faces[rng.index(6)];
  for (const int count : faces) EXPECT_NEAR(count, 10000, 456);
}

TEST(RngDeathTest, an_empty_range_has_nothing_to_draw) {
  Rng rng("empty", 1);
  EXPECT_DEATH(rng.below(0), "empty range");
}

TEST(Rng, uniform_is_in_zero_to_one_without_one) {
  Rng rng("u", 1);
  EXPECT_EQ(rng.uniform(), 0.6564907061036824);  // top 53 bits / 2^53, separate implementation
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = rng.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  // Mean 1/2, deviation of the mean of 10,000 is sqrt(1/12) / 100 = 0.0029; five are 0.0145.
  EXPECT_NEAR(sum / 10000, 0.5, 0.0145);
}

TEST(Rng, chance_is_never_at_zero_and_always_at_one) {
  Rng rng("chance", 1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(rng.chance(0));
    EXPECT_TRUE(rng.chance(1));
  }
}

TEST(Rng, shuffle_keeps_the_items_and_reaches_every_order) {
  Rng rng("orders", 1);
  std::map<std::vector<int>, int> orders;
  for (int i = 0; i < 6000; ++i) {
    std::vector<int> items = {1, 2, 3};
    rng.shuffle(std::span(items));
    ++orders[items];
    std::sort(items.begin(), items.end());
    ASSERT_EQ(items, (std::vector{1, 2, 3}));
  }
  // 3! = 6 orders of mean 1,000 and deviation sqrt(6000 x 1/6 x 5/6) = 29; five are 144.
  ASSERT_EQ(orders.size(), 6u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 144);
}

TEST(Rng, shuffles_of_nothing_and_of_one_draw_nothing) {
  Rng rng("small", 1);
  Rng untouched("small", 1);
  std::vector<int> items;
  rng.shuffle(std::span(items));
  items = {5};
  rng.shuffle(std::span(items));
  EXPECT_EQ(items, std::vector{5});
  EXPECT_EQ(rng.next(), untouched.next());
}

TEST(Hash, is_fnv_1a) {
  // Test vectors of the FNV authors (draft-eastlake-fnv, appendix C).
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(hash_text("bar", hash_text("foo")), hash_text("foobar"));
}

}  // namespace
}  // namespace longhaul
