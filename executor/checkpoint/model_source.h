// A model's weights wherever they lie: a run, a checkpoint, a Hugging Face folder or a file of
// llm.c. Whoever needs them asks by the names of kernels/model_stage.h and gets floats, so that
// every format is written once and read once. Calls block; not thread-safe. A source must not
// outlive its Storage.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/layer_files.h"
#include "executor/checkpoint/manifest.h"
#include "executor/storage/storage.h"

namespace longhaul {

struct ModelSource {
  std::string kind;  // "a checkpoint"
  std::string path;  // of the folder or file that has the weights
  ModelShape model;
  std::string dtype = "float32";  // of the stored weights, Hugging Face's word
  std::string copied_as = {};     // dtype of a copy where that is another one
  std::vector<std::pair<std::string, std::uint64_t>> files;  // that hold weights: name, bytes
  std::string companions = {};                               // folder of those; empty: none
  std::vector<std::string> notes = {};                       // what a person should hear
  /// All elements of a tensor of the model, row-major.
  std::function<Result<std::vector<float>>(const PartTensor&)> read = {};

  const std::string& copy_dtype() const { return copied_as.empty() ? dtype : copied_as; }
};

/// `path` is a run (its newest checkpoint that is whole; newer ones that are not become notes), the
/// folder of a checkpoint, a Hugging Face folder or a model of llm.c. What can be checked without
/// reading the weights is. Error (kInvalid): it is none of these, or not whole.
Result<ModelSource> open_model_source(Storage& storage, const std::string& path);

/// The weights of a checkpoint in `folder`, which must have them all; each file is held to its hash
/// when it is first read.
Result<ModelSource> open_checkpoint(Storage& storage, const std::string& folder,
                                    const CheckpointManifest& manifest);

/// Makes a source give the model of a job: the same in all but the context, which may be less. Of
/// GPT-2's position table the rows beyond it are cut, with a note; Llama has none. Error
/// (kInvalid): another model; `wanted_by` names who wants it.
Result<void> fit_source(ModelSource& source, const ModelShape& wanted,
                        const std::string& wanted_by);

/// Writes the files of a checkpoint, with an optimiser state of zeros: a run that starts from them
/// takes its first AdamW step there. In model order, as a manifest has them.
Result<std::vector<CheckpointFile>> import_model(Storage& storage, const ModelSource& source,
                                                 const std::string& checkpoint_folder);
/// The same with a manifest (step 0) and the companions, so that the folder is a checkpoint by
/// itself. It must not hold a manifest yet.
Result<void> import_checkpoint(Storage& storage, const ModelSource& source,
                               const std::string& folder);

}  // namespace longhaul
