#include "executor/data/import_tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/data/bigram.h"
#include "executor/data/prepare.h"
#include "executor/data/token_file.h"

namespace longhaul {
namespace {

constexpr std::int64_t kChunkTokens = std::int64_t{1} << 20;

/// One call of import_tokens.
class Import {
 public:
  Import(Storage& storage, const TokenImportOptions& options, const TokenImportCallback& progress)
      : storage_(storage), options_(options), progress_(progress), bigram_(options.vocabulary) {}

  Result<Dataset> run() {
    LH_TRY(open_files());
    LH_TRY(make_folders(storage_, options_.folder));
    LH_ASSIGN(TokenShardWriter train, open_writer("train"));
    LH_ASSIGN(TokenShardWriter validation, open_writer("val"));
    for (const Part& part : parts_) {
      LH_TRY(copy(part, part.is_validation ? validation : train));
    }
    if (train.tokens() == 0 || (options_.validation > 0 && validation.tokens() == 0)) {
      return invalid("there are no tokens for one of the parts",
                     "use more files, or --validation 0");
    }
    return finish(train, validation);
  }

 private:
  /// Tokens [first, end) of a file.
  struct Part {
    std::size_t file;
    std::int64_t first, end;
    bool is_validation;
  };

  Result<void> open_files() {
    LH_ASSIGN(const std::vector<bool> named, named_for_validation());
    const bool by_name = std::find(named.begin(), named.end(), true) != named.end();
    for (const std::string& path : options_.files) {
      LH_ASSIGN(TokenFile file, TokenFile::open(storage_, path));
      total_ += file.tokens();
      files_.push_back(std::move(file));
    }
    const std::int64_t cut =
        total_ -
        static_cast<std::int64_t>(std::floor(static_cast<double>(total_) * options_.validation));
    std::int64_t start = 0;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const std::int64_t tokens = files_[i].tokens();
      if (by_name) {
        parts_.push_back({i, 0, tokens, named[i]});
      } else {
        const std::int64_t here = std::clamp<std::int64_t>(cut - start, 0, tokens);
        if (here > 0) parts_.push_back({i, 0, here, false});
        if (here < tokens) parts_.push_back({i, here, tokens, true});
      }
      start += tokens;
    }
    return {};
  }

  Result<std::vector<bool>> named_for_validation() const {
    std::vector<bool> named;
    for (const std::string& path : options_.files) {
      named.push_back(has_word(path.substr(path.rfind('/') + 1), {"val", "validation", "valid"}));
    }
    if (std::find(named.begin(), named.end(), false) == named.end()) {
      return invalid("all files are named for validation", "give those for training, too");
    }
    return named;
  }

  Result<TokenShardWriter> open_writer(std::string part) {
    return TokenShardWriter::open(
        storage_, {options_.folder, std::move(part), options_.vocabulary, options_.shard_tokens});
  }

  Result<void> copy(const Part& part, TokenShardWriter& writer) {
    TokenFile& file = files_[part.file];
    std::vector<std::int64_t> stored;
    std::vector<Token> tokens;
    for (std::int64_t first = part.first; first < part.end; first += kChunkTokens) {
      stored.resize(static_cast<std::size_t>(std::min(kChunkTokens, part.end - first)));
      LH_TRY(file.read(first, stored));
      tokens.resize(stored.size());
      for (std::size_t i = 0; i < stored.size(); ++i) {
        if (stored[i] < 0 || stored[i] >= options_.vocabulary) {
          return outside(file, first + static_cast<std::int64_t>(i), stored[i]);
        }
        tokens[i] = static_cast<Token>(stored[i]);
      }
      part.is_validation ? bigram_.measure(tokens) : bigram_.count(tokens);
      LH_TRY(writer.append(tokens));
      LH_TRY(count_text(tokens, part.is_validation ? dataset_.validation : dataset_.train));
      done_ += std::ssize(tokens);
      if (!progress_(done_, total_)) return failed("stopped before the data was complete");
    }
    return {};
  }

  Result<void> count_text(std::span<const Token> tokens, DatasetPart& part) {
    if (options_.tokenizer == nullptr) return {};
    const auto end_of_text = options_.tokenizer->end_of_text();
    if (end_of_text) part.documents += std::count(tokens.begin(), tokens.end(), *end_of_text);
    if (options_.tokenizer->vocabulary() < options_.vocabulary) return {};
    LH_ASSIGN(const std::string text, options_.tokenizer->decode(tokens));
    part.text_bytes += std::ssize(text);
    return {};
  }

  std::unexpected<Error> outside(const TokenFile& file, std::int64_t index,
                                 std::int64_t token) const {
    const std::string id = token < 0 ? "a negative token" : fmt::format("token {}", token);
    return invalid_at(
        {file.path()},
        fmt::format("{} at byte {} (number {} of the file) is outside the vocabulary of {}", id,
                    file.offset_of(index), index, options_.vocabulary),
        "was the file made with another tokenizer?");
  }

  Result<Dataset> finish(TokenShardWriter& train, TokenShardWriter& validation) {
    dataset_.tokenizer = options_.tokenizer ? options_.tokenizer->name() : "unknown";
    dataset_.vocabulary = options_.vocabulary;
    LH_TRY(finish_part(train, dataset_.train));
    LH_TRY(finish_part(validation, dataset_.validation));
    if (const auto loss = bigram_.loss()) {
      dataset_.unigram_loss = loss->unigram;
      dataset_.bigram_loss = loss->bigram;
    }
    if (options_.tokenizer) {
      LH_TRY(copy_tokenizer(storage_, *options_.tokenizer, options_.folder));
    }
    // Last, because it says that the shards are complete.
    LH_TRY(write_file(storage_, fmt::format("{}/{}", options_.folder, kDatasetFile),
                      dataset_text(dataset_)));
    return dataset_;
  }

  static Result<void> finish_part(TokenShardWriter& writer, DatasetPart& part) {
    part.tokens = writer.tokens();
    part.fingerprint = writer.fingerprint();
    LH_ASSIGN(const std::vector<std::string> paths, writer.finish());
    for (const std::string& path : paths) part.shards.push_back(path.substr(path.rfind('/') + 1));
    return {};
  }

  Storage& storage_;
  const TokenImportOptions& options_;
  const TokenImportCallback& progress_;
  BigramModel bigram_;
  std::vector<TokenFile> files_;
  std::vector<Part> parts_;
  std::int64_t total_ = 0;
  std::int64_t done_ = 0;
  Dataset dataset_;
};

}  // namespace

Result<Dataset> import_tokens(Storage& storage, const TokenImportOptions& options,
                              const TokenImportCallback& progress) {
  if (!(options.validation >= 0 && options.validation < 1)) {
    return invalid(fmt::format("the part for validation is at least 0 and below 1, not {}",
                               options.validation));
  }
  if (options.vocabulary < 1 || options.vocabulary > kVocabularyMax) {
    return invalid(
        fmt::format("a vocabulary has 1 to {} ids, not {}", kVocabularyMax, options.vocabulary));
  }
  if (options.files.empty()) return invalid("no token files were given");
  return Import(storage, options, progress).run();
}

}  // namespace longhaul
