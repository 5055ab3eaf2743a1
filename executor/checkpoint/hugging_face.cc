#include "executor/checkpoint/hugging_face.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/hugging_face_config.h"
#include "executor/checkpoint/companion_files.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/checkpoint/weight_types.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kIndexBytesMax = 64 << 20;
constexpr std::string_view kGpt2Prefix = "transformer.";
constexpr std::string_view kLlamaPrefix = "model.";
constexpr std::string_view kHeadName = "lm_head.weight";
constexpr const char* kModelFile = "model.safetensors";

/// A tensor's key in the written folder; Llama's own names are that already.
std::string exported_name(const ModelShape& model, const std::string& name) {
  const bool has_prefix = model.family == ModelFamily::kGpt2 && name != kHeadName;
  return has_prefix ? std::string(kGpt2Prefix) + name : name;
}

/// The model's name of a key of a folder.
std::string imported_name(const ModelShape& model, std::string_view key) {
  if (model.family == ModelFamily::kGpt2) {
    if (key.starts_with(kGpt2Prefix)) key.remove_prefix(kGpt2Prefix.size());
    return std::string(key);
  }
  const bool is_whole = key.starts_with(kLlamaPrefix) || key == kHeadName;
  return is_whole ? std::string(key) : std::string(kLlamaPrefix) + std::string(key);
}

/// Constants that older versions of transformers stored with the weights.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// ---- reading

/// The tensors of a folder, one file or several.
class Folder {
 public:
  static Result<Folder> open(Storage& storage, const std::string& path, const ModelShape& model) {
    const std::string single = path + "/" + kModelFile;
    const std::string index = single + ".index.json";
    std::vector<std::string> names = {kModelFile};
    LH_ASSIGN(const EntryKind kind, storage.kind(single));
    if (kind == EntryKind::kAbsent) {
      LH_ASSIGN(const EntryKind index_kind, storage.kind(index));
      if (index_kind == EntryKind::kAbsent) {
        return invalid_at(
            {path}, "the folder has neither model.safetensors nor its index",
            "convert pytorch_model.bin with save_pretrained(safe_serialization=True)");
      }
      LH_ASSIGN(const std::string text, read_text(storage, index, kIndexBytesMax));
      LH_ASSIGN(names, parse_hugging_face_index(text, index));
    }
    Folder folder;
    for (const std::string& name : names) {
      LH_TRY(folder.add(storage, path, name, index, names.size() > 1, model));
    }
    return folder;
  }

  /// Checks that the tensor is there, with this shape and a floating-point type; reads nothing.
  Result<void> check(const std::string& folder, const ModelShape& model,
                     const PartTensor& wanted) const {
    const auto at = places_.find(wanted.name);
    if (at == places_.end()) {
      return invalid_at({folder}, fmt::format("tensor {} is missing", shown_name(wanted.name)));
    }
    const StoredTensor& tensor = *at->second.tensor;
    const std::string& file = readers_[at->second.reader].path();
    if (tensor.shape != wanted.shape) {
      const bool transposed = std::equal(tensor.shape.begin(), tensor.shape.end(),
                                         wanted.shape.rbegin(), wanted.shape.rend());
      const char* const layout = model.family == ModelFamily::kGpt2
                                     ? "GPT-2's matrices are stored as Conv1D, [in, out]"
                                     : "Llama's matrices are stored as Linear, [out, in]";
      return invalid_at(
          {file},
          fmt::format("tensor {} is {}, and its config wants {}", shown_name(tensor.name),
                      shape_text(tensor.shape), shape_text(wanted.shape)),
          transposed ? layout : "");
    }
    if (dtype_of(tensor.type).empty()) {
      return invalid_at({file}, fmt::format("tensor {} is {}, not F32, F16 or BF16",
                                            shown_name(tensor.name), name_of(tensor.type)));
    }
    return {};
  }

  Result<std::vector<float>> read(const PartTensor& wanted) {
    const auto [reader, tensor] = places_.at(wanted.name);
    std::vector<float> values(static_cast<std::size_t>(wanted.elements()));
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor->bytes()));
    LH_TRY(readers_[reader].read(*tensor, 0, bytes));
    widen(tensor->type, bytes, values);
    return values;
  }

  /// Marks a tensor as known.
  void take(const std::string& name) { taken_.insert(name); }
  /// A tensor that nobody took, and that is no buffer; null when there is none.
  const StoredTensor* stranger() const {
    for (const auto& [name, place] : places_) {
      if (!is_buffer(name) && !taken_.contains(name)) return place.tensor;
    }
    return nullptr;
  }
  bool has(const std::string& name) const { return places_.contains(name); }
  TensorType type_of(const std::string& name) const { return places_.at(name).tensor->type; }
  std::vector<std::pair<std::string, std::uint64_t>> files() const { return files_; }

 private:
  struct Place {
    std::size_t reader;
    const StoredTensor* tensor;  // of that reader
  };

  Result<void> add(Storage& storage, const std::string& path, const std::string& name,
                   const std::string& index, bool is_sharded, const ModelShape& model) {
    const std::string file = path + "/" + name;
    LH_ASSIGN(const EntryKind kind, storage.kind(file));
    if (kind == EntryKind::kAbsent && is_sharded) {
      return invalid_at({index}, fmt::format("{} is named here and is not in the folder", name),
                        "fetch all shards of the model");
    }
    LH_ASSIGN(auto reader, SafetensorsReader::open(storage, file));
    readers_.push_back(std::move(reader));
    std::uint64_t bytes = 0;
    for (const StoredTensor& tensor : readers_.back().tensors()) {
      bytes = std::max(bytes, tensor.end);
      const Place place = {readers_.size() - 1, &tensor};
      if (!places_.emplace(imported_name(model, tensor.name), place).second) {
        return invalid_at({file},
                          fmt::format("tensor {} is in the folder twice", shown_name(tensor.name)));
      }
    }
    files_.emplace_back(name, bytes);
    return {};
  }

  std::vector<SafetensorsReader> readers_;
  std::map<std::string, Place, std::less<>> places_;  // by the model's names
  std::set<std::string, std::less<>> taken_;
  std::vector<std::pair<std::string, std::uint64_t>> files_;
};

Result<void> check_folder(const std::string& path, const ModelShape& model, Folder& folder,
                          std::vector<std::string>& notes) {
  for (const CheckpointPart part : parts_of(model)) {
    for (const PartTensor& tensor : tensors_of(model, part)) {
      LH_TRY(folder.check(path, model, tensor));
      folder.take(tensor.name);
    }
  }
  const std::string head(kHeadName);
  if (model.tied_embedding && folder.has(head)) {
    folder.take(head);
    notes.push_back(fmt::format("`{}` is ignored: the head is tied to the embedding", kHeadName));
  }
  if (const StoredTensor* const stranger = folder.stranger()) {
    return invalid_at({path},
                      fmt::format("tensor {} has no place in a {} of {} layers",
                                  shown_name(stranger->name), name_of(model.family), model.layers));
  }
  return {};
}

// ---- writing

/// A tensor of the written folder, and the one of the model that it is.
struct Export {
  StoredTensor stored;
  PartTensor tensor;
};

/// The model's tensors in shards of at most `bytes_max`, unless one alone has more.
std::vector<std::vector<Export>> shards_of(const ModelShape& model, TensorType type,
                                           std::uint64_t bytes_max) {
  std::vector<std::vector<Export>> shards(1);
  std::uint64_t bytes = 0;
  for (const CheckpointPart part : parts_of(model)) {
    for (PartTensor& tensor : tensors_of(model, part)) {
      const std::uint64_t more = tensor.elements() * bytes_of(type);
      if (!shards.back().empty() && bytes + more > bytes_max) {
        shards.emplace_back();
        bytes = 0;
      }
      bytes += more;
      StoredTensor stored;
      stored.name = exported_name(model, tensor.name);
      stored.type = type;
      stored.shape = tensor.shape;
      shards.back().push_back({std::move(stored), std::move(tensor)});
    }
  }
  return shards;
}

Result<void> write_shard(Storage& storage, const ModelSource& source, const std::string& path,
                         const std::vector<Export>& exports) {
  std::vector<StoredTensor> tensors;
  std::map<std::string, const PartTensor*> by_name;
  for (const Export& one : exports) {
    tensors.push_back(one.stored);
    by_name[one.stored.name] = &one.tensor;
  }
  LH_ASSIGN(auto writer, SafetensorsWriter::create(storage, path, std::move(tensors)));
  for (const StoredTensor& stored : writer.tensors()) {
    LH_ASSIGN(const std::vector<float> values, source.read(*by_name.at(stored.name)));
    auto bytes = narrow(stored.type, values);
    if (!bytes) return within(shown_name(stored.name), std::move(bytes).error());
    LH_TRY(writer.append(*bytes));
  }
  LH_TRY(writer.commit());
  return {};
}

Result<void> write_weights(Storage& storage, const ModelSource& source, const std::string& folder,
                           TensorType type, std::uint64_t shard_bytes) {
  const auto shards = shards_of(source.model, type, shard_bytes);
  if (shards.size() == 1) {
    return write_shard(storage, source, folder + "/" + kModelFile, shards[0]);
  }
  std::vector<IndexEntry> entries;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    LH_TRY(write_shard(storage, source, folder + "/" + name, shards[i]));
    for (const Export& one : shards[i]) {
      entries.push_back({one.stored.name, name});
      total += one.tensor.elements() * bytes_of(type);
    }
  }
  return write_file(storage, folder + "/" + kModelFile + ".index.json",
                    hugging_face_index(entries, total));
}

}  // namespace

Result<ModelSource> open_hugging_face(Storage& storage, const std::string& folder) {
  const std::string config_path = folder + "/config.json";
  LH_ASSIGN(const std::string text, read_text(storage, config_path, kHuggingFaceConfigBytesMax));
  LH_ASSIGN(HuggingFaceConfig config, parse_hugging_face_config(text, config_path));
  LH_ASSIGN(Folder opened, Folder::open(storage, folder, config.model));
  const auto from = std::make_shared<Folder>(std::move(opened));  // owned by the function alone
  ModelSource source{
      .kind = "a Hugging Face folder", .path = folder, .model = config.model, .files = {}};
  source.companions = folder;
  source.notes = std::move(config.notes);
  LH_TRY(check_folder(folder, source.model, *from, source.notes));
  source.files = from->files();
  const PartTensor first = tensors_of(source.model, {PartKind::kEmbedding, 0}).front();
  source.dtype = dtype_of(from->type_of(first.name));
  if (config.dtype != source.dtype) source.copied_as = config.dtype;
  source.read = [from](const PartTensor& tensor) { return from->read(tensor); };
  return source;
}

Result<void> write_hugging_face(Storage& storage, const ModelSource& source,
                                const std::string& folder, const HuggingFaceOptions& options) {
  const ModelShape& model = source.model;
  if (model.family == ModelFamily::kGpt2 &&
      std::int64_t{model.heads} * model.head_width != model.width) {
    return invalid(
        fmt::format("Hugging Face's GPT-2 has heads as wide as the model: {} x {} is not {}",
                    model.heads, model.head_width, model.width));
  }
  const std::string dtype = options.dtype.empty() ? source.copy_dtype() : options.dtype;
  const auto type = type_of_dtype(dtype);
  if (!type) return invalid(fmt::format("`{}` is not float32, bfloat16 or float16", dtype));
  LH_ASSIGN(const EntryKind kind, storage.kind(folder + "/config.json"));
  if (kind != EntryKind::kAbsent) {
    return invalid(fmt::format("{} has a config.json already", folder), "give another folder");
  }
  LH_TRY(make_folders(storage, folder));
  std::string source_config;
  bool has_generation_config = false;
  if (!source.companions.empty()) {
    const std::string path = source.companions + "/config.json";
    LH_ASSIGN(const EntryKind config_kind, storage.kind(path));
    if (config_kind == EntryKind::kFile) {
      LH_ASSIGN(source_config, read_text(storage, path, kHuggingFaceConfigBytesMax));
    }
    LH_TRY(copy_companions(storage, source.companions, folder, false));
    LH_ASSIGN(const EntryKind generation_kind,
              storage.kind(source.companions + "/generation_config.json"));
    has_generation_config = generation_kind == EntryKind::kFile;
  }
  LH_TRY(write_weights(storage, source, folder, *type, options.shard_bytes));
  if (!has_generation_config) {
    LH_TRY(write_file(storage, folder + "/generation_config.json",
                      hugging_face_generation_config(model)));
  }
  return write_file(storage, folder + "/config.json",
                    hugging_face_config(model, dtype, source_config));
}

}  // namespace longhaul
