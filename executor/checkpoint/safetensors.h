// safetensors files (huggingface/safetensors), written and read through Storage. Not thread-safe.
//
// Format, byte by byte:
//   0      8  u64 little-endian N, the size of the header; N <= kHeaderBytesMax
//   8      N  UTF-8 JSON, first byte `{`, then spaces so that 8 + N is a multiple of 8:
//             {"__metadata__":{"format":"pt"},
//              "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[BEGIN,END]}, ...}
//             offsets count from the first byte after the header
//   8 + N     the tensors: little-endian, row-major, without overlap and without holes
// The writer sorts tensors as the official one does: types in descending order of TensorType below
// (so that larger elements come first and all are aligned), then names in byte order; its files are
// byte-identical to the official writer's. The reader wants exactly this format, except that the
// order of tensors is free, and promises that what it hands out lies inside the file. Its memory is
// bounded by a small multiple of the header's size, which is bounded by the file's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/checkpoint/content_hash.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// In the order of the official library, by which files are sorted.
enum class TensorType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};
std::string_view name_of(TensorType type);  // "F32", as in the header
std::uint64_t bytes_of(TensorType type);    // of one element

struct StoredTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::uint64_t> shape;  // [] is a scalar; a 0 in it makes the tensor empty
  std::uint64_t begin = 0;  // from the first byte after the header; set by writer and reader
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

using TensorMetadata = std::map<std::string, std::string>;

/// What was written: enough to find damage later.
struct FileSummary {
  std::uint64_t bytes = 0;
  ContentHash hash;
};

/// Writes one file, tensor after tensor in the order of tensors(), each in any number of pieces.
/// The file appears at commit(), whole and durable.
class SafetensorsWriter {
 public:
  /// Refuses repeated names, the name `__metadata__`, text that is not UTF-8, sizes beyond
  /// 2^63, and a disk that has less room than the file needs.
  static Result<SafetensorsWriter> create(Storage& storage, const std::string& path,
                                          std::vector<StoredTensor> tensors,
                                          const TensorMetadata& metadata = {{"format", "pt"}});

  /// In the file's order, with their places.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Size of the whole file.
  std::uint64_t bytes() const { return bytes_; }
  /// The next bytes of the file's data.
  Result<void> append(std::span<const std::byte> bytes);
  Result<FileSummary> commit();

 private:
  SafetensorsWriter(AtomicFile file, std::vector<StoredTensor> tensors, std::uint64_t bytes)
      : file_(std::move(file)), tensors_(std::move(tensors)), bytes_(bytes) {}
  AtomicFile file_;
  std::vector<StoredTensor> tensors_;
  std::uint64_t bytes_;
  std::uint64_t written_ = 0;
  ContentHasher hasher_;
};

class SafetensorsReader {
 public:
  static Result<SafetensorsReader> open(Storage& storage, const std::string& path);

  const std::string& path() const { return file_->path(); }
  /// In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const TensorMetadata& metadata() const { return metadata_; }
  /// Null when the file has no such tensor.
  const StoredTensor* find(std::string_view name) const;
  /// The one tensor `name`, of this type and shape; the error names file and tensor.
  Result<const StoredTensor*> need(std::string_view name, TensorType type,
                                   std::span<const std::uint64_t> shape) const;
  /// Bytes [offset, offset + into.size()) of a tensor of this file.
  Result<void> read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> into);

  inline static constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

 private:
  explicit SafetensorsReader(std::unique_ptr<ReadableFile> file) : file_(std::move(file)) {}
  Result<void> check_places(std::uint64_t data_bytes);

  std::unique_ptr<ReadableFile> file_;
  std::uint64_t data_begin_ = 0;
  std::vector<StoredTensor> tensors_;
  std::vector<std::size_t> by_name_;  // indices into tensors_
  TensorMetadata metadata_;
};

/// "[768, 2304]", for messages.
std::string shape_text(std::span<const std::uint64_t> shape);
/// A name for messages: quoted, control characters escaped, cut when it is long.
std::string shown_name(std::string_view name);

}  // namespace longhaul
