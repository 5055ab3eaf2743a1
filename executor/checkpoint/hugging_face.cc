#include "executor/checkpoint/hugging_face.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "executor/checkpoint/safetensors.h"

namespace longhaul {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // copied or converted at a time
constexpr std::uint64_t kConfigBytesMax = 1 << 20;
constexpr std::uint64_t kIndexBytesMax = 64 << 20;
constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHeadName = "lm_head.weight";

std::unexpected<Error> bad_file(const std::string& path, std::string message,
                                std::string hint = "") {
  return std::unexpected(
      Error{ErrorCode::kInvalid, std::move(message), std::move(hint), {.file = path}, "", {}});
}

/// A tensor's key in the written folder.
std::string exported_name(const std::string& name) {
  return name == kHeadName ? name : std::string(kPrefix) + name;
}

// ---- writing

/// Where a tensor of the written file comes from.
struct Origin {
  std::string file;
  std::string name;
};

Result<void> copy_tensor(SafetensorsReader& reader, const StoredTensor& tensor,
                         SafetensorsWriter& writer) {
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, tensor.bytes())));
  for (std::uint64_t offset = 0; offset < tensor.bytes(); offset += piece.size()) {
    piece.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, tensor.bytes() - offset)));
    LH_TRY(reader.read(tensor, offset, piece));
    LH_TRY(writer.append(piece));
  }
  return {};
}

Result<void> write_model(Storage& storage, const CheckpointManifest& manifest,
                         const std::string& checkpoint_folder, const std::string& folder) {
  std::vector<StoredTensor> tensors;
  std::map<std::string, Origin> origins;
  for (const CheckpointPart part : parts_of(manifest.model)) {
    for (PartTensor& tensor : tensors_of(manifest.model, part)) {
      StoredTensor stored;
      stored.name = exported_name(tensor.name);
      stored.shape = std::move(tensor.shape);
      origins[stored.name] = {weights_file_name(part), tensor.name};
      tensors.push_back(std::move(stored));
    }
  }
  LH_ASSIGN(auto writer,
            SafetensorsWriter::create(storage, folder + "/model.safetensors", std::move(tensors)));
  const std::vector<CheckpointFile> contents = manifest.contents();
  std::string opened;  // names sort by layer, so each layer's file is opened once
  std::optional<SafetensorsReader> reader;
  for (const StoredTensor& tensor : writer.tensors()) {
    const Origin& origin = origins[tensor.name];
    if (opened != origin.file) {
      LH_ASSIGN(const CheckpointFile file, file_named(contents, origin.file));
      LH_TRY(verify_file(storage, checkpoint_folder, file));
      auto next = SafetensorsReader::open(storage, checkpoint_folder + "/" + origin.file);
      if (!next) return std::unexpected(std::move(next).error());
      reader.emplace(std::move(*next));
      opened = origin.file;
    }
    LH_ASSIGN(const StoredTensor* const from,
              reader->need(origin.name, TensorType::kF32, tensor.shape));
    LH_TRY(copy_tensor(*reader, *from, writer));
  }
  LH_TRY(writer.commit());
  return {};
}

// ---- reading

float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero, or mantissa x 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

Result<void> read_as_float(SafetensorsReader& reader, const StoredTensor& tensor,
                           std::span<float> into) {
  if (tensor.type == TensorType::kF32) return reader.read(tensor, 0, std::as_writable_bytes(into));
  const auto convert = tensor.type == TensorType::kF16 ? float_of_half : float_of_bf16;
  std::vector<std::uint16_t> piece;
  for (std::size_t done = 0; done < into.size(); done += piece.size()) {
    piece.resize(std::min(kPieceBytes / 2, into.size() - done));
    LH_TRY(reader.read(tensor, done * 2, std::as_writable_bytes(std::span(piece))));
    std::transform(piece.begin(), piece.end(), into.begin() + static_cast<std::ptrdiff_t>(done),
                   convert);
  }
  return {};
}

/// The tensors of a folder, one file or several.
class Folder {
 public:
  static Result<Folder> open(Storage& storage, const std::string& path) {
    const std::string single = path + "/model.safetensors";
    const std::string index = single + ".index.json";
    std::vector<std::string> names = {"model.safetensors"};
    LH_ASSIGN(const EntryKind kind, storage.kind(single));
    if (kind == EntryKind::kAbsent) {
      LH_ASSIGN(const EntryKind index_kind, storage.kind(index));
      if (index_kind == EntryKind::kAbsent) {
        return bad_file(path, "the folder has neither model.safetensors nor its index",
                        "convert pytorch_model.bin with save_pretrained(safe_serialization=True)");
      }
      LH_ASSIGN(const std::string text, read_text(storage, index, kIndexBytesMax));
      LH_ASSIGN(names, parse_hugging_face_index(text, index));
    }
    Folder folder;
    for (const std::string& name : names) {
      LH_ASSIGN(auto reader, SafetensorsReader::open(storage, path + "/" + name));
      folder.readers_.push_back(std::move(reader));
      for (const StoredTensor& tensor : folder.readers_.back().tensors()) {
        std::string_view key = tensor.name;
        if (key.starts_with(kPrefix)) key.remove_prefix(kPrefix.size());
        const Place place = {folder.readers_.size() - 1, &tensor};
        if (!folder.places_.emplace(key, place).second) {
          return bad_file(path + "/" + name,
                          fmt::format("tensor {} is in the folder twice", shown_name(tensor.name)));
        }
      }
    }
    return folder;
  }

  /// Checks that the tensor is there, with this shape and a floating-point type; reads nothing.
  Result<void> check(const std::string& folder, const PartTensor& wanted) const {
    const auto at = places_.find(wanted.name);
    if (at == places_.end()) {
      return bad_file(folder, fmt::format("tensor {} is missing", shown_name(wanted.name)));
    }
    const StoredTensor& tensor = *at->second.tensor;
    const std::string& file = readers_[at->second.reader].path();
    if (tensor.shape != wanted.shape) {
      const bool transposed = std::equal(tensor.shape.begin(), tensor.shape.end(),
                                         wanted.shape.rbegin(), wanted.shape.rend());
      return bad_file(
          file,
          fmt::format("tensor {} is {}, and its config wants {}", shown_name(tensor.name),
                      shape_text(tensor.shape), shape_text(wanted.shape)),
          transposed ? "GPT-2's matrices are stored as Conv1D, [in, out]" : "");
    }
    if (tensor.type != TensorType::kF32 && tensor.type != TensorType::kF16 &&
        tensor.type != TensorType::kBf16) {
      return bad_file(file, fmt::format("tensor {} is {}, not F32, F16 or BF16",
                                        shown_name(tensor.name), name_of(tensor.type)));
    }
    return {};
  }

  Result<std::vector<float>> read(const PartTensor& wanted) {
    const auto [reader, tensor] = places_.at(wanted.name);
    std::vector<float> values(static_cast<std::size_t>(wanted.elements()));
    LH_TRY(read_as_float(readers_[reader], *tensor, values));
    return values;
  }

  /// Marks a tensor as known.
  void take(const std::string& name) { taken_.insert(name); }
  /// A tensor that nobody took, and that is no mask buffer; null when there is none.
  const StoredTensor* stranger() const {
    for (const auto& [name, place] : places_) {
      const bool mask = name.starts_with("h.") &&
                        (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
      if (!mask && !taken_.contains(name)) return place.tensor;
    }
    return nullptr;
  }
  bool has(const std::string& name) const { return places_.contains(name); }

 private:
  struct Place {
    std::size_t reader;
    const StoredTensor* tensor;  // of that reader
  };
  std::vector<SafetensorsReader> readers_;
  std::map<std::string, Place, std::less<>> places_;  // by name without prefix
  std::set<std::string, std::less<>> taken_;
};

Result<void> check_folder(const std::string& path, const ModelShape& model, Folder& folder,
                          std::vector<std::string>& notes) {
  for (const CheckpointPart part : parts_of(model)) {
    for (const PartTensor& tensor : tensors_of(model, part)) {
      LH_TRY(folder.check(path, tensor));
      folder.take(tensor.name);
    }
  }
  const std::string head(kHeadName);
  if (model.tied_embedding && folder.has(head)) {
    folder.take(head);
    notes.push_back(fmt::format("`{}` is ignored: the head is tied to the embedding", kHeadName));
  }
  if (const StoredTensor* const stranger = folder.stranger()) {
    return bad_file(path, fmt::format("tensor {} has no place in a GPT-2 of {} layers",
                                      shown_name(stranger->name), model.layers));
  }
  return {};
}

Result<std::vector<CheckpointFile>> import_part(Storage& storage, Folder& from,
                                                const ModelShape& model, CheckpointPart part,
                                                const std::string& checkpoint_folder) {
  const std::vector<PartTensor> tensors = tensors_of(model, part);
  std::vector<std::vector<float>> weights;
  std::size_t largest = 0;
  for (const PartTensor& tensor : tensors) {
    LH_ASSIGN(weights.emplace_back(), from.read(tensor));
    largest = std::max(largest, weights.back().size());
  }
  const std::vector<float> zeros(largest);
  PartState<const float> state;
  for (const std::vector<float>& values : weights) {
    state.weights.emplace_back(values);
    state.m.push_back(std::span(zeros).first(values.size()));
    state.v.push_back(std::span(zeros).first(values.size()));
  }
  return write_part(storage, checkpoint_folder, model, part, state);
}

}  // namespace

Result<void> write_hugging_face(Storage& storage, const CheckpointManifest& manifest,
                                const std::string& checkpoint_folder, const std::string& folder) {
  const ModelShape& model = manifest.model;
  if (model.family != ModelFamily::kGpt2) {
    return invalid("only GPT-2 models can be gathered into a Hugging Face folder");
  }
  if (std::int64_t{model.heads} * model.head_width != model.width) {
    return invalid(
        fmt::format("Hugging Face's GPT-2 has heads as wide as the model: {} x {} is not {}",
                    model.heads, model.head_width, model.width));
  }
  LH_TRY(make_folders(storage, folder));
  LH_ASSIGN(const EntryKind kind, storage.kind(folder + "/config.json"));
  if (kind != EntryKind::kAbsent) {
    return failed(fmt::format("{} has a config.json already", folder), "give another folder");
  }
  LH_TRY(write_model(storage, manifest, checkpoint_folder, folder));
  LH_TRY(write_file(storage, folder + "/generation_config.json",
                    hugging_face_generation_config(model)));
  return write_file(storage, folder + "/config.json", hugging_face_config(model));
}

Result<HuggingFaceImport> read_hugging_face(Storage& storage, const std::string& folder,
                                            const std::string& checkpoint_folder) {
  const std::string config_path = folder + "/config.json";
  LH_ASSIGN(const std::string text, read_text(storage, config_path, kConfigBytesMax));
  LH_ASSIGN(HuggingFaceConfig config, parse_hugging_face_config(text, config_path));
  LH_ASSIGN(Folder from, Folder::open(storage, folder));
  HuggingFaceImport imported;
  imported.model = config.model;
  imported.notes = std::move(config.notes);
  LH_TRY(check_folder(folder, imported.model, from, imported.notes));
  for (const CheckpointPart part : parts_of(imported.model)) {
    LH_ASSIGN(const auto files,
              import_part(storage, from, imported.model, part, checkpoint_folder));
    imported.files.insert(imported.files.end(), files.begin(), files.end());
  }
  return imported;
}

}  // namespace longhaul
