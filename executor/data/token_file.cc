#include "executor/data/token_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace longhaul {
namespace {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr std::int64_t kIndexHeaderBytes = 34;
constexpr std::size_t kIndexRead = std::size_t{1} << 16;

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <class Stored>
void widen(std::span<const std::byte> bytes, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto value = static_cast<std::int64_t>(number_at<Stored>(bytes, i * sizeof(Stored)));
    out[i] = value < 0 || value > std::numeric_limits<std::uint32_t>::max() ? -1 : value;
  }
}

std::string stem_of(const std::string& path) {
  return path.substr(0, path.size() - 4);
}

}  // namespace

Result<TokenFile> TokenFile::open(Storage& storage, const std::string& path) {
  if (path.ends_with(".idx")) return open_megatron(storage, path);
  if (path.ends_with(".bin")) {
    const std::string index = stem_of(path) + ".idx";
    LH_ASSIGN(const EntryKind kind, storage.kind(index));
    if (kind == EntryKind::kFile) return open_megatron(storage, index);
  }
  LH_ASSIGN(auto file, storage.open(path));
  std::array<std::int32_t, 2> header{};
  if (file->size() >= sizeof header) {
    LH_TRY(file->read(0, std::as_writable_bytes(std::span(header))));
  }
  if (header[0] != kShardMagic16 && header[0] != kShardMagic32) return open_raw(std::move(file));
  LH_ASSIGN(const TokenShard shard, TokenShard::open(storage, path));
  TokenFile result;
  result.file_ = std::move(file);
  result.format_ = shard.width() == 2 ? "llm.c shard, uint16" : "llm.c shard, uint32";
  result.tokens_ = shard.tokens();
  result.type_ = shard.width() == 2 ? Type::kU16 : Type::kU32;
  result.start_ = kShardHeaderBytes;
  result.width_ = shard.width();
  return result;
}

Result<TokenFile> TokenFile::open_raw(std::unique_ptr<ReadableFile> file) {
  const auto size = static_cast<std::int64_t>(file->size());
  if (size == 0) return invalid_at({file->path()}, "the file is empty");
  if (size % 2 != 0) {
    return invalid_at(
        {file->path()},
        fmt::format("not a file of tokens: it starts with no magic number of llm.c, has "
                    "no .idx beside it, and its {} bytes are no whole number of uint16",
                    size));
  }
  TokenFile result;
  result.file_ = std::move(file);
  result.format_ = "uint16 without a header, as nanoGPT's";
  result.tokens_ = size / 2;
  return result;
}

Result<TokenFile> TokenFile::open_megatron(Storage& storage, const std::string& index_path) {
  const std::string tokens_path = stem_of(index_path) + ".bin";
  LH_ASSIGN(const EntryKind kind, storage.kind(tokens_path));
  if (kind != EntryKind::kFile) {
    return invalid_at({index_path},
                      fmt::format("the tokens of this index are not in {}", tokens_path),
                      "a Megatron data set is two files, NAME.bin and NAME.idx");
  }
  TokenFile result;
  LH_ASSIGN(const auto index, storage.open(index_path));
  LH_ASSIGN(result.file_, storage.open(tokens_path));
  LH_TRY(result.read_index(*index));
  return result;
}

Result<void> TokenFile::read_index(ReadableFile& index) {
  const auto bad = [&](std::string message) {
    return invalid_at({index.path()}, std::move(message));
  };
  const auto size = static_cast<std::int64_t>(index.size());
  if (size < kIndexHeaderBytes) {
    return bad(fmt::format("a Megatron index has at least {} bytes, this one {}", kIndexHeaderBytes,
                           size));
  }
  std::vector<std::byte> bytes(kIndexHeaderBytes);
  LH_TRY(index.read(0, bytes));
  if (std::memcmp(bytes.data(), kIndexMagic.data(), kIndexMagic.size()) != 0) {
    return bad("not a Megatron index: it does not start with MMIDIDX");
  }
  if (const auto version = number_at<std::uint64_t>(bytes, 9); version != 1) {
    return bad(fmt::format("Megatron index of version {} at byte 9; version 1 is read", version));
  }
  struct Kind {
    Type type;
    std::int64_t width;
    std::string_view name;
  };
  constexpr Kind kKinds[] = {{Type::kU8, 1, "uint8"},  {Type::kI8, 1, "int8"},
                             {Type::kI16, 2, "int16"}, {Type::kI32, 4, "int32"},
                             {Type::kI64, 8, "int64"}, {Type::kU16, 2, "uint16"}};
  const auto code = static_cast<int>(bytes[17]);
  const auto* const found =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const Kind& known) { return static_cast<int>(known.type) == code; });
  if (found == std::end(kKinds)) {
    return bad(fmt::format("tokens of type {} at byte 17, which are no whole numbers", code));
  }
  type_ = found->type;
  width_ = found->width;
  format_ = fmt::format("Megatron, {}", found->name);
  const auto sequences = number_at<std::uint64_t>(bytes, 18);
  const auto documents = number_at<std::uint64_t>(bytes, 26);
  const auto room = static_cast<std::uint64_t>(size - kIndexHeaderBytes);
  if (sequences == 0 || sequences > room / 12 || documents > (room - 12 * sequences) / 8) {
    return bad(
        fmt::format("the index says {} sequences and {} documents at byte 18, which do not "
                    "fit its {} bytes",
                    sequences, documents, size));
  }
  documents_ = static_cast<std::int64_t>(documents) - (documents > 0 ? 1 : 0);
  std::vector<std::byte> lengths;
  std::vector<std::byte> places;
  std::int64_t total = 0;
  for (std::uint64_t at = 0; at < sequences; at += kIndexRead) {
    const std::size_t count = std::min<std::size_t>(kIndexRead, sequences - at);
    lengths.resize(4 * count);
    places.resize(8 * count);
    LH_TRY(index.read(kIndexHeaderBytes + 4 * at, lengths));
    LH_TRY(index.read(kIndexHeaderBytes + 4 * sequences + 8 * at, places));
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = number_at<std::int32_t>(lengths, 4 * i);
      const auto place = number_at<std::int64_t>(places, 8 * i);
      const auto which = static_cast<std::int64_t>(at + i);
      if (length < 0) {
        return bad(fmt::format("sequence {} has {} tokens at byte {}", which, length,
                               kIndexHeaderBytes + 4 * which));
      }
      if (place != total * width_) {
        return bad(
            fmt::format("sequence {} is at byte {} of the tokens, not {}, where the one "
                        "before ends; only sequences one behind the other are read",
                        which, place, total * width_));
      }
      total += length;
    }
  }
  tokens_ = total;
  const auto stored = static_cast<std::int64_t>(file_->size());
  if (stored != total * width_ || total == 0) {
    return invalid_at({file_->path()},
                      fmt::format("the index says {} tokens of {} bytes, which is a "
                                  "file of {} bytes, but it has {}",
                                  total, width_, total * width_, stored));
  }
  return {};
}

Result<void> TokenFile::read(std::int64_t first, std::span<std::int64_t> out) {
  LH_CHECK(first >= 0 && first + std::ssize(out) <= tokens_, "callers stay inside the file");
  std::vector<std::byte> bytes(out.size() * static_cast<std::size_t>(width_));
  LH_TRY(file_->read(static_cast<std::uint64_t>(offset_of(first)), bytes));
  switch (type_) {
    case Type::kU8:
      widen<std::uint8_t>(bytes, out);
      break;
    case Type::kI8:
      widen<std::int8_t>(bytes, out);
      break;
    case Type::kI16:
      widen<std::int16_t>(bytes, out);
      break;
    case Type::kI32:
      widen<std::int32_t>(bytes, out);
      break;
    case Type::kI64:
      widen<std::int64_t>(bytes, out);
      break;
    case Type::kU16:
      widen<std::uint16_t>(bytes, out);
      break;
    case Type::kU32:
      widen<std::uint32_t>(bytes, out);
      break;
  }
  return {};
}

std::optional<std::int64_t> vocabulary_in_pickle(std::string_view bytes) {
  constexpr std::string_view kKey = "vocab_size";
  std::size_t at = bytes.find(kKey);
  if (at == bytes.npos) return std::nullopt;
  at += kKey.size();
  // The key may be remembered (MEMOIZE, or BINPUT and a byte); then a whole number of 1, 2 or 4
  // bytes.
  if (bytes.substr(at, 1) == "\x94") at += 1;
  if (bytes.substr(at, 1) == "q") at += 2;
  const std::string_view code = bytes.substr(std::min(at, bytes.size()), 1);
  const std::size_t width = code == "K" ? 1 : code == "M" ? 2 : code == "J" ? 4 : 0;
  if (width == 0 || at + 1 + width > bytes.size()) return std::nullopt;
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at + 1, width);
  return value;
}

Result<std::vector<std::string>> find_token_files(Storage& storage, const std::string& path) {
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind == EntryKind::kAbsent) return invalid(fmt::format("there is no {}", path));
  if (kind == EntryKind::kFile) {
    return is_token_file(path) ? std::vector{path} : std::vector<std::string>();
  }
  LH_ASSIGN(const std::vector<std::string> names, storage.list(path));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (name.ends_with(".bin")) files.push_back(path + "/" + name);
  }
  return files;
}

}  // namespace longhaul
