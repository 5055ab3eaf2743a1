#include "netsim/csv_text.h"

#include <algorithm>

namespace longhaul {

bool TextLines::next() {
  if (position_ >= text_.size()) return false;
  const std::size_t end = std::min(text_.find('\n', position_), text_.size());
  line_ = text_.substr(position_, end - position_);
  if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
  if (number_ == 0 && line_.starts_with("\xef\xbb\xbf")) line_.remove_prefix(3);
  position_ = end + 1;
  ++number_;
  return true;
}

std::expected<std::vector<CsvField>, CsvMistake> split_csv(std::string_view line, char separator) {
  const auto mistake = [](std::size_t at, std::string message) {
    return std::unexpected(CsvMistake{static_cast<int>(at) + 1, std::move(message)});
  };
  std::vector<CsvField> fields;
  std::size_t at = 0;
  while (true) {
    CsvField field{"", static_cast<int>(at) + 1};
    if (at < line.size() && line[at] == '"') {
      const std::size_t first = at++;
      while (at < line.size() &&
             (line[at] != '"' || (at + 1 < line.size() && line[at + 1] == '"'))) {
        if (line[at] == '"') ++at;
        field.text += line[at++];
      }
      if (at >= line.size()) return mistake(first, "a quoted field is not closed");
      ++at;
      if (at < line.size() && line[at] != separator) {
        return mistake(at, separator == ',' ? "a quoted field must end at a comma"
                                            : "a quoted field must end at a separator");
      }
    } else {
      const std::size_t end = std::min(line.find(separator, at), line.size());
      field.text = trimmed(line.substr(at, end - at));
      at = end;
    }
    fields.push_back(std::move(field));
    if (at >= line.size()) return fields;
    ++at;
  }
}

std::size_t find_control_character(std::string_view line) {
  const auto found = std::ranges::find_if(line, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\t') || byte == 0x7f;
  });
  return found == line.end() ? std::string_view::npos
                             : static_cast<std::size_t>(found - line.begin());
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string csv_field(std::string_view text) {
  // A line that begins with `#` is a comment of a trace.
  if (text.find_first_of(",\"#\n\r") == std::string_view::npos && trimmed(text) == text) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace longhaul
