// What stands beside the weights in a Hugging Face folder and is not ours to change: the
// tokenizer's files, and the configs. A run keeps them in RUN/model-files, an imported checkpoint
// in FOLDER/model-files, so that what is written later has them, too. Calls block.
#pragma once

#include <string>

#include "core/result.h"
#include "executor/storage/storage.h"

namespace longhaul {

inline constexpr const char* kCompanionsFolder = "model-files";

/// FOLDER/model-files where it is there, of a checkpoint's folder also that of its run; else empty.
Result<std::string> companions_of(Storage& storage, const std::string& folder);

/// Copies the tokenizer's files and generation_config.json, and with `config` the config.json, as
/// far as `from` has them, and answers whether a tokenizer was among them. `to` is made when there
/// is something to copy; files of these names that are there already are replaced. GPT-2's
/// encoder.json and vocab.bpe become vocab.json and merges.txt.
Result<bool> copy_companions(Storage& storage, const std::string& from, const std::string& to,
                             bool config);

}  // namespace longhaul
