// What identifies a file's content in a checkpoint: XXH3, 128 bits, over all bytes of the file.
//
// Why XXH3 (libxxhash): it must see torn writes and rotten bits and name contents without
// collisions (2^-64 for a run of 2^32 files), at memory speed, since a checkpoint is tens of
// gigabytes; SHA-256 would take longer than the disk. It does not resist somebody who forges
// contents: peers of a job trust each other by mutual TLS. The text form is what `xxh128sum FILE`
// prints, so that a person can check a file by hand.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

struct ContentHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const ContentHash&) const = default;

  /// 32 lower-case hexadecimal digits, the high half first.
  std::string text() const;
  static std::optional<ContentHash> parse(std::string_view text);
  static ContentHash of(std::span<const std::byte> bytes);
};

/// The hash of bytes that come piece by piece; how they are cut does not matter. One thread.
class ContentHasher {
 public:
  ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;
  ~ContentHasher();
  void add(std::span<const std::byte> bytes);
  ContentHash value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
