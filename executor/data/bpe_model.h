// The tables of a byte-level byte-pair encoding, and the merging of one piece of text with them.
//
// The model is read only once it is made and may be shared by threads; an encoder keeps a cache of
// words and belongs to one thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "executor/data/token_shard.h"

namespace longhaul {

inline constexpr std::int64_t kBpeVocabularyMax = std::int64_t{1} << 20;

/// The bytes that a token of the tables stands for; no value when one of its characters stands for
/// none. There a byte is a printable character: 188 as themselves, the other 68, in order, as
/// U+0100 + n (space is Ġ, newline Ċ).
std::optional<std::string> raw_token(std::string_view text);

struct Merge {
  std::uint32_t rank;
  Token result;
};

/// Pair of ids to its merge: open addressing, at most half full.
class MergeTable {
 public:
  /// For at most so many merges.
  explicit MergeTable(std::size_t merges)
      : slots_(std::bit_ceil(2 * merges + 2), Slot{kEmpty, {}}) {}

  /// Takes the place of an older merge of the pair.
  void insert(Token left, Token right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    std::size_t i = start(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {key, merge};
  }

  const Merge* find(Token left, Token right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = start(key); slots_[i].key != kEmpty; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return &slots_[i].merge;
    }
    return nullptr;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are not negative
  struct Slot {
    std::uint64_t key;
    Merge merge;
  };
  static std::uint64_t key_of(Token left, Token right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
  }
  std::size_t start(std::uint64_t key) const {
    return (key * 0x9e3779b97f4a7c15u >> 32) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

struct BpeModel {
  std::vector<std::string> tokens;  // bytes of each id; empty where there is no such id
  std::array<Token, 256> byte_ids = {};
  MergeTable merges{0};
  /// Pieces that are tokens as they stand, whatever the merges make of them (`ignore_merges`). The
  /// texts are those of `tokens`.
  std::unordered_map<std::string_view, Token> whole = {};
};

class BpeEncoder {
 public:
  // Owners of the model: all tokenizers that were cloned from one another.
  explicit BpeEncoder(std::shared_ptr<const BpeModel> model);

  /// Appends the tokens of a piece.
  void encode(std::string_view piece, std::vector<Token>& out);

 private:
  /// A word and its tokens, one cache line; a colliding word takes the place of the older one.
  struct alignas(64) CachedWord {
    std::uint8_t length = 0;
    std::uint8_t count = 0;
    std::array<char, 30> bytes;
    std::array<Token, 8> tokens;
  };
  struct Symbol {
    Token id;  // -1: merged into the one before it
    std::uint32_t before;
    std::uint32_t after;
  };
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t position;  // of the left symbol
    Token left, right;       // as they were then
    Token result;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  static constexpr std::uint32_t kEnd = ~std::uint32_t{0};

  void merge(std::string_view piece, std::vector<Token>& out);
  void merge_short(std::string_view piece, std::vector<Token>& out);
  void merge_long(std::string_view piece, std::vector<Token>& out);
  void consider(std::uint32_t position);

  std::shared_ptr<const BpeModel> model_;
  std::vector<CachedWord> cache_;
  std::vector<Symbol> symbols_;  // of the piece at hand; kept for its memory, as are the candidates
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

}  // namespace longhaul
