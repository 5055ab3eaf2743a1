// A folder of prepared data: token shards of a training and a validation part, and dataset.yaml,
// which is written last and says what they are.
//
//   schema: longhaul/dataset/1
//   tokenizer: gpt2
//   vocabulary: 50257
//   train: {tokens: 1052640, text_bytes: 3963971, documents: 1, fingerprint: "8c0e...", shards:
//     [train_000000.bin]}
//   validation: {tokens: ...}                     # tokens 0 and no shards when nothing was kept
//   baseline: {unigram_loss: 6.1, bigram_loss: 4.2}  # nats a validation token; see bigram.h
//   job: "8c0e..."                                # of inputs, tokenizer and options; see prepare.h
//
// Shards are llm.c's (token_shard.h); their names are in the folder, in the order of the stream.
// The tokenizer is `bytes`, or `gpt2` or `tokenizer.json` with copies of its files in the folder,
// or `unknown` where token files of others were read without one; text_bytes are 0 then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/storage/storage.h"

namespace longhaul {

inline constexpr std::string_view kDatasetFile = "dataset.yaml";

struct DatasetPart {
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
  std::int64_t documents = 0;  // that start in this part
  std::uint64_t fingerprint = 0;
  std::vector<std::string> shards;
};

struct Dataset {
  std::string tokenizer;
  std::int64_t vocabulary = 0;
  DatasetPart train;
  DatasetPart validation;
  std::optional<double> unigram_loss;  // none without a validation part
  std::optional<double> bigram_loss;
  std::uint64_t job = 0;  // 0: not said
};

std::string dataset_text(const Dataset& dataset);
Result<Dataset> parse_dataset(std::string_view text, const std::string& name);
/// Reads `folder`/dataset.yaml. The shards are named, not opened.
Result<Dataset> load_dataset(Storage& storage, const std::string& folder);

/// A part's shards as paths.
std::vector<std::string> shard_paths(const std::string& folder, const DatasetPart& part);

class Cursor;
/// 16 hexadecimal digits in quotes.
std::uint64_t read_fingerprint(const Cursor& at);

/// Reads all shards of a part and holds them to what dataset.yaml says of their tokens.
Result<void> check_part(Storage& storage, const std::string& folder, const Dataset& dataset,
                        const DatasetPart& part);

}  // namespace longhaul
