// Cutting by any regular expression, with PCRE2. See splitter.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "executor/data/characters.h"
#include "executor/data/hand_split.h"
#include "executor/data/splitter.h"
#include "executor/data/unicode_ranges.h"

namespace longhaul {
namespace {

constexpr std::uint32_t kStepsMax = 10'000'000;
constexpr std::size_t kExpressionBytesMax = 64 << 10;

/// White_Space, as the inside of a class: PCRE2's own \s has one character more (U+180E).
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Writes the expression so that PCRE2 reads what Hugging Face's library reads. Refuses what the
/// two read differently, and what looks at text before a piece.
class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  Result<std::string> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        LH_TRY(escape());
        continue;
      }
      if (in_class_) {
        if (c == '[') return refuse("a class inside a class");
        if (c == '&' && text_.substr(at_, 2) == "&&") return refuse("an intersection of classes");
        if (c == ']' && at_ > class_start_) in_class_ = false;
      } else if (c == '[') {
        in_class_ = true;
        class_start_ = at_ + (text_.substr(at_ + 1, 1) == "^" ? 2 : 1);
        if (text_.substr(class_start_, 1) == "]") return refuse("a class that starts with ]");
      } else if (c == '^') {
        return refuse("the anchor ^");
      } else if (c == '(' && text_.substr(at_, 3) == "(?#") {
        return refuse("a comment");
      } else if (c == '(' && text_.substr(at_, 2) == "(*") {
        return refuse("(*");
      }
      out_ += c;
      ++at_;
    }
    return out_;
  }

 private:
  std::unexpected<Error> refuse(std::string_view what) const {
    return invalid(fmt::format("the expression has {} at character {}, which is not supported",
                               what, at_ + 1));
  }

  Result<void> escape() {
    const std::string_view two = text_.substr(at_, 2);
    if (two.size() < 2) return refuse("a lone backslash");
    at_ += 2;
    switch (two[1]) {
      case 's':
        out_ += in_class_ ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
        return {};
      case 'S':
        out_ += in_class_ ? "\\S" : fmt::format("[^{}]", kSpaces);
        return {};
      case 'u': {
        const std::string_view digits = text_.substr(at_, 4);
        if (digits.size() < 4 || digits.find('{') != digits.npos) break;
        out_ += fmt::format("\\x{{{}}}", digits);
        at_ += 4;
        return {};
      }
      default: {
        // Signs and controls, and the classes and numbers of both libraries.
        const bool letter = (two[1] >= 'a' && two[1] <= 'z') || (two[1] >= 'A' && two[1] <= 'Z') ||
                            (two[1] >= '0' && two[1] <= '9');
        if (letter && std::string_view("pPdDrntfvxz").find(two[1]) == std::string_view::npos) break;
        out_ += two;
        return {};
      }
    }
    at_ -= 2;
    return refuse(two);
  }

  std::string_view text_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::size_t class_start_ = 0;
};

/// A character of Unicode 15 or 16 as an older one of the same general category; any other as it
/// is. PCRE2 10.42 (Debian 12) has Unicode 14.
std::uint32_t young_as_old(std::uint32_t code) {
  const auto* const after = std::ranges::upper_bound(kYoungRanges, code, {}, &YoungRange::first);
  if (after == std::begin(kYoungRanges)) return code;
  const YoungRange& range = *std::prev(after);
  return code <= range.last ? range.like : code;
}

/// `text` is UTF-8.
bool has_young(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    // One or two bytes: up to U+07FF, where nothing was added.
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0xe0) {
      at += byte < 0x80 ? 1 : 2;
      continue;
    }
    const Character c = character(text.substr(at));
    if (young_as_old(c.code) != c.code) return true;
    at += c.length;
  }
  return false;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct StackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

class PcreSplitter final : public Splitter {
 public:
  // Owners of the compiled expression: a splitter and its clones, in any thread; it is read only.
  explicit PcreSplitter(std::shared_ptr<const pcre2_code> code)
      : code_(std::move(code)),
        context_(pcre2_match_context_create(nullptr)),
        match_(pcre2_match_data_create_from_pattern(code_.get(), nullptr)),
        stack_(pcre2_jit_stack_create(32 << 10, 4 << 20, nullptr)) {
    LH_CHECK(context_ && match_, "there is memory for a match");
    pcre2_set_match_limit(context_.get(), kStepsMax);
    pcre2_set_heap_limit(context_.get(), 64 << 10);  // KiB
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  std::unique_ptr<Splitter> clone() const override { return std::make_unique<PcreSplitter>(code_); }

  void take(std::string_view text, bool closed) override {
    closed_ = closed;
    ends_.clear();
    at_ = 0;
    if (!closed) text.remove_suffix(cut_character(text));
    text_ = valid_utf8(text) == text.size() && !has_young(text) ? text : shadow_of(text);
  }

  std::size_t next() override {
    const std::size_t length = length_of(text_.substr(at_));
    const std::size_t start = at_;
    at_ += length;
    if (length == 0 || ends_.empty()) return length;
    return ends_[at_ - 1] - (start == 0 ? 0 : ends_[start - 1]);
  }

 private:
  /// Broken bytes as characters of a private plane, which are no letter, number or space either,
  /// and characters that PCRE2 may not know yet as some of their kind.
  std::string_view shadow_of(std::string_view text) {
    shadow_.clear();
    for (std::size_t at = 0; at < text.size();) {
      const Character c = character(text.substr(at));
      const bool broken = c.code == Character::kBroken;
      const std::uint32_t like = broken ? 0xf0000 + static_cast<unsigned char>(text[at]) : c.code;
      append_utf8(young_as_old(like), shadow_);
      at += c.length;
      ends_.resize(shadow_.size(), at);
    }
    return shadow_;
  }

  std::size_t length_of(std::string_view text) {
    const std::size_t limit = character_start(text, kPieceBytesMax);
    const bool partial = !closed_ && limit == text.size();
    text = text.substr(0, limit);
    const std::size_t unmatched = partial ? 0 : text.size();
    for (std::size_t from = 0; from < text.size();) {
      const int found = pcre2_match(
          code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
          PCRE2_NO_UTF_CHECK | (partial ? PCRE2_PARTIAL_HARD : 0u), match_.get(), context_.get());
      if (found == PCRE2_ERROR_PARTIAL || found == PCRE2_ERROR_NOMATCH) return unmatched;
      if (found < 0) return character(text).length;  // it gave up
      const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(match_.get());
      if (range[1] > range[0]) return range[0] > 0 ? range[0] : range[1];
      if (range[0] >= text.size()) break;
      // A match of nothing cuts nothing.
      from = range[0] + character(text.substr(range[0])).length;
    }
    return unmatched;
  }

  /// The last start of a character at or before `limit`, in UTF-8; the end of a shorter text.
  static std::size_t character_start(std::string_view text, std::size_t limit) {
    if (limit >= text.size()) return text.size();
    while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
    return limit;
  }

  std::shared_ptr<const pcre2_code> code_;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context_;
  std::unique_ptr<pcre2_match_data, MatchDeleter> match_;
  std::unique_ptr<pcre2_jit_stack, StackDeleter> stack_;
  std::string_view text_;  // what is cut: the text, or its shadow
  std::size_t at_ = 0;
  bool closed_ = true;
  std::string shadow_;
  std::vector<std::size_t> ends_;  // of each end of a character in the shadow, its end in the text
};

}  // namespace

Result<std::unique_ptr<Splitter>> make_pcre_splitter(const std::string& expression) {
  if (expression.empty() || expression.size() > kExpressionBytesMax ||
      valid_utf8(expression) != expression.size()) {
    return invalid(fmt::format("an expression has 1 to {} bytes of UTF-8", kExpressionBytesMax));
  }
  LH_ASSIGN(const std::string translated, Translator(expression).run());
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code == nullptr) {
    unsigned char why[256] = {};
    pcre2_get_error_message(error, why, sizeof why);
    return invalid(
        fmt::format("the expression does not compile: {}", reinterpret_cast<const char*>(why)));
  }
  std::shared_ptr<const pcre2_code> owner(code, CodeDeleter());
  std::uint32_t behind = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
  if (behind > 0) return invalid("the expression looks at text behind, which is not supported");
  // Without a JIT for this processor matching is slower and the same.
  static_cast<void>(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD));
  return std::make_unique<PcreSplitter>(std::move(owner));
}

}  // namespace longhaul
