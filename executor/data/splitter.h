// One level of a tokenizer's cutting: text to pieces, from left to right. A piece depends on the
// text from its start on alone, so that a text may be taken up at the end of any piece. A splitter
// belongs to one thread at a time; clone it for others.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

namespace longhaul {

class Splitter {
 public:
  virtual ~Splitter() = default;
  /// Takes up a text, which stays where it is while it is cut. Unless it is `closed`, more follows.
  virtual void take(std::string_view text, bool closed) = 0;
  /// Length of the next piece. 0 at the end of the text, and where what follows could change the
  /// piece, which is so in the last kPieceBytesMax + 8 bytes alone.
  virtual std::size_t next() = 0;
  virtual std::unique_ptr<Splitter> clone() const = 0;
};

std::unique_ptr<Splitter> make_gpt2_splitter();
/// Every number alone, or runs of numbers as they are; what lies between is one piece.
std::unique_ptr<Splitter> make_digit_splitter(bool each_alone);

/// Every occurrence of a text, and what lies between them.
Result<std::unique_ptr<Splitter>> make_text_splitter(const std::string& text);

/// Matches of a regular expression and what lies between them. The two expressions of hand_split.h
/// are known; others go to PCRE2, with the Unicode tables of its version. A match longer than
/// kPieceBytesMax ends there, and where PCRE2 gives up (after ten million steps of backtracking)
/// one character is a piece.
/// Errors (kInvalid): what does not compile, or means something else to Hugging Face's library.
Result<std::unique_ptr<Splitter>> make_regex_splitter(const std::string& expression);
/// The same without looking for a known expression; for tests.
Result<std::unique_ptr<Splitter>> make_pcre_splitter(const std::string& expression);

}  // namespace longhaul
