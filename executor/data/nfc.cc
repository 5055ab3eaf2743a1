#include "executor/data/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include "core/result.h"
#include "executor/data/characters.h"
#include "executor/data/unicode_ranges.h"

namespace longhaul {
namespace {

/// Whether the character may join the one before it, or is another one in NFC.
bool moves(std::uint32_t code) {
  if (code < 0x300) return false;  // all below are themselves
  const auto* const after = std::upper_bound(
      std::begin(kNotAloneInNfcRanges), std::end(kNotAloneInNfcRanges), code,
      [](std::uint32_t value, const CodePointRange& range) { return value < range.first; });
  return after != std::begin(kNotAloneInNfcRanges) && code <= std::prev(after)->last;
}

/// Whether utf8proc knows it as a mark, which Unicode 9 did not (otherwise it `moves`).
bool is_later_mark(std::uint32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class != 0;
}

std::string composed(std::string_view text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  LH_CHECK(size >= 0, "the text is UTF-8, and there is memory for it");
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(size)};
}

}  // namespace

NfcText::NfcText(std::string_view raw) : raw_(raw) {
  std::size_t copied = 0;   // of the raw text
  std::size_t starter = 0;  // where the last character starts that joins none before it
  bool valid = false;       // it is one
  for (std::size_t at = 0; at < raw.size();) {
    if (static_cast<unsigned char>(raw[at]) < 0x80) {
      starter = at++;
      valid = true;
      continue;
    }
    const Character c = character(raw.substr(at));
    if (c.code == Character::kBroken || !moves(c.code)) {
      starter = at;
      valid = c.code != Character::kBroken && !is_later_mark(c.code);
      at += c.length;
      continue;
    }
    const std::size_t begin = valid ? starter : at;
    std::size_t end = at + c.length;
    while (end < raw.size()) {
      const Character more = character(raw.substr(end));
      if (more.code == Character::kBroken || !moves(more.code)) break;
      end += more.length;
    }
    const std::string_view before = raw.substr(begin, end - begin);
    const std::string after = composed(before);
    if (after != before) {
      text_ += raw.substr(copied, begin - copied);
      changed_.push_back({text_.size(), text_.size() + after.size(), begin, end});
      text_ += after;
      copied = end;
    }
    valid = false;  // what follows joins nothing
    at = end;
  }
  if (!changed_.empty()) text_ += raw.substr(copied);
}

std::size_t NfcText::raw_end(std::size_t end) {
  while (next_ < changed_.size() && changed_[next_].end <= end) ++next_;
  if (next_ < changed_.size() && changed_[next_].begin < end) return std::string_view::npos;
  if (next_ == 0) return end;
  const Change& last = changed_[next_ - 1];
  return last.raw_end + (end - last.end);
}

std::size_t nfc_decided(std::string_view text) {
  text.remove_suffix(cut_character(text));
  // The last character that joins none before it may be joined by what follows.
  for (std::size_t at = text.size(); at > 0;) {
    std::size_t start = at - 1;
    while (start > 0 && at - start < 4 &&
           (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) {
      --start;
    }
    const Character c = character(text.substr(start));
    if (c.code == Character::kBroken) return at;  // joins nothing
    if (!moves(c.code)) return start;
    at = start;
  }
  return 0;
}

}  // namespace longhaul
