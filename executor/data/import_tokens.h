// Token files of other programs (token_file.h) to a folder of token shards, as prepare.h makes one
// of text. Files with `val` or `validation` among the words of their names are the validation part;
// without such a file it is the end of the tokens. Nothing is added between files or documents.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/data/dataset.h"
#include "executor/data/shard_writer.h"
#include "executor/data/tokenizer.h"

namespace longhaul {

struct TokenImportOptions {
  std::vector<std::string> files = {};   // find_token_files
  std::string folder = "";               // made if it is missing; refused if it holds shards
  std::int64_t vocabulary = 0;           // ids are below this
  const Tokenizer* tokenizer = nullptr;  // that made the tokens; none if it is not known
  double validation = 0.1;               // of the tokens
  std::int64_t shard_tokens = kShardTokensDefault;
};
/// Called about once a million tokens, with those done and all. False stops the work.
using TokenImportCallback = std::function<bool(std::int64_t done, std::int64_t total)>;

/// Errors: kInvalid for files that are none, ids outside the vocabulary, tokens for one part alone;
/// kFailed when the disk fails or the callback says stop. Shards are removed again then.
Result<Dataset> import_tokens(Storage& storage, const TokenImportOptions& options,
                              const TokenImportCallback& progress);

}  // namespace longhaul
