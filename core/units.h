// Physical quantities as types: they multiply and divide into each other and refuse to add across
// kinds, so that a bit rate can never be taken for a byte rate or a second for a FLOP.
//
//   Seconds t = bytes(4e9) / bytes_per_second(1e9);     // 4 s
//   Seconds wrong = bytes(1) + seconds(1);              // does not compile
//
// Bits exist only at the edges, where text is read or printed (core/quantity.h).
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

namespace longhaul {

/// A double with a unit. The unit is the SI base one named by the alias (seconds, bytes, ...).
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}

  constexpr double value() const { return value_; }
  static constexpr Quantity infinity() { return Quantity(std::numeric_limits<double>::infinity()); }
  constexpr bool finite() const { return std::isfinite(value_); }

  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value_ + b.value_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value_ - b.value_);
  }
  friend constexpr Quantity operator*(Quantity a, double factor) {
    return Quantity(a.value_ * factor);
  }
  friend constexpr Quantity operator*(double factor, Quantity a) { return a * factor; }
  friend constexpr Quantity operator/(Quantity a, double divisor) {
    return Quantity(a.value_ / divisor);
  }
  /// A ratio of two quantities of one kind is a plain number.
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

 private:
  double value_ = 0;
};

using Seconds = Quantity<struct SecondsTag>;
using Bytes = Quantity<struct BytesTag>;
using Flops = Quantity<struct FlopsTag>;  // floating-point operations, a count
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds(amount.value() / rate.value());
}
constexpr Seconds operator/(Flops amount, FlopsPerSecond rate) {
  return Seconds(amount.value() / rate.value());
}
constexpr BytesPerSecond operator/(Bytes amount, Seconds time) {
  return BytesPerSecond(amount.value() / time.value());
}
constexpr FlopsPerSecond operator/(Flops amount, Seconds time) {
  return FlopsPerSecond(amount.value() / time.value());
}
constexpr Bytes operator*(BytesPerSecond rate, Seconds time) {
  return Bytes(rate.value() * time.value());
}
constexpr Flops operator*(FlopsPerSecond rate, Seconds time) {
  return Flops(rate.value() * time.value());
}

constexpr Seconds seconds(double value) {
  return Seconds(value);
}
constexpr Seconds milliseconds(double value) {
  return Seconds(value / 1e3);
}
constexpr Seconds microseconds(double value) {
  return Seconds(value / 1e6);
}
constexpr Bytes bytes(double value) {
  return Bytes(value);
}
constexpr Bytes gibibytes(double value) {
  return Bytes(value * 1073741824.0);
}
constexpr Flops flops(double value) {
  return Flops(value);
}
constexpr BytesPerSecond bytes_per_second(double value) {
  return BytesPerSecond(value);
}
constexpr BytesPerSecond gigabits_per_second(double value) {
  return BytesPerSecond(value * 1e9 / 8);
}
constexpr FlopsPerSecond flops_per_second(double value) {
  return FlopsPerSecond(value);
}

/// A point in simulated time: a whole number of picoseconds since the start of the simulation.
///
/// Whole numbers make event order independent of the order of additions. Picoseconds, not
/// nanoseconds, because a step's worth of roundings must stay below 1e-9 s of the closed forms
/// that the tests compare with; 2^63 ps are 106 days, and longer runs are sums of steps.
class SimTime {
 public:
  constexpr SimTime() = default;
  /// Rounds to the nearest picosecond.
  static SimTime from(Seconds time) { return SimTime(std::llround(time.value() * 1e12)); }
  static constexpr SimTime never() { return SimTime(std::numeric_limits<std::int64_t>::max()); }

  constexpr std::int64_t picoseconds() const { return picoseconds_; }
  constexpr Seconds seconds() const { return Seconds(static_cast<double>(picoseconds_) / 1e12); }

  constexpr auto operator<=>(const SimTime&) const = default;
  friend constexpr SimTime operator+(SimTime a, SimTime b) {
    return SimTime(a.picoseconds_ + b.picoseconds_);
  }
  friend constexpr SimTime operator-(SimTime a, SimTime b) {
    return SimTime(a.picoseconds_ - b.picoseconds_);
  }
  constexpr SimTime& operator+=(SimTime other) {
    picoseconds_ += other.picoseconds_;
    return *this;
  }

 private:
  constexpr explicit SimTime(std::int64_t picoseconds) : picoseconds_(picoseconds) {}
  std::int64_t picoseconds_ = 0;
};

}  // namespace longhaul
