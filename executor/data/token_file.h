// Files of tokens as others write them, read as they lie:
//
//   llm.c      a shard, see token_shard.h
//   Megatron   NAME.idx beside NAME.bin; either names the pair. The index, little-endian:
//                0   "MMIDIDX\0\0", then u64 version: 1
//                17  u8 type of a token: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6, 7: fractions)
//                18  u64 sequences S, u64 D: documents and one more
//                34  i32[S] tokens of each, i64[S] byte of each in NAME.bin, i64[D] first sequence
//                    of each document and S; perhaps S more bytes (modes), which are not looked at
//              Sequences lie one behind the other; the index then says nothing of the tokens but
//              their type and number.
//   nanoGPT    NAME.bin: uint16 without a header
//
// One thread; reads may block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/data/token_shard.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Whether files of that name hold tokens rather than text.
inline bool is_token_file(std::string_view name) {
  return name.ends_with(".bin") || name.ends_with(".idx");
}

class TokenFile {
 public:
  /// Errors (kInvalid, with the file and, inside it, the byte): what is none of the above.
  static Result<TokenFile> open(Storage& storage, const std::string& path);

  /// The file with the tokens.
  const std::string& path() const { return file_->path(); }
  /// For people: `llm.c shard, uint16`.
  const std::string& format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }
  /// Where the format knows them.
  std::optional<std::int64_t> documents() const { return documents_; }

  /// Tokens first, first + 1, ... as they are stored; negative ones and those above 2^32 as -1.
  Result<void> read(std::int64_t first, std::span<std::int64_t> out);
  /// Byte of a token in the file.
  std::int64_t offset_of(std::int64_t token) const { return start_ + token * width_; }

 private:
  enum class Type { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8, kU32 = 100 };
  static Result<TokenFile> open_raw(std::unique_ptr<ReadableFile> file);
  static Result<TokenFile> open_megatron(Storage& storage, const std::string& index);
  Result<void> read_index(ReadableFile& index);

  std::unique_ptr<ReadableFile> file_;
  std::string format_;
  std::int64_t tokens_ = 0;
  std::optional<std::int64_t> documents_;
  Type type_ = Type::kU16;
  std::int64_t start_ = 0;  // byte of the first token
  std::int64_t width_ = 2;
};

/// `vocab_size` of nanoGPT's meta.pkl, or no value.
std::optional<std::int64_t> vocabulary_in_pickle(std::string_view bytes);

/// Token files below a path: the file itself, or those that lie in a folder, by name; a pair once.
Result<std::vector<std::string>> find_token_files(Storage& storage, const std::string& path);

}  // namespace longhaul
