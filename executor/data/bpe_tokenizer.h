// A byte-level byte-pair encoding as a Tokenizer: what its readers (gpt2_tables.cc,
// tokenizer_json.cc) put together.
//
// A text goes through, in this order: raw added tokens are taken out; NFC, if it is asked for; the
// added tokens that are looked for behind it; a space in front, if it is asked for; the splitters,
// each inside the pieces of the one before; the merges, inside the last pieces.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "executor/data/added_tokens.h"
#include "executor/data/bpe_model.h"
#include "executor/data/splitter.h"
#include "executor/data/tokenizer.h"

namespace longhaul {

struct BpeParts {
  std::string name;
  std::uint64_t fingerprint = 0;
  std::vector<std::string> files;
  BpeModel model;
  std::optional<Token> end_of_text;
  AddedTokens raw_tokens;
  AddedTokens normalised_tokens;
  bool nfc = false;
  bool prefix_space = false;
};

/// Makes the model's tables: tokens as files write them, in GPT-2's characters.
class BpeBuilder {
 public:
  /// Ids are below `vocabulary`; at most so many merges.
  BpeBuilder(std::size_t vocabulary, std::size_t merges);

  /// These answer what is wrong, or nothing. A token without an equivalent in bytes (`lenient`)
  /// stands for its own text.
  std::string add_token(const std::string& text, Token id, bool lenient);
  std::string_view add_merge(const std::string& left, const std::string& right);
  /// Call last.
  std::string finish(bool ignore_merges);

  std::optional<Token> find(const std::string& text) const;
  BpeModel& model() { return model_; }

 private:
  BpeModel model_;
  std::unordered_map<std::string, Token> ids_;  // by the text in the file
  std::uint32_t rank_ = 0;
};

/// At least one splitter.
std::unique_ptr<Tokenizer> make_tokenizer(BpeParts parts,
                                          std::vector<std::unique_ptr<Splitter>> splitters);

inline constexpr std::uint64_t kTokenizerBytesMax = std::uint64_t{256} << 20;

}  // namespace longhaul
