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
  std::string source;              // the folder or file that the weights come from
  std::string companions;          // folder with the tokenizer that they came with; may be empty
  std::vector<std::string> notes;  // one sentence each
};

/// Of a run, a checkpoint, a Hugging Face folder or a file of llm.c; errors are those of
/// open_model_source (checkpoint/model_source.h). Weights are fp32; `precision` is what the stage
/// computes in.
Result<LoadedModel> load_model(Storage& storage, const std::string& path,
                               Precision precision = Precision::kFp32);

}  // namespace longhaul
