#include "tools/model_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "executor/data/dataset.h"
#include "tools/run_folder.h"

namespace longhaul {
namespace {

constexpr std::int64_t kByteVocabulary = 256;
constexpr std::int64_t kGpt2Vocabulary = 50257;

/// Vocabularies are often padded to the next multiple of 128.
bool is_padded(std::int64_t vocabulary, std::int64_t from) {
  return vocabulary >= from && vocabulary < from + 128;
}

Result<bool> has_tokenizer(Storage& storage, const std::string& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json"}) {
    LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, name)));
    if (kind == EntryKind::kFile) return true;
  }
  LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, kDatasetFile)));
  if (kind != EntryKind::kFile) return false;
  LH_ASSIGN(const Dataset dataset, load_dataset(storage, folder));
  return dataset.tokenizer == "bytes";
}

Result<std::unique_ptr<Tokenizer>> find_tokenizer(Storage& storage, const TokenizerChoice& choice) {
  if (!choice.tables.empty()) return load_gpt2_tokenizer(storage, choice.tables);
  if (!choice.name.empty()) return load_tokenizer(storage, choice.name);
  for (const std::string& folder : choice.folders) {
    LH_ASSIGN(const bool has, has_tokenizer(storage, folder));
    if (has) return load_tokenizer(storage, folder);
  }
  if (is_padded(choice.vocabulary, kByteVocabulary)) return make_byte_tokenizer();
  if (is_padded(choice.vocabulary, kGpt2Vocabulary)) return load_tokenizer(storage, "gpt2");
  return invalid(fmt::format("a vocabulary of {} does not tell the tokenizer", choice.vocabulary),
                 "--tokenizer bytes, gpt2, a tokenizer.json, or a folder with one");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> choose_tokenizer(Storage& storage,
                                                    const TokenizerChoice& choice) {
  LH_ASSIGN(auto tokenizer, find_tokenizer(storage, choice));
  if (tokenizer->vocabulary() <= choice.vocabulary) return tokenizer;
  return invalid(fmt::format("the tokenizer {} has {} tokens, the model only {}", tokenizer->name(),
                             tokenizer->vocabulary(), choice.vocabulary));
}

void add_tokenizer_options(CLI::App& command, TokenizerChoice& choice, const std::string& help) {
  command.add_option("--tokenizer", choice.name, help);
  command.add_option("--tables", choice.tables, "folder with GPT-2's vocabulary and merges");
}

void add_precision_option(CLI::App& command, Precision& precision) {
  const std::map<std::string, Precision> words = {{"fp32", Precision::kFp32},
                                                  {"bf16", Precision::kBf16}};
  command.add_option("--precision", precision, "to compute in: fp32 or bf16 (default: fp32)")
      ->transform(CLI::CheckedTransformer(words).description(""));
}

void add_threads_option(CLI::App& command, int& threads) {
  threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 64);
  command.add_option("--threads", threads, "to compute with; changes no result")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

Result<std::vector<std::string>> tokenizer_folders(Storage& storage, const LoadedModel& model,
                                                   const std::string& path) {
  std::vector<std::string> folders;
  if (!model.companions.empty()) folders.push_back(model.companions);
  folders.push_back(path);
  LH_ASSIGN(std::optional<std::string> data, data_of_run(storage, path));
  if (data) folders.push_back(*std::move(data));
  return folders;
}

}  // namespace longhaul
