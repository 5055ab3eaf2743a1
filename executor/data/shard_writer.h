// Writes a stream of tokens as shards PART_000000.bin, PART_000001.bin, ... (format:
// token_shard.h).
//
// All or nothing: shards go to temporary files, and `finish` gives all of them their names once
// the last byte is on the disk. A writer that is destroyed earlier removes what it wrote; a killed
// one leaves temporary files that no reader takes for shards and the next writer overwrites. A
// folder that already has shards of the part is refused: a longer older set would otherwise leave
// its tail among the new ones.
//
// A resumable writer gives a shard its name as soon as it is on the disk, leaves it there, and may
// adopt those of an earlier one; its owner knows that other shards in the folder are of no account.
// One shard is held in memory, since its header has its count. One thread at a time; the Storage
// outlives the writer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/data/token_shard.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// 64 MiB of uint16.
inline constexpr std::int64_t kShardTokensDefault = std::int64_t{1} << 25;
/// Names have six digits, so that their order is that of the stream.
inline constexpr std::int64_t kShardsMax = 1'000'000;

class TokenShardWriter {
 public:
  struct Options {
    std::string folder;  // exists
    std::string part;    // "train" or "val"
    std::int64_t vocabulary = 0;
    std::int64_t shard_tokens = kShardTokensDefault;  // 1 .. kShardTokensMax
    bool resumable = false;
    std::int64_t adopted =
        0;  // shards of an earlier, resumable writer, with or without their names
  };
  using TokensCallback = std::function<void(std::span<const Token>)>;
  /// `take` gets the tokens of the shards that are adopted.
  static Result<TokenShardWriter> open(Storage& storage, Options options,
                                       const TokensCallback& take = {});
  TokenShardWriter(TokenShardWriter&& other) noexcept;
  TokenShardWriter& operator=(TokenShardWriter&&) = delete;
  ~TokenShardWriter();

  /// An error where the folder has shards of the part.
  static Result<void> refuse_shards(Storage& storage, const std::string& folder,
                                    const std::string& part);

  /// Every id is below the vocabulary.
  Result<void> append(std::span<const Token> tokens);
  /// What was appended is on the disk, in shards of which the last may be short. Nothing may be
  /// appended after that.
  Result<void> flush();
  /// Shards that are on the disk.
  std::int64_t shards() const { return static_cast<std::int64_t>(written_); }
  /// Paths of the shards, in order; none when nothing was appended. Call once, last.
  Result<std::vector<std::string>> finish();

  std::int64_t tokens() const { return total_; }
  std::uint64_t fingerprint() const { return fingerprint_.value(); }

 private:
  TokenShardWriter(Storage& storage, Options options)
      : storage_(&storage), options_(std::move(options)) {}
  std::size_t width() const { return options_.vocabulary > kVocabulary16 ? 4 : 2; }
  std::string path(std::size_t shard) const;
  std::string temporary_path(std::size_t shard) const;
  Result<void> write_shard();
  Result<void> adopt(std::size_t shard, const TokensCallback& take);

  Storage* storage_;
  Options options_;
  std::size_t written_ = 0;       // temporary files; finish() and moving away make it 0
  std::vector<std::byte> shard_;  // tokens of the next one, as they lie on disk
  std::int64_t total_ = 0;
  TokenFingerprint fingerprint_;
};

}  // namespace longhaul
