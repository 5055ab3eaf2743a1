// Cuts text into the pieces inside which byte-pair encoding merges: scanners by hand for the two
// expressions that most tokenizers use, several times as fast as the general way (regex_split.h):
//
//   GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   Llama 3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//            ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//            (Qwen 2 and others: one number a piece instead of three)
//
// Bytes that are not UTF-8 belong, one by one, to what is neither space, letter nor number, so that
// every text is the sum of its pieces. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace longhaul {

/// A longer run of one class is cut after the character that reaches this. It is the one place
/// where pieces differ from the expression's, and it bounds memory on any input.
inline constexpr std::size_t kPieceBytesMax = std::size_t{1} << 20;

struct Piece {
  std::size_t length;
  /// Text from here on was not looked at, unless it completes a character that is cut off here.
  std::size_t seen;
};

/// First piece of `text`, which is not empty.
Piece next_gpt2_piece(std::string_view text);
Piece next_llama3_piece(std::string_view text, int numbers_max);

}  // namespace longhaul
