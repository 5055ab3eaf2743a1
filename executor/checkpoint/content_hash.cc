#include "executor/checkpoint/content_hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include "core/result.h"

namespace longhaul {
namespace {

ContentHash from(XXH128_hash_t hash) {
  return {.high = hash.high64, .low = hash.low64};
}

std::optional<std::uint64_t> parse_half(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char c : digits) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    value = value << 4 | static_cast<std::uint64_t>(digit);
  }
  return value;
}

}  // namespace

std::string ContentHash::text() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

std::optional<ContentHash> ContentHash::parse(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = parse_half(text.substr(0, 16));
  const auto low = parse_half(text.substr(16));
  if (!high || !low) return std::nullopt;
  return ContentHash{.high = *high, .low = *low};
}

ContentHash ContentHash::of(std::span<const std::byte> bytes) {
  return from(XXH3_128bits(bytes.data(), bytes.size()));
}

struct ContentHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    LH_CHECK(xxh != nullptr, "half a kilobyte of memory is always there");
    XXH3_128bits_reset(xxh);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {}
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;
ContentHasher::~ContentHasher() = default;

void ContentHasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

ContentHash ContentHasher::value() const {
  return from(XXH3_128bits_digest(state_->xxh));
}

}  // namespace longhaul
