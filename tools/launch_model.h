// The model that a run of `launch` begins with, where that is somebody's, and the one that it
// leaves. Calls block.
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "executor/checkpoint/manifest.h"
#include "executor/checkpoint/model_source.h"
#include "executor/run/run_spec.h"
#include "executor/storage/storage.h"
#include "tools/launch_setup.h"

namespace longhaul {

/// The model at `from`, else that of the folder that the job names, else none: fresh weights. Error
/// (kInvalid): there is none, or it is not the job's.
Result<std::optional<ModelSource>> open_first_model(Storage& storage, const LaunchPlan& plan,
                                                    const std::string& from);
/// Makes it the run's checkpoint of step 0, for workers to resume from. Its term is 0, so that one
/// of step 0 that the run itself may write is another.
Result<ResumePoint> import_first_model(Storage& storage, const ModelSource& source,
                                       const RunSpec& spec, const std::string& run_folder);
/// Keeps config and tokenizer of the model that the run begins with, or else the tokenizer of its
/// data, for whoever gets the finished model.
Result<void> keep_companions(Storage& storage, const std::optional<ModelSource>& source,
                             const std::string& data_folder, const std::string& run_folder);

/// Writes the model of the run's checkpoint as RUN/hugging-face, in place of one that an earlier
/// end has left, and answers that path.
Result<std::string> write_finished_model(Storage& storage, const std::string& run_folder,
                                         CheckpointId checkpoint);

}  // namespace longhaul
