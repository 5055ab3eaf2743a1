// Random bits of a tensor's codes, as a function of where they are used: (seed, step, tensor id,
// element). So they are the same on every processor, for any pieces and any order of work, and a
// receiver can repeat them. Pure functions.
#pragma once

#include <cstdint>

#include "core/hash.h"

namespace longhaul {

constexpr std::uint64_t mix64(std::uint64_t a, std::uint64_t b) {
  return mix(mix(a) + b);
}

/// What a tensor's noise and the signs of its rotation come from.
struct NoiseKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  std::uint64_t signs = 0;  // bit i set: element i of each block of 64 changes its sign
};
constexpr NoiseKey noise_key(std::uint64_t seed, std::uint32_t step, std::uint64_t tensor_id) {
  const std::uint64_t key = mix64(mix64(seed, step), tensor_id);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32), mix(key)};
}

/// 32 bits that serve two elements. Two rounds of multiplying and shifting with the constants of
/// lowbias32 (C. Wellons, "hash-prospector"), the second half of the key in between.
constexpr std::uint32_t noise_word(const NoiseKey& key, std::uint32_t counter) {
  std::uint32_t x = counter ^ key.first;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = ((x ^ (x >> 15)) + key.second) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// 16 bits of element i: of each 32 elements the first 16 take the low halves of 16 words, the
/// others the high halves (as registers of 8 or 16 lanes have them).
constexpr std::uint32_t noise_of(const NoiseKey& key, std::uint64_t element) {
  const auto counter = static_cast<std::uint32_t>(element / 32 * 16 + element % 16);
  const std::uint32_t word = noise_word(key, counter);
  return element / 16 % 2 == 0 ? word & 0xffff : word >> 16;
}

}  // namespace longhaul
