// `longhaul data`: turns text into token shards and looks at such a folder.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "executor/data/prepare.h"
#include "executor/data/token_shard.h"
#include "executor/storage/real_storage.h"
#include "tools/command.h"

namespace longhaul {
namespace {

struct PrepareArguments {
  PrepareOptions options;
  std::string tokenizer = "bytes";
  std::string tables;
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

std::string part_line(std::string_view name, const DatasetPart& part) {
  return fmt::format("{:<12}{:>14} tokens {:>14} bytes {:>6} shard{}  {:016x}\n", name, part.tokens,
                     part.text_bytes, part.shards.size(), part.shards.size() == 1 ? " " : "s",
                     part.fingerprint);
}

std::string dataset_table(const Dataset& dataset) {
  std::string out =
      fmt::format("tokenizer   {}, vocabulary {}\n", dataset.tokenizer, dataset.vocabulary);
  out += part_line("train", dataset.train);
  out += part_line("validation", dataset.validation);
  if (dataset.bigram_loss && dataset.unigram_loss) {
    const double bits_per_byte = *dataset.bigram_loss / std::log(2.0) *
                                 static_cast<double>(dataset.validation.tokens) /
                                 static_cast<double>(dataset.validation.text_bytes);
    out += fmt::format(
        "to beat     {:.4f} nats a validation token: a bigram model ({:.3f} bits a byte; unigrams "
        "{:.4f})\n",
        *dataset.bigram_loss, bits_per_byte, *dataset.unigram_loss);
  }
  return out;
}

Result<void> prepare(PrepareArguments arguments) {
  RealStorage storage;
  const InterruptFlag interrupt;
  std::unique_ptr<Tokenizer> tokenizer;
  if (arguments.tokenizer == "gpt2") {
    if (arguments.tables.empty()) {
      return invalid("GPT-2's tokenizer needs its tables",
                     "--tables FOLDER with vocab.json and merges.txt (or encoder.json and "
                     "vocab.bpe)");
    }
    LH_ASSIGN(tokenizer, load_gpt2_tokenizer(storage, arguments.tables));
  } else {
    tokenizer = make_byte_tokenizer();
  }
  std::unique_ptr<Spool> spool;
  for (std::string& input : arguments.options.inputs) {
    if (input != "-") continue;
    if (spool) return invalid("standard input (-) can be read only once");
    LH_ASSIGN(Spool filled, Spool::of_standard_input(storage, arguments.options.folder));
    spool = std::make_unique<Spool>(std::move(filled));
    input = spool->path();
  }
  if (arguments.by_document) arguments.options.cut = ValidationCut::kDocument;

  ProgressLine line;
  std::int64_t percent_shown = -1;
  const auto progress = [&](const PrepareProgress& now) {
    const std::int64_t percent = now.bytes_done * 100 / now.bytes_total;
    if (percent / 10 != percent_shown / 10 || percent_shown < 0) {
      line.show(fmt::format("{} % of {:.1f} MB, {} tokens", percent,
                            static_cast<double>(now.bytes_total) / 1e6, now.tokens));
      percent_shown = percent;
    }
    return InterruptFlag::signal() == 0;
  };
  LH_ASSIGN(const Dataset dataset,
            prepare_dataset(storage, arguments.options, *tokenizer, progress));
  fmt::print("{}", dataset_table(dataset));
  return {};
}

/// Shards that came from elsewhere have no dataset.yaml: say what can be read from them.
Result<void> show_shards(Storage& storage, const std::string& folder) {
  bool found = false;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train"}, std::vector<std::string>{"val", "validation"}}) {
    LH_ASSIGN(const std::vector<std::string> paths, find_shards(storage, folder, words));
    if (paths.empty()) continue;
    found = true;
    LH_ASSIGN(TokenStream stream, TokenStream::open(storage, paths, kVocabularyMax));
    LH_ASSIGN(const TokenStream::Scan scan, stream.scan());
    fmt::print("{:<12}{:>14} tokens {:>6} shard{}  largest id {}  {:016x}\n", words.back(),
               stream.tokens(), paths.size(), paths.size() == 1 ? " " : "s", scan.largest,
               scan.fingerprint);
  }
  if (!found) {
    return invalid(fmt::format("{} holds no {} and no shards", folder, kDatasetFile),
                   "longhaul data prepare TEXT -o FOLDER makes such a folder");
  }
  return {};
}

Result<void> show(const std::string& folder) {
  RealStorage storage;
  LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, kDatasetFile)));
  if (kind == EntryKind::kAbsent) return show_shards(storage, folder);
  LH_ASSIGN(const Dataset dataset, load_dataset(storage, folder));
  fmt::print("{}", dataset_table(dataset));
  LH_TRY(check_part(storage, folder, dataset, dataset.train));
  return check_part(storage, folder, dataset, dataset.validation);
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
      ->add_option("input", options.inputs, "text files, one text in this order; - for stdin")
      ->required();
  prepare_app->add_option("-o,--output", options.folder, "folder for the shards")->required();
  prepare_app->add_option("--tokenizer", arguments->tokenizer, "bytes or gpt2")
      ->check(CLI::IsMember({"bytes", "gpt2"}))
      ->capture_default_str();
  prepare_app->add_option("--tables", arguments->tables,
                          "folder with GPT-2's vocabulary and merges");
  prepare_app->add_option("--validation", options.validation, "part of the text, from its end")
      ->check(CLI::Range(0.0, 0.999))
      ->check(not_a_number)
      ->capture_default_str();
  prepare_app->add_flag("--by-document", arguments->by_document,
                        "validate on whole documents (files, or text between <|endoftext|>)");
  prepare_app->add_option("--shard-tokens", options.shard_tokens, "tokens of a shard at most")
      ->check(CLI::Range(std::int64_t{1}, kShardTokensMax))
      ->capture_default_str();
  prepare_app->callback(
      [arguments, &exit_status] { exit_status = exit_status_of(prepare(*arguments)); });
}

}  // namespace

void add_data_command(CLI::App& app, int& exit_status) {
  CLI::App* data = app.add_subcommand("data", "prepare text for training and look at token shards");
  data->require_subcommand(1);
  add_prepare(*data, exit_status);
  CLI::App* show_app =
      data->add_subcommand("show", "print what a folder of shards holds; checks it");
  const auto folder = std::make_shared<std::string>();  // owned by the callback below
  show_app->add_option("folder", *folder, "folder with shards")->required();
  show_app->callback([folder, &exit_status] { exit_status = exit_status_of(show(*folder)); });
}

}  // namespace longhaul
