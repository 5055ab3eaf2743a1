#include "executor/data/gpt2_split.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "executor/data/unicode_ranges.h"

namespace longhaul {
namespace {

enum class Class : std::uint8_t { kLetter, kNumber, kSpace, kOther };

bool contains(std::span<const CodePointRange> ranges, std::uint32_t code) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code,
      [](std::uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

Class class_of(std::uint32_t code) {
  if (contains(kLetterRanges, code)) return Class::kLetter;
  if (contains(kSpaceRanges, code)) return Class::kSpace;
  return contains(kNumberRanges, code) ? Class::kNumber : Class::kOther;
}

std::array<Class, 128> ascii_classes() {
  std::array<Class, 128> classes{};
  for (std::uint32_t code = 0; code < 128; ++code) classes[code] = class_of(code);
  return classes;
}

struct Character {
  std::size_t length;
  Class kind;
};

/// A character of more than one byte, or one byte that starts none. Overlong forms start none;
/// surrogates need no care, since they belong to the class of broken bytes either way.
Character wide_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  constexpr Character kBroken = {1, Class::kOther};
  const std::uint32_t lead = byte(0);
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return kBroken;
  std::uint32_t code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return kBroken;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff) return kBroken;
  return {length, class_of(code)};
}

Character character(std::string_view text) {
  static const std::array<Class, 128> kAscii = ascii_classes();
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 128 ? Character{1, kAscii[first]} : wide_character(text);
}

std::size_t contraction(std::string_view text) {
  if (text[0] != '\'' || text.size() < 2) return 0;
  constexpr std::string_view kOneLetter = "stmd";
  if (kOneLetter.find(text[1]) != kOneLetter.npos) return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

/// `\s+(?!\S)|\s+`: spaces up to the one that belongs to the word behind them, if there is one.
std::size_t spaces(std::string_view text) {
  std::size_t end = 0;
  std::size_t last = 0;  // where the last space starts
  while (end < text.size() && end < kPieceBytesMax) {
    const Character next = character(text.substr(end));
    if (next.kind != Class::kSpace) return last > 0 ? last : end;
    last = end;
    end += next.length;
  }
  return end;
}

}  // namespace

std::size_t next_piece(std::string_view text) {
  if (const std::size_t length = contraction(text); length > 0) return length;
  std::size_t end = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = character(text.substr(end));
  if (first.kind == Class::kSpace) return spaces(text);
  end += first.length;
  while (end < text.size() && end < kPieceBytesMax) {
    const Character next = character(text.substr(end));
    if (next.kind != first.kind) break;
    end += next.length;
  }
  return end;
}

}  // namespace longhaul
