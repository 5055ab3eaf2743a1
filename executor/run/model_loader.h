// A whole trained model in memory, from wherever its weights are. Calls block; one thread.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "executor/storage/storage.h"
#include "kernels/model_stage.h"

namespace longhaul {

/// A whole model with its weights, and what a person should hear about them.
struct LoadedModel {
  ModelStage stage;
  std::string source;              // the folder that the weights come from
  std::vector<std::string> notes;  // one sentence each
};

/// `folder` is a run folder (the newest checkpoint that is whole; newer ones that are damaged
/// become notes), the folder of one checkpoint, or a Hugging Face GPT-2 folder. The latter is
/// turned into a checkpoint in `scratch`, an empty or absent folder, which is removed again.
/// Every file is held to its hash. Errors: kInvalid when the folder is none of the three.
Result<LoadedModel> load_model(Storage& storage, const std::string& folder,
                               const std::string& scratch);

}  // namespace longhaul
