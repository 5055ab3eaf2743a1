// What commands that use a trained model have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/data/tokenizer.h"
#include "executor/run/model_loader.h"
#include "executor/storage/storage.h"

namespace CLI {
class App;
}

namespace longhaul {

struct TokenizerChoice {
  std::string name;    // as load_tokenizer takes it; empty: found
  std::string tables;  // folder with GPT-2's
  /// Where a tokenizer is looked for, the first that has one; else the vocabulary tells.
  std::vector<std::string> folders;
  std::int64_t vocabulary = 0;  // of the model
};
/// Errors (kInvalid): none is named or found, or it has ids that the model has not.
Result<std::unique_ptr<Tokenizer>> choose_tokenizer(Storage& storage,
                                                    const TokenizerChoice& choice);

/// `--tokenizer`, of which `help` says what is taken without it, and `--tables`.
void add_tokenizer_options(CLI::App& command, TokenizerChoice& choice, const std::string& help);

/// `--precision` fp32 or bf16.
void add_precision_option(CLI::App& command, Precision& precision);

/// `--threads`, which the caller hands to set_operation_threads. All cores unless said.
void add_threads_option(CLI::App& command, int& threads);

/// The folders in which the tokenizer of a model may be: what came with its weights, its own, and
/// the data that its run was trained on.
Result<std::vector<std::string>> tokenizer_folders(Storage& storage, const LoadedModel& model,
                                                   const std::string& path);

}  // namespace longhaul
