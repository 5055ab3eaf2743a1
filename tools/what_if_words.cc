#include "tools/what_if_words.h"

#include <fmt/core.h>

#include <algorithm>

namespace longhaul {
namespace {

constexpr std::size_t kSentenceBytesMax = 4096;

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

int edit_columns(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(text, begins_character));
}

std::unexpected<Error> wrong_edit(std::string_view text, int column, std::string message,
                                  std::string hint) {
  auto wrong = invalid_at({"", 1, column}, std::move(message), std::move(hint));
  std::string& excerpt = wrong.error().excerpt;
  excerpt = text.substr(0, kSentenceBytesMax);
  for (char& c : excerpt) {
    if (is_control(c)) c = '?';
  }
  excerpt += "\n" + std::string(static_cast<std::size_t>(std::max(column, 1) - 1), ' ') + "^";
  return wrong;
}

Result<std::vector<EditWord>> edit_words(std::string_view text) {
  if (text.size() > kSentenceBytesMax)
    return invalid(fmt::format("an edit has more than {} bytes", kSentenceBytesMax));
  std::vector<EditWord> words;
  bool is_open = false;  // inside a word
  bool is_quoted = false;
  int column = 0;
  int quote_column = 0;
  for (const char c : text) {
    if (begins_character(c)) ++column;
    if (is_control(c)) {
      return wrong_edit(text, column, "a control character cannot be in an edit",
                        "write it on one line, with spaces between the words");
    }
    if (c == ' ' && !is_quoted) {
      is_open = false;
      continue;
    }
    if (!is_open) words.push_back({"", column});
    is_open = true;
    if (c == '"') {
      is_quoted = !is_quoted;
      quote_column = column;
    } else {
      words.back().text += c;
    }
  }
  if (is_quoted) return wrong_edit(text, quote_column, "this quote is not closed");
  return words;
}

std::string edit_text(std::span<const EditWord> words) {
  std::string out;
  for (const EditWord& word : words) {
    const bool needs_quotes =
        word.text.empty() || word.text.find_first_of(" ;") != std::string::npos;
    if (!out.empty()) out += ' ';
    out += needs_quotes ? '"' + word.text + '"' : word.text;
  }
  return out;
}

EditWord edit_rest(std::string_view text, std::span<const EditWord> words, std::size_t from) {
  EditWord out{"", edit_columns(text) + 1};
  if (from < words.size()) out.column = words[from].column;
  for (std::size_t i = from; i < words.size(); ++i)
    out.text += (i > from ? " " : "") + words[i].text;
  return out;
}

std::unexpected<Error> in_option(std::string_view option, Error error) {
  std::string context(option);
  if (error.place.file.empty() && error.place.column > 0)
    context += fmt::format(", column {}", error.place.column);
  return within(context, std::move(error));
}

std::vector<std::string_view> edit_sentences(std::string_view text) {
  std::vector<std::string_view> sentences;
  bool is_quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '"') is_quoted = !is_quoted;
    if (i < text.size() && (text[i] != ';' || is_quoted)) continue;
    std::string_view sentence = text.substr(begin, i - begin);
    while (sentence.starts_with(' ')) sentence.remove_prefix(1);
    while (sentence.ends_with(' ')) sentence.remove_suffix(1);
    sentences.push_back(sentence);
    begin = i + 1;
  }
  return sentences;
}

}  // namespace longhaul
