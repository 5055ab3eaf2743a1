#include "executor/checkpoint/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "core/quantity.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors go to the file as they are in memory");

constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::uint64_t kAlignment = 8;
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 63;
constexpr std::size_t kDimensionsMax = 16;  // so that a shape costs no more than its text
constexpr std::size_t kShownBytesMax = 80;

struct TypeFact {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<TypeFact, 15> kTypes = {{{"BOOL", 1},
                                              {"U8", 1},
                                              {"I8", 1},
                                              {"F8_E5M2", 1},
                                              {"F8_E4M3", 1},
                                              {"I16", 2},
                                              {"U16", 2},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"I32", 4},
                                              {"U32", 4},
                                              {"F32", 4},
                                              {"F64", 8},
                                              {"I64", 8},
                                              {"U64", 8}}};
static_assert(static_cast<std::size_t>(TensorType::kU64) + 1 == kTypes.size());

std::optional<TensorType> type_named(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<TensorType>(i);
  }
  return std::nullopt;
}

/// Bytes of a tensor; absent when they do not fit into 64 bits.
std::optional<std::uint64_t> bytes_of(TensorType type, std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = longhaul::bytes_of(type);
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

// ---- writing

/// Gives every tensor its place behind the one before it; answers the size of all.
Result<std::uint64_t> place_tensors(std::vector<StoredTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
  std::uint64_t end = 0;
  for (StoredTensor& tensor : tensors) {
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    tensor.begin = end;
    if (!bytes || *bytes > kFileBytesMax || (end += *bytes) > kFileBytesMax) {
      return invalid(fmt::format("tensor {} {} is too large for a file", shown_name(tensor.name),
                                 shape_text(tensor.shape)));
    }
    tensor.end = end;
  }
  return end;
}

Result<void> check_names(std::span<const StoredTensor> tensors) {
  std::vector<std::string_view> names;
  for (const StoredTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end())
    return invalid(fmt::format("two tensors are named {}", shown_name(*twin)));
  if (std::binary_search(names.begin(), names.end(), kMetadataName)) {
    return invalid(fmt::format("no tensor may be named {}", kMetadataName));
  }
  return {};
}

/// A text in JSON's quotes.
Result<std::string> quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return invalid(fmt::format("{} is not UTF-8", shown_name(text)));
  }
}

/// The length and the header, padded.
Result<std::string> header_text(std::span<const StoredTensor> tensors,
                                const TensorMetadata& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadataName);
    std::string_view comma = "";
    for (const auto& [key, value] : metadata) {
      LH_ASSIGN(const std::string key_text, quoted(key));
      LH_ASSIGN(const std::string value_text, quoted(value));
      json += fmt::format("{}{}:{}", comma, key_text, value_text);
      comma = ",";
    }
    json += "}";
  }
  for (const StoredTensor& tensor : tensors) {
    LH_ASSIGN(const std::string name, quoted(tensor.name));
    std::string shape;
    for (const std::uint64_t extent : tensor.shape) {
      shape += fmt::format("{}{}", shape.empty() ? "" : ",", extent);
    }
    json += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json.size() > 1 ? "," : "", name, name_of(tensor.type), shape, tensor.begin,
                        tensor.end);
  }
  json += "}";
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (json.size() > SafetensorsReader::kHeaderBytesMax) {
    return invalid(fmt::format("{} tensors need a header of {} bytes; the format allows {}",
                               tensors.size(), json.size(), SafetensorsReader::kHeaderBytesMax));
  }
  const std::uint64_t length = json.size();
  std::string text(reinterpret_cast<const char*>(&length), kPrefixBytes);
  return text + json;
}

// ---- reading

/// Takes the header apart as it is parsed, so that a repeated key is seen, nesting has an end, and
/// memory stays near the text's size. The first objection stops the parser.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<StoredTensor> tensors;
  TensorMetadata metadata;
  std::string objection;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(std::int64_t) override { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) override {
    return unexpected("a number that is not whole or does not fit into 64 bits");
  }
  bool binary(binary_t&) override { return unexpected("binary"); }

  bool number_unsigned(std::uint64_t value) override {
    if (numbers_ == nullptr) return unexpected("a number");
    const bool offsets = numbers_ == &offsets_;
    if (numbers_->size() == (offsets ? 2 : kDimensionsMax)) {
      return object(offsets ? "`data_offsets` has more than two numbers"
                            : fmt::format("`shape` has more than {} dimensions", kDimensionsMax));
    }
    numbers_->push_back(value);
    return true;
  }

  bool string(std::string& text) override {
    if (level_ == Level::kMetadata) {
      if (metadata.emplace(key_, text).second) return true;
      return object(fmt::format("`{}` has the key {} twice", kMetadataName, shown_name(key_)));
    }
    if (level_ != Level::kTensor || key_ != "dtype") return unexpected("a text");
    const auto type = type_named(text);
    if (!type) return object(fmt::format("{} is no known dtype", shown_name(text)));
    tensor_.type = *type;
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::kNothing) {
      level_ = Level::kRoot;
    } else if (level_ == Level::kRoot && key_ == kMetadataName) {
      if (seen_metadata_) return object(fmt::format("`{}` is there twice", kMetadataName));
      seen_metadata_ = true;
      level_ = Level::kMetadata;
    } else if (level_ == Level::kRoot) {
      level_ = Level::kTensor;
      tensor_ = {};
      tensor_.name = key_;
      offsets_.clear();
      seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    key_ = name;
    if (level_ != Level::kTensor) return true;
    bool* const seen = name == "dtype"          ? &seen_dtype_
                       : name == "shape"        ? &seen_shape_
                       : name == "data_offsets" ? &seen_offsets_
                                                : nullptr;
    if (seen == nullptr) return object(fmt::format("the key {} is unknown", shown_name(name)));
    if (*seen) return object(fmt::format("`{}` is there twice", name));
    *seen = true;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor) {
      if (!seen_dtype_ || !seen_shape_ || !seen_offsets_) {
        return object(fmt::format("`{}` is missing", !seen_dtype_   ? "dtype"
                                                     : !seen_shape_ ? "shape"
                                                                    : "data_offsets"));
      }
      if (offsets_.size() != 2) return object("`data_offsets` has less than two numbers");
      tensor_.begin = offsets_[0];
      tensor_.end = offsets_[1];
      tensor_.shape.shrink_to_fit();
      tensors.push_back(std::move(tensor_));
    }
    level_ = level_ == Level::kRoot ? Level::kDone : Level::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || numbers_ != nullptr || key_ == "dtype") {
      return unexpected("a list");
    }
    numbers_ = key_ == "shape" ? &tensor_.shape : &offsets_;
    return true;
  }

  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    objection = fmt::format("the header is not JSON at its byte {}", position);
    return false;
  }

 private:
  enum class Level { kNothing, kRoot, kMetadata, kTensor, kDone };

  bool object(std::string message) {
    objection = level_ == Level::kTensor
                    ? fmt::format("tensor {}: {}", shown_name(tensor_.name), message)
                    : std::move(message);
    return false;
  }
  bool unexpected(std::string_view what) {
    if (level_ == Level::kTensor) return object(fmt::format("`{}` holds {}", key_, what));
    if (level_ == Level::kMetadata) {
      return object(fmt::format("`{}` holds {}, not text", kMetadataName, what));
    }
    if (level_ == Level::kRoot) {
      return object(fmt::format("tensor {} is {}, not an object", shown_name(key_), what));
    }
    return object(fmt::format("the header is {}, not an object", what));
  }

  Level level_ = Level::kNothing;
  std::string key_;  // the last one
  StoredTensor tensor_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint64_t>* numbers_ = nullptr;  // where the numbers of this list go
  bool seen_metadata_ = false;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
};

/// One tensor by itself: its bytes are what its type and shape need, and inside the file.
Result<void> check_tensor(const std::string& path, const StoredTensor& tensor,
                          std::uint64_t data_bytes) {
  const std::string name = shown_name(tensor.name);
  if (tensor.end < tensor.begin) {
    return invalid_at({path}, fmt::format("tensor {} ends at byte {}, before it begins at {}", name,
                                          tensor.end, tensor.begin));
  }
  const auto wanted = bytes_of(tensor.type, tensor.shape);
  if (!wanted || *wanted != tensor.bytes()) {
    return invalid_at(
        {path}, fmt::format("tensor {} has {} bytes, but {} {} needs {}", name, tensor.bytes(),
                            name_of(tensor.type), shape_text(tensor.shape),
                            wanted ? fmt::format("{}", *wanted) : "more than 2^64"));
  }
  if (tensor.end > data_bytes) {
    return invalid_at(
        {path},
        fmt::format("tensor {} ends at byte {} of {} bytes of data", name, tensor.end, data_bytes),
        "the file was cut short; fetch it again");
  }
  return {};
}

}  // namespace

std::string_view name_of(TensorType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::uint64_t bytes_of(TensorType type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape) {
    text += fmt::format("{}{}", text.size() > 1 ? ", " : "", extent);
  }
  return text + "]";
}

std::string shown_name(std::string_view name) {
  const bool cut = name.size() > kShownBytesMax;
  std::string text = "`";
  for (const char c : name.substr(0, kShownBytesMax)) {
    // Bytes beyond ASCII are escaped too: the name may be no UTF-8, or be cut inside a character.
    if (c >= 0x20 && c < 0x7f) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text + (cut ? "...`" : "`");
}

Result<SafetensorsWriter> SafetensorsWriter::create(Storage& storage, const std::string& path,
                                                    std::vector<StoredTensor> tensors,
                                                    const TensorMetadata& metadata) {
  const auto prepare = [&]() -> Result<std::string> {
    LH_TRY(check_names(tensors));
    LH_TRY(place_tensors(tensors));
    return header_text(tensors, metadata);
  };
  auto header = prepare();
  if (!header) return within(path, std::move(header).error());
  const std::uint64_t bytes = header->size() + (tensors.empty() ? 0 : tensors.back().end);
  LH_ASSIGN(const std::uint64_t room, storage.free_space(parent_folder(path)));
  if (room < bytes) {
    return failed(fmt::format("{} needs {}, and its disk has {} left", path,
                              format_size(Bytes(static_cast<double>(bytes))),
                              format_size(Bytes(static_cast<double>(room)))),
                  "free some space there, or keep fewer checkpoints");
  }
  LH_ASSIGN(AtomicFile file, AtomicFile::create(storage, path));
  SafetensorsWriter writer(std::move(file), std::move(tensors), bytes);
  LH_TRY(writer.append(std::as_bytes(std::span(*header))));
  return writer;
}

Result<void> SafetensorsWriter::append(std::span<const std::byte> bytes) {
  LH_CHECK(bytes.size() <= bytes_ - written_,
           "the tensors have no more bytes than their shapes say");
  LH_TRY(file_.append(bytes));
  hasher_.add(bytes);
  written_ += bytes.size();
  return {};
}

Result<FileSummary> SafetensorsWriter::commit() {
  LH_CHECK(written_ == bytes_, "every tensor is written before the commit");
  LH_TRY(file_.commit());
  return FileSummary{.bytes = bytes_, .hash = hasher_.value()};
}

Result<SafetensorsReader> SafetensorsReader::open(Storage& storage, const std::string& path) {
  LH_ASSIGN(auto file, storage.open(path));
  const std::uint64_t file_bytes = file->size();
  if (file_bytes < kPrefixBytes) {
    return invalid_at({path}, fmt::format("{} bytes are no safetensors file", file_bytes),
                      "the file was cut short; fetch it again");
  }
  std::uint64_t length = 0;
  LH_TRY(file->read(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kHeaderBytesMax) {
    return invalid_at(
        {path}, fmt::format("a header of {} bytes; the format allows {}", length, kHeaderBytesMax),
        "is this a safetensors file?");
  }
  if (length > file_bytes - kPrefixBytes) {
    return invalid_at({path},
                      fmt::format("a header of {} bytes in a file of {}", length, file_bytes),
                      "the file was cut short; fetch it again");
  }
  std::string header(static_cast<std::size_t>(length), '\0');
  LH_TRY(file->read(kPrefixBytes, std::as_writable_bytes(std::span(header))));
  if (!header.starts_with('{')) return invalid_at({path}, "the header does not start with `{`");
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &handler)) {
    return invalid_at({path}, std::move(handler.objection));
  }

  SafetensorsReader reader(std::move(file));
  reader.data_begin_ = kPrefixBytes + length;
  reader.tensors_ = std::move(handler.tensors);
  reader.metadata_ = std::move(handler.metadata);
  LH_TRY(reader.check_places(file_bytes - reader.data_begin_));
  return reader;
}

Result<void> SafetensorsReader::check_places(std::uint64_t data_bytes) {
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  for (std::size_t i = 1; i < by_name_.size(); ++i) {
    const std::string& name = tensors_[by_name_[i]].name;
    if (name == tensors_[by_name_[i - 1]].name) {
      return invalid_at({path()}, fmt::format("tensor {} is there twice", shown_name(name)));
    }
  }

  std::uint64_t expected = 0;
  for (const StoredTensor& tensor : tensors_) {
    LH_TRY(check_tensor(path(), tensor, data_bytes));
    if (tensor.begin != expected) {
      return invalid_at(
          {path()},
          fmt::format("tensor {} begins at byte {}, {}", shown_name(tensor.name), tensor.begin,
                      tensor.begin < expected
                          ? fmt::format("inside the one that ends at {}", expected)
                          : fmt::format("after a hole that begins at {}", expected)));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    return invalid_at({path()}, fmt::format("the tensors end at byte {} of {} bytes of data",
                                            expected, data_bytes));
  }
  return {};
}

const StoredTensor* SafetensorsReader::find(std::string_view name) const {
  const auto at = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::size_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

Result<const StoredTensor*> SafetensorsReader::need(std::string_view name, TensorType type,
                                                    std::span<const std::uint64_t> shape) const {
  const StoredTensor* const tensor = find(name);
  if (tensor == nullptr) {
    return invalid_at({path()}, fmt::format("tensor {} is missing", shown_name(name)));
  }
  if (tensor->type != type || !std::ranges::equal(tensor->shape, shape)) {
    return invalid_at({path()}, fmt::format("tensor {} is {} {}, not {} {}", shown_name(name),
                                            name_of(tensor->type), shape_text(tensor->shape),
                                            name_of(type), shape_text(shape)));
  }
  return tensor;
}

Result<void> SafetensorsReader::read(const StoredTensor& tensor, std::uint64_t offset,
                                     std::span<std::byte> into) {
  LH_CHECK(offset <= tensor.bytes() && into.size() <= tensor.bytes() - offset,
           "a tensor is read within its bounds");
  return file_->read(data_begin_ + tensor.begin + offset, into);
}

}  // namespace longhaul
