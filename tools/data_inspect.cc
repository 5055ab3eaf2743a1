#include "tools/data_inspect.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/data/prepare_state.h"
#include "executor/data/token_file.h"

namespace longhaul {
namespace {

constexpr std::int64_t kShownTokens = 32;
constexpr std::int64_t kChunkTokens = std::int64_t{1} << 18;
/// Ids out of range that are named in a file.
constexpr std::int64_t kNamedIds = 3;

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string part_line(std::string_view name, const DatasetPart& part) {
  return fmt::format("{:<12}{:>14} tokens {:>14} bytes {:>14} {:>12}  {:016x}\n", name, part.tokens,
                     part.text_bytes, counted(part.documents, "document"),
                     counted(std::ssize(part.shards), "shard"), part.fingerprint);
}

/// Text on one line.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

/// The first tokens, and the text that they stand for.
Result<std::string> beginning(TokenFile& file, const Tokenizer* tokenizer) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kShownTokens, file.tokens())));
  LH_TRY(file.read(0, ids));
  if (tokenizer != nullptr) {
    const std::vector<Token> tokens(ids.begin(), ids.end());
    if (const auto text = tokenizer->decode(tokens)) {
      return fmt::format("begins with  {}\n", quoted(*text));
    }
  }
  ids.resize(std::min<std::size_t>(ids.size(), 12));
  return fmt::format("begins with  {}\n", fmt::join(ids, " "));
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of(Storage& storage, const std::string& folder,
                                                const Dataset& dataset) {
  return load_tokenizer(storage, dataset.tokenizer == "bytes" ? "bytes" : folder);
}

Result<std::string> show_dataset(Storage& storage, const InspectOptions& options) {
  LH_ASSIGN(const Dataset dataset, load_dataset(storage, options.path));
  std::string out = dataset_table(dataset);
  std::unique_ptr<Tokenizer> own;
  if (options.tokenizer == nullptr && dataset.tokenizer != "unknown") {
    // Without its files the ids are shown.
    if (auto loaded = tokenizer_of(storage, options.path, dataset)) own = *std::move(loaded);
  }
  LH_ASSIGN(TokenFile first,
            TokenFile::open(storage, shard_paths(options.path, dataset.train).at(0)));
  LH_ASSIGN(const std::string text, beginning(first, own ? own.get() : options.tokenizer));
  return out + text;
}

std::unexpected<Error> nothing_there(const std::string& path, EntryKind kind) {
  if (kind == EntryKind::kFile) {
    return invalid(fmt::format("{} is no file of tokens (.bin or .idx)", path),
                   "longhaul data prepare makes tokens of text");
  }
  return invalid(fmt::format("{} holds no {} and no token files (.bin)", path, kDatasetFile),
                 "longhaul data prepare TEXT -o FOLDER makes such a folder");
}

/// Checks files and adds up what they hold.
class Checker {
 public:
  explicit Checker(Storage& storage) : storage_(storage) {}

  /// `vocabulary` 0: any id. Answers whether the file is good.
  bool file(const std::string& path, std::int64_t vocabulary, TokenFingerprint* fingerprint) {
    ++check_.files;
    const std::size_t before = check_.problems.size();
    auto file = TokenFile::open(storage_, path);
    if (!file) {
      check_.problems.push_back(file.error());
      return false;
    }
    if (const auto scanned = scan(*file, vocabulary, fingerprint); !scanned) {
      check_.problems.push_back(scanned.error());
    }
    return check_.problems.size() == before;
  }

  void problem(const std::string& file, std::string message, std::string hint = "") {
    check_.problems.push_back(invalid_at({file}, std::move(message), std::move(hint)).error());
  }

  DataCheck take() { return std::move(check_); }

 private:
  Result<void> scan(TokenFile& file, std::int64_t vocabulary, TokenFingerprint* fingerprint) {
    std::vector<std::int64_t> ids;
    std::vector<Token> tokens;
    std::int64_t outside = 0;
    check_.tokens += file.tokens();
    for (std::int64_t first = 0; first < file.tokens(); first += kChunkTokens) {
      ids.resize(static_cast<std::size_t>(std::min(kChunkTokens, file.tokens() - first)));
      LH_TRY(file.read(first, ids));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        check_.largest = std::max(check_.largest, ids[i]);
        const bool good = ids[i] >= 0 && ids[i] < (vocabulary > 0 ? vocabulary : kVocabularyMax);
        if (good || ++outside > kNamedIds) continue;
        const std::int64_t index = first + static_cast<std::int64_t>(i);
        problem(file.path(),
                fmt::format("{} at byte {} (number {} of the file) is outside the "
                            "vocabulary of {}",
                            ids[i] < 0 ? "a negative token" : fmt::format("token {}", ids[i]),
                            file.offset_of(index), index,
                            vocabulary > 0 ? vocabulary : kVocabularyMax));
      }
      tokens.assign(ids.begin(), ids.end());
      if (fingerprint != nullptr) fingerprint->add(tokens);
    }
    if (outside > kNamedIds) {
      problem(file.path(),
              fmt::format("{} more tokens are outside the vocabulary", outside - kNamedIds));
    }
    return {};
  }

  Storage& storage_;
  DataCheck check_;
};

void check_part_of(Checker& checker, const std::string& folder, const Dataset& dataset,
                   std::string_view name, const DatasetPart& part) {
  TokenFingerprint fingerprint;
  bool good = true;
  for (const std::string& path : shard_paths(folder, part)) {
    good = checker.file(path, dataset.vocabulary, &fingerprint) && good;
  }
  if (!good || part.shards.empty() || fingerprint.value() == part.fingerprint) return;
  checker.problem(fmt::format("{}/{}", folder, kDatasetFile),
                  fmt::format("the {} shards hold other tokens (fingerprint {:016x}) than were "
                              "written ({:016x})",
                              name, fingerprint.value(), part.fingerprint),
                  "a shard was changed or exchanged since; prepare the data again");
}

Result<DataCheck> check_dataset(Storage& storage, const std::string& folder) {
  LH_ASSIGN(const Dataset dataset, load_dataset(storage, folder));
  Checker checker(storage);
  check_part_of(checker, folder, dataset, "train", dataset.train);
  check_part_of(checker, folder, dataset, "validation", dataset.validation);
  if (dataset.tokenizer != "unknown") {
    const auto tokenizer = tokenizer_of(storage, folder, dataset);
    const std::string file = fmt::format("{}/{}", folder, kDatasetFile);
    if (!tokenizer) {
      checker.problem(file,
                      fmt::format("its tokenizer cannot be read: {}", tokenizer.error().message));
    } else if ((*tokenizer)->vocabulary() > dataset.vocabulary) {
      checker.problem(file, fmt::format("the tokenizer beside it has {} tokens, the data a "
                                        "vocabulary of {}",
                                        (*tokenizer)->vocabulary(), dataset.vocabulary));
    }
  }
  return checker.take();
}

Result<bool> is_dataset(Storage& storage, const std::string& folder) {
  LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, kDatasetFile)));
  if (kind == EntryKind::kFile) return true;
  LH_ASSIGN(const EntryKind state, storage.kind(fmt::format("{}/{}", folder, kPrepareStateFile)));
  if (state == EntryKind::kAbsent) return false;
  return invalid(
      fmt::format("{} holds data that is not complete: `data prepare` was interrupted", folder),
      "the same `longhaul data prepare` again goes on from the last whole shard");
}

}  // namespace

std::string dataset_table(const Dataset& dataset) {
  std::string out =
      fmt::format("tokenizer   {}, vocabulary {}\n", dataset.tokenizer, dataset.vocabulary);
  out += part_line("train", dataset.train);
  out += part_line("validation", dataset.validation);
  if (!dataset.bigram_loss || !dataset.unigram_loss) return out;
  std::string per_byte;
  if (dataset.validation.text_bytes > 0) {
    per_byte =
        fmt::format("{:.3f} bits a byte; ", *dataset.bigram_loss / std::log(2.0) *
                                                static_cast<double>(dataset.validation.tokens) /
                                                static_cast<double>(dataset.validation.text_bytes));
  }
  return out + fmt::format(
                   "to beat     {:.4f} nats a validation token: a bigram model ({}unigrams "
                   "{:.4f})\n",
                   *dataset.bigram_loss, per_byte, *dataset.unigram_loss);
}

Result<std::string> show_data(Storage& storage, const InspectOptions& options) {
  LH_ASSIGN(const bool prepared, is_dataset(storage, options.path));
  if (prepared) return show_dataset(storage, options);
  LH_ASSIGN(const std::vector<std::string> files, find_token_files(storage, options.path));
  if (files.empty()) {
    LH_ASSIGN(const EntryKind kind, storage.kind(options.path));
    return nothing_there(options.path, kind);
  }
  std::string out;
  for (const std::string& path : files) {
    LH_ASSIGN(TokenFile file, TokenFile::open(storage, path));
    out += fmt::format("{}\n  {}, {}{}\n  ", file.path(), file.format(),
                       counted(file.tokens(), "token"),
                       file.documents() ? ", " + counted(*file.documents(), "document") : "");
    LH_ASSIGN(const std::string text, beginning(file, options.tokenizer));
    out += text;
  }
  return out;
}

Result<DataCheck> check_data(Storage& storage, const InspectOptions& options) {
  LH_ASSIGN(const bool prepared, is_dataset(storage, options.path));
  if (prepared) return check_dataset(storage, options.path);
  LH_ASSIGN(const std::vector<std::string> files, find_token_files(storage, options.path));
  if (files.empty()) {
    LH_ASSIGN(const EntryKind kind, storage.kind(options.path));
    return nothing_there(options.path, kind);
  }
  Checker checker(storage);
  const std::int64_t vocabulary = options.tokenizer != nullptr && options.vocabulary == 0
                                      ? options.tokenizer->vocabulary()
                                      : options.vocabulary;
  for (const std::string& path : files) checker.file(path, vocabulary, nullptr);
  return checker.take();
}

}  // namespace longhaul
