// Text to token ids and back: plain bytes (vocabulary 256) and GPT-2's byte-pair encoding.
//
// Both take any bytes, broken UTF-8 included, and decoding what was encoded gives them back
// exactly. No text is special: `<|endoftext|>` inside it is encoded like any other. An encoder
// keeps a cache of words: one thread at a time; make one for each thread.
//
// GPT-2's tables are two files, as Hugging Face folders have them (or as OpenAI called them):
//   vocab.json (encoder.json)  {"token": id, ...}, ids 0 .. V-1 each once, all 256 bytes among them
//   merges.txt (vocab.bpe)     `#version: ...`, then a pair a line, `Ġ t`, the first merged first
// In both, a byte is written as a printable character: 188 as themselves, the other 68, in order,
// as U+0100 + n (space is Ġ, newline Ċ).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/data/token_shard.h"
#include "executor/storage/storage.h"

namespace longhaul {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// `bytes` or `gpt2`.
  virtual std::string_view name() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  /// The id that stands between documents; none for bytes.
  virtual std::optional<Token> end_of_text() const = 0;

  enum class Rest { kNone, kFollows };
  /// Appends the tokens of `text` and answers how many of its bytes they cover. When the rest of
  /// the text follows later, the last bytes may be left for then, so that the tokens do not depend
  /// on where the text was cut: call again with those bytes and more. Something is always taken
  /// from 2 MiB.
  virtual std::size_t encode(std::string_view text, Rest rest, std::vector<Token>& out) = 0;
  std::vector<Token> encode(std::string_view text);

  /// kInvalid for an id outside the vocabulary.
  Result<std::string> decode(std::span<const Token> tokens) const;

 private:
  /// The bytes of an id that is in the vocabulary.
  virtual std::string_view bytes_of(Token token) const = 0;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// Reads the tables from a folder, under either pair of names.
Result<std::unique_ptr<Tokenizer>> load_gpt2_tokenizer(Storage& storage, const std::string& folder);

struct BpeTables {
  std::string_view vocabulary;  // the texts of the two files
  std::string_view merges;
  std::string vocabulary_file;  // their names in messages
  std::string merges_file;
};
/// Errors (kInvalid, with file and line): tables that are not of the form above, merges whose parts
/// or result are unknown or come out of order. Tables up to 2^20 ids.
Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const BpeTables& tables);

}  // namespace longhaul
