#include "executor/data/characters.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "executor/data/unicode_ranges.h"

namespace longhaul {
namespace {

/// One byte a code point below this: all that is in daily use, and 128 KiB.
constexpr std::uint32_t kTableSize = 0x20000;

bool contains(std::span<const CodePointRange> ranges, std::uint32_t code) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code,
      [](std::uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

std::vector<CharacterClass> class_table() {
  std::vector<CharacterClass> table(kTableSize, CharacterClass::kOther);
  const auto fill = [&](std::span<const CodePointRange> ranges, CharacterClass kind) {
    for (const CodePointRange& range : ranges) {
      for (std::uint32_t code = range.first; code <= range.last && code < kTableSize; ++code) {
        table[code] = kind;
      }
    }
  };
  fill(kLetterRanges, CharacterClass::kLetter);
  fill(kNumberRanges, CharacterClass::kNumber);
  fill(kSpaceRanges, CharacterClass::kSpace);
  return table;
}

CharacterClass class_of(std::uint32_t code) {
  static const std::vector<CharacterClass> kTable = class_table();
  if (code < kTableSize) return kTable[code];
  return contains(kLetterRanges, code) ? CharacterClass::kLetter : CharacterClass::kOther;
}

/// A character of more than one byte, or one byte that starts none. Overlong forms and surrogates
/// start none.
Character wide_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  constexpr Character kBroken = {Character::kBroken, 1, CharacterClass::kOther};
  const std::uint32_t lead = byte(0);
  const std::uint32_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return kBroken;
  std::uint32_t code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return kBroken;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return kBroken;
  return {code, length, class_of(code)};
}

}  // namespace

Character character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 128 ? Character{first, 1, class_of(first)} : wide_character(text);
}

std::size_t valid_utf8(std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    std::uint64_t eight = 0;
    if (done + 8 <= text.size()) std::memcpy(&eight, text.data() + done, 8);
    if (done + 8 <= text.size() && (eight & 0x8080808080808080u) == 0) {
      done += 8;
      continue;
    }
    const Character next = character(text.substr(done));
    if (next.code == Character::kBroken) break;
    done += next.length;
  }
  return done;
}

std::size_t cut_character(std::string_view text) {
  for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if (byte < 0x80 || byte > 0xf4) return 0;
    if (byte >= 0xc0) return n < (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u) ? n : 0;
  }
  return 0;
}

void append_utf8(std::uint32_t code, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace longhaul
