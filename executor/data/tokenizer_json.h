// Reads Hugging Face's tokenizer.json where it describes a byte-level byte-pair encoding:
//
//   model           type BPE; vocab, merges (texts `a b` or pairs), ignore_merges; no prefix or
//                   suffix of words, no dropout; all 256 bytes among the tokens
//   pre_tokenizer   ByteLevel (add_prefix_space, use_regex), alone or as the last of a Sequence of
//                   Split (a Regex or String; Isolated, or what `invert` makes the same) and Digits
//   normalizer      null or NFC
//   added_tokens    without lstrip, rstrip and single_word
//   decoder         null or ByteLevel
//
// What else is in the file and would change tokens is refused by name. Of no effect here:
// post_processor (as with add_special_tokens = false), truncation and padding.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "executor/data/tokenizer.h"

namespace longhaul {

struct TokenizerJson {
  std::string_view text;
  std::string file;  // its name in messages
  /// Texts of tokens that may stand between documents, where the file has none of the usual ones.
  std::string end_of_text;
  std::vector<std::string> files = {};  // see Tokenizer::files
};
Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const TokenizerJson& source);

/// `path` is a tokenizer.json. A tokenizer_config.json beside it may name the end of text.
Result<std::unique_ptr<Tokenizer>> load_json_tokenizer(Storage& storage, const std::string& path);

}  // namespace longhaul
