// In one file although it is long: the tree and yaml-cpp are seen by nothing else. The order is
// text, document, from text to tree, Cursor, ConfigFile.
#include "core/config_cursor.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>

#include "core/quantity.h"

namespace longhaul {

constexpr std::size_t kFileBytesMax = std::size_t{16} << 20;
constexpr std::size_t kDepthMax = 64;
constexpr std::size_t kErrorsReportedMax = 100;
// A file of 16 MiB can hold millions of mistakes; more than these are counted but not kept.
constexpr std::size_t kErrorsRecordedMax = 10000;
constexpr std::size_t kExcerptColumnsMax = 100;

/// A value of the file. Offsets are bytes from the start of ConfigDocument::body().
struct ConfigNode {
  enum class Kind { kNothing, kScalar, kList, kMap };
  Kind kind = Kind::kNothing;
  bool quoted = false;    // of a scalar
  bool repeated = false;  // the key of this value was given before in the same map
  std::size_t offset = 0;
  std::string text;  // of a scalar

  ConfigNode* parent = nullptr;
  std::string key;             // in a map
  std::size_t key_offset = 0;  // in a map
  std::size_t index = 0;       // in a list
  std::vector<std::unique_ptr<ConfigNode>> children;

  std::vector<std::string> asked;  // names that the loader asked this map for, in that order
  bool free_names = false;         // the loader took every entry of this map
};

namespace {

using Kind = ConfigNode::Kind;

struct Recorded {
  std::size_t offset = 0;
  std::string message;
  std::string hint;
  std::size_t order = 0;  // among the recorded
};

struct RecordedList {
  void add(std::size_t offset, std::string message, std::string hint) {
    if (kept.size() == kErrorsRecordedMax) {
      ++dropped;
    } else {
      kept.push_back({offset, std::move(message), std::move(hint), kept.size()});
    }
  }
  std::vector<Recorded> kept;
  std::size_t dropped = 0;
};

// ---------------------------------------------------------------------------------------------
// Text: UTF-8, quoting, excerpts.

/// Bytes of the UTF-8 sequence at `text[at]`; 0 when it is not a valid one.
std::size_t sequence_size(std::string_view text, std::size_t at) {
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

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = std::max<std::size_t>(1, sequence_size(text, at));
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

/// Offset of the quote that closes the one at `text[at]`; npos when none does.
std::size_t closing_quote(std::string_view text, std::size_t at) {
  const char quote = text[at];
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || !text.substr(i + 1).starts_with(quote)) return i;
      ++i;  // '' inside single quotes stands for one of them
    }
  }
  return text.npos;
}

/// Whether as many brackets close after `text[at]` as open, quoted ones apart.
bool bracket_closes(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && --depth == 0) return true;
    if (c == '"' || c == '\'') i = std::min(closing_quote(text, i), text.size() - 1);
  }
  return false;
}

/// Text of the file as a message shows it: in backquotes, one line, at most 60 characters.
std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 60;
  const bool cut = text.size() > 4 * kShown;
  const auto all = characters(text.substr(0, 4 * kShown));
  std::string out = "`";
  for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i) {
    out += is_printable(all[i]) ? all[i] : all[i] == "\n" ? "\\n" : "?";
  }
  return out + (cut || all.size() > kShown ? "...`" : "`");
}

/// The line and, below it, a caret under the character at `caret` (a byte offset in the line). A
/// long line is cut around the caret. Tabs stay tabs on both lines, so that they align.
std::string excerpt_of(std::string_view line, std::size_t caret) {
  // Only the neighbourhood of the caret is decoded: a line may be 16 MiB long. UTF-8 continuation
  // bytes are 10xxxxxx, so stepping back to a lead byte is a matter of looking.
  const auto is_lead = [&](std::size_t at) {
    return (static_cast<unsigned char>(line[at]) & 0xc0) != 0x80;
  };
  std::size_t begin = caret;
  std::size_t before = 0;
  while (begin > 0 && before < kExcerptColumnsMax) {
    --begin;
    if (is_lead(begin)) ++before;
  }
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

// ---------------------------------------------------------------------------------------------
// The document: text, tree, errors.

struct ConfigDocument {
  ConfigDocument(std::string_view whole, std::string file_name)
      : text(whole), name(std::move(file_name)) {
    for (std::size_t i = 0; i < body().size(); ++i) {
      if (body()[i] == '\n') line_starts.push_back(i + 1);
    }
  }

  /// The text without a byte order mark.
  std::string_view body() const {
    std::string_view all = text;
    if (all.starts_with("\xef\xbb\xbf")) all.remove_prefix(3);
    return all;
  }

  std::size_t line_of(std::size_t offset) const {
    const auto after = std::ranges::upper_bound(line_starts, offset);
    return static_cast<std::size_t>(after - line_starts.begin()) - 1;
  }

  std::string_view line_text(std::size_t line) const {
    const std::size_t begin = line_starts[line];
    std::string_view out = body().substr(begin, body().find('\n', begin) - begin);
    if (out.ends_with('\r')) out.remove_suffix(1);
    return out;
  }

  SourcePlace place(std::size_t offset) const {
    const std::size_t line = line_of(offset);
    std::size_t column = 1;
    for (const char c : body().substr(line_starts[line], offset - line_starts[line])) {
      column += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }
    return {name, static_cast<int>(line + 1), static_cast<int>(column)};
  }

  void record(std::size_t offset, std::string message, std::string hint = "") {
    if (!foreign) errors.add(offset, std::move(message), std::move(hint));
  }

  Error error_of(Recorded recorded) const {
    const std::size_t line = line_of(recorded.offset);
    const std::string_view source = line_text(line);
    const std::size_t caret = std::min(recorded.offset - line_starts[line], source.size());
    return {.code = ErrorCode::kInvalid,
            .message = std::move(recorded.message),
            .hint = std::move(recorded.hint),
            .place = place(recorded.offset),
            .excerpt = excerpt_of(source, caret),
            .others = {}};
  }

  /// `found` sorted by place, without repetitions, as one Error. `found` has at least one.
  Error one_error(RecordedList found) const {
    std::ranges::sort(found.kept, {},
                      [](const Recorded& r) { return std::pair(r.offset, r.order); });
    std::vector<Error> out;
    std::size_t left_out = found.dropped;
    const Recorded* previous = nullptr;
    for (const Recorded& recorded : found.kept) {
      // A loader that reads one wrong value twice records it twice.
      const bool again = previous != nullptr && previous->offset == recorded.offset &&
                         previous->message == recorded.message;
      previous = &recorded;
      if (again) continue;
      if (out.size() == kErrorsReportedMax) {
        ++left_out;
      } else {
        out.push_back(error_of(recorded));
      }
    }
    if (left_out > 0) {
      std::string& hint = out.back().hint;
      hint += fmt::format("{}{} more errors are not shown", hint.empty() ? "" : "; ", left_out);
    }
    Error first = std::move(out.front());
    first.others.assign(std::make_move_iterator(out.begin() + 1),
                        std::make_move_iterator(out.end()));
    return first;
  }

  std::string text;
  std::string name;
  std::vector<std::size_t> line_starts = {0};
  std::unique_ptr<ConfigNode> root;
  RecordedList errors;
  bool foreign = false;  // the schema is another one: further errors would only repeat that
};

namespace {

// ---------------------------------------------------------------------------------------------
// From text to tree.

/// Thrown by the builder through yaml-cpp to stop it; caught in build_tree.
struct Refused {
  Recorded why;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(ConfigDocument& document) : document_(document), body_(document.body()) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    const std::size_t at = offset(mark);
    if (body_.substr(at).starts_with("---")) {
      refuse(at, "a second document begins here, and a file holds one", "split it into two files");
    }
    refuse(at, "this does not belong to the value that ends before it",
           "check the indentation; a file holds one map");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    std::size_t at = offset(mark);
    refuse_anchor_and_tag(at, "", anchor);
    // yaml-cpp places a missing value where it saw that there is none, which may be lines later.
    const std::string_view rest = body_.substr(at);
    const bool written = std::ranges::any_of(std::array{"~", "null", "Null", "NULL"},
                                             [&](const char* w) { return rest.starts_with(w); });
    if (!written && !open_.empty() && open_.back().node->kind == Kind::kMap) {
      at = open_.back().key ? open_.back().key_offset : at;
    } else if (!written) {
      while (at > 0 && std::string_view(" \t\r\n").contains(body_[--at])) continue;
    }
    add(Kind::kNothing, at);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused{alias_at(offset(mark))};
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const std::size_t at = offset(mark);
    refuse_anchor_and_tag(at, tag, anchor);
    // yaml-cpp ends an open quote at the end of a file that ends in a line break.
    const bool quote = at < body_.size() && (body_[at] == '"' || body_[at] == '\'');
    if (quote && closing_quote(body_, at) == body_.npos) refuse(at, "this quote is not closed");
    if (value.contains('\0')) refuse(at, "a text with a NUL character cannot be used");
    ConfigNode* node = add(Kind::kScalar, at, value);
    if (node == nullptr) return;
    node->text = value;
    node->quoted = tag == "!";  // yaml-cpp's way to say quoted or a block
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(Kind::kList, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(Kind::kMap, mark, tag, anchor);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapEnd() override { open_.pop_back(); }

  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    refuse_anchor_and_tag(offset(mark), "", 1);
  }

  /// A syntax error that yaml-cpp reports, in words for the person who wrote the file.
  Recorded syntax_error(const YAML::Exception& error) const {
    std::size_t at = offset(error.mark);
    const std::string_view why = error.msg;
    if (why == YAML::ErrorMsg::UNKNOWN_ANCHOR) return alias_at(at);
    const bool flow_end =
        why == YAML::ErrorMsg::END_OF_SEQ_FLOW || why == YAML::ErrorMsg::END_OF_MAP_FLOW;
    if (flow_end) {
      // Reported where the file ends; the bracket is where the cure is.
      for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
        const std::size_t begin = open->node->offset;
        if (begin == body_.size() || (body_[begin] != '[' && body_[begin] != '{')) continue;
        return open_bracket_at(begin);
      }
    }
    // An error at the end of the file is shown on the last line that has something on it.
    while (at > 0 && (at == body_.size() || body_[at] == '\n') && body_[at - 1] == '\n') --at;
    std::string hint;
    if (why == YAML::ErrorMsg::MAP_VALUE) hint = "quote a text that contains `: `";
    if (why == YAML::ErrorMsg::UNKNOWN_TOKEN) hint = "quote a text that begins with this character";
    if (why == YAML::ErrorMsg::EOF_IN_SCALAR) hint = "the quote before this is not closed";
    if (why == YAML::ErrorMsg::END_OF_MAP || why == YAML::ErrorMsg::END_OF_SEQ ||
        why == YAML::ErrorMsg::BLOCK_ENTRY || why == YAML::ErrorMsg::TAB_IN_INDENTATION) {
      hint = "check the indentation: spaces only, the same for all entries of a map or list";
    }
    return {at, fmt::format("not valid YAML: {}", why), std::move(hint)};
  }

 private:
  struct Open {
    ConfigNode* node = nullptr;
    std::optional<std::string> key = {};  // of the value that comes next
    std::size_t key_offset = 0;
    std::map<std::string, std::size_t> first_offset = {};  // of each key so far
  };

  std::size_t offset(const YAML::Mark& mark) const {
    return mark.pos < 0 ? 0 : std::min(static_cast<std::size_t>(mark.pos), body_.size());
  }

  static Recorded alias_at(std::size_t at) {
    return {at, "aliases (`*name`) are not supported", "write the value out, or quote the text"};
  }

  Recorded open_bracket_at(std::size_t at) const {
    return {at, fmt::format("this `{}` is not closed", body_[at]), ""};
  }

  [[noreturn]] void refuse(std::size_t at, std::string message, std::string hint = "") const {
    throw Refused{{at, std::move(message), std::move(hint)}};
  }

  void refuse_anchor_and_tag(std::size_t at, std::string_view tag, YAML::anchor_t anchor) const {
    if (anchor != 0) {
      refuse(at, "anchors (`&name`) are not supported", "write the value out, or quote the text");
    }
    // yaml-cpp gives a plain value the tag "?" and a quoted one "!", but so does a written `!`.
    const bool written = at < body_.size() && body_[at] == '!';
    if (written || !(tag.empty() || tag == "?" || tag == "!")) {
      refuse(at, "tags (`!name`) are not supported", "leave the tag out, or quote the text");
    }
  }

  void begin(Kind kind, const YAML::Mark& mark, std::string_view tag, YAML::anchor_t anchor) {
    const std::size_t at = offset(mark);
    refuse_anchor_and_tag(at, tag, anchor);
    if (open_.size() == kDepthMax) {
      refuse(at, fmt::format("more than {} levels of nesting", kDepthMax));
    }
    open_.push_back({.node = add(kind, at)});
  }

  /// Adds a value to what is open. A scalar in the place of a key only becomes the key: nullptr.
  ConfigNode* add(Kind kind, std::size_t at, std::string_view text = {}) {
    if (!open_.empty() && open_.back().node->kind == Kind::kMap && !open_.back().key) {
      // yaml-cpp takes an open bracket for a key when the file ends inside it.
      const bool bracket = at < body_.size() && (body_[at] == '[' || body_[at] == '{');
      if (bracket && !bracket_closes(body_, at)) throw Refused{open_bracket_at(at)};
      if (kind != Kind::kScalar || text.empty()) {
        refuse(at, "a key of a map must be a word", "write `key: value`");
      }
      open_.back().key = text;
      open_.back().key_offset = at;
      return nullptr;
    }
    auto node = std::make_unique<ConfigNode>();
    ConfigNode* const added = node.get();
    node->kind = kind;
    node->offset = at;
    if (open_.empty()) {
      document_.root = std::move(node);
      return added;
    }
    Open& open = open_.back();
    node->parent = open.node;
    node->index = open.node->children.size();
    if (open.key) {
      node->key = *std::exchange(open.key, std::nullopt);
      node->key_offset = open.key_offset;
      const auto [first, fresh] = open.first_offset.emplace(node->key, open.key_offset);
      node->repeated = !fresh;
      if (!fresh) {
        document_.record(open.key_offset,
                         fmt::format("repeated key {}: the first one is at {}", shown(node->key),
                                     document_.place(first->second).text()),
                         "remove one of the two");
      }
    }
    open.node->children.push_back(std::move(node));
    return added;
  }

  ConfigDocument& document_;
  std::string_view body_;
  std::vector<Open> open_;
  int documents_ = 0;
};

/// What must not reach yaml-cpp, or nothing.
std::optional<Recorded> refuse_text(std::string_view body) {
  // yaml-cpp queues all tokens of an open bracket before it reports the first one: a file of
  // brackets alone would cost gigabytes. Brackets in a text count too, hence the generous limit;
  // the exact one is the builder's.
  constexpr std::size_t kOpenBracketsMax = 4096;
  std::size_t brackets = 0;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t size = sequence_size(body, at);
    if (size == 0) {
      return Recorded{at, "not UTF-8 text", "save the file in the encoding UTF-8"};
    }
    const char c = body[at];
    // yaml-cpp takes U+0004 for the end of the file and drops a carriage return inside a line:
    // both would lose text silently.
    const bool line_end = c == '\r' && body.substr(at + 1).starts_with('\n');
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && !line_end) ||
        c == '\x7f') {
      return Recorded{at, fmt::format("control character 0x{:02x}", static_cast<unsigned>(c)),
                      "is this a text file?"};
    }
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (brackets > kOpenBracketsMax) {
      return Recorded{at, fmt::format("more than {} brackets are open here", kOpenBracketsMax), ""};
    }
    at += size;
  }
  return std::nullopt;
}

/// Fills document.root, or answers why not.
std::optional<Recorded> build_tree(ConfigDocument& document) {
  if (auto refused = refuse_text(document.body())) return refused;
  TreeBuilder builder(document);
  try {
    std::istringstream stream{std::string(document.body())};
    YAML::Parser parser(stream);
    // The second call must find nothing; the builder refuses what it finds.
    if (parser.HandleNextDocument(builder)) parser.HandleNextDocument(builder);
    if (document.root == nullptr || document.root->kind == Kind::kNothing) {
      return Recorded{0, "the file is empty", ""};
    }
    return std::nullopt;
  } catch (Refused& refused) {
    return std::move(refused.why);
  } catch (const YAML::Exception& error) {
    return builder.syntax_error(error);
  } catch (const std::exception& error) {
    return Recorded{0, fmt::format("cannot be parsed: {}", error.what()), ""};
  }
}

// ---------------------------------------------------------------------------------------------
// Helpers of the readers.

std::string joined(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

std::string path_of(const ConfigNode* node) {
  if (node->parent == nullptr) return "";
  if (node->parent->kind == Kind::kMap) return joined(path_of(node->parent), node->key);
  return fmt::format("{}[{}]", path_of(node->parent), node->index);
}

/// The value as the subject of a sentence.
std::string subject(const ConfigNode* node) {
  return node->parent == nullptr ? "the file" : shown(path_of(node));
}

std::string found(const ConfigNode* node) {
  switch (node->kind) {
    case Kind::kNothing:
      return "nothing";
    case Kind::kScalar:
      return (node->quoted ? "the text " : "") + shown(node->text);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

ConfigNode* child(const ConfigNode* map, std::string_view name) {
  for (const auto& node : map->children) {
    if (node->key == name) return node.get();  // of repeated keys the first
  }
  return nullptr;
}

template <class T>
std::string range_text(T min, T max, T lowest, T highest, auto print) {
  if (min == lowest && max == highest) return "";
  if (max == highest) return fmt::format(" of at least {}", print(min));
  if (min == lowest) return fmt::format(" of at most {}", print(max));
  return fmt::format(" from {} to {}", print(min), print(max));
}

std::string list_text(const auto& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

std::string meant_text(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? "" : fmt::format("did you mean `{}`?", near);
}

bool was_asked(const ConfigNode& map, std::string_view name) {
  return std::ranges::find(map.asked, name) != map.asked.end();
}

void find_unknown_keys(const ConfigNode& node, RecordedList& errors) {
  const bool judged = !node.asked.empty() && !node.free_names;
  for (const auto& entry : node.children) {
    if (judged && !entry->repeated && !was_asked(node, entry->key)) {
      const std::string meant = meant_text(entry->key, node.asked);
      errors.add(entry->key_offset,
                 fmt::format("unknown key {}{}", shown(entry->key),
                             node.parent == nullptr ? "" : " in " + subject(&node)),
                 fmt::format("{}{}known keys: {}", meant, meant.empty() ? "" : " ",
                             list_text(node.asked)));
    }
    find_unknown_keys(*entry, errors);
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------
// Cursor.

bool Cursor::is_map() const {
  return present() && node_->kind == Kind::kMap;
}
bool Cursor::is_list() const {
  return present() && node_->kind == Kind::kList;
}
bool Cursor::is_scalar() const {
  return present() && node_->kind == Kind::kScalar;
}

std::string Cursor::path() const {
  return present() ? path_of(node_) : absent_path_;
}
SourcePlace Cursor::place() const {
  return document_->place(nearest_->offset);
}

void Cursor::fail(std::string message, std::string hint) const {
  document_->record(nearest_->offset, std::move(message), std::move(hint));
}

void Cursor::wrong(std::string_view wanted, std::string_view example, std::string hint) const {
  const std::string such = example.empty() ? "" : fmt::format(", for example `{}`", example);
  fail(fmt::format("{} must be {}{}: found {}", subject(node_), wanted, such, found(node_)),
       std::move(hint));
}

ConfigNode* Cursor::map_or_error() const {
  if (present() && node_->kind != Kind::kMap) wrong("a map", "key: value");
  return is_map() ? node_ : nullptr;
}

Cursor Cursor::optional(std::string_view name) const {
  ConfigNode* const map = map_or_error();
  ConfigNode* const value = map == nullptr ? nullptr : child(map, name);
  if (map != nullptr && !was_asked(*map, name)) map->asked.emplace_back(name);
  if (value != nullptr) return Cursor(document_, value, value);
  return Cursor(document_, nullptr, nearest_, joined(path(), name));
}

Cursor Cursor::key(std::string_view name) const {
  Cursor value = optional(name);
  if (is_map() && !value.present()) {
    fail(fmt::format("missing key `{}`{}", name,
                     node_->parent == nullptr ? "" : " in " + subject(node_)));
  }
  return value;
}

std::vector<Cursor> Cursor::items(bool nonempty) const {
  std::vector<Cursor> out;
  if (!present()) return out;
  if (!is_list()) {
    wrong("a list", "[a, b]", "write each item on a line of its own after `- `");
    return out;
  }
  if (nonempty && node_->children.empty()) {
    fail(fmt::format("{} must have at least one item", subject(node_)));
  }
  for (const auto& item : node_->children) out.push_back(Cursor(document_, item.get(), item.get()));
  return out;
}

std::vector<std::pair<std::string, Cursor>> Cursor::entries() const {
  std::vector<std::pair<std::string, Cursor>> out;
  ConfigNode* const map = map_or_error();
  if (map == nullptr) return out;
  map->free_names = true;
  for (const auto& entry : map->children) {
    if (entry->repeated) continue;
    out.emplace_back(entry->key, Cursor(document_, entry.get(), entry.get()));
  }
  return out;
}

ConfigNode* Cursor::scalar_or_error(std::string_view wanted, std::string_view example) const {
  if (present() && !is_scalar()) wrong(wanted, example);
  return is_scalar() ? node_ : nullptr;
}

std::string Cursor::text(std::string fallback) const {
  const ConfigNode* const node = scalar_or_error("a text", "");
  return node == nullptr ? fallback : node->text;
}

std::int64_t Cursor::integer(IntegerRange range, std::int64_t fallback) const {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto print = [](std::int64_t value) { return fmt::format("{}", value); };
  const std::string wanted =
      "a whole number" + range_text(range.min, range.max, Limits::min(), Limits::max(), print);
  const std::string example = print(std::min(std::max<std::int64_t>(12, range.min), range.max));
  const ConfigNode* const node = scalar_or_error(wanted, example);
  if (node == nullptr) return fallback;

  std::string_view digits = node->text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  const bool whole = stop == end && error == std::errc();
  if (whole && !node->quoted && value >= range.min && value <= range.max) return value;

  std::string hint;
  if (whole && node->quoted) hint = "remove the quotes";
  if (stop == end && error == std::errc::result_out_of_range) {
    hint = "it does not fit into 64 bits";
  }
  if (!whole && !node->quoted && stop != end) {
    // 1e3 and 4.0 are whole, but a count is written the way it is counted.
    const auto number = parse_number(node->text);
    if (number && *number == std::floor(*number) && std::abs(*number) < 0x1p53) {
      hint = fmt::format("write {}", static_cast<std::int64_t>(*number));
    } else if (!number && node->text.contains('_')) {
      hint = "write digits without separators";
    }
  }
  wrong(wanted, example, std::move(hint));
  return fallback;
}

double Cursor::number(NumberRange range, double fallback) const {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string wanted =
      "a number" + range_text(range.min, range.max, -infinity, infinity, format_exact);
  const std::string example = format_exact(std::min(std::max(0.5, range.min), range.max));
  const ConfigNode* const node = scalar_or_error(wanted, example);
  if (node == nullptr) return fallback;
  const auto value = parse_number(node->text);
  if (value && !node->quoted && *value >= range.min && *value <= range.max) return *value;
  wrong(wanted, example, value && node->quoted ? "remove the quotes" : "");
  return fallback;
}

bool Cursor::boolean(bool fallback) const {
  const ConfigNode* const node = scalar_or_error("true or false", "");
  if (node == nullptr) return fallback;
  if (!node->quoted && (node->text == "true" || node->text == "false")) return node->text == "true";
  std::string word = node->text.substr(0, 8);
  for (char& c : word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  std::string hint;
  for (const std::string_view yes : {"true", "yes", "on", "y", "1"}) {
    if (word == yes) hint = "write true";
  }
  for (const std::string_view no : {"false", "no", "off", "n", "0"}) {
    if (word == no) hint = "write false";
  }
  if (node->quoted && !hint.empty()) hint += " without quotes";
  wrong("true or false", "", std::move(hint));
  return fallback;
}

std::size_t Cursor::choice(std::initializer_list<std::string_view> choices,
                           std::size_t fallback) const {
  const std::string wanted = "one of " + list_text(choices);
  const ConfigNode* const node = scalar_or_error(wanted, "");
  if (node == nullptr) return fallback;
  const auto chosen = std::ranges::find(choices, node->text);
  if (chosen != choices.end()) return static_cast<std::size_t>(chosen - choices.begin());
  wrong(wanted, "", meant_text(node->text, {choices.begin(), choices.end()}));
  return fallback;
}

template <class T>
T Cursor::quantity(Result<T> (*parse)(std::string_view), std::string_view wanted,
                   std::string_view example, bool zero_allowed, T fallback) const {
  const ConfigNode* const node = scalar_or_error(wanted, example);
  if (node == nullptr) return fallback;
  auto value = parse(node->text);
  if (!value) {
    fail(fmt::format("{}: {}", subject(node), value.error().message), value.error().hint);
    return fallback;
  }
  if (!zero_allowed && *value == T{}) {
    fail(fmt::format("{} must be more than zero: found {}", subject(node), shown(node->text)));
    return fallback;
  }
  return *value;
}

Seconds Cursor::duration(Seconds fallback) const {
  return quantity(parse_duration, "a duration with its unit", "48 ms", true, fallback);
}
Bytes Cursor::size(Bytes fallback) const {
  return quantity(parse_size, "a size with its unit", "16 GiB", true, fallback);
}
BytesPerSecond Cursor::rate(BytesPerSecond fallback) const {
  return quantity(parse_rate, "a rate with its unit", "0.6 Gbit/s", false, fallback);
}
FlopsPerSecond Cursor::flop_rate(FlopsPerSecond fallback) const {
  return quantity(parse_flop_rate, "a compute rate with its unit", "125 TFLOP/s", false, fallback);
}
double Cursor::usd_per_hour(double fallback) const {
  return quantity(parse_usd_per_hour, "a price per hour", "3.06 USD/h", true, fallback);
}
double Cursor::usd_per_byte(double fallback) const {
  return quantity(parse_usd_per_byte, "a price per byte", "0.02 USD/GB", true, fallback);
}

// ---------------------------------------------------------------------------------------------
// ConfigFile.

ConfigFile::ConfigFile(std::unique_ptr<ConfigDocument> document) : document_(std::move(document)) {}
ConfigFile::ConfigFile(ConfigFile&&) noexcept = default;
ConfigFile& ConfigFile::operator=(ConfigFile&&) noexcept = default;
ConfigFile::~ConfigFile() = default;

Result<ConfigFile> ConfigFile::load(const std::string& path) {
  const auto cannot = [&](std::string_view what) {
    return invalid(fmt::format("cannot {} {}: {}", what, path,
                               std::error_code(errno, std::generic_category()).message()));
  };
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return cannot("open");
  // Reads one byte more than allowed instead of asking for the size: a pipe has none.
  std::string text;
  std::array<char, 65536> buffer;
  while (text.size() <= kFileBytesMax) {
    const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get());
    text.append(buffer.data(), got);
    if (got < buffer.size()) break;
  }
  if (std::ferror(file.get()) != 0) return cannot("read");
  return parse(text, path);
}

Result<ConfigFile> ConfigFile::parse(std::string_view text, std::string name) {
  if (text.size() > kFileBytesMax) {
    return invalid(fmt::format("{} is larger than 16 MiB, the limit of a config file", name));
  }
  auto document = std::make_unique<ConfigDocument>(text, std::move(name));
  if (auto refused = build_tree(*document)) {
    return std::unexpected(document->error_of(std::move(*refused)));
  }
  return ConfigFile(std::move(document));
}

Cursor ConfigFile::root() {
  return Cursor(document_.get(), document_->root.get(), document_->root.get());
}

const std::string& ConfigFile::name() const {
  return document_->name;
}
const std::string& ConfigFile::text() const {
  return document_->text;
}

void ConfigFile::expect_schema(std::string_view expected) {
  const Cursor schema = root().optional("schema");
  const std::string cure = fmt::format("write `schema: {}`", expected);
  if (!schema.present()) {
    if (root().is_map()) root().fail("missing key `schema`", cure);
    return;
  }
  if (!schema.is_scalar()) return schema.wrong("a text", expected);
  const std::string given = schema.text();
  if (given == expected) return;

  // NAME/KIND/VERSION: tells another kind and another version from a slip of the pen.
  const auto split = [](std::string_view whole) {
    const std::size_t last = whole.rfind('/');
    const std::string_view kind = whole.substr(0, last);
    return last == whole.npos || !kind.starts_with("longhaul/")
               ? std::pair<std::string_view, std::string_view>()
               : std::pair(kind, whole.substr(last + 1));
  };
  const auto [kind, version] = split(given);
  const auto [kind_wanted, version_wanted] = split(expected);
  if (kind.empty()) return schema.fail(fmt::format("unknown schema {}", shown(given)), cure);
  document_->errors = {};
  if (kind == kind_wanted) {
    schema.fail(fmt::format("this file has version {} of {}; this program reads version {}",
                            shown(version), kind, shown(version_wanted)));
  } else {
    schema.fail(
        fmt::format("this is a {} file; a {} file is wanted here", shown(given), shown(expected)),
        "were two files swapped?");
  }
  document_->foreign = true;
}

Result<void> ConfigFile::finish() {
  // Unknown keys are found anew each time, so that finish() may be called again after more reads.
  RecordedList all = document_->errors;
  if (!document_->foreign) find_unknown_keys(*document_->root, all);
  if (all.kept.empty()) return {};
  return std::unexpected(document_->one_error(std::move(all)));
}

// ---------------------------------------------------------------------------------------------

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kWordMax = 64;
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  // Damerau-Levenshtein distance (optimal string alignment) over three rows of the usual table.
  const auto distance = [&](std::string_view a, std::string_view b) {
    using Row = std::array<std::size_t, kWordMax + 1>;
    Row before{}, above{}, row{};
    for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      row[0] = i;
      for (std::size_t j = 1; j <= b.size(); ++j) {
        const bool same = lower(a[i - 1]) == lower(b[j - 1]);
        row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
        const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                             lower(a[i - 2]) == lower(b[j - 1]);
        if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
      }
      before = above;
      above = row;
    }
    return above[b.size()];
  };
  std::string best;
  std::size_t best_distance = kWordMax;
  if (word.size() > kWordMax) return best;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kWordMax) continue;
    // A third of the letters may differ, at least one, but never all of them.
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t allowed = std::min(std::max<std::size_t>(1, longer / 3), longer - 1);
    const std::size_t d = distance(word, candidate);
    if (d <= allowed && d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string yaml_text(std::string_view text) {
  const auto is_harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_./-").contains(c);
  };
  const bool is_null = text == "null" || text == "Null" || text == "NULL";
  if (!text.empty() && text.front() != '-' && !is_null && std::ranges::all_of(text, is_harmless)) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace longhaul
