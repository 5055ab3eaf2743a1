#include "executor/data/shard_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace longhaul {

Result<TokenShardWriter> TokenShardWriter::open(Storage& storage, Options options,
                                                const TokensCallback& take) {
  LH_CHECK(options.vocabulary >= 1 && options.vocabulary <= kVocabularyMax, "ids are int32");
  if (options.shard_tokens < 1 || options.shard_tokens > kShardTokensMax) {
    return invalid(
        fmt::format("a shard holds 1 to {} tokens, not {}", kShardTokensMax, options.shard_tokens));
  }
  TokenShardWriter writer(storage, std::move(options));
  const Options& said = writer.options_;
  if (!said.resumable) LH_TRY(refuse_shards(storage, said.folder, said.part));
  for (std::int64_t shard = 0; shard < said.adopted; ++shard) {
    LH_TRY(writer.adopt(static_cast<std::size_t>(shard), take));
  }
  return writer;
}

Result<void> TokenShardWriter::refuse_shards(Storage& storage, const std::string& folder,
                                             const std::string& part) {
  LH_ASSIGN(const std::vector<std::string> names, storage.list(folder));
  for (const std::string& name : names) {
    if (name.starts_with(part + "_") && name.ends_with(".bin")) {
      return invalid(fmt::format("{} already holds {} shards ({})", folder, part, name),
                     "choose another folder, or remove them first");
    }
  }
  return {};
}

Result<void> TokenShardWriter::adopt(std::size_t shard, const TokensCallback& take) {
  LH_ASSIGN(TokenStream stream, TokenStream::open(*storage_, {path(shard)}, options_.vocabulary));
  std::vector<Token> tokens(std::size_t{1} << 16);
  for (std::int64_t first = 0; first < stream.tokens(); first += std::ssize(tokens)) {
    tokens.resize(static_cast<std::size_t>(
        std::min<std::int64_t>(std::ssize(tokens), stream.tokens() - first)));
    LH_TRY(stream.read(first, tokens));
    fingerprint_.add(tokens);
    total_ += std::ssize(tokens);
    if (take) take(tokens);
  }
  ++written_;
  return {};
}

TokenShardWriter::TokenShardWriter(TokenShardWriter&& other) noexcept
    : storage_(other.storage_),
      options_(std::move(other.options_)),
      written_(std::exchange(other.written_, 0)),
      shard_(std::move(other.shard_)),
      total_(other.total_),
      fingerprint_(other.fingerprint_) {}

TokenShardWriter::~TokenShardWriter() {
  if (options_.resumable) return;
  for (std::size_t shard = 0; shard < written_; ++shard) {
    // Given up, for a reason that is on its way up; a file that stays is only bytes.
    static_cast<void>(storage_->remove(temporary_path(shard)));
  }
}

std::string TokenShardWriter::path(std::size_t shard) const {
  return fmt::format("{}/{}_{:06}.bin", options_.folder, options_.part, shard);
}

std::string TokenShardWriter::temporary_path(std::size_t shard) const {
  return path(shard) + std::string(kTemporarySuffix);
}

Result<void> TokenShardWriter::write_shard() {
  if (static_cast<std::int64_t>(written_) == kShardsMax) {
    return invalid(
        fmt::format("more than {} shards of {} tokens", kShardsMax, options_.shard_tokens),
        "make the shards larger");
  }
  const bool wide = width() == 4;
  std::array<std::int32_t, kShardHeaderBytes / 4> header{};
  header[0] = wide ? kShardMagic32 : kShardMagic16;
  header[1] = wide ? kShardVersion32 : kShardVersion16;
  header[2] = static_cast<std::int32_t>(shard_.size() / width());
  LH_ASSIGN(const auto file, storage_->create(temporary_path(written_++)));
  LH_TRY(file->append(std::as_bytes(std::span(header))));
  LH_TRY(file->append(shard_));
  LH_TRY(file->sync());
  LH_TRY(file->close());
  if (options_.resumable) {
    LH_TRY(storage_->rename(temporary_path(written_ - 1), path(written_ - 1)));
    LH_TRY(storage_->sync_folder(options_.folder));
  }
  shard_.clear();
  return {};
}

Result<void> TokenShardWriter::append(std::span<const Token> tokens) {
  const auto shard_bytes = static_cast<std::size_t>(options_.shard_tokens) * width();
  fingerprint_.add(tokens);
  total_ += std::ssize(tokens);
  while (!tokens.empty()) {
    const std::size_t old_size = shard_.size();
    const std::size_t count = std::min(tokens.size(), (shard_bytes - old_size) / width());
    shard_.resize(old_size + count * width());
    for (std::size_t i = 0; i < count; ++i) {
      const Token token = tokens[i];
      LH_CHECK(token >= 0 && token < options_.vocabulary, "the tokenizer keeps its vocabulary");
      // The low bytes come first on a little-endian machine (token_shard.cc asserts that).
      std::memcpy(shard_.data() + old_size + i * width(), &token, width());
    }
    tokens = tokens.subspan(count);
    if (shard_.size() == shard_bytes) LH_TRY(write_shard());
  }
  return {};
}

Result<void> TokenShardWriter::flush() {
  if (!shard_.empty()) LH_TRY(write_shard());
  return {};
}

Result<std::vector<std::string>> TokenShardWriter::finish() {
  LH_TRY(flush());
  std::vector<std::string> paths;
  for (std::size_t shard = 0; shard < written_; ++shard) {
    paths.push_back(path(shard));
    if (!options_.resumable) LH_TRY(storage_->rename(temporary_path(shard), paths.back()));
  }
  LH_TRY(storage_->sync_folder(options_.folder));
  written_ = 0;
  return paths;
}

}  // namespace longhaul
