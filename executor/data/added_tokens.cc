#include "executor/data/added_tokens.h"

#include <cstring>

#include "core/result.h"

namespace longhaul {

void AddedTokens::add(std::string_view text, Token id) {
  LH_CHECK(!text.empty() && id >= 0, "a token has a text and an id");
  std::size_t node = 0;
  for (const char c : text) {
    std::size_t next = next_of(node, c);
    if (next == 0) {
      next = nodes_.size();
      nodes_[node].next.emplace_back(c, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[node].id = id;
  bool& starts = starts_[static_cast<unsigned char>(text[0])];
  if (!starts) first_bytes_.push_back(text[0]);
  starts = true;
}

std::size_t AddedTokens::next_of(std::size_t node, char byte) const {
  for (const auto& [next_byte, next] : nodes_[node].next) {
    if (next_byte == byte) return next;
  }
  return 0;
}

AddedTokens::Found AddedTokens::find(std::string_view text, std::size_t from, bool closed) const {
  if (empty()) return {text.size(), text.size(), -1};
  for (std::size_t at = from; at < text.size(); ++at) {
    if (first_bytes_.size() == 1) {
      const void* const place = std::memchr(text.data() + at, first_bytes_[0], text.size() - at);
      if (place == nullptr) break;
      at = static_cast<std::size_t>(static_cast<const char*>(place) - text.data());
    } else if (!starts_[static_cast<unsigned char>(text[at])]) {
      continue;
    }
    Found found{at, at, -1};
    std::size_t node = 0;
    std::size_t end = at;
    while (end < text.size()) {
      const std::size_t next = next_of(node, text[end]);
      if (next == 0) break;
      node = next;
      ++end;
      if (nodes_[node].id >= 0) found = {at, end, nodes_[node].id};
    }
    if (end == text.size() && !closed) return {at, at, -1};
    if (found.id >= 0) return found;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace longhaul
