// Lines and fields of the texts that measurements come in. Views into the caller's text; no state
// is shared, so any thread may use its own.
#pragma once

#include <cstddef>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// The lines of a text, one after the other, without line ends and without a byte order mark.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : text_(text) {}
  /// False at the end of the text. Call before the first line.
  bool next();
  std::string_view line() const { return line_; }
  int number() const { return number_; }  // from 1

 private:
  std::string_view text_;
  std::size_t position_ = 0;
  std::string_view line_;
  int number_ = 0;
};

struct CsvField {
  std::string text;
  int column = 1;  // where it starts, from 1
};

struct CsvMistake {
  int column = 1;
  std::string message;
};

/// Splits a line at `separator`; a field may stand in double quotes, a doubled quote being one
/// quote. Blanks around a field without quotes are dropped.
std::expected<std::vector<CsvField>, CsvMistake> split_csv(std::string_view line, char separator);

/// `text` as a field that split_csv reads back as itself: in double quotes where it must be.
std::string csv_field(std::string_view text);

/// Where the first control character other than a tab is, or npos. Messages show parts of a line:
/// nothing in it may steer a terminal.
std::size_t find_control_character(std::string_view line);

/// `text` without blanks and tabs at its ends.
std::string_view trimmed(std::string_view text);

}  // namespace longhaul
