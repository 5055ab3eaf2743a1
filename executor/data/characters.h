// Characters of UTF-8 text and their classes, by Unicode 16 (unicode_ranges.h). Bytes that are not
// UTF-8 are characters of one byte each, neither letter nor number nor space. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace longhaul {

enum class CharacterClass : std::uint8_t { kOther, kLetter, kNumber, kSpace };

struct Character {
  static constexpr std::uint32_t kBroken = 0x110000;  // the code of a byte that is not UTF-8

  std::uint32_t code;
  std::uint32_t length;  // bytes
  CharacterClass kind;
};

/// The first character of a text that is not empty.
Character character(std::string_view text);

/// How many bytes at the start of `text` are UTF-8.
std::size_t valid_utf8(std::string_view text);

/// How many bytes at the end of `text` may be the start of a character that is cut off: 0 to 3.
std::size_t cut_character(std::string_view text);

/// Appends a code point as UTF-8.
void append_utf8(std::uint32_t code, std::string& out);

}  // namespace longhaul
