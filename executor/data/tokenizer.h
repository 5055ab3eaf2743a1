// Text to token ids and back: plain bytes (vocabulary 256), GPT-2's tables, and the byte-level
// byte-pair encodings that Hugging Face's tokenizer.json describes (tokenizer_json.h).
//
// All take any bytes, broken UTF-8 included, and decoding what was encoded gives them back exactly,
// unless the tokenizer itself changes texts (NFC, add_prefix_space). Texts that stand for a token
// (`<|endoftext|>`) become that token with a tokenizer.json, as with Hugging Face's library, and
// are text like any other with GPT-2's tables. Nothing is added before or after
// (`add_special_tokens` is false, in Hugging Face's words). An encoder keeps a cache of words: one
// thread at a time; clone it for others.
//
// GPT-2's tables are two files, as Hugging Face folders have them (or as OpenAI called them):
//   vocab.json (encoder.json)  {"token": id, ...}, ids 0 .. V-1 each once, all 256 bytes among them
//   merges.txt (vocab.bpe)     `#version: ...`, then a pair a line, `Ġ t`, the first merged first
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

/// Where a text stands in its document.
struct TextPart {
  bool starts = true;                         // the document starts with it
  bool ends = true;                           // nothing follows
  std::size_t stop = std::string_view::npos;  // pieces from here on are left alone
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// `bytes`, `gpt2`, or `tokenizer.json`.
  virtual std::string_view name() const = 0;
  /// Ids are below this.
  virtual std::int64_t vocabulary() const = 0;
  /// The id that stands between documents; none for bytes, and where none is known.
  virtual std::optional<Token> end_of_text() const = 0;
  /// Of the tables: equal for tokenizers that are equal. 0 for bytes.
  virtual std::uint64_t fingerprint() const { return 0; }
  /// The files that it was read from, if it was: a folder with copies of them is a tokenizer, too.
  virtual std::vector<std::string> files() const { return {}; }
  /// For another thread. The tables are shared.
  virtual std::unique_ptr<Tokenizer> clone() const = 0;

  /// Appends the tokens of `text` and answers how many of its bytes they cover: up to the end of
  /// the piece in which `stop` is reached. Unless the part ends its document, the last bytes may be
  /// left for later, so that the tokens do not depend on where the text was cut: call again with
  /// those bytes and more. Something is always taken from 2 MiB. Calls that begin where another
  /// ended (and no other place in the document) give the same tokens.
  virtual std::size_t encode(std::string_view text, const TextPart& part,
                             std::vector<Token>& out) = 0;
  std::vector<Token> encode(std::string_view text);

  /// kInvalid for an id outside the vocabulary.
  Result<std::string> decode(std::span<const Token> tokens) const;

 private:
  /// The bytes of an id that is in the vocabulary; none for a hole in it.
  virtual std::string_view bytes_of(Token token) const = 0;
};

std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// A tokenizer by what a user says: `bytes`; `gpt2` (its tables in build/gpt2, where tools/setup
/// puts them); a tokenizer.json; or a folder with one, or with GPT-2's tables, such as a Hugging
/// Face model or what `data prepare` wrote.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(Storage& storage, const std::string& what);

/// Reads the tables from a folder, under either pair of names.
Result<std::unique_ptr<Tokenizer>> load_gpt2_tokenizer(Storage& storage, const std::string& folder);

struct BpeTables {
  std::string_view vocabulary;  // the texts of the two files
  std::string_view merges;
  std::string vocabulary_file;  // their names in messages
  std::string merges_file;
};
/// Errors (kInvalid, with file and line): tables that are not of the form above, merges whose parts
/// or result are unknown. Tables up to 2^20 ids.
Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const BpeTables& tables);

}  // namespace longhaul
