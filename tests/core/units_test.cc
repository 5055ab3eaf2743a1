#include "core/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace longhaul {
namespace {

// ---- What must not compile.

template <class A, class B>
concept Adds = requires(A a, B b) { a + b; };
template <class A, class B>
concept Subtracts = requires(A a, B b) { a - b; };
template <class A, class B>
concept Compares = requires(A a, B b) { a < b; };
template <class A, class B>
concept Equals = requires(A a, B b) { a == b; };
template <class A, class B>
concept Multiplies = requires(A a, B b) { a* b; };
template <class A, class B>
concept Divides = requires(A a, B b) { a / b; };
template <class A, class B>
concept AddsInPlace = requires(A a, B b) { a += b; };

template <class A, class B>
constexpr bool kMixes = Adds<A, B> || Subtracts<A, B> || Compares<A, B> || Equals<A, B> ||
                        AddsInPlace<A, B> || std::is_convertible_v<A, B>;
template <class A, class... Others>
constexpr bool kMixesWithAny = (kMixes<A, Others> || ...);

static_assert(Adds<Seconds, Seconds> && Compares<Bytes, Bytes> && AddsInPlace<Flops, Flops>);
static_assert(
    !kMixesWithAny<Seconds, Bytes, Flops, BytesPerSecond, FlopsPerSecond, SimTime, double>);
static_assert(!kMixesWithAny<Bytes, Seconds, Flops, BytesPerSecond, FlopsPerSecond, double>);
static_assert(!kMixesWithAny<Flops, Seconds, Bytes, BytesPerSecond, FlopsPerSecond, double>);
static_assert(!kMixesWithAny<BytesPerSecond, Seconds, Bytes, Flops, FlopsPerSecond, double>);
static_assert(!kMixesWithAny<FlopsPerSecond, Seconds, Bytes, Flops, BytesPerSecond, double>);
static_assert(!kMixesWithAny<SimTime, Seconds, Bytes, double, std::int64_t>);

// A plain number becomes a quantity only where its unit is named.
static_assert(!std::is_convertible_v<double, Seconds> && !std::is_convertible_v<double, Bytes>);
static_assert(!std::is_constructible_v<SimTime, double> &&
              !std::is_constructible_v<SimTime, std::int64_t>);

// Products and quotients without a physical kind do not exist.
static_assert(!Multiplies<Seconds, Seconds> && !Multiplies<Bytes, Bytes>);
static_assert(!Multiplies<Bytes, BytesPerSecond> && !Multiplies<Bytes, FlopsPerSecond>);
static_assert(!Multiplies<FlopsPerSecond, Bytes> && !Divides<Flops, BytesPerSecond>);
static_assert(!Divides<Bytes, FlopsPerSecond> && !Divides<Seconds, Bytes>);
static_assert(!Divides<double, Seconds> && !Divides<BytesPerSecond, Seconds>);

// ---- Kinds of results.

static_assert(std::is_same_v<decltype(Bytes() / BytesPerSecond()), Seconds>);
static_assert(std::is_same_v<decltype(Flops() / FlopsPerSecond()), Seconds>);
static_assert(std::is_same_v<decltype(Bytes() / Seconds()), BytesPerSecond>);
static_assert(std::is_same_v<decltype(Flops() / Seconds()), FlopsPerSecond>);
static_assert(std::is_same_v<decltype(BytesPerSecond() * Seconds()), Bytes>);
static_assert(std::is_same_v<decltype(FlopsPerSecond() * Seconds()), Flops>);
static_assert(std::is_same_v<decltype(Bytes() / Bytes()), double>);

TEST(Units, kinds_multiply_and_divide_into_each_other) {
  EXPECT_EQ(bytes(4e9) / bytes_per_second(1e9), seconds(4));
  EXPECT_EQ(flops(300) / flops_per_second(60), seconds(5));
  EXPECT_EQ(bytes(10) / seconds(4), bytes_per_second(2.5));
  EXPECT_EQ(flops(10) / seconds(4), flops_per_second(2.5));
  EXPECT_EQ(bytes_per_second(2.5) * seconds(4), bytes(10));
  EXPECT_EQ(flops_per_second(2.5) * seconds(4), flops(10));
  EXPECT_EQ(bytes(10) / bytes(4), 2.5);
}

TEST(Units, quantities_of_one_kind_add_scale_and_compare) {
  Seconds time = seconds(1);
  time += seconds(2);
  time -= seconds(0.5);
  EXPECT_EQ(time, seconds(2.5));
  EXPECT_EQ(seconds(3) - seconds(1) + seconds(0.5), seconds(2.5));
  EXPECT_EQ(2 * seconds(3), seconds(3) * 2);
  EXPECT_EQ(seconds(3) / 2, seconds(1.5));
  EXPECT_LT(seconds(1), seconds(2));
  EXPECT_GT(Seconds::infinity(), seconds(1e300));
  EXPECT_FALSE(Seconds::infinity().finite());
  EXPECT_TRUE(seconds(1e300).finite());
  EXPECT_EQ(Bytes(), bytes(0));
}

TEST(Units, names_carry_their_scale) {
  EXPECT_EQ(milliseconds(48), seconds(0.048));
  EXPECT_EQ(microseconds(50), seconds(0.00005));
  EXPECT_EQ(gibibytes(1), bytes(1024.0 * 1024 * 1024));
  EXPECT_EQ(gigabits_per_second(8), bytes_per_second(1e9));  // 8 bits are a byte
}

// ---- Simulated time.

TEST(SimTime, rounds_to_the_nearest_picosecond) {
  EXPECT_EQ(SimTime::from(seconds(1)).picoseconds(), 1'000'000'000'000);
  EXPECT_EQ(SimTime::from(seconds(0.4e-12)).picoseconds(), 0);
  EXPECT_EQ(SimTime::from(seconds(0.6e-12)).picoseconds(), 1);
  EXPECT_EQ(SimTime::from(seconds(1.49e-12)).picoseconds(), 1);
  EXPECT_EQ(SimTime::from(seconds(1.51e-12)).picoseconds(), 2);
  // 0.1 and 0.3 are no binary fractions; the nearest picosecond is still the one that was meant.
  EXPECT_EQ(SimTime::from(seconds(0.1)).picoseconds(), 100'000'000'000);
  EXPECT_EQ(SimTime::from(seconds(0.1) + seconds(0.2)), SimTime::from(seconds(0.3)));
}

TEST(SimTime, goes_back_to_seconds_without_loss_at_the_scale_of_a_step) {
  for (const double time : {0.0, 1e-12, 1.5e-3, 0.1, 59.999999999999, 3600.0}) {
    EXPECT_NEAR(SimTime::from(seconds(time)).seconds().value(), time, 0.5e-12 + 1e-16 * time);
  }
}

TEST(SimTime, adds_as_whole_numbers_whatever_the_order) {
  const SimTime small = SimTime::from(seconds(1e-12));
  const SimTime large = SimTime::from(seconds(1e6));
  SimTime sum = large;
  for (int i = 0; i < 1000; ++i) sum += small;
  EXPECT_EQ((sum - large).picoseconds(), 1000);
  EXPECT_EQ(sum, SimTime::from(seconds(1e-9)) + large);
}

TEST(SimTime, never_is_after_everything) {
  EXPECT_LT(SimTime::from(seconds(9.2e6)), SimTime::never());  // 106 days are the most it can hold
  EXPECT_EQ(SimTime(), SimTime::from(seconds(0)));
}

}  // namespace
}  // namespace longhaul
