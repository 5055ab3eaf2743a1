#include "core/rng.h"

#include <bit>

#include "core/hash.h"

namespace longhaul {
Rng::Rng(std::string_view name, std::uint64_t seed) {
  std::uint64_t state = hash_text(name) ^ (seed * 0x9e3779b97f4a7c15u);
  for (std::uint64_t& word : state_) {
    word = mix(state);
    state += 0x9e3779b97f4a7c15u;
  }
}

std::uint64_t Rng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  LH_CHECK(bound > 0, "an empty range has no members to draw");
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * bound;
  auto low = static_cast<std::uint64_t>(product);
  if (low < bound) {
    const std::uint64_t threshold = (0 - bound) % bound;
    while (low < threshold) {
      product = static_cast<Wide>(next()) * bound;
      low = static_cast<std::uint64_t>(product);
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace longhaul
