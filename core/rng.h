// The project's only source of random numbers: seeded by a name and a run seed, the same on every
// machine and compiler. `std::*_distribution` is banned because its output is not specified.
//
// Generator: xoshiro256** 1.0 (Blackman and Vigna, 2018), seeded through splitmix64 from the FNV-1a
// hash of the name and the run seed. Not for cryptography. One instance belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace longhaul {

class Rng {
 public:
  /// Generators of different names are independent even with the same seed.
  Rng(std::string_view name, std::uint64_t seed);

  std::uint64_t next();
  /// A whole number in [0, bound), unbiased (Lemire's rejection). bound >= 1.
  std::uint64_t below(std::uint64_t bound);
  /// `below` for container indices.
  std::size_t index(std::size_t size) { return static_cast<std::size_t>(below(size)); }
  /// A double in [0, 1) with 53 random bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  /// True with the given probability.
  bool chance(double probability) { return uniform() < probability; }

  /// Fisher-Yates: every order equally likely.
  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[index(i)]);
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace longhaul
