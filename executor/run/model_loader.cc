#include "executor/run/model_loader.h"

#include <fmt/core.h>

#include <optional>
#include <span>
#include <utility>

#include "core/config_errors.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/manifest.h"
#include "executor/run/file_transfer.h"
#include "executor/run/stage_state.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kManifestBytesMax = std::uint64_t{16} << 20;

/// Each file is checked against its hash as it is read.
Result<ModelStage> read_weights(Storage& storage, const std::string& folder,
                                const ModelShape& model, std::span<const CheckpointFile> files) {
  // A shape that the files cannot fill must not be given memory.
  for (const CheckpointPart part : parts_of(model)) {
    std::uint64_t bytes = 0;
    for (const PartTensor& tensor : tensors_of(model, part)) bytes += 4 * tensor.elements();
    LH_ASSIGN(const CheckpointFile file, file_named(files, weights_file_name(part)));
    if (file.bytes < bytes) {
      return invalid(fmt::format("{}/{} has {} bytes, and its model needs {}", folder, file.name,
                                 file.bytes, bytes));
    }
  }
  const ModelSlice everything = {0, model.layers, true, true};
  LH_ASSIGN(StageState state, StageState::create(model, everything));
  LH_TRY(state.read(storage, folder, files));
  return std::move(state.stage());
}

Result<LoadedModel> load_run(Storage& storage, const std::string& folder) {
  const std::string root = checkpoints_root(folder);
  std::optional<ModelStage> stage;
  const auto accept = [&](const CheckpointManifest& manifest,
                          const std::string& at) -> Result<void> {
    LH_ASSIGN(stage, read_weights(storage, at, manifest.model, manifest.contents()));
    return {};
  };
  LH_ASSIGN(CheckpointSearch search, find_newest_checkpoint(storage, root, accept));
  if (!search.newest) {
    if (!search.refused.empty()) return std::unexpected(std::move(search.refused.front()));
    return invalid(fmt::format("there is no checkpoint in {}", root),
                   "a run writes its first one after `checkpoints: {every: N}` steps of its job, "
                   "or at its end");
  }
  LoadedModel model = {*std::move(stage), root + "/" + folder_name(search.newest->id), {}};
  for (const Error& error : search.refused) {
    const std::string where = error.place.file.empty() ? "" : error.place.text() + ": ";
    model.notes.push_back(
        fmt::format("a newer checkpoint is passed over: {}{}", where, error.message));
  }
  return model;
}

Result<LoadedModel> load_checkpoint(Storage& storage, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  LH_ASSIGN(const std::string text, read_text(storage, path, kManifestBytesMax));
  LH_ASSIGN(const CheckpointManifest manifest, parse_manifest(text, path));
  LH_ASSIGN(ModelStage stage, read_weights(storage, folder, manifest.model, manifest.contents()));
  return LoadedModel{std::move(stage), folder, {}};
}

Result<void> remove_folder(Storage& storage, const std::string& folder) {
  LH_ASSIGN(const EntryKind kind, storage.kind(folder));
  if (kind != EntryKind::kFolder) return {};
  LH_ASSIGN(const std::vector<std::string> names, storage.list(folder));
  for (const std::string& name : names) LH_TRY(storage.remove(folder + "/" + name));
  return storage.remove(folder);
}

Result<LoadedModel> load_hugging_face(Storage& storage, const std::string& folder,
                                      const std::string& scratch) {
  auto model = [&]() -> Result<LoadedModel> {
    LH_ASSIGN(HuggingFaceImport imported, read_hugging_face(storage, folder, scratch));
    LH_ASSIGN(ModelStage stage, read_weights(storage, scratch, imported.model, imported.files));
    return LoadedModel{std::move(stage), folder, std::move(imported.notes)};
  }();
  if (auto removed = remove_folder(storage, scratch); !removed && model) {
    model->notes.push_back(fmt::format("{} stays behind: {}", scratch, removed.error().message));
  }
  return model;
}

}  // namespace

Result<LoadedModel> load_model(Storage& storage, const std::string& folder,
                               const std::string& scratch) {
  const auto kind_of = [&](std::string_view name) {
    return storage.kind(fmt::format("{}/{}", folder, name));
  };
  LH_ASSIGN(const EntryKind kind, storage.kind(folder));
  if (kind != EntryKind::kFolder) {
    return invalid(
        fmt::format("{} {}", folder, kind == EntryKind::kAbsent ? "is not there" : "is no folder"));
  }
  LH_ASSIGN(const EntryKind manifest, kind_of(kManifestName));
  if (manifest == EntryKind::kFile) return load_checkpoint(storage, folder);
  LH_ASSIGN(const EntryKind config, kind_of("config.json"));
  if (config == EntryKind::kFile) return load_hugging_face(storage, folder, scratch);
  LH_ASSIGN(const EntryKind checkpoints, storage.kind(checkpoints_root(folder)));
  LH_ASSIGN(const EntryKind job, kind_of("job.yaml"));
  if (checkpoints == EntryKind::kFolder || job == EntryKind::kFile) {
    return load_run(storage, folder);
  }
  return invalid(fmt::format("{} holds no model", folder),
                 "give the folder of a run (runs/NAME), of one checkpoint (with manifest.yaml), or "
                 "a Hugging Face GPT-2 folder (with config.json)");
}

}  // namespace longhaul
