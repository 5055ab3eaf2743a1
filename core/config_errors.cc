#include "core/config_errors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "core/config_cursor.h"  // nearest_word

namespace longhaul {
namespace {

constexpr std::size_t kMistakesReportedMax = 100;
constexpr std::size_t kMistakesKeptMax = 10000;
constexpr std::size_t kExcerptColumnsMax = 100;
constexpr std::size_t kShownMax = 60;
constexpr std::size_t kWordBytesMax = 64;

// ---------------------------------------------------------------------------------------------
// Characters.

/// Whether a character begins at this byte: the others of a UTF-8 sequence are 10xxxxxx.
bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = std::max<std::size_t>(1, utf8_size(text, at));
    out.push_back(text.substr(at, size));
    at += size;
  }
  return out;
}

/// Not C0, DEL, C1 (which terminals obey too) or a byte that is no UTF-8.
bool is_printable(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead >= 0x20 && lead < 0x7f;
  return lead != 0xc2 || static_cast<unsigned char>(character[1]) >= 0xa0;
}

/// The line and, below it, a caret under the character at `caret` (a byte offset in the line). A
/// long line is cut around the caret. Tabs stay tabs on both lines, so that they align.
std::string excerpt_of(std::string_view line, std::size_t caret) {
  // Only the neighbourhood of the caret is decoded: a line may be 16 MiB long.
  std::size_t begin = caret;
  std::size_t before = 0;
  while (begin > 0 && before < kExcerptColumnsMax) before += begins_character(line[--begin]);
  auto left = characters(line.substr(begin, caret - begin));
  auto right = characters(line.substr(caret, 4 * kExcerptColumnsMax));
  bool cut_left = begin > 0;
  bool cut_right = line.size() - caret > 4 * kExcerptColumnsMax;
  if (left.size() + right.size() > kExcerptColumnsMax) {
    // Half a window each, and what one side does not need goes to the other.
    const std::size_t half = kExcerptColumnsMax / 2;
    const std::size_t keep_left =
        std::min(left.size(), kExcerptColumnsMax - std::min(right.size(), half));
    cut_left = cut_left || keep_left < left.size();
    left.erase(left.begin(), left.end() - static_cast<std::ptrdiff_t>(keep_left));
    const std::size_t keep_right = std::min(right.size(), kExcerptColumnsMax - keep_left);
    cut_right = cut_right || keep_right < right.size();
    right.resize(keep_right);
  }
  std::string top = cut_left ? "..." : "";
  std::string bottom = cut_left ? "   " : "";
  const auto put = [&](std::string_view c) { top += c == "\t" || is_printable(c) ? c : "?"; };
  for (const std::string_view c : left) {
    put(c);
    bottom += c == "\t" ? '\t' : ' ';
  }
  for (const std::string_view c : right) put(c);
  return top + (cut_right ? "..." : "") + "\n" + bottom + "^";
}

}  // namespace

std::size_t utf8_size(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;
  return size;
}

std::string shown(std::string_view text) {
  // A character has at most four bytes.
  const auto all = characters(text.substr(0, 4 * kShownMax));
  const bool cut = text.size() > 4 * kShownMax || all.size() > kShownMax;
  std::string out = "`";
  for (std::size_t i = 0; i < std::min(all.size(), kShownMax); ++i) {
    out += is_printable(all[i]) ? all[i] : all[i] == "\n" ? "\\n" : "?";
  }
  return out + (cut ? "...`" : "`");
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// ---------------------------------------------------------------------------------------------
// Mistakes and their places.

void ConfigMistakes::add(ConfigMistake mistake) {
  if (kept.size() == kMistakesKeptMax) {
    ++dropped;
  } else {
    kept.push_back(std::move(mistake));
  }
}

ConfigText::ConfigText(std::string_view whole, std::string name)
    : whole_(whole), name_(std::move(name)) {
  const std::string_view all = body();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == '\n') line_starts_.push_back(i + 1);
  }
}

std::string_view ConfigText::body() const {
  std::string_view all = whole_;
  if (all.starts_with("\xef\xbb\xbf")) all.remove_prefix(3);
  return all;
}

std::size_t ConfigText::line_of(std::size_t offset) const {
  const auto after = std::ranges::upper_bound(line_starts_, offset);
  return static_cast<std::size_t>(after - line_starts_.begin()) - 1;
}

SourcePlace ConfigText::place(std::size_t offset) const {
  const std::size_t line = line_of(offset);
  const std::size_t begin = line_starts_[line];
  const auto before = std::ranges::count_if(body().substr(begin, offset - begin), begins_character);
  return {name_, static_cast<int>(line + 1), static_cast<int>(before + 1)};
}

Error ConfigText::error(ConfigMistake mistake) const {
  const std::size_t begin = line_starts_[line_of(mistake.offset)];
  std::string_view line = body().substr(begin, body().find('\n', begin) - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t caret = std::min(mistake.offset - begin, line.size());
  return {.code = ErrorCode::kInvalid,
          .message = std::move(mistake.message),
          .hint = std::move(mistake.hint),
          .place = place(mistake.offset),
          .excerpt = excerpt_of(line, caret),
          .others = {}};
}

Error ConfigText::error(ConfigMistakes mistakes) const {
  std::vector<ConfigMistake>& all = mistakes.kept;
  std::ranges::stable_sort(all, {}, &ConfigMistake::offset);
  // A loader that reads one wrong value twice records it twice.
  const auto again = std::ranges::unique(all, [](const ConfigMistake& a, const ConfigMistake& b) {
    return a.offset == b.offset && a.message == b.message;
  });
  all.erase(again.begin(), again.end());

  const std::size_t reported = std::min(all.size(), kMistakesReportedMax);
  const std::size_t left_out = mistakes.dropped + (all.size() - reported);
  if (left_out > 0) {
    std::string& hint = all[reported - 1].hint;
    hint += fmt::format("{}{} more errors are not shown", hint.empty() ? "" : "; ", left_out);
  }
  Error first = error(std::move(all[0]));
  for (std::size_t i = 1; i < reported; ++i) first.others.push_back(error(std::move(all[i])));
  return first;
}

// ---------------------------------------------------------------------------------------------
// Words.

namespace {

/// Damerau-Levenshtein distance (optimal string alignment) of words of at most kWordBytesMax bytes,
/// over three rows of the usual table.
std::size_t distance(std::string_view a, std::string_view b) {
  using Row = std::array<std::size_t, kWordBytesMax + 1>;
  Row before{}, above{}, row{};
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = kWordBytesMax;
  if (word.size() > kWordBytesMax) return best;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kWordBytesMax) continue;
    // A third of the letters may differ, at least one, but never all of them.
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t allowed = std::min(std::max<std::size_t>(1, longer / 3), longer - 1);
    const std::size_t d = distance(lowered(word), lowered(candidate));
    if (d <= allowed && d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         const std::string& otherwise) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? otherwise : fmt::format("did you mean `{}`?", near);
}

}  // namespace longhaul
