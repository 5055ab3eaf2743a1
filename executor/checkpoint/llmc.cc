#include "executor/checkpoint/llmc.h"

#include <fmt/core.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/quantity.h"
#include "executor/checkpoint/weight_types.h"

namespace longhaul {
namespace {

constexpr std::int32_t kMagic = 20240326;
constexpr std::int32_t kFloat32Version = 3;
constexpr std::int32_t kBfloat16Version = 5;
constexpr std::size_t kHeaderBytes = 1024;
constexpr std::int32_t kPadding = 128;
constexpr double kNormEpsilon = 1e-5;
constexpr std::int32_t kExtentMax = 1 << 24;
constexpr std::int32_t kLayersMax = 4096;
using Header = std::array<std::int32_t, 256>;

/// A tensor of the model in the order of the file.
struct Entry {
  PartTensor tensor;
  bool transposed = false;
  std::uint64_t padding = 0;  // elements after it that the model has not
};

std::vector<Entry> layout_of(const ModelShape& model, std::uint64_t padded_vocabulary) {
  std::vector<Entry> entries;
  std::vector<std::vector<PartTensor>> layers;
  for (int layer = 0; layer < model.layers; ++layer) {
    layers.push_back(tensors_of(model, {PartKind::kLayer, layer}));
  }
  for (PartTensor& tensor : tensors_of(model, {PartKind::kEmbedding, 0})) {
    entries.push_back({std::move(tensor), false, 0});
  }
  const auto vocabulary = static_cast<std::uint64_t>(model.vocabulary);
  entries[0].padding = (padded_vocabulary - vocabulary) * static_cast<std::uint64_t>(model.width);
  for (std::size_t i = 0; i < layers[0].size(); ++i) {
    for (std::vector<PartTensor>& layer : layers) {
      const bool is_matrix = layer[i].shape.size() == 2;
      entries.push_back({std::move(layer[i]), is_matrix, 0});
    }
  }
  for (PartTensor& tensor : tensors_of(model, {PartKind::kHead, 0})) {
    entries.push_back({std::move(tensor), false, 0});
  }
  return entries;
}

std::uint64_t elements_of(const std::vector<Entry>& layout) {
  std::uint64_t count = 0;
  for (const Entry& entry : layout) count += entry.tensor.elements() + entry.padding;
  return count;
}

/// [columns, rows] of [rows, columns].
std::vector<float> transposed(std::span<const float> from, std::size_t rows, std::size_t columns) {
  std::vector<float> to(from.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
  return to;
}

struct Contents {
  ModelShape model;
  TensorType type = TensorType::kF32;
  std::uint64_t padded_vocabulary = 0;
};

Result<Contents> read_header(const std::string& path, const Header& header) {
  if (header[0] != kMagic) {
    return invalid_at({path},
                      fmt::format("the file begins with {}, not with {} as a model of llm.c does",
                                  header[0], kMagic),
                      header[0] == 20240520 || header[0] == 20240801
                          ? "these are llm.c's tokens; a model is wanted"
                          : "give a folder with a model, or a model file of llm.c");
  }
  Contents contents;
  if (header[1] != kFloat32Version && header[1] != kBfloat16Version) {
    return invalid_at({path},
                      fmt::format("version {} at byte 4; longhaul reads {} (float32) and {} "
                                  "(bfloat16)",
                                  header[1], kFloat32Version, kBfloat16Version),
                      "write it again with a newer train_gpt2.py of llm.c");
  }
  if (header[1] == kBfloat16Version) contents.type = TensorType::kBf16;
  const auto extent = [&](std::size_t at, const char* name, int max) -> Result<int> {
    if (header[at] >= 1 && header[at] <= max) return header[at];
    return invalid_at(
        {path}, fmt::format("{} {} at byte {}, not from 1 to {}", name, header[at], 4 * at, max));
  };
  ModelShape& model = contents.model;
  LH_ASSIGN(model.context, extent(2, "a context of", kExtentMax));
  LH_ASSIGN(model.vocabulary, extent(3, "a vocabulary of", kExtentMax));
  LH_ASSIGN(model.layers, extent(4, "a number of layers of", kLayersMax));
  LH_ASSIGN(model.heads, extent(5, "a number of heads of", kExtentMax));
  LH_ASSIGN(model.width, extent(6, "a width of", kExtentMax / 4));
  LH_ASSIGN(const int padded, extent(7, "a padded vocabulary of", kExtentMax));
  if (padded < model.vocabulary) {
    return invalid_at({path}, fmt::format("a padded vocabulary of {} at byte 28, less than the "
                                          "vocabulary of {}",
                                          padded, model.vocabulary));
  }
  if (model.width % model.heads != 0) {
    return invalid_at({path}, fmt::format("a width of {} at byte 24 is no multiple of {} heads",
                                          model.width, model.heads));
  }
  model.kv_heads = model.heads;
  model.head_width = model.width / model.heads;
  model.ffn_width = 4 * model.width;
  contents.padded_vocabulary = static_cast<std::uint64_t>(padded);
  return contents;
}

/// Reads tensors of an open file.
class LlmcReader {
 public:
  LlmcReader(std::unique_ptr<ReadableFile> file, const Contents& contents)
      : file_(std::move(file)), type_(contents.type) {
    std::uint64_t offset = kHeaderBytes;
    for (Entry& entry : layout_of(contents.model, contents.padded_vocabulary)) {
      const std::uint64_t elements = entry.tensor.elements() + entry.padding;
      const std::string name = entry.tensor.name;
      places_[name] = {std::move(entry), offset};
      offset += elements * bytes_of(type_);
    }
  }

  Result<std::vector<float>> read(const PartTensor& wanted) {
    const auto& [entry, offset] = places_.at(wanted.name);
    std::vector<float> values(static_cast<std::size_t>(entry.tensor.elements()));
    std::vector<std::byte> bytes(values.size() * bytes_of(type_));
    LH_TRY(file_->read(offset, bytes));
    widen(type_, bytes, values);
    if (!entry.transposed) return values;
    const auto& shape = entry.tensor.shape;  // ours: the file has it the other way round
    return transposed(values, static_cast<std::size_t>(shape[1]),
                      static_cast<std::size_t>(shape[0]));
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  const TensorType type_;
  std::map<std::string, std::pair<Entry, std::uint64_t>> places_;
};

/// What the format has no place for.
Result<void> check_writable(const ModelShape& model, const std::string& dtype) {
  const auto refused = [](const std::string& why) {
    return invalid("llm.c's format has no place for this model: " + why);
  };
  if (model.family != ModelFamily::kGpt2) {
    return refused(fmt::format("it is a {}, not a gpt2", name_of(model.family)));
  }
  if (!model.tied_embedding) return refused("its head is not tied to the embedding");
  if (model.ffn_width != 4 * model.width) {
    return refused(fmt::format("its MLP is {} wide, not 4 x {}", model.ffn_width, model.width));
  }
  if (model.heads * model.head_width != model.width) {
    return refused(fmt::format("{} heads of {} are not its width of {}", model.heads,
                               model.head_width, model.width));
  }
  if (model.norm_epsilon != kNormEpsilon) {
    return refused(fmt::format("its norm epsilon is {}, not 1e-5", model.norm_epsilon));
  }
  if (dtype != "float32" && dtype != "bfloat16") {
    return refused(fmt::format("its weights would be {}, not float32 or bfloat16", dtype));
  }
  return {};
}

}  // namespace

Result<ModelSource> open_llmc(Storage& storage, const std::string& path) {
  LH_ASSIGN(auto file, storage.open(path));
  const std::uint64_t size = file->size();
  if (size < kHeaderBytes) {
    return invalid_at({path}, fmt::format("{} bytes are no model of llm.c, whose header has {}",
                                          size, kHeaderBytes));
  }
  Header header{};
  LH_TRY(file->read(0, std::as_writable_bytes(std::span(header))));
  LH_ASSIGN(const Contents contents, read_header(path, header));
  const std::uint64_t elements = elements_of(layout_of(contents.model, contents.padded_vocabulary));
  const std::uint64_t wanted = kHeaderBytes + elements * bytes_of(contents.type);
  if (size != wanted) {
    return invalid_at({path},
                      fmt::format("the file ends at byte {}, and its header's {} weights at {}",
                                  size, elements, wanted),
                      size < wanted ? "the file was cut short; fetch it again" : "");
  }
  ModelSource source{.kind = "a model file of llm.c",
                     .path = path,
                     .model = contents.model,
                     .dtype = std::string(dtype_of(contents.type)),
                     .files = {{path.substr(path.rfind('/') + 1), size}}};
  // Owned by the function alone, which must be copyable.
  const auto reader = std::make_shared<LlmcReader>(std::move(file), contents);
  source.read = [reader](const PartTensor& tensor) { return reader->read(tensor); };
  return source;
}

Result<void> write_llmc(Storage& storage, const ModelSource& source, const std::string& path,
                        const std::string& dtype) {
  const ModelShape& model = source.model;
  LH_TRY(check_writable(model, dtype));
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind != EntryKind::kAbsent) {
    return invalid(fmt::format("{} is there already", path), "give another path");
  }
  const TensorType type = *type_of_dtype(dtype);
  const std::int32_t padded = (model.vocabulary + kPadding - 1) / kPadding * kPadding;
  const std::vector<Entry> layout = layout_of(model, static_cast<std::uint64_t>(padded));
  const std::string folder = parent_folder(path);
  LH_TRY(make_folders(storage, folder));
  const std::uint64_t bytes = kHeaderBytes + elements_of(layout) * bytes_of(type);
  LH_ASSIGN(const std::uint64_t room, storage.free_space(folder));
  if (room < bytes) {
    return failed(fmt::format("{} needs {}, and its disk has {} left", path,
                              format_size(Bytes(static_cast<double>(bytes))),
                              format_size(Bytes(static_cast<double>(room)))),
                  "free some space there, or give another path");
  }
  LH_ASSIGN(AtomicFile file, AtomicFile::create(storage, path));
  Header header{kMagic,        type == TensorType::kF32 ? kFloat32Version : kBfloat16Version,
                model.context, model.vocabulary,
                model.layers,  model.heads,
                model.width,   padded};
  LH_TRY(file.append(std::as_bytes(std::span(header))));
  for (const Entry& entry : layout) {
    LH_ASSIGN(std::vector<float> values, source.read(entry.tensor));
    if (entry.transposed) {
      values = transposed(values, static_cast<std::size_t>(entry.tensor.shape[0]),
                          static_cast<std::size_t>(entry.tensor.shape[1]));
    }
    LH_ASSIGN(const std::vector<std::byte> narrowed, narrow(type, values));
    LH_TRY(file.append(narrowed));
    const std::vector<std::byte> padding(static_cast<std::size_t>(entry.padding * bytes_of(type)));
    LH_TRY(file.append(padding));
  }
  return file.commit();
}

}  // namespace longhaul
