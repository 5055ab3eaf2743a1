// The config.json of a Hugging Face folder: which model it is, in our words. GPT-2 and Llama, and
// Mistral where it is Llama's arithmetic; whatever computes something else is refused by name.
// Both spellings are read: transformers 4 (torch_dtype, rope_theta beside rope_scaling) and 5
// (dtype, rope_parameters).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/result.h"

namespace longhaul {

struct HuggingFaceConfig {
  ModelShape model;                // context: all positions that the model has
  std::string dtype;               // "float32", "bfloat16", "float16"; empty: it does not say
  std::vector<std::string> notes;  // what is ignored, one sentence each
};

/// `path` stands for the text in messages. Stops at the first thing that is wrong.
Result<HuggingFaceConfig> parse_hugging_face_config(std::string_view text, const std::string& path);
/// Of FOLDER/config.json.
Result<HuggingFaceConfig> load_hugging_face_config(const std::string& folder);

inline constexpr std::size_t kHuggingFaceConfigBytesMax = std::size_t{1} << 20;

}  // namespace longhaul
