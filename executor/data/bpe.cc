// GPT-2's byte-pair encoding: tables, merging, the cache of words. See tokenizer.h.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <queue>

#include "core/hash.h"
#include "executor/data/gpt2_split.h"
#include "executor/data/tokenizer.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBpeVocabularyMax = std::int64_t{1} << 20;
constexpr std::string_view kEndOfText = "<|endoftext|>";
/// Characters of the tables are below this: 256 bytes, of which 68 move to U+0100 + n.
constexpr std::uint32_t kCharactersMax = 0x100 + 68;

/// Of each character of the tables the byte it stands for, or -1.
std::array<int, kCharactersMax> bytes_of_characters() {
  std::array<int, kCharactersMax> bytes;
  bytes.fill(-1);
  std::size_t moved = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    bytes[printable ? static_cast<std::size_t>(byte) : 0x100 + moved++] = byte;
  }
  return bytes;
}

/// A token as the tables write it, as bytes; no value when a character stands for none.
std::optional<std::string> raw_token(std::string_view text) {
  static const auto kBytes = bytes_of_characters();
  std::string raw;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::uint32_t code = static_cast<unsigned char>(text[i]);
    if (code >= 0x80) {  // all wide characters of the tables take two bytes
      if ((code & 0xe0) != 0xc0 || i + 1 == text.size()) return std::nullopt;
      code = (code & 0x1f) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fu);
    }
    if (code >= kCharactersMax || kBytes[code] < 0) return std::nullopt;
    raw += static_cast<char>(kBytes[code]);
  }
  return raw;
}

struct Merge {
  std::uint32_t rank;
  Token result;
};

/// Pair of ids to its merge: open addressing, filled once, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges)
      : slots_(std::bit_ceil(2 * merges + 2), Slot{kEmpty, {}}) {}

  /// The pair is not in the table yet.
  void insert(Token left, Token right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    std::size_t i = start(key);
    while (slots_[i].key != kEmpty) i = (i + 1) & (slots_.size() - 1);
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

/// A word and its tokens, one cache line; a colliding word takes the place of the older one.
struct alignas(64) CachedWord {
  std::uint8_t length = 0;
  std::uint8_t count = 0;
  std::array<char, 30> bytes;
  std::array<Token, 8> tokens;
};
constexpr std::size_t kCachedWords = std::size_t{1} << 15;

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(std::vector<std::string> tokens, const std::array<Token, 256>& byte_ids,
               MergeTable merges, std::optional<Token> end_of_text)
      : tokens_(std::move(tokens)),
        byte_ids_(byte_ids),
        merges_(std::move(merges)),
        end_of_text_(end_of_text),
        cache_(kCachedWords) {}

  using Tokenizer::encode;
  std::string_view name() const override { return "gpt2"; }
  std::int64_t vocabulary() const override { return std::ssize(tokens_); }
  std::optional<Token> end_of_text() const override { return end_of_text_; }

  std::size_t encode(std::string_view text, Rest rest, std::vector<Token>& out) override {
    std::size_t done = 0;
    while (done < text.size()) {
      const std::size_t length = next_piece(text.substr(done));
      if (rest == Rest::kFollows && done + length + kPieceLookahead > text.size()) break;
      encode_piece(text.substr(done, length), out);
      done += length;
    }
    return done;
  }

 private:
  std::string_view bytes_of(Token token) const override {
    return tokens_[static_cast<std::size_t>(token)];
  }

  void encode_piece(std::string_view piece, std::vector<Token>& out) {
    CachedWord* word = nullptr;
    if (piece.size() <= std::tuple_size_v<decltype(CachedWord::bytes)>) {
      const std::uint64_t hash = hash_text(piece);
      word = &cache_[(hash ^ hash >> 32) % kCachedWords];
      if (word->length == piece.size() &&
          std::memcmp(word->bytes.data(), piece.data(), piece.size()) == 0) {
        out.insert(out.end(), word->tokens.begin(), word->tokens.begin() + word->count);
        return;
      }
    }
    const std::size_t start = out.size();
    merge(piece, out);
    const std::size_t count = out.size() - start;
    if (word == nullptr || count > word->tokens.size()) return;
    word->length = static_cast<std::uint8_t>(piece.size());
    word->count = static_cast<std::uint8_t>(count);
    std::copy(piece.begin(), piece.end(), word->bytes.begin());
    std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(start), count, word->tokens.begin());
  }

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

  /// Merges the pair of the lowest rank, the leftmost of equals, until no pair is in the table.
  /// That is the original's order (all pairs of the lowest rank, from the left, then the next
  /// rank), because a merge never makes a pair of a lower or equal rank: parts come before wholes.
  void merge(std::string_view piece, std::vector<Token>& out) {
    const auto size = static_cast<std::uint32_t>(piece.size());
    symbols_.resize(size);
    for (std::uint32_t i = 0; i < size; ++i) {
      symbols_[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kEnd : i - 1,
                     i + 1 == size ? kEnd : i + 1};
    }
    for (std::uint32_t i = 0; i < size; ++i) consider(i);
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      Symbol& left = symbols_[best.position];
      if (left.id != best.left || left.after == kEnd || symbols_[left.after].id != best.right) {
        continue;  // one of the two was merged with another neighbour since
      }
      Symbol& right = symbols_[left.after];
      left.id = best.result;
      left.after = right.after;
      right.id = -1;
      if (left.after != kEnd) symbols_[left.after].before = best.position;
      consider(best.position);
      if (left.before != kEnd) consider(left.before);
    }
    for (std::uint32_t i = 0; i != kEnd; i = symbols_[i].after) out.push_back(symbols_[i].id);
  }

  void consider(std::uint32_t position) {
    const Symbol& left = symbols_[position];
    if (left.after == kEnd) return;
    const Token right = symbols_[left.after].id;
    if (const Merge* found = merges_.find(left.id, right)) {
      candidates_.push({found->rank, position, left.id, right, found->result});
    }
  }

  std::vector<std::string> tokens_;  // bytes of each id
  std::array<Token, 256> byte_ids_;
  MergeTable merges_;
  std::optional<Token> end_of_text_;
  std::vector<CachedWord> cache_;
  std::vector<Symbol> symbols_;  // of the piece at hand; kept for its memory, as are the candidates
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

std::unexpected<Error> bad_table(const std::string& file, int line, std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalid, std::move(message), "", {file, line}, "", {}});
}

/// Tokens by id, as bytes.
Result<std::vector<std::string>> read_vocabulary(const BpeTables& tables) {
  const auto bad = [&](std::string message) {
    return bad_table(tables.vocabulary_file, 0, std::move(message));
  };
  const auto json = nlohmann::json::parse(tables.vocabulary, nullptr, false);
  if (!json.is_object()) return bad("not a JSON object of tokens and ids");
  if (json.empty() || std::ssize(json) > kBpeVocabularyMax) {
    return bad(fmt::format("{} tokens; 1 to {} are accepted", json.size(), kBpeVocabularyMax));
  }
  std::vector<std::string> tokens(json.size());
  for (const auto& [text, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= json.size()) {
      return bad(fmt::format("the id of `{}` is not a number from 0 to {}", text, json.size() - 1));
    }
    std::string& token = tokens[id.get<std::size_t>()];
    if (!token.empty()) return bad(fmt::format("two tokens have the id of `{}`", text));
    std::optional<std::string> raw = raw_token(text);
    if (!raw || raw->empty()) {
      return bad(fmt::format("`{}` is not a token in GPT-2's characters", text));
    }
    token = *std::move(raw);
  }
  return tokens;
}

/// Finds ids by the bytes of their tokens.
class TokenIndex {
 public:
  explicit TokenIndex(const std::vector<std::string>& tokens)
      : tokens_(tokens), ids_(tokens.size()) {
    std::iota(ids_.begin(), ids_.end(), Token{0});
    std::sort(ids_.begin(), ids_.end(), [&](Token a, Token b) { return bytes(a) < bytes(b); });
  }
  std::optional<Token> find(std::string_view raw) const {
    const auto place =
        std::lower_bound(ids_.begin(), ids_.end(), raw,
                         [&](Token id, std::string_view value) { return bytes(id) < value; });
    if (place == ids_.end() || bytes(*place) != raw) return std::nullopt;
    return *place;
  }

 private:
  const std::string& bytes(Token id) const { return tokens_[static_cast<std::size_t>(id)]; }

  const std::vector<std::string>& tokens_;
  std::vector<Token> ids_;  // in the order of their bytes
};

/// Reads the merges line by line and holds them to the order that `merge` relies on: what a line
/// puts together is a byte or was made by an earlier line, and no two lines make the same token.
class MergeReader {
 public:
  MergeReader(const TokenIndex& index, std::size_t vocabulary, std::size_t merges_max)
      : index_(index), made_(vocabulary, false), table_(merges_max) {}

  Result<std::array<Token, 256>> read_bytes(const std::string& file) {
    std::array<Token, 256> ids{};
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const char raw = static_cast<char>(byte);
      const std::optional<Token> id = index_.find({&raw, 1});
      if (!id) return bad_table(file, 0, fmt::format("no token for the byte {}", byte));
      ids[byte] = *id;
      made_[static_cast<std::size_t>(*id)] = true;
    }
    return ids;
  }

  /// Empty, or what is wrong with the line.
  std::string_view read_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      return "a merge is two tokens with a space between them";
    }
    const std::optional<std::string> left = raw_token(line.substr(0, space));
    const std::optional<std::string> right = raw_token(line.substr(space + 1));
    if (!left || !right) return "a merge is written in GPT-2's characters";
    const std::optional<Token> left_id = index_.find(*left);
    const std::optional<Token> right_id = index_.find(*right);
    const std::optional<Token> result = index_.find(*left + *right);
    if (!left_id || !right_id || !result) {
      return "a part of this merge, or what it makes, is not in the vocabulary";
    }
    if (!made_[static_cast<std::size_t>(*left_id)] || !made_[static_cast<std::size_t>(*right_id)]) {
      return "a part of this merge is made by no earlier line";
    }
    if (made_[static_cast<std::size_t>(*result)]) return "an earlier line makes the same token";
    made_[static_cast<std::size_t>(*result)] = true;
    table_.insert(*left_id, *right_id, {rank_++, *result});
    return "";
  }

  MergeTable table() && { return std::move(table_); }

 private:
  const TokenIndex& index_;
  std::vector<bool> made_;  // by id
  MergeTable table_;
  std::uint32_t rank_ = 0;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const BpeTables& tables) {
  LH_ASSIGN(std::vector<std::string> tokens, read_vocabulary(tables));
  const TokenIndex index(tokens);
  const auto lines = std::count(tables.merges.begin(), tables.merges.end(), '\n') + 1;
  MergeReader reader(index, tokens.size(), static_cast<std::size_t>(lines));
  LH_ASSIGN(const auto byte_ids, reader.read_bytes(tables.vocabulary_file));
  int number = 0;
  for (std::string_view rest = tables.merges; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::string_view wrong = reader.read_line(line);
    if (!wrong.empty()) return bad_table(tables.merges_file, number, std::string(wrong));
  }
  const std::optional<Token> end_of_text = index.find(kEndOfText);
  return std::make_unique<BpeTokenizer>(std::move(tokens), byte_ids, std::move(reader).table(),
                                        end_of_text);
}

}  // namespace longhaul
