#include "executor/data/token_shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/hash.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they lie on disk");

/// Tokens of one read of a scan, and the bytes that one read of a shard takes at a time.
constexpr std::size_t kScanTokens = std::size_t{1} << 16;

/// Answers the position of the first id outside the vocabulary, or out.size().
template <class Stored>
std::size_t widen(std::span<const std::byte> bytes, std::int64_t vocabulary, std::span<Token> out) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored id;
    std::memcpy(&id, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    largest = std::max(largest, std::uint32_t{id});
    out[i] = static_cast<Token>(id);
  }
  if (largest < vocabulary) return out.size();
  const auto outside = [&](Token id) { return static_cast<std::uint32_t>(id) >= vocabulary; };
  return static_cast<std::size_t>(std::find_if(out.begin(), out.end(), outside) - out.begin());
}

}  // namespace

Result<TokenShard> TokenShard::open(Storage& storage, const std::string& path) {
  LH_ASSIGN(std::unique_ptr<ReadableFile> file, storage.open(path));
  const auto size = static_cast<std::int64_t>(file->size());
  if (size < kShardHeaderBytes) {
    return invalid_at({path}, fmt::format("a token shard starts with a header of {} bytes, but the "
                                          "file has only {}",
                                          kShardHeaderBytes, size));
  }
  std::array<std::int32_t, 3> header{};
  LH_TRY(file->read(0, std::as_writable_bytes(std::span(header))));
  const auto [magic, version, count] = header;
  if (magic != kShardMagic16 && magic != kShardMagic32) {
    return invalid_at({path},
                      fmt::format("not a token shard: it starts with {}, not with {} or {}", magic,
                                  kShardMagic16, kShardMagic32),
                      "shards are written by longhaul data prepare or llm.c's scripts; nanoGPT's "
                      ".bin files have no header");
  }
  const bool wide = magic == kShardMagic32;
  const std::int32_t expected = wide ? kShardVersion32 : kShardVersion16;
  if (version != expected) {
    return invalid_at({path}, fmt::format("token shard of version {} at byte 4; magic {} goes with "
                                          "version {}",
                                          version, magic, expected));
  }
  if (count < 1) {
    return invalid_at({path}, fmt::format("the header says {} tokens at byte 8", count));
  }
  const int width = wide ? 4 : 2;
  const std::int64_t wanted = kShardHeaderBytes + std::int64_t{count} * width;
  if (size != wanted) {
    return invalid_at({path},
                      fmt::format("the header says {} tokens of {} bytes, which is a file of "
                                  "{} bytes, but it has {}: {}",
                                  count, width, wanted, size,
                                  size < wanted ? "it was cut off" : "something follows"));
  }
  return TokenShard(std::move(file), count, width);
}

Result<void> TokenShard::read(std::int64_t first, std::int64_t vocabulary, std::span<Token> out) {
  LH_CHECK(first >= 0 && first + std::ssize(out) <= tokens_, "callers stay inside the shard");
  std::vector<std::byte> bytes(std::min(out.size(), kScanTokens) *
                               static_cast<std::size_t>(width_));
  while (!out.empty()) {
    const std::span<Token> piece = out.first(std::min(out.size(), kScanTokens));
    const std::span<std::byte> stored =
        std::span(bytes).first(piece.size() * static_cast<std::size_t>(width_));
    const std::int64_t offset = kShardHeaderBytes + first * width_;
    LH_TRY(file_->read(static_cast<std::uint64_t>(offset), stored));
    const std::size_t good = width_ == 2 ? widen<std::uint16_t>(stored, vocabulary, piece)
                                         : widen<std::uint32_t>(stored, vocabulary, piece);
    if (good < piece.size()) {
      const auto wrong = static_cast<std::uint32_t>(piece[good]);
      const std::int64_t index = first + static_cast<std::int64_t>(good);
      return invalid_at({path()},
                        fmt::format("token {} at byte {} (number {} of the file) is outside the "
                                    "vocabulary of {}",
                                    wrong, kShardHeaderBytes + index * width_, index, vocabulary),
                        "was the file made with another tokenizer than the model's?");
    }
    first += std::ssize(piece);
    out = out.subspan(piece.size());
  }
  return {};
}

void TokenFingerprint::add(std::span<const Token> tokens) {
  const auto take = [](std::uint64_t lane, Token token) {
    return (std::rotl(lane, 5) ^ static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15u;
  };
  std::size_t i = 0;
  const auto one = [&] {
    std::uint64_t& lane = lanes_[count_++ % 4];
    lane = take(lane, tokens[i++]);
  };
  while (i < tokens.size() && count_ % 4 != 0) one();
  auto [a, b, c, d] = lanes_;
  for (; i + 4 <= tokens.size(); i += 4, count_ += 4) {
    a = take(a, tokens[i]);
    b = take(b, tokens[i + 1]);
    c = take(c, tokens[i + 2]);
    d = take(d, tokens[i + 3]);
  }
  lanes_ = {a, b, c, d};
  while (i < tokens.size()) one();
}

std::uint64_t TokenFingerprint::value() const {
  std::array<char, 40> bytes{};
  std::memcpy(bytes.data(), &count_, 8);
  std::memcpy(bytes.data() + 8, lanes_.data(), 32);
  return hash_text(std::string_view(bytes.data(), bytes.size()));
}

Result<TokenStream> TokenStream::open(Storage& storage, const std::vector<std::string>& paths,
                                      std::int64_t vocabulary) {
  LH_CHECK(vocabulary >= 1 && vocabulary <= kVocabularyMax, "ids are int32");
  if (paths.empty()) return invalid("no token shards were given");
  TokenStream stream;
  stream.vocabulary_ = vocabulary;
  for (const std::string& path : paths) {
    LH_ASSIGN(TokenShard shard, TokenShard::open(storage, path));
    stream.starts_.push_back(stream.starts_.back() + shard.tokens());
    stream.shards_.push_back(std::move(shard));
  }
  return stream;
}

Result<void> TokenStream::read(std::int64_t first, std::span<Token> out) {
  LH_CHECK(first >= 0 && first + std::ssize(out) <= tokens(), "callers stay inside the stream");
  auto shard = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                        starts_.begin() - 1);
  while (!out.empty()) {
    const auto here = static_cast<std::size_t>(
        std::min<std::int64_t>(std::ssize(out), starts_[shard + 1] - first));
    LH_TRY(shards_[shard].read(first - starts_[shard], vocabulary_, out.first(here)));
    first += static_cast<std::int64_t>(here);
    out = out.subspan(here);
    ++shard;
  }
  return {};
}

Result<TokenStream::Scan> TokenStream::scan() {
  Scan result;
  TokenFingerprint fingerprint;
  std::vector<Token> tokens(kScanTokens);
  for (std::int64_t first = 0; first < this->tokens(); first += std::ssize(tokens)) {
    tokens.resize(static_cast<std::size_t>(
        std::min<std::int64_t>(std::ssize(tokens), this->tokens() - first)));
    LH_TRY(read(first, tokens));
    fingerprint.add(tokens);
    result.largest = std::max(result.largest, *std::max_element(tokens.begin(), tokens.end()));
  }
  result.fingerprint = fingerprint.value();
  return result;
}

bool has_word(std::string_view name, const std::vector<std::string>& words) {
  for (std::size_t start = 0; start < name.size();) {
    const std::size_t end = std::min(name.find_first_of("_-.", start), name.size());
    if (std::find(words.begin(), words.end(), name.substr(start, end - start)) != words.end()) {
      return true;
    }
    start = end + 1;
  }
  return false;
}

Result<std::vector<std::string>> find_shards(Storage& storage, const std::string& folder,
                                             const std::vector<std::string>& words) {
  LH_ASSIGN(const std::vector<std::string> names, storage.list(folder));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(".bin") && has_word(name, words)) found.push_back(folder + "/" + name);
  }
  return found;
}

}  // namespace longhaul
