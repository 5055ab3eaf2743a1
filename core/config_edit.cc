#include "core/config_edit.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/config_document.h"

namespace longhaul {
namespace {

using Kind = ConfigNode::Kind;

ConfigNode* child(const ConfigNode& map, std::string_view name) {
  for (const auto& node : map.children) {
    if (node->key == name) return node.get();
  }
  return nullptr;
}

/// The scalar as it reads back: a text that was quoted stays one, a number stays a number.
std::string scalar_text(std::string_view text, bool quoted) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_./+-").contains(c);
  };
  const bool is_null = text == "null" || text == "Null" || text == "NULL" || text == "-";
  if (!quoted && !text.empty() && !is_null && !text.starts_with("--") &&
      std::ranges::all_of(text, is_plain)) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

void write(const ConfigNode& node, std::string& out) {
  switch (node.kind) {
    case Kind::kNothing:
      out += "~";
      return;
    case Kind::kScalar:
      out += scalar_text(node.text, node.quoted);
      return;
    case Kind::kList:
    case Kind::kMap: {
      const bool is_map = node.kind == Kind::kMap;
      out += is_map ? '{' : '[';
      for (const auto& entry : node.children) {
        if (entry != node.children.front()) out += ", ";
        if (is_map) out += scalar_text(entry->key, false) + ": ";
        write(*entry, out);
      }
      out += is_map ? '}' : ']';
      return;
    }
  }
}

/// A document in one line.
std::string text_of(const ConfigNode& root) {
  std::string out;
  write(root, out);
  return out + "\n";
}

/// The map that `path` is below, and the last part of it.
struct Spot {
  ConfigNode* map = nullptr;  // null: not there
  std::string_view key;
};
Result<Spot> spot_of(ConfigNode& root, std::string_view path, bool add) {
  ConfigNode* at = &root;
  while (true) {
    if (at->kind != Kind::kMap) return invalid(fmt::format("{} is no map", at->subject()));
    const std::size_t dot = path.find('.');
    const std::string_view key = path.substr(0, dot);
    if (key.empty()) return invalid("a path is made of keys with dots between them");
    if (dot == path.npos) return Spot{at, key};
    ConfigNode* next = child(*at, key);
    if (next == nullptr && !add) return Spot{};
    if (next == nullptr) {
      at->children.push_back(std::make_unique<ConfigNode>());
      next = at->children.back().get();
      next->kind = Kind::kMap;
      next->key = key;
      next->parent = at;
    }
    at = next;
    path.remove_prefix(dot + 1);
  }
}

/// The node of a spot, added where there is none.
ConfigNode& node_at(const Spot& spot) {
  if (ConfigNode* const there = child(*spot.map, spot.key)) return *there;
  spot.map->children.push_back(std::make_unique<ConfigNode>());
  ConfigNode& added = *spot.map->children.back();
  added.kind = Kind::kScalar;
  added.key = spot.key;
  added.parent = spot.map;
  return added;
}

}  // namespace

Result<std::string> with_value(std::string_view text, const std::string& name,
                               std::string_view path, std::string_view value) {
  LH_ASSIGN(const auto document, ConfigDocument::parse(text, name));
  LH_ASSIGN(const Spot spot, spot_of(*document->root, path, true));
  ConfigNode& node = node_at(spot);
  if (node.kind == Kind::kMap || node.kind == Kind::kList) {
    return invalid(fmt::format("{} is a {}, and takes no single value", node.subject(),
                               node.kind == Kind::kMap ? "map" : "list"));
  }
  node.kind = Kind::kScalar;
  node.text = value;
  node.quoted = false;
  return text_of(*document->root);
}

Result<std::string> with_map(std::string_view text, const std::string& name, std::string_view path,
                             std::string_view map) {
  LH_ASSIGN(const auto document, ConfigDocument::parse(text, name));
  LH_ASSIGN(const auto replacement, ConfigDocument::parse(map, name));
  LH_ASSIGN(const Spot spot, spot_of(*document->root, path, true));
  ConfigNode& node = node_at(spot);
  node.kind = replacement->root->kind;
  node.text = std::move(replacement->root->text);
  node.children = std::move(replacement->root->children);
  return text_of(*document->root);
}

Result<std::string> without_key(std::string_view text, const std::string& name,
                                std::string_view path) {
  LH_ASSIGN(const auto document, ConfigDocument::parse(text, name));
  LH_ASSIGN(const Spot spot, spot_of(*document->root, path, false));
  if (spot.map != nullptr) {
    std::erase_if(spot.map->children, [&](const auto& node) { return node->key == spot.key; });
  }
  return text_of(*document->root);
}

Result<std::string> value_at(std::string_view text, const std::string& name,
                             std::string_view path) {
  LH_ASSIGN(const auto document, ConfigDocument::parse(text, name));
  LH_ASSIGN(const Spot spot, spot_of(*document->root, path, false));
  const ConfigNode* node = spot.map == nullptr ? nullptr : child(*spot.map, spot.key);
  return node != nullptr && node->kind == Kind::kScalar ? node->text : "";
}

}  // namespace longhaul
