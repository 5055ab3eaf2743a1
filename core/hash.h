// FNV-1a, 64 bits: names generators and identifies inputs in a plan. Not for security.
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

}  // namespace longhaul
