#include "executor/data/splitter.h"

#include <limits>

#include "executor/data/characters.h"
#include "executor/data/hand_split.h"

namespace longhaul {
namespace {

/// A scanner by hand as a splitter.
template <class Scan>
class HandSplitter final : public Splitter {
 public:
  explicit HandSplitter(Scan scan) : scan_(scan) {}

  void take(std::string_view text, bool closed) override {
    rest_ = text;
    closed_ = closed;
  }
  std::size_t next() override {
    if (rest_.empty()) return 0;
    const Piece piece = scan_(rest_);
    // What was looked at last may be the start of a character that is cut off.
    if (!closed_ && piece.seen + 3 > rest_.size()) return 0;
    rest_.remove_prefix(piece.length);
    return piece.length;
  }
  std::unique_ptr<Splitter> clone() const override { return std::make_unique<HandSplitter>(scan_); }

 private:
  Scan scan_;
  std::string_view rest_;
  bool closed_ = true;
};

template <class Scan>
std::unique_ptr<Splitter> by_hand(Scan scan) {
  return std::make_unique<HandSplitter<Scan>>(scan);
}

Piece next_digits(std::string_view text, bool each_alone) {
  const Character first = character(text);
  const bool number = first.kind == CharacterClass::kNumber;
  std::size_t end = first.length;
  if (number && each_alone) return {end, end};
  while (end < text.size() && end < kPieceBytesMax) {
    const Character c = character(text.substr(end));
    if ((c.kind == CharacterClass::kNumber) != number) return {end, end + c.length};
    end += c.length;
  }
  return {end, end};
}

}  // namespace

std::unique_ptr<Splitter> make_gpt2_splitter() {
  return by_hand([](std::string_view text) { return next_gpt2_piece(text); });
}

std::unique_ptr<Splitter> make_digit_splitter(bool each_alone) {
  return by_hand([=](std::string_view text) { return next_digits(text, each_alone); });
}

Result<std::unique_ptr<Splitter>> make_text_splitter(const std::string& text) {
  std::string expression;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) expression += '\\';
    expression += c;
  }
  return make_pcre_splitter(expression);
}

Result<std::unique_ptr<Splitter>> make_regex_splitter(const std::string& expression) {
  constexpr std::string_view kLlama3Head =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  constexpr std::string_view kLlama3Tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (expression ==
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") {
    return make_gpt2_splitter();
  }
  struct Numbers {
    std::string_view text;
    int most;
  };
  for (const Numbers& numbers :
       {Numbers{"", 1}, Numbers{"{1,3}", 3}, Numbers{"+", std::numeric_limits<int>::max()}}) {
    std::string known(kLlama3Head);
    known += numbers.text;
    known += kLlama3Tail;
    if (expression == known) {
      return by_hand(
          [most = numbers.most](std::string_view text) { return next_llama3_piece(text, most); });
    }
  }
  return make_pcre_splitter(expression);
}

}  // namespace longhaul
