#include "executor/data/tokenizer.h"

#include <fmt/core.h>

#include <array>

#include "executor/data/dataset.h"
#include "executor/data/tokenizer_json.h"

namespace longhaul {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }

  using Tokenizer::encode;
  std::string_view name() const override { return "bytes"; }
  std::int64_t vocabulary() const override { return 256; }
  std::optional<Token> end_of_text() const override { return std::nullopt; }
  std::unique_ptr<Tokenizer> clone() const override { return make_byte_tokenizer(); }
  std::size_t encode(std::string_view text, const TextPart& part,
                     std::vector<Token>& out) override {
    text = text.substr(0, part.stop);
    const std::size_t old_size = out.size();
    out.resize(old_size + text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      out[old_size + i] = static_cast<unsigned char>(text[i]);
    }
    return text.size();
  }

 private:
  std::string_view bytes_of(Token token) const override {
    return {&bytes_[static_cast<std::size_t>(token)], 1};
  }

  std::array<char, 256> bytes_;
};

constexpr std::string_view kGpt2Tables = "build/gpt2";

}  // namespace

std::vector<Token> Tokenizer::encode(std::string_view text) {
  std::vector<Token> tokens;
  encode(text, {}, tokens);
  return tokens;
}

Result<std::string> Tokenizer::decode(std::span<const Token> tokens) const {
  std::string text;
  for (const Token token : tokens) {
    if (token < 0 || token >= vocabulary()) {
      return invalid(fmt::format("token {} is outside the vocabulary of {}", token, vocabulary()));
    }
    text += bytes_of(token);
  }
  return text;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(Storage& storage, const std::string& what) {
  if (what == "bytes") return make_byte_tokenizer();
  const std::string path = what == "gpt2" ? std::string(kGpt2Tables) : what;
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  if (kind == EntryKind::kFile) return load_json_tokenizer(storage, path);
  if (kind == EntryKind::kAbsent) {
    if (what == "gpt2") {
      return invalid(fmt::format("GPT-2's tables are not in {}", kGpt2Tables),
                     "name a folder with vocab.json and merges.txt, with encoder.json and "
                     "vocab.bpe, or with tokenizer.json; tools/setup fetches the tables where it "
                     "can");
    }
    return invalid(fmt::format("there is no tokenizer {}", what),
                   "bytes, gpt2, a tokenizer.json, or a folder with one (or with GPT-2's "
                   "vocab.json and merges.txt)");
  }
  const std::string json = path + "/tokenizer.json";
  LH_ASSIGN(const EntryKind json_kind, storage.kind(json));
  if (json_kind == EntryKind::kFile) return load_json_tokenizer(storage, json);
  for (const char* name : {"vocab.json", "encoder.json"}) {
    LH_ASSIGN(const EntryKind table, storage.kind(fmt::format("{}/{}", path, name)));
    if (table == EntryKind::kFile) return load_gpt2_tokenizer(storage, path);
  }
  const std::string dataset_file = fmt::format("{}/{}", path, kDatasetFile);
  LH_ASSIGN(const EntryKind dataset_kind, storage.kind(dataset_file));
  if (dataset_kind == EntryKind::kFile) {
    LH_ASSIGN(const Dataset dataset, load_dataset(storage, path));
    if (dataset.tokenizer == "bytes") return make_byte_tokenizer();
  }
  LH_ASSIGN(const EntryKind pieces, storage.kind(path + "/tokenizer.model"));
  if (pieces == EntryKind::kFile) {
    return invalid(fmt::format("{} has a sentencepiece tokenizer.model alone, which is not "
                               "supported",
                               path),
                   "byte-level byte-pair encodings are read (tokenizer.json of GPT-2, Llama 3, "
                   "Qwen)");
  }
  return invalid(fmt::format("there is no tokenizer in {}", path),
                 "a folder with tokenizer.json, or with GPT-2's vocab.json and merges.txt");
}

}  // namespace longhaul
