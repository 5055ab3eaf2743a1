// `longhaul data`: turns text into token shards and looks at such a folder.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "executor/data/import_tokens.h"
#include "executor/data/prepare.h"
#include "executor/data/token_file.h"
#include "executor/storage/real_storage.h"
#include "tools/command.h"
#include "tools/data_inspect.h"

namespace longhaul {
namespace {

struct PrepareArguments {
  PrepareOptions options;
  std::string field;
  std::string tokenizer;  // empty: bytes for text, none for tokens
  std::string tables;
  std::int64_t vocabulary = 0;
  int threads = 0;  // 0: one a core
  bool by_document = false;
};

/// Standard input in a file of the output folder, since the text's size must be known. The file is
/// gone when this is.
class Spool {
 public:
  static Result<Spool> of_standard_input(Storage& storage, const std::string& folder) {
    LH_TRY(make_folders(storage, folder));
    const std::string path = folder + "/stdin" + std::string(kTemporarySuffix);
    LH_ASSIGN(const auto file, storage.create(path));
    Spool spool(storage, path);
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    while (true) {
      const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
      if (InterruptFlag::signal() != 0) return failed("stopped while reading standard input");
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return failed(fmt::format("cannot read standard input: {}",
                                  std::error_code(errno, std::generic_category()).message()));
      }
      if (got == 0) break;
      LH_TRY(file->append(std::span(buffer).first(static_cast<std::size_t>(got))));
    }
    LH_TRY(file->close());
    return spool;
  }

  Spool(Spool&& other) noexcept : storage_(other.storage_), path_(std::exchange(other.path_, "")) {}
  ~Spool() {
    if (!path_.empty()) static_cast<void>(storage_->remove(path_));  // bytes that nobody reads
  }
  const std::string& path() const { return path_; }

 private:
  Spool(Storage& storage, std::string path) : storage_(&storage), path_(std::move(path)) {}
  Storage* storage_;
  std::string path_;
};

/// Says how far a work is and when it will be done.
class ProgressOfBytes {
 public:
  /// `before` of the units were done by an earlier call.
  void show(std::int64_t done, std::int64_t total, std::int64_t before, const std::string& what) {
    const auto now = std::chrono::steady_clock::now();
    const std::int64_t percent = total == 0 ? 100 : done * 100 / total;
    // A terminal shows one line that changes; elsewhere every line stays.
    const bool due = isatty(STDERR_FILENO) == 1 ? now - shown_ > std::chrono::milliseconds(200)
                                                : percent / 10 != percent_shown_ / 10;
    if (!due && percent_shown_ >= 0) return;
    const std::chrono::duration<double> elapsed = now - start_;
    std::string left;
    if (done > before && done < total && elapsed.count() > 1) {
      const double seconds =
          elapsed.count() * static_cast<double>(total - done) / static_cast<double>(done - before);
      left = fmt::format(", {:.0f} s left", seconds);
    }
    line_.show(fmt::format("{} % of {}{}", percent, what, left));
    percent_shown_ = percent;
    shown_ = now;
  }

 private:
  ProgressLine line_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_ = {};
  std::int64_t percent_shown_ = -1;
};

/// The tokenizer that was asked for; null where none was.
Result<std::unique_ptr<Tokenizer>> find_tokenizer(Storage& storage, const std::string& what,
                                                  const std::string& tables) {
  if (!tables.empty()) {
    if (what != "gpt2") {
      return invalid("--tables is for --tokenizer gpt2",
                     "other tokenizers are named by their folder: --tokenizer FOLDER");
    }
    return load_gpt2_tokenizer(storage, tables);
  }
  if (what.empty()) return nullptr;
  return load_tokenizer(storage, what);
}

/// Of nanoGPT's meta.pkl beside a file, or 0.
std::int64_t vocabulary_beside(Storage& storage, const std::string& file) {
  const auto bytes = read_text(storage, parent_folder(file) + "/meta.pkl", 16 << 20);
  return bytes ? vocabulary_in_pickle(*bytes).value_or(0) : 0;
}

Result<Dataset> prepare_tokens(Storage& storage, const PrepareArguments& arguments,
                               std::vector<std::string> files, const Tokenizer* tokenizer) {
  std::int64_t vocabulary = arguments.vocabulary;
  if (vocabulary == 0 && tokenizer != nullptr) vocabulary = tokenizer->vocabulary();
  if (vocabulary == 0) vocabulary = vocabulary_beside(storage, files[0]);
  if (vocabulary == 0) {
    return invalid(fmt::format("{} holds tokens, and does not say of how many there are", files[0]),
                   "--tokenizer gpt2 (or the folder of the one that made them), or --vocabulary "
                   "50257");
  }
  if (tokenizer != nullptr && tokenizer->vocabulary() > vocabulary) {
    return invalid(fmt::format("the tokenizer has {} tokens, more than --vocabulary {}",
                               tokenizer->vocabulary(), vocabulary));
  }
  ProgressOfBytes line;
  const TokenImportOptions options{
      std::move(files), arguments.options.folder,     vocabulary,
      tokenizer,        arguments.options.validation, arguments.options.shard_tokens};
  return import_tokens(storage, options, [&](std::int64_t done, std::int64_t total) {
    line.show(done, total, 0, fmt::format("{} tokens", total));
    return InterruptFlag::signal() == 0;
  });
}

Result<Dataset> prepare_text(Storage& storage, PrepareArguments& arguments,
                             const Tokenizer& tokenizer) {
  PrepareOptions& options = arguments.options;
  std::unique_ptr<Spool> spool;
  for (std::string& input : options.inputs.paths) {
    if (input != "-") continue;
    if (spool) return invalid("standard input (-) can be read only once");
    LH_ASSIGN(Spool filled, Spool::of_standard_input(storage, options.folder));
    spool = std::make_unique<Spool>(std::move(filled));
    input = spool->path();
  }
  if (arguments.vocabulary > 0) return invalid("--vocabulary is for files of tokens");
  if (!arguments.field.empty()) options.inputs.field = arguments.field;
  if (arguments.by_document) options.cut = ValidationCut::kDocument;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  options.threads = arguments.threads > 0 ? arguments.threads : std::max(1, cores);
  ProgressOfBytes line;
  return prepare_dataset(storage, options, tokenizer, [&](const PrepareProgress& now) {
    line.show(now.bytes_done, now.bytes_total, now.bytes_before,
              fmt::format("{:.1f} MB, {} tokens", static_cast<double>(now.bytes_total) / 1e6,
                          now.tokens));
    return InterruptFlag::signal() == 0;
  });
}

Result<void> prepare(PrepareArguments arguments) {
  RealStorage storage;
  const InterruptFlag interrupt;
  LH_ASSIGN(std::unique_ptr<Tokenizer> tokenizer,
            find_tokenizer(storage, arguments.tokenizer, arguments.tables));
  std::vector<std::string> files;
  std::string text;
  for (const std::string& input : arguments.options.inputs.paths) {
    std::vector<std::string> found;
    if (input != "-") {
      LH_ASSIGN(found, find_token_files(storage, input));
    }
    if (found.empty()) text = input;
    files.insert(files.end(), found.begin(), found.end());
  }
  if (!files.empty() && !text.empty()) {
    return invalid(fmt::format("{} holds tokens and {} text: give one kind", files[0], text));
  }
  Result<Dataset> dataset;
  if (files.empty()) {
    if (tokenizer == nullptr) tokenizer = make_byte_tokenizer();
    dataset = prepare_text(storage, arguments, *tokenizer);
  } else {
    dataset = prepare_tokens(storage, arguments, std::move(files), tokenizer.get());
  }
  if (!dataset) return std::unexpected(std::move(dataset).error());
  fmt::print("{}", dataset_table(*dataset));
  return {};
}

struct InspectArguments {
  InspectOptions options;
  std::string tokenizer;
};

Result<void> show(InspectArguments arguments) {
  RealStorage storage;
  LH_ASSIGN(const auto tokenizer, find_tokenizer(storage, arguments.tokenizer, ""));
  arguments.options.tokenizer = tokenizer.get();
  LH_ASSIGN(const std::string text, show_data(storage, arguments.options));
  fmt::print("{}", text);
  return {};
}

Result<void> check(InspectArguments arguments) {
  RealStorage storage;
  LH_ASSIGN(const auto tokenizer, find_tokenizer(storage, arguments.tokenizer, ""));
  arguments.options.tokenizer = tokenizer.get();
  LH_ASSIGN(DataCheck check, check_data(storage, arguments.options));
  if (check.problems.empty()) {
    fmt::print("good: {} tokens in {} file{}, the largest id is {}\n", check.tokens, check.files,
               check.files == 1 ? "" : "s", check.largest);
    return {};
  }
  // All at once; the data was read, and the answer is that it is not good.
  Error error = std::move(check.problems.front());
  error.code = ErrorCode::kInfeasible;
  error.others.assign(std::make_move_iterator(check.problems.begin() + 1),
                      std::make_move_iterator(check.problems.end()));
  return std::unexpected(std::move(error));
}

int exit_status_of(const Result<void>& result) {
  if (result) return 0;
  const int status = report_error(result.error());
  return InterruptFlag::signal() != 0 ? 128 + InterruptFlag::signal() : status;
}

void add_prepare(CLI::App& data, int& exit_status) {
  CLI::App* prepare_app =
      data.add_subcommand("prepare", "turn text into token shards for training and validation");
  const auto arguments = std::make_shared<PrepareArguments>();  // owned by the callback below
  PrepareOptions& options = arguments->options;
  prepare_app
      ->add_option("input", options.inputs.paths,
                   "text, JSON lines, or folders of them; - for stdin. Or files of tokens "
                   "(.bin, .idx) of nanoGPT, llm.c or Megatron")
      ->required();
  prepare_app->add_option("-o,--output", options.folder, "folder for the shards")->required();
  prepare_app->add_option("--tokenizer", arguments->tokenizer,
                          "bytes, gpt2, a tokenizer.json, or a folder with one (default: bytes)");
  prepare_app->add_option("--tables", arguments->tables,
                          "folder with GPT-2's vocabulary and merges");
  prepare_app->add_option("--field", arguments->field,
                          "inputs are JSON lines, and this field has the text (default: files "
                          "named .jsonl are, and it is `text`)");
  prepare_app
      ->add_option("--suffix", options.inputs.suffixes, "files of a folder that are read, by name")
      ->delimiter(',')
      ->capture_default_str();
  prepare_app->add_option("--validation", options.validation, "part of the data, from its end")
      ->check(CLI::Range(0.0, 0.999))
      ->check(not_a_number)
      ->capture_default_str();
  prepare_app->add_flag("--by-document", arguments->by_document,
                        "validate on whole documents (files, or text between <|endoftext|>)");
  prepare_app->add_option("--shard-tokens", options.shard_tokens, "tokens of a shard at most")
      ->check(CLI::Range(std::int64_t{1}, kShardTokensMax))
      ->capture_default_str();
  prepare_app
      ->add_option("--vocabulary", arguments->vocabulary,
                   "for files of tokens: ids are below this (default: the tokenizer's)")
      ->check(CLI::Range(std::int64_t{1}, kVocabularyMax));
  prepare_app
      ->add_option("--threads", arguments->threads, "threads that encode (default: one a core)")
      ->check(CLI::Range(1, 256));
  prepare_app->callback(
      [arguments, &exit_status] { exit_status = exit_status_of(prepare(*arguments)); });
}

void add_inspect(CLI::App& data, const std::string& name, const std::string& what,
                 Result<void> (*run)(InspectArguments), int& exit_status) {
  CLI::App* app = data.add_subcommand(name, what);
  const auto arguments = std::make_shared<InspectArguments>();  // owned by the callback below
  app->add_option("path", arguments->options.path,
                  "folder that `data prepare` wrote, or token files (.bin, .idx) of others")
      ->required();
  app->add_option("--tokenizer", arguments->tokenizer, "of token files of others; see prepare");
  app->add_option("--vocabulary", arguments->options.vocabulary,
                  "of token files of others: ids are below this")
      ->check(CLI::Range(std::int64_t{1}, kVocabularyMax));
  app->callback([arguments, run, &exit_status] { exit_status = exit_status_of(run(*arguments)); });
}

}  // namespace

void add_data_command(CLI::App& app, int& exit_status) {
  CLI::App* data = app.add_subcommand("data", "prepare text for training and look at token shards");
  data->require_subcommand(1);
  add_prepare(*data, exit_status);
  add_inspect(*data, "show", "print what a folder or file of tokens holds", show, exit_status);
  add_inspect(*data, "check", "read all of it and name everything that is wrong", check,
              exit_status);
}

}  // namespace longhaul
