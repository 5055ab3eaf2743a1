#include "executor/data/bpe_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace longhaul {
namespace {

/// Characters of the tables are below this: 256 bytes, of which 68 move to U+0100 + n.
constexpr std::uint32_t kCharactersMax = 0x100 + 68;
constexpr std::size_t kCachedWords = std::size_t{1} << 15;
/// Pieces up to this are merged by looking at all pairs again: most words are far shorter.
constexpr std::size_t kShortPiece = 48;

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

/// Mixes eight bytes at a time; a piece is at most 30.
std::uint64_t word_hash(std::string_view word) {
  std::uint64_t hash = word.size();
  const auto mix = [&](std::uint64_t value) {
    hash = (std::rotl(hash, 23) ^ value) * 0x9e3779b97f4a7c15u;
  };
  while (word.size() >= 8) {
    std::uint64_t eight;
    std::memcpy(&eight, word.data(), 8);
    mix(eight);
    word.remove_prefix(8);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, word.data(), word.size());
  mix(rest);
  return hash ^ hash >> 32;
}

}  // namespace

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

BpeEncoder::BpeEncoder(std::shared_ptr<const BpeModel> model)
    : model_(std::move(model)), cache_(kCachedWords) {}

void BpeEncoder::encode(std::string_view piece, std::vector<Token>& out) {
  CachedWord* word = nullptr;
  if (piece.size() <= std::tuple_size_v<decltype(CachedWord::bytes)>) {
    word = &cache_[word_hash(piece) % kCachedWords];
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

/// Merges the pair of the lowest rank, the leftmost of equals, until no pair is in the table. Where
/// parts come before wholes, as in GPT-2's tables, that is also the original's order: all pairs of
/// the lowest rank, from the left, then the next rank.
void BpeEncoder::merge(std::string_view piece, std::vector<Token>& out) {
  if (!model_->whole.empty()) {
    if (const auto found = model_->whole.find(piece); found != model_->whole.end()) {
      out.push_back(found->second);
      return;
    }
  }
  piece.size() <= kShortPiece ? merge_short(piece, out) : merge_long(piece, out);
}

void BpeEncoder::merge_short(std::string_view piece, std::vector<Token>& out) {
  constexpr Merge kNone = {~std::uint32_t{0}, -1};
  std::array<Token, kShortPiece> ids;
  std::array<Merge, kShortPiece> pairs;  // of each symbol and the next
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = model_->byte_ids[static_cast<unsigned char>(piece[i])];
  }
  const auto pair_at = [&](std::size_t i) {
    const Merge* const found = model_->merges.find(ids[i], ids[i + 1]);
    return found == nullptr ? kNone : *found;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = pair_at(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].result < 0) break;
    ids[best] = pairs[best].result;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best + 1 < count) pairs[best] = pair_at(best);
    if (best > 0) pairs[best - 1] = pair_at(best - 1);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

void BpeEncoder::merge_long(std::string_view piece, std::vector<Token>& out) {
  const auto size = static_cast<std::uint32_t>(piece.size());
  symbols_.resize(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols_[i] = {model_->byte_ids[static_cast<unsigned char>(piece[i])], i == 0 ? kEnd : i - 1,
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

void BpeEncoder::consider(std::uint32_t position) {
  const Symbol& left = symbols_[position];
  if (left.after == kEnd) return;
  const Token right = symbols_[left.after].id;
  if (const Merge* found = model_->merges.find(left.id, right)) {
    candidates_.push({found->rank, position, left.id, right, found->result});
  }
}

}  // namespace longhaul
