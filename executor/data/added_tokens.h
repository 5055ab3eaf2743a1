// Finds texts that are tokens of their own, such as `<|endoftext|>`: the leftmost, of several at
// one place the longest. Read only once it is filled.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/data/token_shard.h"

namespace longhaul {

class AddedTokens {
 public:
  /// `text` is not empty. A text that is added twice has the last id.
  void add(std::string_view text, Token id);
  bool empty() const { return nodes_.size() == 1; }

  struct Found {
    std::size_t begin;  // without a match: all before this is free of tokens, whatever follows
    std::size_t end;
    Token id = -1;  // no match
  };
  /// First match that starts at or behind `from`. Unless `closed`, a match that more text could
  /// make longer, or complete, ends the search.
  Found find(std::string_view text, std::size_t from, bool closed) const;

 private:
  struct Node {
    std::vector<std::pair<char, std::size_t>> next;  // few, but for the first node
    Token id = -1;
  };
  std::size_t next_of(std::size_t node, char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_ = {};
  std::vector<char> first_bytes_;
};

}  // namespace longhaul
