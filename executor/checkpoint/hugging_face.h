// Models as Hugging Face folders, both ways: GPT-2 and Llama. Calls block; not thread-safe.
//
// Written: the companions of the source (companion_files.h), model.safetensors, or shards
// `model-00001-of-00003.safetensors` and model.safetensors.index.json where that would be larger
// than a shard may be, generation_config.json unless the source had one, and config.json last, so
// that a folder with a config is whole. Keys are those that transformers writes: GPT-2's with
// `transformer.`, in Conv1D's layout [in, out]; a tied head is left out.
// Read: model.safetensors or the shards of its index; keys with and without `transformer.` or
// `model.`; F32, F16 and BF16. Buffers of old files (`attn.bias`, `attn.masked_bias`,
// `rotary_emb.inv_freq`) are skipped. See core/hugging_face_config.h for the config.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/model_source.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Every tensor is checked, and none is read yet. Errors (kInvalid) name the tensor that is
/// missing, has another shape or type, or has no place in the model.
Result<ModelSource> open_hugging_face(Storage& storage, const std::string& folder);

struct HuggingFaceOptions {
  std::string dtype = {};                     // empty: the source's
  std::uint64_t shard_bytes = 5'000'000'000;  // of tensors in a file, unless one alone has more
};
/// `folder` must not have a config.json yet.
Result<void> write_hugging_face(Storage& storage, const ModelSource& source,
                                const std::string& folder, const HuggingFaceOptions& options = {});

// ---- the JSON files

/// The config.json of a model. `source` is the one that its weights came with, or empty: where it
/// is of the same model all that it says stays, but for the dtype, the class and a GPT-2's
/// positions. Else one is made, with GPT-2's end-of-text token where the vocabulary has it.
std::string hugging_face_config(const ModelShape& model, const std::string& dtype,
                                const std::string& source = "");
std::string hugging_face_generation_config(const ModelShape& model);

/// File names of model.safetensors.index.json, each once, in byte order.
Result<std::vector<std::string>> parse_hugging_face_index(std::string_view text,
                                                          const std::string& path);
struct IndexEntry {
  std::string tensor;
  std::string file;
};
std::string hugging_face_index(const std::vector<IndexEntry>& entries, std::uint64_t total_bytes);

}  // namespace longhaul
