#include "executor/checkpoint/model_source.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "core/hugging_face_config.h"
#include "core/model_text.h"
#include "executor/checkpoint/companion_files.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/llmc.h"
#include "executor/checkpoint/manifest.h"
#include "executor/checkpoint/safetensors.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kManifestBytesMax = std::uint64_t{16} << 20;

// ---- checkpoints

/// The weights of a checkpoint, of whose files each is verified before it is first read.
class CheckpointReader {
 public:
  CheckpointReader(Storage& storage, std::string folder, const CheckpointManifest& manifest)
      : storage_(storage), folder_(std::move(folder)), files_(manifest.contents()) {
    for (const CheckpointPart part : parts_of(manifest.model)) {
      for (const PartTensor& tensor : tensors_of(manifest.model, part)) {
        file_of_[tensor.name] = weights_file_name(part);
      }
    }
  }

  Result<std::vector<float>> read(const PartTensor& tensor) {
    const std::string& name = file_of_.at(tensor.name);
    if (opened_ != name) {
      LH_ASSIGN(const CheckpointFile file, file_named(files_, name));
      if (!verified_.contains(name)) LH_TRY(verify_file(storage_, folder_, file));
      verified_.insert(name);
      LH_ASSIGN(SafetensorsReader reader, SafetensorsReader::open(storage_, folder_ + "/" + name));
      reader_.emplace(std::move(reader));
      opened_ = name;
    }
    LH_ASSIGN(const StoredTensor* const stored,
              reader_->need(tensor.name, TensorType::kF32, tensor.shape));
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    LH_TRY(reader_->read(*stored, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }

 private:
  Storage& storage_;
  const std::string folder_;
  const std::vector<CheckpointFile> files_;
  std::map<std::string, std::string> file_of_;  // by tensor
  std::set<std::string> verified_;
  std::string opened_;  // file of reader_
  std::optional<SafetensorsReader> reader_;
};

Result<void> verify_weights(Storage& storage, const std::string& folder,
                            const CheckpointManifest& manifest) {
  const std::vector<CheckpointFile> files = manifest.contents();
  for (const CheckpointPart part : parts_of(manifest.model)) {
    LH_ASSIGN(const CheckpointFile file, file_named(files, weights_file_name(part)));
    LH_TRY(verify_file(storage, folder, file));
  }
  return {};
}

Result<ModelSource> open_manifest(Storage& storage, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  LH_ASSIGN(const std::string text, read_text(storage, path, kManifestBytesMax));
  LH_ASSIGN(const CheckpointManifest manifest, parse_manifest(text, path));
  return open_checkpoint(storage, folder, manifest);
}

Result<ModelSource> open_run(Storage& storage, const std::string& folder) {
  const std::string root = folder + "/checkpoints";
  LH_ASSIGN(const CheckpointSearch found,
            find_newest_checkpoint(storage, root,
                                   [&](const CheckpointManifest& manifest, const std::string& at) {
                                     return verify_weights(storage, at, manifest);
                                   }));
  if (!found.newest) {
    if (!found.refused.empty()) return std::unexpected(found.refused.front());
    return invalid(fmt::format("there is no checkpoint in {}", root),
                   "a run writes its first one after `checkpoints: {every: N}` steps of its job, "
                   "or at its end");
  }
  LH_ASSIGN(ModelSource source,
            open_checkpoint(storage, root + "/" + folder_name(found.newest->id), *found.newest));
  for (const Error& error : found.refused) {
    const std::string where = error.place.file.empty() ? "" : error.place.text() + ": ";
    source.notes.push_back(
        fmt::format("a newer checkpoint is passed over: {}{}", where, error.message));
  }
  return source;
}

Result<std::vector<CheckpointFile>> import_part(Storage& storage, const ModelSource& source,
                                                CheckpointPart part, const std::string& folder) {
  std::vector<std::vector<float>> weights;
  std::size_t largest = 0;
  for (const PartTensor& tensor : tensors_of(source.model, part)) {
    LH_ASSIGN(weights.emplace_back(), source.read(tensor));
    largest = std::max(largest, weights.back().size());
  }
  const std::vector<float> zeros(largest);
  PartState<const float> state;
  for (const std::vector<float>& values : weights) {
    state.weights.emplace_back(values);
    state.m.push_back(std::span(zeros).first(values.size()));
    state.v.push_back(std::span(zeros).first(values.size()));
  }
  return write_part(storage, folder, source.model, part, state);
}

}  // namespace

Result<ModelSource> open_checkpoint(Storage& storage, const std::string& folder,
                                    const CheckpointManifest& manifest) {
  ModelSource source{.kind = "a checkpoint", .path = folder, .model = manifest.model, .files = {}};
  const std::vector<CheckpointFile> files = manifest.contents();
  for (const CheckpointPart part : parts_of(manifest.model)) {
    LH_ASSIGN(const CheckpointFile file, file_named(files, weights_file_name(part)));
    std::uint64_t bytes = 0;  // a shape that the files cannot fill must not be given memory
    for (const PartTensor& tensor : tensors_of(manifest.model, part)) {
      bytes += 4 * tensor.elements();
    }
    if (file.bytes < bytes) {
      return invalid(fmt::format("{}/{} has {} bytes, and its model needs {}", folder, file.name,
                                 file.bytes, bytes));
    }
    source.files.emplace_back(file.name, file.bytes);
  }
  LH_ASSIGN(source.companions, companions_of(storage, folder));
  if (!source.companions.empty()) {
    const std::string path = source.companions + "/config.json";
    LH_ASSIGN(const EntryKind kind, storage.kind(path));
    if (kind == EntryKind::kFile) {
      LH_ASSIGN(const std::string text, read_text(storage, path, kHuggingFaceConfigBytesMax));
      LH_ASSIGN(const HuggingFaceConfig config, parse_hugging_face_config(text, path));
      if (config.dtype != source.dtype) source.copied_as = config.dtype;
    }
  }
  const auto reader =  // owned by the function alone
      std::make_shared<CheckpointReader>(storage, folder, manifest);
  source.read = [reader](const PartTensor& tensor) { return reader->read(tensor); };
  return source;
}

Result<ModelSource> open_model_source(Storage& storage, const std::string& path) {
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind == EntryKind::kAbsent) return invalid(fmt::format("{} is not there", path));
  if (kind == EntryKind::kFile) return open_llmc(storage, path);
  const auto has = [&](std::string_view name, EntryKind wanted) -> Result<bool> {
    LH_ASSIGN(const EntryKind found, storage.kind(fmt::format("{}/{}", path, name)));
    return found == wanted;
  };
  LH_ASSIGN(const bool has_manifest, has(kManifestName, EntryKind::kFile));
  if (has_manifest) return open_manifest(storage, path);
  LH_ASSIGN(const bool has_config, has("config.json", EntryKind::kFile));
  if (has_config) return open_hugging_face(storage, path);
  LH_ASSIGN(const bool has_checkpoints, has("checkpoints", EntryKind::kFolder));
  LH_ASSIGN(const bool has_job, has("job.yaml", EntryKind::kFile));
  if (has_checkpoints || has_job) return open_run(storage, path);
  return invalid(fmt::format("{} holds no model", path),
                 "give a run (runs/NAME), a checkpoint (with manifest.yaml), a Hugging Face folder "
                 "(with config.json), or a model file of llm.c");
}

Result<void> fit_source(ModelSource& source, const ModelShape& wanted,
                        const std::string& wanted_by) {
  const ModelShape& has = source.model;
  std::vector<std::string> differences;
  const auto compare = [&](const char* name, const auto& there, const auto& here) {
    if (there != here) differences.push_back(fmt::format("{} {}, not {}", name, there, here));
  };
  compare("family", name_of(has.family), name_of(wanted.family));
  compare("layers", has.layers, wanted.layers);
  compare("width", has.width, wanted.width);
  compare("heads", has.heads, wanted.heads);
  compare("kv_heads", has.kv_heads, wanted.kv_heads);
  compare("head_width", has.head_width, wanted.head_width);
  compare("ffn_width", has.ffn_width, wanted.ffn_width);
  compare("vocabulary", has.vocabulary, wanted.vocabulary);
  compare("tied_embedding", has.tied_embedding, wanted.tied_embedding);
  compare("norm_epsilon", has.norm_epsilon, wanted.norm_epsilon);
  if (has.family == ModelFamily::kLlama && wanted.family == has.family) {
    compare("rope_theta", has.rope_theta, wanted.rope_theta);
    if (has.rope_scaling != wanted.rope_scaling) differences.emplace_back("another rope_scaling");
  }
  if (wanted.context > has.context) compare("context", has.context, wanted.context);
  if (!differences.empty()) {
    return invalid(fmt::format("{} is another model than that of {}: {}", source.path, wanted_by,
                               fmt::join(differences, "; ")));
  }
  if (has.family == ModelFamily::kGpt2 && wanted.context < has.context) {
    source.notes.push_back(
        fmt::format("the position table is cut from {} rows to the job's context of {}",
                    has.context, wanted.context));
    const auto whole = static_cast<std::uint64_t>(has.context);
    source.read = [whole, read = std::move(source.read)](
                      const PartTensor& tensor) -> Result<std::vector<float>> {
      if (tensor.name != "wpe.weight") return read(tensor);
      LH_ASSIGN(std::vector<float> values, read({tensor.name, {whole, tensor.shape[1]}}));
      values.resize(static_cast<std::size_t>(tensor.elements()));
      return values;
    };
  }
  source.model = wanted;
  return {};
}

Result<std::vector<CheckpointFile>> import_model(Storage& storage, const ModelSource& source,
                                                 const std::string& checkpoint_folder) {
  std::vector<CheckpointFile> all;
  for (const CheckpointPart part : parts_of(source.model)) {
    LH_ASSIGN(const auto files, import_part(storage, source, part, checkpoint_folder));
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

Result<void> import_checkpoint(Storage& storage, const ModelSource& source,
                               const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind != EntryKind::kAbsent) {
    return invalid(fmt::format("{} has a {} already", folder, kManifestName),
                   "give another folder");
  }
  CheckpointManifest manifest;
  manifest.data.batch = 1;  // what a batch is, the first run from here says
  manifest.model = source.model;
  LH_ASSIGN(const auto files, import_model(storage, source, folder));
  for (const CheckpointFile& file : files) manifest.files.push_back({file, {"import"}});
  if (!source.companions.empty()) {
    LH_TRY(copy_companions(storage, source.companions, folder + "/" + kCompanionsFolder, true));
  }
  return write_file(storage, path, manifest_text(manifest));
}

}  // namespace longhaul
