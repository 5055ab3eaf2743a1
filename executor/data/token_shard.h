// Token shards in llm.c's format, and the stream of tokens that a list of shards makes together.
//
// A shard, byte by byte (all numbers little-endian):
//   0     int32   magic: 20240520 (uint16 tokens), or 20240801 (uint32 tokens)
//   4     int32   version: 1 with the first magic, 7 with the second
//   8     int32   n, the number of tokens, at least 1
//   12    -       253 int32 that are written as 0 and not looked at
//   1024  n x uint16 or n x uint32, then the end: the size is exactly 1024 + n x width
//
// A stream is its shards' tokens one after the other, in the order given. Nothing that is read from
// it depends on where the shards were cut: sequences run across the cuts, and the fingerprint is
// one of tokens. Every read checks its ids against the vocabulary, so that a wrong file is an error
// with file and offset and never an index outside an embedding table.
//
// Opening looks at headers and sizes only; `scan` reads everything. One thread at a time, one where
// reading may block; the Storage outlives what was opened from it. Reads are positioned and not
// through a memory map: a file that shrinks or a disk that fails under a run is an Error so, and
// would be a SIGBUS there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// A token's id. Never negative, except where a target is absent (sequence_source.h).
using Token = std::int32_t;

inline constexpr std::int64_t kShardHeaderBytes = 1024;
inline constexpr std::int32_t kShardMagic16 = 20240520;
inline constexpr std::int32_t kShardVersion16 = 1;
inline constexpr std::int32_t kShardMagic32 = 20240801;
inline constexpr std::int32_t kShardVersion32 = 7;
/// uint16 shards hold ids below this.
inline constexpr std::int64_t kVocabulary16 = 1 << 16;
/// Ids are int32 in memory.
inline constexpr std::int64_t kVocabularyMax = std::int64_t{1} << 31;
/// The count is an int32.
inline constexpr std::int64_t kShardTokensMax = (std::int64_t{1} << 31) - 1;

class TokenShard {
 public:
  /// Errors (kInvalid, with the file): missing, shorter than a header, another magic or version, no
  /// tokens, a size that the count does not explain.
  static Result<TokenShard> open(Storage& storage, const std::string& path);

  const std::string& path() const { return file_->path(); }
  std::int64_t tokens() const { return tokens_; }
  /// Bytes of one token: 2 or 4.
  int width() const { return width_; }

  /// Tokens first, first + 1, ... Every one is below `vocabulary`, or the error names the offset.
  Result<void> read(std::int64_t first, std::int64_t vocabulary, std::span<Token> out);

 private:
  TokenShard(std::unique_ptr<ReadableFile> file, std::int64_t tokens, int width)
      : file_(std::move(file)), tokens_(tokens), width_(width) {}

  std::unique_ptr<ReadableFile> file_;
  std::int64_t tokens_;
  int width_;
};

/// Hash of a sequence of tokens, the same however it is cut into pieces. Not for security.
/// Token i goes to lane i mod 4: lane = (rotl(lane, 5) xor token) x 0x9e3779b97f4a7c15, lanes start
/// at 0 to 3; the value is FNV-1a of the 40 bytes count, lane 0..3 (each 8 bytes, little-endian).
class TokenFingerprint {
 public:
  void add(std::span<const Token> tokens);
  std::uint64_t value() const;

 private:
  std::array<std::uint64_t, 4> lanes_ = {0, 1, 2, 3};
  std::uint64_t count_ = 0;
};

class TokenStream {
 public:
  /// Ids must be below `vocabulary`. At least one path.
  static Result<TokenStream> open(Storage& storage, const std::vector<std::string>& paths,
                                  std::int64_t vocabulary);

  std::int64_t tokens() const { return starts_.back(); }
  std::int64_t vocabulary() const { return vocabulary_; }
  const std::vector<TokenShard>& shards() const { return shards_; }

  /// Tokens first .. first + out.size() - 1, which must be in the stream.
  Result<void> read(std::int64_t first, std::span<Token> out);

  struct Scan {
    std::uint64_t fingerprint = 0;
    Token largest = 0;
  };
  /// Reads everything once; the first id outside the vocabulary is an error with file and offset.
  Result<Scan> scan();

 private:
  TokenStream() = default;

  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> starts_ = {0};  // of each shard in the stream, then the total
  std::int64_t vocabulary_ = 0;
};

/// Whether one of `words` is among the words of a file's name, which `_`, `-` and `.` separate.
bool has_word(std::string_view name, const std::vector<std::string>& words);

/// Paths of the `.bin` files in a folder that belong to one part of the data, sorted by name as
/// llm.c does: those with one of `words` among the words of their name, so that `train` finds
/// train_000000.bin and fineweb_train_000001.bin. Empty when there are none.
Result<std::vector<std::string>> find_shards(Storage& storage, const std::string& folder,
                                             const std::vector<std::string>& words);

}  // namespace longhaul
