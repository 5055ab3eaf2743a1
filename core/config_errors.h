// What is wrong with a config file, from byte offsets to what a person reads: places, excerpts and
// words. Internal to core/config_*.cc; knows the text and nothing of YAML. Not thread-safe.
//
// Offsets are bytes from the start of ConfigText::body(), and at most its size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace longhaul {

struct ConfigMistake {
  std::size_t offset = 0;
  std::string message;
  std::string hint = {};
};

/// Mistakes in the order in which they were found. A file of 16 MiB can hold millions: those beyond
/// a limit are counted and not kept.
struct ConfigMistakes {
  void add(ConfigMistake mistake);
  bool empty() const { return kept.empty(); }

  std::vector<ConfigMistake> kept;
  std::size_t dropped = 0;
};

/// The text of a file and where its lines begin.
class ConfigText {
 public:
  ConfigText(std::string_view whole, std::string name);

  const std::string& whole() const { return whole_; }
  const std::string& name() const { return name_; }
  /// The text without a byte order mark.
  std::string_view body() const;
  SourcePlace place(std::size_t offset) const;

  Error error(ConfigMistake mistake) const;
  /// `mistakes` (at least one) sorted by place and without repetitions, as one Error.
  Error error(ConfigMistakes mistakes) const;

 private:
  std::size_t line_of(std::size_t offset) const;

  std::string whole_;
  std::string name_;
  std::vector<std::size_t> line_starts_ = {0};
};

/// Bytes of the UTF-8 sequence at `text[at]`; 0 when it is not a valid one.
std::size_t utf8_size(std::string_view text, std::size_t at);
/// Text of the file as a message shows it: in backquotes, one line, at most 60 characters.
std::string shown(std::string_view text);
/// `text` with the ASCII letters in lower case.
std::string lowered(std::string_view text);

/// The words separated by commas.
std::string list_text(const auto& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

}  // namespace longhaul
