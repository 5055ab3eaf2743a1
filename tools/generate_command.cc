// `longhaul generate`: text from a trained model.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/quantity.h"
#include "executor/run/model_loader.h"
#include "executor/run/text_generator.h"
#include "executor/storage/real_storage.h"
#include "kernels/parallel.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

struct GenerateArguments {
  std::string folder;
  std::string prompt;
  std::string prompt_file;  // `-` is standard input
  std::int64_t tokens = 128;
  int samples = 1;
  bool goes_on = false;  // past an end of text
  TokenizerChoice tokenizer;
  Sampling sampling;
  Precision precision = Precision::kFp32;
  int threads = 1;
  bool json = false;
};

constexpr std::size_t kPromptBytesMax = std::size_t{64} << 20;

Result<std::string> standard_input() {
  std::string text;
  std::array<char, 65536> piece;
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), stdin)) {
    text.append(piece.data(), got);
    if (text.size() > kPromptBytesMax) return invalid("the prompt has more than 64 MiB");
  }
  if (std::ferror(stdin) != 0) return failed("standard input cannot be read");
  return text;
}

Result<std::string> prompt_of(Storage& storage, const GenerateArguments& arguments) {
  if (arguments.prompt_file.empty()) return arguments.prompt;
  if (arguments.prompt_file == "-") return standard_input();
  auto text = read_text(storage, arguments.prompt_file, kPromptBytesMax);
  if (!text) text.error().code = ErrorCode::kInvalid;
  return text;
}

/// The tokens that the model begins with.
std::vector<Token> opening(Tokenizer& tokenizer, const std::string& prompt) {
  if (!prompt.empty()) return tokenizer.encode(prompt);
  // Out of nothing: what stands between documents, or a new line.
  if (const auto end_of_text = tokenizer.end_of_text()) return {*end_of_text};
  return tokenizer.encode("\n");
}

void print_now(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

struct Sample {
  std::string text;           // with the prompt
  std::vector<Token> tokens;  // likewise, and an end of text where that ended it
  std::string_view ended = "length";
  nlohmann::ordered_json json(std::size_t prompt_tokens) const {
    return {{"text", text}, {"tokens", tokens}, {"prompt_tokens", prompt_tokens}, {"ended", ended}};
  }
};

/// Everything that the samples have in common.
class Writer {
 public:
  Writer(const GenerateArguments& arguments, std::string prompt, Tokenizer& tokenizer,
         ModelStage stage)
      : arguments_(arguments),
        prompt_(std::move(prompt)),
        tokenizer_(tokenizer),
        context_(stage.model().context),
        opening_(opening(tokenizer, prompt_)),
        generator_(std::move(stage), tokenizer.vocabulary(), arguments.sampling) {
    if (std::ssize(opening_) <= context_) return;
    const std::int64_t kept = std::max(1, context_ - 1);
    fmt::print(stderr, "note: the prompt has {} tokens; the model sees the last {}\n",
               opening_.size(), kept);
    hidden_ = opening_.size() - static_cast<std::size_t>(kept);
  }

  Result<Sample> write(int number) {
    generator_.begin_sample(number);
    Utf8Stream stream;
    Sample sample;
    std::vector<Token> seen(opening_.begin() + static_cast<std::ptrdiff_t>(hidden_),
                            opening_.end());
    if (!prompt_.empty()) sample.tokens = opening_;
    const auto show = [&](const std::string& text) {
      sample.text += text;
      if (!arguments_.json) print_now(text);
    };
    show(stream.take(prompt_));
    for (std::int64_t n = 0; n < arguments_.tokens; ++n) {
      if (InterruptFlag::signal() != 0) {
        sample.ended = "interrupted";
        break;
      }
      LH_ASSIGN(const Token token, generator_.next(seen));
      seen.push_back(token);
      sample.tokens.push_back(token);
      ++generated_;
      if (token == tokenizer_.end_of_text() && !arguments_.goes_on) {
        sample.ended = "end_of_text";
        break;
      }
      LH_ASSIGN(const std::string bytes, tokenizer_.decode(std::span(&token, 1)));
      show(stream.take(bytes));
    }
    show(stream.finish());
    return sample;
  }

  std::size_t prompt_tokens() const { return prompt_.empty() ? 0 : opening_.size(); }
  std::int64_t generated() const { return generated_; }

 private:
  const GenerateArguments& arguments_;
  const std::string prompt_;
  Tokenizer& tokenizer_;
  const int context_;
  const std::vector<Token> opening_;
  std::size_t hidden_ = 0;  // tokens of the opening that the model does not see
  TextGenerator generator_;
  std::int64_t generated_ = 0;
};

void tell_speed(std::int64_t tokens, double seconds) {
  fmt::print(stderr, "{} token{} in {}, {} tokens/s\n", tokens, tokens == 1 ? "" : "s",
             format_duration(Seconds(seconds)),
             count_text(static_cast<double>(tokens) / std::max(seconds, 1e-9)));
}

Result<void> generate(const GenerateArguments& arguments) {
  RealStorage storage;
  const InterruptFlag interrupt;
  LH_ASSIGN(std::string prompt, prompt_of(storage, arguments));
  set_operation_threads(arguments.threads);
  LH_ASSIGN(LoadedModel model, load_model(storage, arguments.folder, arguments.precision));
  TokenizerChoice choice = arguments.tokenizer;
  LH_ASSIGN(choice.folders, tokenizer_folders(storage, model, arguments.folder));
  choice.vocabulary = model.stage.model().vocabulary;
  LH_ASSIGN(const auto tokenizer, choose_tokenizer(storage, choice));
  for (const std::string& note : model.notes) fmt::print(stderr, "note: {}\n", note);
  if (model.source != arguments.folder) fmt::print(stderr, "model: {}\n", model.source);
  const Sampling& sampling = arguments.sampling;
  if (sampling.temperature == 0 &&
      (sampling.top_k > 0 || sampling.top_p < 1 || arguments.samples > 1)) {
    fmt::print(stderr,
               "note: at temperature 0 the likeliest token is taken: --top-k and --top-p change "
               "nothing, and all samples are alike\n");
  }

  Writer writer(arguments, std::move(prompt), *tokenizer, std::move(model.stage));
  const auto start = std::chrono::steady_clock::now();
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (int n = 0; n < arguments.samples; ++n) {
    if (n > 0 && InterruptFlag::signal() != 0) break;
    if (arguments.samples > 1 && !arguments.json) {
      print_now(fmt::format("--- sample {} of {} ---\n", n + 1, arguments.samples));
    }
    LH_ASSIGN(const Sample sample, writer.write(n));
    if (!arguments.json) print_now("\n");
    samples.push_back(sample.json(writer.prompt_tokens()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (arguments.json) {
    nlohmann::ordered_json document = {{"version", 1}};
    document.update(samples[0]);
    if (arguments.samples > 1) document["samples"] = samples;
    fmt::print("{}\n", document.dump());
  }
  tell_speed(writer.generated(), took.count());
  return {};
}

/// A model may be sound and still too large for this machine.
Result<void> generate_within_memory(const GenerateArguments& arguments) {
  try {
    return generate(arguments);
  } catch (const std::bad_alloc&) {
    return failed("the model needs more memory than this machine has");
  }
}

/// Why `text` is no share of something, or empty.
std::string no_share(const std::string& text) {
  const Result<double> number = parse_number(text);
  if (!number) return number.error().message;
  return *number > 0 && *number <= 1 ? "" : fmt::format("{} is not above 0 and at most 1", text);
}

void add_sampling_options(CLI::App& command, Sampling& sampling) {
  command
      .add_option("--temperature", sampling.temperature,
                  "0 takes the likeliest token; 1 draws as the model says; more is bolder")
      ->check(CLI::Range(0.0, 100.0))
      ->check(not_a_number)
      ->capture_default_str();
  command
      .add_option("--top-k", sampling.top_k,
                  "draw only among so many of the likeliest; 0: among all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "draw only among the likeliest that together have this probability; 1: among all")
      ->check(no_share)
      ->capture_default_str();
  command.add_option("--seed", sampling.seed, "of what is drawn")
      ->check(CLI::Range(std::uint64_t{0}, (std::uint64_t{1} << 63) - 1))
      ->capture_default_str();
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("generate", "continue a text with a trained model");
  const auto arguments = std::make_shared<GenerateArguments>();  // owned by the callback below
  command
      ->add_option("folder", arguments->folder,
                   "a run (runs/NAME), a checkpoint, a Hugging Face folder or a file of llm.c")
      ->required();
  CLI::Option* const prompt =
      command->add_option("--prompt", arguments->prompt, "text to be continued");
  command
      ->add_option("--prompt-file", arguments->prompt_file,
                   "file with it, taken as it is; - for standard input")
      ->excludes(prompt);
  command->add_option("--tokens", arguments->tokens, "tokens to add")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  command->add_option("--samples", arguments->samples, "texts to write, each drawn anew")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--go-on", arguments->goes_on, "do not stop where the model ends its text");
  add_sampling_options(*command, arguments->sampling);
  add_precision_option(*command, arguments->precision);
  add_threads_option(*command, arguments->threads);
  add_tokenizer_options(*command, arguments->tokenizer,
                        "bytes, gpt2, a tokenizer.json, or a folder with one; without it, that of "
                        "the model's folder or of the run's data, or what the vocabulary tells");
  command->add_flag("--json", arguments->json, "print one JSON document at the end");
  command->footer(
      "Filters act in the order temperature, top-k, top-p. Where the text is longer than the\n"
      "model's context, each token is computed from the last tokens alone, which is slower.");
  command->callback([arguments, &exit_status] {
    const Result<void> result = generate_within_memory(*arguments);
    if (!result) exit_status = report_error(result.error());
    if (InterruptFlag::signal() != 0) exit_status = 128 + InterruptFlag::signal();
  });
}

}  // namespace longhaul
