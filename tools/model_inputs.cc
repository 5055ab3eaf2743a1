#include "tools/model_inputs.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "executor/checkpoint/companion_files.h"

namespace longhaul {
namespace {

constexpr std::int64_t kByteVocabulary = 256;
constexpr std::int64_t kGpt2Vocabulary = 50257;

/// Vocabularies are often padded to the next multiple of 128.
bool is_padded(std::int64_t vocabulary, std::int64_t from) {
  return vocabulary >= from && vocabulary < from + 128;
}

/// A folder that goes away with its owner.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make() {
    std::error_code error;
    const auto temporary = std::filesystem::temp_directory_path(error);
    std::string path = (temporary / "longhaul-model-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return failed(fmt::format("cannot make a folder in {}", temporary.string()),
                    "set TMPDIR to a folder with room for the model");
    }
    return ScratchFolder(std::move(path));
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

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

/// The tokenizer that lies in the model's folder, or that its run kept for it; null: there is none.
Result<std::unique_ptr<Tokenizer>> find_beside(Storage& storage, const std::string& model) {
  LH_ASSIGN(const std::string companions, companions_of(storage, model));
  for (const std::string& folder : {model, companions}) {
    if (folder.empty()) continue;
    for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json"}) {
      LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, name)));
      if (kind == EntryKind::kFile) return load_tokenizer(storage, folder);
    }
  }
  return nullptr;
}

Result<std::unique_ptr<Tokenizer>> by_vocabulary(Storage& storage, const TokenizerChoice& choice) {
  if (is_padded(choice.vocabulary, kByteVocabulary)) return make_byte_tokenizer();
  if (is_padded(choice.vocabulary, kGpt2Vocabulary)) return load_gpt2(storage, choice);
  return invalid(fmt::format("a vocabulary of {} does not tell the tokenizer", choice.vocabulary),
                 "--tokenizer bytes, --tokenizer gpt2, or a folder with tokenizer.json");
}

Result<std::unique_ptr<Tokenizer>> any_tokenizer(Storage& storage, const TokenizerChoice& choice) {
  if (choice.name == "gpt2") return load_gpt2(storage, choice);
  if (!choice.name.empty()) return load_tokenizer(storage, choice.name);
  if (choice.tables.empty()) {
    LH_ASSIGN(std::unique_ptr<Tokenizer> beside, find_beside(storage, choice.model));
    if (beside != nullptr) return beside;
  }
  return by_vocabulary(storage, choice);
}

}  // namespace

Result<LoadedModel> load_model_here(Storage& storage, const std::string& folder) {
  LH_ASSIGN(const ScratchFolder scratch, ScratchFolder::make());
  return load_model(storage, folder, scratch.path());
}

Result<std::unique_ptr<Tokenizer>> choose_tokenizer(Storage& storage,
                                                    const TokenizerChoice& choice) {
  LH_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, any_tokenizer(storage, choice));
  if (tokenizer->vocabulary() > choice.vocabulary) {
    return invalid(fmt::format("the tokenizer {} has {} tokens, the model only {}",
                               tokenizer->name(), tokenizer->vocabulary(), choice.vocabulary));
  }
  return tokenizer;
}

}  // namespace longhaul
