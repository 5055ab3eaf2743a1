// The ConfigFile of config_cursor.h: opened, told apart from other kinds, and judged at the end;
// and the text of a scalar that we write.
#include "core/config_cursor.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <expected>
#include <system_error>

#include "core/config_document.h"

namespace longhaul {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{16} << 20;

void find_unknown_keys(const ConfigNode& node, ConfigMistakes& mistakes) {
  const bool judged = !node.asked.empty() && !node.free_names;
  for (const auto& entry : node.children) {
    if (judged && !entry->repeated && !node.was_asked_for(entry->key)) {
      const std::string meant = did_you_mean(entry->key, node.asked);
      mistakes.add({entry->key_offset,
                    fmt::format("unknown key {}{}", shown(entry->key), node.in_subject()),
                    fmt::format("{}{}known keys: {}", meant, meant.empty() ? "" : " ",
                                list_text(node.asked))});
    }
    find_unknown_keys(*entry, mistakes);
  }
}

/// `longhaul/job/1` as kind and version: tells another kind and another version from a slip of the
/// pen, for which both are empty.
struct Schema {
  explicit Schema(std::string_view whole) {
    const std::size_t last = whole.rfind('/');
    if (last == whole.npos || !whole.substr(0, last).starts_with("longhaul/")) return;
    kind = whole.substr(0, last);
    version = whole.substr(last + 1);
  }
  std::string_view kind;
  std::string_view version;
};

}  // namespace

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
  LH_ASSIGN(auto document, ConfigDocument::parse(text, std::move(name)));
  return ConfigFile(std::move(document));
}

Cursor ConfigFile::root() {
  return Cursor(document_.get(), document_->root.get(), document_->root.get());
}

const std::string& ConfigFile::name() const {
  return document_->text.name();
}
const std::string& ConfigFile::text() const {
  return document_->text.whole();
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

  const Schema found(given);
  const Schema wanted(expected);
  if (found.kind.empty()) return schema.fail(fmt::format("unknown schema {}", shown(given)), cure);
  document_->mistakes = {};
  if (found.kind == wanted.kind) {
    schema.fail(fmt::format("this file has version {} of {}; this program reads version {}",
                            shown(found.version), found.kind, shown(wanted.version)));
  } else {
    schema.fail(
        fmt::format("this is a {} file; a {} file is wanted here", shown(given), shown(expected)),
        "were two files swapped?");
  }
  document_->foreign = true;
}

Result<void> ConfigFile::finish() {
  // Unknown keys are found anew each time, so that finish() may be called again after more reads.
  ConfigMistakes all = document_->mistakes;
  if (!document_->foreign) find_unknown_keys(*document_->root, all);
  if (all.empty()) return {};
  return std::unexpected(document_->text.error(std::move(all)));
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
