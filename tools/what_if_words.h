// Words, columns and beginnings of what-if sentences. Internal to tools/what_if_*.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/what_if_grammar.h"

namespace longhaul {

/// The words of a sentence. A part in double quotes may hold spaces. Refuses control characters, a
/// quote that is not closed, and sentences of more than 4,096 bytes.
Result<std::vector<EditWord>> edit_words(std::string_view text);

/// The words as a text that has them again.
std::string edit_text(std::span<const EditWord> words);

/// The words from one on as one text, a space between two; behind the sentence where there is none.
EditWord edit_rest(std::string_view text, std::span<const EditWord> words, std::size_t from);

/// The sentences of a text, at `;` outside of quotes; none is left out, an empty one neither.
std::vector<std::string_view> edit_sentences(std::string_view text);

/// Characters of a text: bytes that begin one.
int edit_columns(std::string_view text);

/// How a property's value is written.
enum class Measure {
  kRate,
  kRateOrUnlimited,
  kDuration,
  kSize,
  kSizeOrUnlimited,
  kFlopRate,
  kUsdPerHour,
  kUsdPerByte,
  kNumber,
  kCountOrAuto,
  kScope,
  kCongestion,
  kName,
  kAny,
};

/// A value in base units; of what has none, a plain number.
Result<double> in_base_units(Measure measure, std::string_view text);
/// Whether its values are words alone.
bool is_word(Measure measure);

/// The beginning of a sentence: everything before the value.
struct EditHead {
  Edit edit;
  Measure measure = Measure::kAny;
  std::size_t used = 0;  // words
};
Result<EditHead> edit_head(std::string_view text, std::span<const EditWord> words);

}  // namespace longhaul
