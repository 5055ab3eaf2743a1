// FNV-1a, 64 bits: names generators and identifies inputs in a plan. And a mixer of bits. Not for
// security.
#pragma once

#include <cstdint>
#include <string_view>

namespace longhaul {

constexpr std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325u) {
  std::uint64_t hash = seed;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

/// A step of splitmix64 (Steele, Lea and Flood, 2014): every bit of the input changes each bit of
/// the output half of the time.
constexpr std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace longhaul
