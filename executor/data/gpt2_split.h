// Cuts text into the pieces inside which GPT-2's byte-pair encoding merges: a scanner by hand for
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// with the classes of Unicode 15 (unicode_ranges.h). Bytes that are not UTF-8 belong, one by one,
// to the third class, so that every text is the sum of its pieces. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace longhaul {

/// A longer run of one class is cut after the character that reaches this. It is the one place
/// where pieces differ from the expression's, and it bounds memory on any input.
inline constexpr std::size_t kPieceBytesMax = std::size_t{1} << 20;

/// The scanner looks less than this far beyond the end of a piece: two characters, of which the
/// first may become the start of the next piece. Text behind it cannot change the piece.
inline constexpr std::size_t kPieceLookahead = 8;

/// Length of the first piece of `text`, which is not empty.
std::size_t next_piece(std::string_view text);

}  // namespace longhaul
