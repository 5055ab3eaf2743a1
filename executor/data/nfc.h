// Unicode's normal form C, with the places where a text changed. A pure function; bytes that are
// not UTF-8 stay as they are. Characters that came after Unicode 9 stay as they are, too: Hugging
// Face's tokenizers have not moved on from there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

class NfcText {
 public:
  explicit NfcText(std::string_view raw);

  std::string_view text() const { return changed_.empty() ? raw_ : std::string_view(text_); }
  /// Where the raw text ends of which `text().substr(0, end)` was made; npos inside a character
  /// that was put together, or of one that fell apart. Asked for in ascending order.
  std::size_t raw_end(std::size_t end);

 private:
  struct Change {  // [begin, end) of the text was [raw_begin, raw_end)
    std::size_t begin, end, raw_begin, raw_end;
  };
  std::string_view raw_;
  std::string text_;
  std::vector<Change> changed_;
  std::size_t next_ = 0;  // first change that ends behind what was asked for last
};

/// How many bytes from the start of `text` stay the same whatever follows it.
std::size_t nfc_decided(std::string_view text);

}  // namespace longhaul
