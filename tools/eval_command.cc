// `longhaul eval`: the loss of a trained model on data.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/quantity.h"
#include "executor/run/evaluation.h"
#include "executor/run/model_loader.h"
#include "executor/storage/real_storage.h"
#include "kernels/parallel.h"
#include "tools/command.h"
#include "tools/eval_data.h"
#include "tools/model_options.h"
#include "tools/run_folder.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

struct EvalArguments {
  std::string model;
  std::string data;  // empty: the run's
  std::string part;
  std::int64_t sequences = 0;  // 0: all
  int micro_batch = 0;         // 0: chosen
  Precision precision = Precision::kFp32;
  int threads = 1;
  TokenizerChoice tokenizer;
  bool json = false;
};

/// Rows of a micro-batch when nobody says how many: enough to keep a CPU's matrix products busy,
/// and few enough that what a forward keeps of a large model fits its memory.
constexpr int kRows = 1024;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Says how far it is, ten times a second on a terminal and every five seconds elsewhere.
class EvalProgress {
 public:
  explicit EvalProgress(std::int64_t sequences) : all_(sequences) {}

  void show(const Evaluation& done) {
    const double now = seconds_now();
    if (now < next_) return;
    next_ = now + (line_.is_terminal() ? 0.1 : 5);
    const double took = now - start_;
    const double left =
        took * static_cast<double>(all_ - done.sequences) / static_cast<double>(done.sequences);
    line_.show(fmt::format("{}/{} sequences  loss {:.4f}  {} tokens/s  ETA {}", done.sequences,
                           all_, done.loss(), count_text(static_cast<double>(done.targets) / took),
                           time_left_text(left)));
  }
  double seconds() const { return seconds_now() - start_; }

 private:
  const std::int64_t all_;
  const double start_ = seconds_now();
  double next_ = start_ + 0.5;
  ProgressLine line_;
};

/// How many bytes of text each token stands for, if the tokenizer can be had; else why not.
Result<std::vector<std::uint32_t>> bytes_of_tokens(Storage& storage, TokenizerChoice choice,
                                                   const EvalData& data) {
  // What the data was made with is closer than what the model came with.
  if (!data.folder.empty()) choice.folders.insert(choice.folders.begin(), data.folder);
  LH_ASSIGN(const auto tokenizer, choose_tokenizer(storage, choice));
  std::vector<std::uint32_t> bytes(static_cast<std::size_t>(choice.vocabulary));
  for (Token token = 0; token < tokenizer->vocabulary(); ++token) {
    if (token == tokenizer->end_of_text()) continue;  // stands between texts
    LH_ASSIGN(const std::string text, tokenizer->decode(std::span(&token, 1)));
    bytes[static_cast<std::size_t>(token)] = static_cast<std::uint32_t>(text.size());
  }
  return bytes;
}

/// Until all are done, or a signal comes.
Result<double> evaluate(ModelEvaluator& evaluator, const EvalData& data, std::int64_t sequences) {
  EvalProgress progress(sequences);
  std::int64_t left = sequences;
  for (const auto& source : data.sources) {
    const std::int64_t here = std::min(left, source->identity().sequences());
    left -= here;
    for (std::int64_t first = 0; first < here; first += evaluator.micro_batch()) {
      if (InterruptFlag::signal() != 0) return progress.seconds();
      const auto count = std::min<std::int64_t>(evaluator.micro_batch(), here - first);
      LH_TRY(evaluator.add(*source, first, count));
      progress.show(evaluator.result());
    }
  }
  return progress.seconds();
}

struct EvalReport {
  std::string model, data, part;
  std::int64_t sequences_all = 0;
  int context = 0;
  Evaluation done;
  double seconds = 0;
  std::optional<double> bigram_loss;

  double tokens_per_s() const { return static_cast<double>(done.targets) / seconds; }
  std::optional<double> bits_per_byte() const {
    if (done.bytes == 0) return {};
    return done.loss_sum / std::log(2.0) / static_cast<double>(done.bytes);
  }
  bool is_whole() const { return done.sequences == sequences_all; }
};

void print_json(const EvalReport& report) {
  const auto number = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? nlohmann::ordered_json(*value)
                                          : nlohmann::ordered_json(nullptr);
  };
  const nlohmann::ordered_json document = {{"version", 1},
                                           {"model", report.model},
                                           {"data", report.data},
                                           {"part", report.part},
                                           {"loss", report.done.loss()},
                                           {"perplexity", number(std::exp(report.done.loss()))},
                                           {"bits_per_byte", number(report.bits_per_byte())},
                                           {"sequences", report.done.sequences},
                                           {"sequences_all", report.sequences_all},
                                           {"tokens", report.done.targets},
                                           {"seconds", report.seconds},
                                           {"tokens_per_s", number(report.tokens_per_s())},
                                           {"interrupted", InterruptFlag::signal() != 0}};
  fmt::print("{}\n", document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_table(const EvalReport& report) {
  fmt::print("loss           {:.4f} nats a token", report.done.loss());
  if (report.bigram_loss && report.is_whole()) {
    fmt::print(", of a bigram model {:.4f}", *report.bigram_loss);
  }
  fmt::print("\nperplexity     {:.4g}\n", std::exp(report.done.loss()));
  if (const auto bits = report.bits_per_byte()) fmt::print("bits a byte    {:.4f}\n", *bits);
  fmt::print("on             {} ({}), {} of {} sequences of {} tokens\n", report.data, report.part,
             report.done.sequences, report.sequences_all, report.context);
  fmt::print("took           {}, {} tokens/s\n", format_duration(Seconds(report.seconds)),
             count_text(report.tokens_per_s()));
}

Result<std::string> data_of(Storage& storage, const EvalArguments& arguments) {
  if (!arguments.data.empty()) return arguments.data;
  LH_ASSIGN(const std::optional<std::string> data, data_of_run(storage, arguments.model));
  if (data) return *data;
  return invalid(fmt::format("{} does not say what to judge it on", arguments.model),
                 "--data FOLDER, from `longhaul data prepare`, or --data SHARD.bin");
}

Result<void> eval(EvalArguments arguments) {
  RealStorage storage;
  const InterruptFlag interrupt;
  EvalReport report;
  LH_ASSIGN(report.data, data_of(storage, arguments));
  set_operation_threads(arguments.threads);
  LH_ASSIGN(LoadedModel model, load_model(storage, arguments.model, arguments.precision));
  report.model = model.source;
  const ModelShape shape = model.stage.model();
  report.context = shape.context;
  for (const std::string& note : model.notes) fmt::print(stderr, "note: {}\n", note);
  if (model.source != arguments.model) fmt::print(stderr, "model: {}\n", model.source);
  LH_ASSIGN(const EvalData data, open_eval_data(storage, report.data, arguments.part, shape));
  report.part = data.part;
  report.bigram_loss = data.bigram_loss;
  report.sequences_all = data.sequences();
  LH_ASSIGN(arguments.tokenizer.folders, tokenizer_folders(storage, model, arguments.model));
  arguments.tokenizer.vocabulary = shape.vocabulary;
  auto bytes = bytes_of_tokens(storage, arguments.tokenizer, data);
  if (!bytes) fmt::print(stderr, "note: no bits a byte: {}\n", bytes.error().message);

  const std::int64_t sequences = arguments.sequences == 0
                                     ? report.sequences_all
                                     : std::min(arguments.sequences, report.sequences_all);
  const std::int64_t rows_fit = std::max(1, kRows / shape.context);
  const std::int64_t micro_batch = arguments.micro_batch > 0 ? arguments.micro_batch : rows_fit;
  ModelEvaluator evaluator(model.stage, static_cast<int>(std::min(micro_batch, sequences)),
                           std::move(bytes).value_or(std::vector<std::uint32_t>()));
  LH_ASSIGN(report.seconds, evaluate(evaluator, data, sequences));
  report.done = evaluator.result();
  if (report.done.sequences == 0) return failed("interrupted before the first sequences were done");
  if (arguments.json) {
    print_json(report);
  } else {
    print_table(report);
  }
  return {};
}

/// A model may be sound and still too large for this machine.
Result<void> eval_within_memory(const EvalArguments& arguments) {
  try {
    return eval(arguments);
  } catch (const std::bad_alloc&) {
    return failed("the model needs more memory than this machine has", "a smaller --micro-batch");
  }
}

}  // namespace

void add_eval_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("eval", "a trained model's loss on data");
  const auto arguments = std::make_shared<EvalArguments>();  // owned by the callback below
  command
      ->add_option("model", arguments->model,
                   "a run (runs/NAME), a checkpoint, a Hugging Face folder or a file of llm.c")
      ->required();
  command->add_option("--data", arguments->data,
                      "folder of `data prepare`, or a file of tokens; without it, a run's own");
  command
      ->add_option("--part", arguments->part, "validation, train or all; validation if it is there")
      ->check(CLI::IsMember({"validation", "train", "all"}));
  command->add_option("--sequences", arguments->sequences, "only so many, from the beginning")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--micro-batch", arguments->micro_batch, "sequences at once; changes no result")
      ->check(CLI::Range(1, 1 << 16));
  add_precision_option(*command, arguments->precision);
  add_threads_option(*command, arguments->threads);
  add_tokenizer_options(*command, arguments->tokenizer,
                        "for bits a byte: bytes, gpt2, a tokenizer.json, or a folder with one; "
                        "without it, that of the data, or of the model");
  command->add_flag("--json", arguments->json, "print one JSON document");
  command->footer(
      "Sequences are windows of the model's context that do not overlap, as a run's validation "
      "has\n"
      "them: on the same sequences it is the same number, in the precision of the run's job. "
      "Ctrl-C\n"
      "prints what is done.");
  command->callback([arguments, &exit_status] {
    const Result<void> result = eval_within_memory(*arguments);
    if (!result) exit_status = report_error(result.error());
    if (InterruptFlag::signal() != 0) exit_status = 128 + InterruptFlag::signal();
  });
}

}  // namespace longhaul
