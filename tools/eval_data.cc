#include "tools/eval_data.h"

#include <fmt/core.h>

#include <span>
#include <utility>

#include "executor/data/dataset.h"
#include "executor/data/token_shard.h"

namespace longhaul {
namespace {

constexpr const char* kValidation = "validation";
constexpr const char* kTrain = "train";
constexpr const char* kAll = "all";

/// The shards of one part, and what dataset.yaml says of them if there is one.
struct Part {
  std::string name;
  std::vector<std::string> shards;
  std::optional<DatasetPart> described;
};

Result<std::vector<Part>> parts_of_folder(Storage& storage, const std::string& folder,
                                          EvalData& data) {
  LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, kDatasetFile)));
  if (kind == EntryKind::kFile) {
    LH_ASSIGN(const Dataset dataset, load_dataset(storage, folder));
    data.folder = folder;
    data.vocabulary = dataset.vocabulary;
    data.bigram_loss = dataset.bigram_loss;
    return std::vector<Part>{
        {kTrain, shard_paths(folder, dataset.train), dataset.train},
        {kValidation, shard_paths(folder, dataset.validation), dataset.validation}};
  }
  LH_ASSIGN(const auto train, find_shards(storage, folder, {"train"}));
  LH_ASSIGN(const auto validation, find_shards(storage, folder, {"val", "validation"}));
  return std::vector<Part>{{kTrain, train, {}}, {kValidation, validation, {}}};
}

/// Those that are asked for and there.
Result<std::vector<Part>> chosen(const std::vector<Part>& parts, const std::string& wanted,
                                 const std::string& path, EvalData& data) {
  data.part = wanted;
  if (wanted.empty()) {
    data.part = kAll;
    for (const Part& part : parts) {
      if (part.name == kValidation && !part.shards.empty()) data.part = kValidation;
    }
  }
  std::vector<Part> found;
  for (const Part& part : parts) {
    const bool is_wanted = data.part == kAll || data.part == part.name;
    if (is_wanted && !part.shards.empty()) found.push_back(part);
  }
  if (!found.empty()) return found;
  const bool is_any = data.part == kAll;
  return invalid(is_any ? fmt::format("{} holds no {} and no shards", path, kDatasetFile)
                        : fmt::format("{} has no {} part", path, data.part),
                 is_any ? "longhaul data prepare TEXT -o FOLDER makes such a folder"
                        : "--part train, or --part all");
}

Result<std::unique_ptr<SequenceSource>> open_part(Storage& storage, const Part& part,
                                                  std::int64_t vocabulary, int context) {
  LH_ASSIGN(auto source, open_local_sequences(storage, part.shards, vocabulary, context));
  const DataIdentity& is = source->identity();
  if (part.described &&
      (part.described->tokens != is.tokens || part.described->fingerprint != is.fingerprint)) {
    return invalid(
        fmt::format("the shards of the {} part are not what {} says", part.name, kDatasetFile),
        "a shard was changed or mixed up since; prepare the data again");
  }
  return source;
}

}  // namespace

std::int64_t EvalData::sequences() const {
  std::int64_t sum = 0;
  for (const auto& source : sources) sum += source->identity().sequences();
  return sum;
}

Result<EvalData> open_eval_data(Storage& storage, const std::string& path, const std::string& part,
                                const ModelShape& model) {
  EvalData data;
  data.vocabulary = model.vocabulary;
  LH_ASSIGN(const EntryKind kind, storage.kind(path));
  std::vector<Part> parts;
  if (kind == EntryKind::kAbsent) return invalid(fmt::format("{} is not there", path));
  if (kind == EntryKind::kFile) {
    if (!part.empty()) {
      return invalid(fmt::format("{} is one file, which has no parts", path),
                     "leave --part out, or give its folder");
    }
    data.part = "file";
    parts = {{"file", {path}, {}}};
  } else {
    LH_ASSIGN(const std::vector<Part> all, parts_of_folder(storage, path, data));
    LH_ASSIGN(parts, chosen(all, part, path, data));
  }
  if (data.vocabulary > model.vocabulary) {
    return invalid(fmt::format("{}: tokens of a vocabulary of {} do not fit the model's {}", path,
                               data.vocabulary, model.vocabulary),
                   "prepare the text with the model's tokenizer");
  }
  if (data.part != kValidation) data.bigram_loss.reset();
  std::int64_t tokens = 0;
  for (const Part& one : parts) {
    LH_ASSIGN(auto source, open_part(storage, one, data.vocabulary, model.context));
    tokens += source->identity().tokens;
    data.sources.push_back(std::move(source));
  }
  if (data.sequences() > 0) return data;
  return invalid(fmt::format("{}: {} tokens are no sequence of the model's context of {}", path,
                             tokens, model.context));
}

}  // namespace longhaul
