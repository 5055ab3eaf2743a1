#include "tools/model_tokenizer.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul {
namespace {

constexpr std::int64_t kByteVocabulary = 256;
constexpr std::int64_t kGpt2Vocabulary = 50257;

/// Vocabularies are often padded to the next multiple of 128.
bool is_padded(std::int64_t vocabulary, std::int64_t from) {
  return vocabulary >= from && vocabulary < from + 128;
}

Result<std::unique_ptr<Tokenizer>> load_gpt2(Storage& storage, const TokenizerChoice& choice) {
  if (!choice.tables.empty()) return load_gpt2_tokenizer(storage, choice.tables);
  for (const std::string& folder : {choice.model, std::string("build/gpt2")}) {
    for (const char* name : {"vocab.json", "encoder.json"}) {
      LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, name)));
      if (kind == EntryKind::kFile) return load_gpt2_tokenizer(storage, folder);
    }
  }
  return invalid("GPT-2's tokenizer needs its tables",
                 "--tables FOLDER with vocab.json and merges.txt (or encoder.json and vocab.bpe); "
                 "tools/setup puts them into build/gpt2 where it can");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> choose_tokenizer(Storage& storage,
                                                    const TokenizerChoice& choice) {
  const std::int64_t vocabulary = choice.vocabulary;
  std::string name = choice.name;
  if (name.empty()) {
    if (is_padded(vocabulary, kByteVocabulary)) name = "bytes";
    if (is_padded(vocabulary, kGpt2Vocabulary)) name = "gpt2";
    if (name.empty()) {
      return invalid(fmt::format("a vocabulary of {} does not tell the tokenizer", vocabulary),
                     "--tokenizer bytes or --tokenizer gpt2");
    }
  }
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  if (name == "gpt2") {
    LH_ASSIGN(tokenizer, load_gpt2(storage, choice));
  }
  if (tokenizer->vocabulary() > vocabulary) {
    return invalid(fmt::format("the tokenizer {} has {} tokens, the model only {}",
                               tokenizer->name(), tokenizer->vocabulary(), vocabulary));
  }
  return tokenizer;
}

}  // namespace longhaul
