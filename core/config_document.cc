// The only file that includes yaml-cpp. It parses by events, since its own tree keeps neither the
// repeated keys nor what was quoted; what it reports misleadingly is put right here.
#include "core/config_document.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <exception>
#include <expected>
#include <map>
#include <optional>
#include <sstream>

namespace longhaul {
namespace {

using Kind = ConfigNode::Kind;

constexpr std::size_t kDepthMax = 64;
constexpr std::string_view kWriteOut = "write the value out, or quote the text";

// ---------------------------------------------------------------------------------------------
// The text before it is parsed.

/// What must not reach yaml-cpp, or nothing.
std::optional<ConfigMistake> mistake_in_text(std::string_view body) {
  // yaml-cpp queues all tokens of an open bracket before it reports the first one: a file of
  // brackets alone would cost gigabytes. Brackets in a text count too, hence the generous limit;
  // the exact one is the builder's.
  constexpr std::size_t kOpenBracketsMax = 4096;
  std::size_t brackets = 0;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t size = utf8_size(body, at);
    if (size == 0) {
      return ConfigMistake{at, "not UTF-8 text", "save the file in the encoding UTF-8"};
    }
    const char c = body[at];
    // yaml-cpp takes U+0004 for the end of the file and drops a carriage return inside a line:
    // both would lose text silently.
    const bool line_end = c == '\r' && body.substr(at + 1).starts_with('\n');
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && !line_end) ||
        c == '\x7f') {
      return ConfigMistake{at, fmt::format("control character 0x{:02x}", static_cast<unsigned>(c)),
                           "is this a text file?"};
    }
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (brackets > kOpenBracketsMax) {
      return ConfigMistake{at,
                           fmt::format("more than {} brackets are open here", kOpenBracketsMax)};
    }
    at += size;
  }
  return std::nullopt;
}

bool opens_bracket(std::string_view text, std::size_t at) {
  return at < text.size() && (text[at] == '[' || text[at] == '{');
}
bool opens_quote(std::string_view text, std::size_t at) {
  return at < text.size() && (text[at] == '"' || text[at] == '\'');
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
    if (opens_bracket(text, i)) ++depth;
    if ((text[i] == ']' || text[i] == '}') && --depth == 0) return true;
    if (opens_quote(text, i)) i = std::min(closing_quote(text, i), text.size() - 1);
  }
  return false;
}

// ---------------------------------------------------------------------------------------------
// From yaml-cpp's events to the tree.

/// Throws a ConfigMistake through yaml-cpp to stop it; build_tree catches it.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(ConfigDocument& document)
      : document_(document), body_(document.text.body()) {}

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
    if (!written && is_in_map()) {
      at = open_.back().key ? open_.back().key_offset : at;
    } else if (!written) {
      while (at > 0 && std::string_view(" \t\r\n").contains(body_[--at])) continue;
    }
    add(Kind::kNothing, at);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { throw alias_at(offset(mark)); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const std::size_t at = offset(mark);
    refuse_anchor_and_tag(at, tag, anchor);
    // yaml-cpp ends an open quote at the end of a file that ends in a line break.
    if (opens_quote(body_, at) && closing_quote(body_, at) == body_.npos) {
      refuse(at, "this quote is not closed");
    }
    if (value.contains('\0')) refuse(at, "a text with a NUL character cannot be used");
    ConfigNode* const node = add(Kind::kScalar, at, value);
    if (node != nullptr) node->quoted = tag == "!";  // yaml-cpp's way to say quoted or a block
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
  ConfigMistake syntax_error(const YAML::Exception& error) const {
    std::size_t at = offset(error.mark);
    const std::string_view why = error.msg;
    // yaml-cpp 0.8 puts the anchor's name behind it.
    if (why.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR)) return alias_at(at);
    if (why == YAML::ErrorMsg::END_OF_SEQ_FLOW || why == YAML::ErrorMsg::END_OF_MAP_FLOW) {
      // Reported where the file ends; the bracket is where the cure is.
      for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
        if (opens_bracket(body_, open->node->offset)) return open_bracket_at(open->node->offset);
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
  /// A list or a map whose end has not come yet.
  struct Open {
    ConfigNode* node = nullptr;
    std::optional<std::string> key = {};  // of the value that comes next
    std::size_t key_offset = 0;
    std::map<std::string, std::size_t> first_offset = {};  // of each key so far
  };

  std::size_t offset(const YAML::Mark& mark) const {
    return mark.pos < 0 ? 0 : std::min(static_cast<std::size_t>(mark.pos), body_.size());
  }
  bool is_in_map() const { return !open_.empty() && open_.back().node->kind == Kind::kMap; }

  static ConfigMistake alias_at(std::size_t at) {
    return {at, "aliases (`*name`) are not supported", std::string(kWriteOut)};
  }
  ConfigMistake open_bracket_at(std::size_t at) const {
    return {at, fmt::format("this `{}` is not closed", body_[at])};
  }

  [[noreturn]] static void refuse(std::size_t at, std::string message, std::string_view hint = "") {
    throw ConfigMistake{at, std::move(message), std::string(hint)};
  }

  void refuse_anchor_and_tag(std::size_t at, std::string_view tag, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(at, "anchors (`&name`) are not supported", kWriteOut);
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
    if (is_in_map() && !open_.back().key) {
      take_key(kind, at, text);
      return nullptr;
    }
    auto node = std::make_unique<ConfigNode>();
    ConfigNode* const added = node.get();
    node->kind = kind;
    node->offset = at;
    node->text = text;
    if (open_.empty()) {
      document_.root = std::move(node);
      return added;
    }
    Open& open = open_.back();
    if (open.key) give_key(open, *node);
    node->parent = open.node;
    node->index = open.node->children.size();
    open.node->children.push_back(std::move(node));
    return added;
  }

  void take_key(Kind kind, std::size_t at, std::string_view text) {
    // yaml-cpp takes an open bracket for a key when the file ends inside it.
    if (opens_bracket(body_, at) && !bracket_closes(body_, at)) throw open_bracket_at(at);
    if (kind != Kind::kScalar || text.empty()) {
      refuse(at, "a key of a map must be a word", "write `key: value`");
    }
    open_.back().key = text;
    open_.back().key_offset = at;
  }

  void give_key(Open& open, ConfigNode& node) {
    node.key = *std::exchange(open.key, std::nullopt);
    node.key_offset = open.key_offset;
    const auto [first, fresh] = open.first_offset.emplace(node.key, open.key_offset);
    node.repeated = !fresh;
    if (fresh) return;
    document_.record({node.key_offset,
                      fmt::format("repeated key {}: the first one is at {}", shown(node.key),
                                  document_.text.place(first->second).text()),
                      "remove one of the two"});
  }

  ConfigDocument& document_;
  std::string_view body_;
  std::vector<Open> open_;
  int documents_ = 0;
};

/// Fills document.root, or answers why not.
std::optional<ConfigMistake> build_tree(ConfigDocument& document) {
  const std::string_view body = document.text.body();
  if (auto mistake = mistake_in_text(body)) return mistake;
  TreeBuilder builder(document);
  try {
    std::istringstream stream{std::string(body)};
    YAML::Parser parser(stream);
    // The second call must find nothing; the builder refuses what it finds.
    if (parser.HandleNextDocument(builder)) parser.HandleNextDocument(builder);
  } catch (ConfigMistake& mistake) {
    return std::move(mistake);
  } catch (const YAML::Exception& error) {
    return builder.syntax_error(error);
  } catch (const std::exception& error) {
    return ConfigMistake{0, fmt::format("cannot be parsed: {}", error.what())};
  }
  if (document.root == nullptr || document.root->kind == Kind::kNothing) {
    return ConfigMistake{0, "the file is empty"};
  }
  return std::nullopt;
}

}  // namespace

// ---------------------------------------------------------------------------------------------

Result<std::unique_ptr<ConfigDocument>> ConfigDocument::parse(std::string_view text,
                                                              std::string name) {
  auto document = std::make_unique<ConfigDocument>(ConfigText(text, std::move(name)));
  if (auto mistake = build_tree(*document)) {
    return std::unexpected(document->text.error(std::move(*mistake)));
  }
  return document;
}

std::string ConfigNode::path() const {
  if (parent == nullptr) return "";
  if (parent->kind == Kind::kMap) return path_of_key(parent->path(), key);
  return fmt::format("{}[{}]", parent->path(), index);
}

std::string ConfigNode::subject() const {
  return parent == nullptr ? "the file" : shown(path());
}

std::string ConfigNode::in_subject() const {
  return parent == nullptr ? "" : " in " + subject();
}

bool ConfigNode::was_asked_for(std::string_view name) const {
  return std::ranges::find(asked, name) != asked.end();
}

std::string path_of_key(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

}  // namespace longhaul
