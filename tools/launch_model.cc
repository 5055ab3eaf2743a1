#include "tools/launch_model.h"

#include <utility>

#include "executor/checkpoint/companion_files.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/run/file_transfer.h"

namespace longhaul {

Result<std::optional<ModelSource>> open_first_model(Storage& storage, const LaunchPlan& plan,
                                                    const std::string& from) {
  const std::string& path = from.empty() ? plan.job.model_from : from;
  if (path.empty()) return std::nullopt;
  Result<ModelSource> source = open_model_source(storage, path);
  if (!source) {
    // Nothing has run yet: also what cannot be read is wrong input.
    source.error().code = ErrorCode::kInvalid;
    return std::unexpected(std::move(source).error());
  }
  LH_TRY(fit_source(*source, plan.job.model, plan.job_path));
  return *std::move(source);
}

Result<ResumePoint> import_first_model(Storage& storage, const ModelSource& source,
                                       const RunSpec& spec, const std::string& run_folder) {
  const std::string root = checkpoints_root(run_folder);
  CheckpointManifest manifest;
  manifest.seed = spec.job.training->seed;
  manifest.job_hash = spec.job.hash;
  manifest.data.batch = static_cast<std::uint64_t>(spec.job.global_batch);
  manifest.model = spec.job.model;
  LH_ASSIGN(const auto files, import_model(storage, source, root + "/" + folder_name(manifest.id)));
  for (const CheckpointFile& file : files) manifest.files.push_back({file, {spec.ranks[0].name}});
  LH_TRY(write_manifest(storage, root, manifest));
  return ResumePoint{manifest.id, files};
}

Result<void> keep_companions(Storage& storage, const std::optional<ModelSource>& source,
                             const std::string& data_folder, const std::string& run_folder) {
  const std::string folder = run_folder + "/" + kCompanionsFolder;
  if (source && !source->companions.empty()) {
    LH_ASSIGN(const bool has_tokenizer, copy_companions(storage, source->companions, folder, true));
    if (has_tokenizer) return {};
  }
  LH_TRY(copy_companions(storage, data_folder, folder, false));
  return {};
}

Result<std::string> write_finished_model(Storage& storage, const std::string& run_folder,
                                         CheckpointId checkpoint) {
  const std::string folder = run_folder + "/hugging-face";
  LH_TRY(storage.remove(folder + "/config.json"));  // from here on it is not whole
  const std::string root = checkpoints_root(run_folder);
  LH_ASSIGN(const CheckpointManifest manifest, read_manifest(storage, root, checkpoint));
  LH_ASSIGN(const ModelSource source,
            open_checkpoint(storage, root + "/" + folder_name(manifest.id), manifest));
  LH_TRY(write_hugging_face(storage, source, folder));
  return folder;
}

}  // namespace longhaul
