// The tokenizer of a trained model, for the commands that use one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "executor/data/tokenizer.h"
#include "executor/storage/storage.h"

namespace longhaul {

struct TokenizerChoice {
  std::string name;             // bytes or gpt2; empty: the vocabulary tells
  std::string tables;           // folder with GPT-2's; empty: looked for in `model` and build/gpt2
  std::string model;            // folder of the model
  std::int64_t vocabulary = 0;  // of the model
};
Result<std::unique_ptr<Tokenizer>> choose_tokenizer(Storage& storage,
                                                    const TokenizerChoice& choice);

}  // namespace longhaul
