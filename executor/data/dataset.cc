#include "executor/data/dataset.h"

#include <fmt/core.h>

#include "core/config_cursor.h"
#include "executor/data/token_shard.h"

namespace longhaul {
namespace {

constexpr std::string_view kSchema = "longhaul/dataset/1";
constexpr std::uint64_t kDatasetBytesMax = std::uint64_t{16} << 20;

std::string part_text(std::string_view name, const DatasetPart& part) {
  std::string text = fmt::format(
      "{}:\n  tokens: {}\n  text_bytes: {}\n  documents: {}\n  fingerprint: "
      "\"{:016x}\"\n  shards:",
      name, part.tokens, part.text_bytes, part.documents, part.fingerprint);
  if (part.shards.empty()) return text + " []\n";
  for (const std::string& shard : part.shards) text += fmt::format("\n    - {}", yaml_text(shard));
  return text + "\n";
}

DatasetPart read_part(const Cursor& at) {
  DatasetPart part;
  part.tokens = at.key("tokens").integer({.min = 0});
  part.text_bytes = at.key("text_bytes").integer({.min = 0});
  part.documents = at.key("documents").integer({.min = 0});
  part.fingerprint = read_fingerprint(at.key("fingerprint"));
  const Cursor shards = at.key("shards");
  for (const Cursor& shard : shards.items(false)) {
    part.shards.push_back(shard.text());
    // Names stay inside the folder: a file that came from elsewhere must not read others.
    if (part.shards.back().find('/') != std::string::npos) {
      shard.fail("a shard is a file in the folder of dataset.yaml");
    }
  }
  if (part.shards.empty() != (part.tokens == 0)) shards.fail("tokens are in shards");
  return part;
}

}  // namespace

std::uint64_t read_fingerprint(const Cursor& at) {
  const std::string text = at.text();
  std::uint64_t value = 0;
  bool good = text.size() == 16;
  for (const char digit : text) {
    const bool decimal = digit >= '0' && digit <= '9';
    good = good && (decimal || (digit >= 'a' && digit <= 'f'));
    value = value << 4 | static_cast<std::uint64_t>(decimal ? digit - '0' : digit - 'a' + 10);
  }
  if (!good && at.present()) at.fail("a fingerprint is 16 hexadecimal digits in quotes");
  return value;
}

std::string dataset_text(const Dataset& dataset) {
  std::string text = fmt::format("schema: {}\ntokenizer: {}\nvocabulary: {}\n", kSchema,
                                 yaml_text(dataset.tokenizer), dataset.vocabulary);
  text += part_text("train", dataset.train);
  text += part_text("validation", dataset.validation);
  if (dataset.unigram_loss && dataset.bigram_loss) {
    text += fmt::format(
        "baseline:  # nats a validation token\n  unigram_loss: {:.6f}\n  bigram_loss: {:.6f}\n",
        *dataset.unigram_loss, *dataset.bigram_loss);
  }
  if (dataset.job != 0) text += fmt::format("job: \"{:016x}\"\n", dataset.job);
  return text;
}

Result<Dataset> parse_dataset(std::string_view text, const std::string& name) {
  LH_ASSIGN(ConfigFile file, ConfigFile::parse(text, name));
  file.expect_schema(kSchema);
  const Cursor root = file.root();
  Dataset dataset;
  dataset.tokenizer = root.key("tokenizer").text();
  dataset.vocabulary = root.key("vocabulary").integer({.min = 1, .max = kVocabularyMax});
  dataset.train = read_part(root.key("train"));
  dataset.validation = read_part(root.key("validation"));
  if (const Cursor baseline = root.optional("baseline"); baseline.present()) {
    dataset.unigram_loss = baseline.key("unigram_loss").number({.min = 0});
    dataset.bigram_loss = baseline.key("bigram_loss").number({.min = 0});
  }
  if (const Cursor job = root.optional("job"); job.present()) dataset.job = read_fingerprint(job);
  LH_TRY(file.finish());
  return dataset;
}

Result<Dataset> load_dataset(Storage& storage, const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kDatasetFile);
  LH_ASSIGN(const std::string text, read_text(storage, path, kDatasetBytesMax));
  return parse_dataset(text, path);
}

std::vector<std::string> shard_paths(const std::string& folder, const DatasetPart& part) {
  std::vector<std::string> paths;
  for (const std::string& shard : part.shards) paths.push_back(fmt::format("{}/{}", folder, shard));
  return paths;
}

Result<void> check_part(Storage& storage, const std::string& folder, const Dataset& dataset,
                        const DatasetPart& part) {
  if (part.shards.empty()) return {};
  LH_ASSIGN(TokenStream stream,
            TokenStream::open(storage, shard_paths(folder, part), dataset.vocabulary));
  LH_ASSIGN(const TokenStream::Scan scan, stream.scan());
  if (stream.tokens() != part.tokens || scan.fingerprint != part.fingerprint) {
    return invalid(
        fmt::format("the shards of {} hold {} tokens with fingerprint {:016x}, but {} says {} with "
                    "{:016x}",
                    folder, stream.tokens(), scan.fingerprint, kDatasetFile, part.tokens,
                    part.fingerprint),
        "a shard was changed or mixed up since; prepare the data again");
  }
  return {};
}

}  // namespace longhaul
