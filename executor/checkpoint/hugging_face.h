// Checkpoints as Hugging Face folders, both ways. GPT-2 only: a Llama model is refused, with that
// reason. Calls block; not thread-safe.
//
// Written: model.safetensors (keys `transformer.h.0...`, Conv1D layout [in, out], F32, a tied head
// left out), generation_config.json, and config.json last, so that a folder with a config is whole.
// Tokeniser files are not ours to write. Read: model.safetensors or the shards of
// model.safetensors.index.json, keys with and without `transformer.`, F32, F16 and BF16; the
// attention mask buffers (`attn.bias`, `attn.masked_bias`) of old files are skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/layer_files.h"
#include "executor/checkpoint/manifest.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Gathers the weights of a checkpoint into `folder`, which must not have a config.json yet. All
/// weight files must be in `checkpoint_folder`; each is verified as it is read.
Result<void> write_hugging_face(Storage& storage, const CheckpointManifest& manifest,
                                const std::string& checkpoint_folder, const std::string& folder);

struct HuggingFaceImport {
  ModelShape model;
  std::vector<CheckpointFile> files;  // in model order, as a manifest has them
  std::vector<std::string> notes;     // what was left out or changed, one sentence each
};
/// Turns a folder into the files of a checkpoint, with an optimiser state of zeros: a run that
/// starts from it takes its first AdamW step there.
Result<HuggingFaceImport> read_hugging_face(Storage& storage, const std::string& folder,
                                            const std::string& checkpoint_folder);

// ---- the JSON files

std::string hugging_face_config(const ModelShape& model);
std::string hugging_face_generation_config(const ModelShape& model);

struct HuggingFaceConfig {
  ModelShape model;
  std::vector<std::string> notes;
};
/// Refuses what our GPT-2 does not compute: another activation, norm epsilon or attention scale.
Result<HuggingFaceConfig> parse_hugging_face_config(std::string_view text, const std::string& path);
/// File names of model.safetensors.index.json, each once, in byte order.
Result<std::vector<std::string>> parse_hugging_face_index(std::string_view text,
                                                          const std::string& path);

}  // namespace longhaul
