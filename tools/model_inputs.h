// What commands that use a trained model have in common: the model and its tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "executor/data/tokenizer.h"
#include "executor/run/model_loader.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// load_model with a scratch folder of its own.
Result<LoadedModel> load_model_here(Storage& storage, const std::string& folder);

struct TokenizerChoice {
  /// As load_tokenizer takes it; empty: what is beside the model, else the vocabulary tells.
  std::string name;
  std::string tables;           // folder with GPT-2's; empty: looked for in `model` and build/gpt2
  std::string model;            // folder of the model
  std::int64_t vocabulary = 0;  // of the model
};
Result<std::unique_ptr<Tokenizer>> choose_tokenizer(Storage& storage,
                                                    const TokenizerChoice& choice);

}  // namespace longhaul
