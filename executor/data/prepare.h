// Text to a folder of token shards: training and validation part, dataset.yaml, and a bigram
// model's loss on the validation part to compare a run with.
//
// The inputs (text_inputs.h) are read in the order given. A file is a document, or several between
// `<|endoftext|>` separators; a JSON line is one. Where the tokenizer has an end-of-text token,
// every document starts with it (llm.c's way) and the separators are gone; with bytes the text is
// taken as it stands.
//
// The validation part is the end of the text. Where it starts depends on the text alone, not on
// the tokenizer, so losses of different tokenizers can be compared in bits a byte: at the first
// line (or document) that starts in the last `validation` of the files' bytes.
//
// Same inputs and options: the same bytes in every file, whatever the number of threads. Memory is
// one shard, some megabytes a thread, and the bigram counts; inputs may be larger. Work that was
// interrupted, even by a crash, goes on from the last whole shard when it is started again with the
// same inputs, tokenizer and options: prepare.yaml in the folder says how far it came. What is
// finished is left as it is. Anything else in the folder is refused, never mixed with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "executor/data/dataset.h"
#include "executor/data/shard_writer.h"
#include "executor/data/text_inputs.h"
#include "executor/data/tokenizer.h"

namespace longhaul {

/// Where the validation part may start.
enum class ValidationCut {
  kLine,      // after a line break; where there is none for 64 KiB, between two characters
  kDocument,  // where a document starts
};

struct PrepareOptions {
  TextInputOptions inputs = {};
  std::string folder = "";  // made if it is missing
  double validation = 0.1;  // of the inputs' bytes, 0 <= validation < 1
  ValidationCut cut = ValidationCut::kLine;
  std::int64_t shard_tokens = kShardTokensDefault;
  int threads = 1;
};

struct PrepareProgress {
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::int64_t tokens = 0;
  std::int64_t bytes_before = 0;  // were done by an earlier, interrupted call
};
/// Called about once a megabyte. False stops the work, which then fails and can be taken up.
using PrepareCallback = std::function<bool(const PrepareProgress&)>;

/// Errors: kInvalid for unusable options or inputs, a text too short for both parts, a folder that
/// holds something else; kFailed when the disk fails or the callback says stop.
Result<Dataset> prepare_dataset(Storage& storage, const PrepareOptions& options,
                                const Tokenizer& tokenizer, const PrepareCallback& progress);

/// Copies the tokenizer's files to a folder, under Hugging Face's names, so that it can be read
/// from there (load_tokenizer).
Result<void> copy_tokenizer(Storage& storage, const Tokenizer& tokenizer,
                            const std::string& folder);

}  // namespace longhaul
