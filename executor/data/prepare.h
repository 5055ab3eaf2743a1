// Text to a folder of token shards: training and validation part, dataset.yaml, and a bigram
// model's loss on the validation part to compare a run with.
//
// The inputs are one text, in the order given. Each is a document; so is each piece of one between
// `<|endoftext|>` separators. With GPT-2's tokenizer every document starts with the end-of-text
// token (llm.c's way) and the separators are gone; with bytes the text is taken as it stands.
//
// The validation part is the end of the text. Where it starts depends on the text alone, not on
// the tokenizer, so losses of different tokenizers can be compared in bits a byte: at the first
// line (or document) that starts in the last `validation` of the bytes.
//
// Same inputs and options: the same bytes in every file. Memory is one shard, some megabytes, and
// the bigram counts. One thread, where reading may block; tokens are written as they come.
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

/// Where the validation part may start.
enum class ValidationCut {
  kLine,      // after a line break; where there is none for 64 KiB, between two characters
  kDocument,  // where a document starts
};

struct PrepareOptions {
  std::vector<std::string> inputs = {};  // regular files
  std::string folder = "";               // made if it is missing; refused if it holds shards
  double validation = 0.1;               // of the text's bytes, 0 <= validation < 1
  ValidationCut cut = ValidationCut::kLine;
  std::int64_t shard_tokens = kShardTokensDefault;
};

struct PrepareProgress {
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::int64_t tokens = 0;
};
/// Called after every megabyte. False stops the work, which then fails and leaves no shards.
using PrepareCallback = std::function<bool(const PrepareProgress&)>;

/// Errors: kInvalid for unusable options or inputs, a text too short for both parts; kFailed when
/// the disk fails or the callback says stop.
Result<Dataset> prepare_dataset(Storage& storage, const PrepareOptions& options,
                                Tokenizer& tokenizer, const PrepareCallback& progress);

}  // namespace longhaul
