#include "executor/data/hand_split.h"

#include <algorithm>

#include "executor/data/characters.h"

namespace longhaul {
namespace {

constexpr std::size_t kNoEnd = std::string_view::npos;

/// A run of characters that starts at `start`: where it ends, and how far was looked.
template <class InRun>
Piece run_from(std::string_view text, std::size_t start, InRun in_run) {
  std::size_t end = start;
  while (end < text.size() && end < kPieceBytesMax) {
    const Character next = character(text.substr(end));
    if (!in_run(next)) return {end, end + next.length};
    end += next.length;
  }
  return {end, end};
}

Piece run_of(CharacterClass kind, std::string_view text, std::size_t start) {
  return run_from(text, start, [kind](const Character& c) { return c.kind == kind; });
}

bool is_line_break(std::uint32_t code) {
  return code == '\r' || code == '\n';
}

/// Small letter of an ASCII letter; the long s is a small s to those who ignore case.
char folded(const Character& c) {
  if (c.code == 0x17f) return 's';
  if (c.code >= 0x80) return '\0';
  const char ascii = static_cast<char>(c.code);
  return ascii >= 'A' && ascii <= 'Z' ? static_cast<char>(ascii + 32) : ascii;
}

/// 's 't 're 've 'm 'll 'd: the length, or 0.
Piece contraction(std::string_view text, bool any_case) {
  if (text[0] != '\'') return {0, 1};
  if (text.size() < 2) return {0, text.size()};
  const Character first = character(text.substr(1));
  std::size_t end = 1 + first.length;
  const char one = any_case || first.code < 'A' || first.code > 'Z' ? folded(first) : '\0';
  if (!any_case && first.code >= 0x80) return {0, end};
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return {end, end};
  if (one != 'r' && one != 'v' && one != 'l') return {0, end};
  if (end == text.size()) return {0, end};
  const Character second = character(text.substr(end));
  end += second.length;
  const char two = any_case || second.code >= 'a' ? folded(second) : '\0';
  return {two == (one == 'l' ? 'l' : 'e') ? end : 0, end};
}

/// `\s+(?!\S)|\s+`: spaces up to the one that belongs to the word behind them, if there is one;
/// with `breaks` before it `\s*[\r\n]+`: up to the last line break among them.
Piece spaces(std::string_view text, bool breaks) {
  std::size_t end = 0;
  std::size_t last = 0;  // where the last space starts
  std::size_t broken = kNoEnd;
  while (end < text.size() && end < kPieceBytesMax) {
    const Character next = character(text.substr(end));
    if (next.kind != CharacterClass::kSpace) {
      const std::size_t length = breaks && broken != kNoEnd ? broken : last > 0 ? last : end;
      return {length, end + next.length};
    }
    last = end;
    end += next.length;
    if (is_line_break(next.code)) broken = end;
  }
  return {breaks && broken != kNoEnd ? broken : end, end};
}

}  // namespace

Piece next_gpt2_piece(std::string_view text) {
  if (const Piece found = contraction(text, false); found.length > 0) return found;
  const std::size_t start = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = character(text.substr(start));
  if (first.kind == CharacterClass::kSpace) return spaces(text, false);
  Piece piece = run_of(first.kind, text, start + first.length);
  // A lone apostrophe at the end may yet become a contraction.
  if (text[0] == '\'') piece.seen = std::max(piece.seen, std::min<std::size_t>(text.size(), 3));
  return piece;
}

Piece next_llama3_piece(std::string_view text, int numbers_max) {
  const Piece contracted = contraction(text, true);
  if (contracted.length > 0) return contracted;
  const Character first = character(text);
  const auto after_contraction = [&](Piece piece) {
    return Piece{piece.length, std::max(piece.seen, contracted.seen)};
  };
  if (first.kind == CharacterClass::kLetter) {
    return run_of(CharacterClass::kLetter, text, first.length);
  }
  if (first.kind == CharacterClass::kNumber) {
    int numbers = 1;
    return run_from(text, first.length, [&](const Character& c) {
      return c.kind == CharacterClass::kNumber && numbers++ < numbers_max;
    });
  }
  // One character that is no line break may come before letters, a space before signs.
  std::size_t start = first.length;
  if (start < text.size() && !is_line_break(first.code)) {
    const Character second = character(text.substr(start));
    if (second.kind == CharacterClass::kLetter) {
      return after_contraction(run_of(CharacterClass::kLetter, text, start + second.length));
    }
    if (first.code == ' ' && second.kind == CharacterClass::kOther) start += second.length;
  }
  if (first.kind == CharacterClass::kSpace && start == first.length) return spaces(text, true);
  const Piece signs = run_of(CharacterClass::kOther, text, start);
  return after_contraction(
      run_from(text, signs.length, [](const Character& c) { return is_line_break(c.code); }));
}

}  // namespace longhaul
