// `longhaul generate`: text from a trained model.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "executor/run/text_generator.h"
#include "executor/storage/real_storage.h"
#include "tools/command.h"

namespace longhaul {
namespace {

struct GenerateArguments {
  std::string folder;
  std::string prompt;
  std::int64_t tokens = 128;
  std::string tokenizer;  // empty: by the model's vocabulary
  std::string tables;     // empty: looked for
  Sampling sampling;
  bool json = false;
};

constexpr std::int64_t kByteVocabulary = 256;
constexpr std::int64_t kGpt2Vocabulary = 50257;

/// Vocabularies are often padded to the next multiple of 128.
bool is_padded(std::int64_t vocabulary, std::int64_t from) {
  return vocabulary >= from && vocabulary < from + 128;
}

/// A folder that goes away with its owner.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make() {
    std::error_code error;
    const auto temporary = std::filesystem::temp_directory_path(error);
    std::string path = (temporary / "longhaul-generate-XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return failed(fmt::format("cannot make a folder in {}", temporary.string()),
                    "set TMPDIR to a folder with room for the model");
    }
    return ScratchFolder(std::move(path));
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<std::unique_ptr<Tokenizer>> load_gpt2(Storage& storage, const GenerateArguments& arguments) {
  if (!arguments.tables.empty()) return load_gpt2_tokenizer(storage, arguments.tables);
  for (const std::string& folder : {arguments.folder, std::string("build/gpt2")}) {
    for (const char* name : {"vocab.json", "encoder.json"}) {
      LH_ASSIGN(const EntryKind kind, storage.kind(fmt::format("{}/{}", folder, name)));
      if (kind == EntryKind::kFile) return load_gpt2_tokenizer(storage, folder);
    }
  }
  return invalid("GPT-2's tokenizer needs its tables",
                 "--tables FOLDER with vocab.json and merges.txt (or encoder.json and vocab.bpe); "
                 "tools/setup puts them into build/gpt2 where it can");
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(Storage& storage,
                                                  const GenerateArguments& arguments,
                                                  std::int64_t vocabulary) {
  std::string name = arguments.tokenizer;
  if (name.empty()) {
    if (is_padded(vocabulary, kByteVocabulary)) name = "bytes";
    if (is_padded(vocabulary, kGpt2Vocabulary)) name = "gpt2";
    if (name.empty()) {
      return invalid(fmt::format("a vocabulary of {} does not tell the tokenizer", vocabulary),
                     "--tokenizer bytes or --tokenizer gpt2");
    }
  }
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  if (name == "gpt2") {
    LH_ASSIGN(tokenizer, load_gpt2(storage, arguments));
  }
  if (tokenizer->vocabulary() > vocabulary) {
    return invalid(fmt::format("the tokenizer {} has {} tokens, the model only {}",
                               tokenizer->name(), tokenizer->vocabulary(), vocabulary));
  }
  return tokenizer;
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

Result<void> generate(const GenerateArguments& arguments) {
  RealStorage storage;
  const InterruptFlag interrupt;
  std::optional<LoadedModel> model;
  {
    LH_ASSIGN(const ScratchFolder scratch, ScratchFolder::make());
    LH_ASSIGN(model, load_model(storage, arguments.folder, scratch.path()));
  }
  const ModelShape shape = model->stage.model();
  LH_ASSIGN(const auto tokenizer, make_tokenizer(storage, arguments, shape.vocabulary));
  for (const std::string& note : model->notes) fmt::print(stderr, "note: {}\n", note);
  if (model->source != arguments.folder) fmt::print(stderr, "model: {}\n", model->source);

  std::vector<Token> seen = opening(*tokenizer, arguments.prompt);
  std::vector<Token> told;
  if (!arguments.prompt.empty()) told = seen;
  if (std::ssize(seen) > shape.context) {
    const std::int64_t kept = std::max(1, shape.context - 1);
    fmt::print(stderr, "note: the prompt has {} tokens; the model sees the last {}\n", seen.size(),
               kept);
    seen.erase(seen.begin(), seen.end() - kept);
  }
  Utf8Stream stream;
  std::string text = stream.take(arguments.prompt);
  if (!arguments.json) print_now(text);

  TextGenerator generator(std::move(model->stage), tokenizer->vocabulary(), arguments.sampling);
  for (std::int64_t n = 0; n < arguments.tokens && InterruptFlag::signal() == 0; ++n) {
    LH_ASSIGN(const Token token, generator.next(seen));
    seen.push_back(token);
    told.push_back(token);
    LH_ASSIGN(const std::string bytes, tokenizer->decode(std::span(&token, 1)));
    const std::string more = stream.take(bytes);
    text += more;
    if (!arguments.json) print_now(more);
  }
  const std::string rest = stream.finish();
  text += rest;
  if (arguments.json) {
    const nlohmann::ordered_json document = {{"version", 1}, {"text", text}, {"tokens", told}};
    fmt::print("{}\n", document.dump());
  } else {
    print_now(rest + "\n");
  }
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

}  // namespace

void add_generate_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("generate", "continue a text with a trained model");
  const auto arguments = std::make_shared<GenerateArguments>();  // owned by the callback below
  command
      ->add_option("folder", arguments->folder,
                   "a run (runs/NAME), a checkpoint, or a Hugging Face GPT-2 folder")
      ->required();
  command->add_option("--prompt", arguments->prompt, "text to be continued");
  command->add_option("--tokens", arguments->tokens, "tokens to add")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->sampling.temperature,
                   "0 takes the likeliest token; 1 draws as the model says; more is bolder")
      ->check(CLI::Range(0.0, 100.0))
      ->check(not_a_number)
      ->capture_default_str();
  command
      ->add_option("--top-k", arguments->sampling.top_k,
                   "draw only among so many of the likeliest; 0: among all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command->add_option("--seed", arguments->sampling.seed, "of what is drawn")
      ->check(CLI::Range(std::uint64_t{0}, (std::uint64_t{1} << 63) - 1))
      ->capture_default_str();
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes or gpt2; without it, the model's vocabulary tells")
      ->check(CLI::IsMember({"bytes", "gpt2"}));
  command->add_option("--tables", arguments->tables, "folder with GPT-2's vocabulary and merges");
  command->add_flag("--json", arguments->json, "print one JSON document at the end");
  command->callback([arguments, &exit_status] {
    const Result<void> result = generate_within_memory(*arguments);
    if (!result) exit_status = report_error(result.error());
    if (InterruptFlag::signal() != 0) exit_status = 128 + InterruptFlag::signal();
  });
}

}  // namespace longhaul
