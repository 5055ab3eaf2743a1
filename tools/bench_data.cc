// Speed of the tokenizers on one core, beside Hugging Face's library on the same text in the same
// run, where tools/judges can have it.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "executor/data/block_encoder.h"
#include "executor/data/prepare.h"
#include "executor/storage/real_storage.h"
#include "tools/bench.h"

namespace longhaul {
namespace {

constexpr const char* kFolder = "build/bench/data";
constexpr std::size_t kTextBytes = 10'000'000;

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// The first line that a command prints.
std::string first_line(const std::string& command) {
  std::array<char, 512> line{};
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  const bool got = fgets(line.data(), line.size(), pipe) != nullptr;
  const int status = pclose(pipe);
  std::string text = got && status == 0 ? line.data() : "";
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// All documents and sources of the checkout, again and again until there is enough of them.
Result<std::string> code_text(Storage& storage) {
  LH_ASSIGN(
      const TextInputs inputs,
      TextInputs::open(storage, {{LONGHAUL_SOURCE_DIR "/core", LONGHAUL_SOURCE_DIR "/planner",
                                  LONGHAUL_SOURCE_DIR "/executor", LONGHAUL_SOURCE_DIR "/docs"},
                                 {".cc", ".h", ".md"}}));
  std::string once;
  for (std::int64_t at = 0; at < inputs.size();) {
    LH_ASSIGN(const TextBlock block, inputs.block(at, inputs.size()));
    once += std::string_view(block.text).substr(0, block.size);
    at = block.end();
  }
  std::string text;
  while (text.size() < kTextBytes) text += once;
  return text;
}

Result<std::string> bible_text(Storage& storage) {
  LH_ASSIGN(const std::string once,
            read_text(storage, LONGHAUL_SOURCE_DIR "/build/demo/bible.txt", kTextBytes));
  std::string text;
  while (text.size() < kTextBytes) text += once;
  return text;
}

/// GPT-2's tables as a tokenizer.json with the expression of a Llama 3 or GPT-2, so that all read
/// the same vocabulary.
std::string tokenizer_json(const std::string& vocabulary, const std::string& merges,
                           const std::string& expression) {
  nlohmann::ordered_json json = {{"version", "1.0"},
                                 {"added_tokens", nlohmann::ordered_json::array()},
                                 {"normalizer", nullptr},
                                 {"post_processor", nullptr},
                                 {"decoder",
                                  {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", true}}}};
  const nlohmann::ordered_json byte_level = {{"type", "ByteLevel"},
                                             {"add_prefix_space", false},
                                             {"trim_offsets", true},
                                             {"use_regex", expression.empty()}};
  json["pre_tokenizer"] = byte_level;
  if (!expression.empty()) {
    json["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Split"},
                                {"pattern", {{"Regex", expression}}},
                                {"behavior", "Isolated"},
                                {"invert", false}},
                               byte_level}}};
  }
  std::vector<std::string> lines;
  for (std::size_t at = merges.find('\n') + 1; at < merges.size();) {
    const std::size_t end = std::min(merges.find('\n', at), merges.size());
    if (end > at) lines.push_back(merges.substr(at, end - at));
    at = end + 1;
  }
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"vocab", nlohmann::ordered_json::parse(vocabulary)},
                   {"merges", lines}};
  return json.dump();
}

struct Measured {
  double megabytes_per_second;
  std::int64_t tokens;
};

/// The encoding of a text in blocks, as `prepare` does it on one thread.
Measured encode(Tokenizer& tokenizer, const std::string& text, int runs) {
  double best = 1e30;
  std::int64_t tokens = 0;
  for (int run = 0; run < runs; ++run) {
    const double start = cpu_seconds();
    tokens = 0;
    std::vector<Token> out;
    for (std::size_t done = 0; done < text.size();) {
      const std::string_view rest = std::string_view(text).substr(done);
      const std::string_view seen = rest.substr(0, (1 << 20) + (64 << 10));
      out.clear();
      done += tokenizer.encode(seen, {done == 0, seen.size() == rest.size(), 1 << 20}, out);
      tokens += std::ssize(out);
    }
    best = std::min(best, cpu_seconds() - start);
  }
  return {static_cast<double>(text.size()) / best * 1e-6, tokens};
}

/// `prepare` as a whole: reading, encoding, the bigram model, writing.
Result<double> prepare_speed(Storage& storage, const Tokenizer& tokenizer, const std::string& file,
                             double megabytes) {
  const std::string folder = fmt::format("{}/prepared", kFolder);
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    LH_TRY(make_folders(storage, folder));
    LH_ASSIGN(const std::vector<std::string> names, storage.list(folder));
    for (const std::string& name : names) LH_TRY(storage.remove(folder + "/" + name));
    const double start = cpu_seconds();
    LH_ASSIGN(const Dataset dataset,
              prepare_dataset(storage, {.inputs = {{file}}, .folder = folder}, tokenizer,
                              [](const PrepareProgress&) { return true; }));
    best = std::max(best, megabytes / (cpu_seconds() - start));
  }
  return best;
}

struct Peer {
  double megabytes_per_second = 0;
  std::int64_t tokens = 0;
  std::string name;
};

std::optional<Peer> peer_speed(const std::string& python, const std::string& tokenizer,
                               const std::string& text, double megabytes, int runs) {
  if (python.empty()) return std::nullopt;
  const std::string line =
      first_line(fmt::format("'{}' '{}/tests/judges/tokenizer_speed.py' '{}' '{}' {}", python,
                             LONGHAUL_SOURCE_DIR, tokenizer, text, runs));
  double seconds = 0;
  long long tokens = 0;
  std::array<char, 64> version{};
  if (std::sscanf(line.c_str(), "%lf %lld %63s", &seconds, &tokens, version.data()) != 3) {
    return std::nullopt;
  }
  return Peer{megabytes / seconds, tokens,
              fmt::format("Hugging Face tokenizers {}, one thread", version.data())};
}

Result<std::vector<BenchFigure>> measure(bool quick) {
  RealStorage storage;
  const std::string command = "tools/bench data";
  const int runs = quick ? 3 : 5;
  LH_TRY(make_folders(storage, kFolder));
  LH_ASSIGN(const std::string vocabulary,
            read_text(storage, LONGHAUL_SOURCE_DIR "/build/gpt2/encoder.json", 1 << 22));
  LH_ASSIGN(const std::string merges,
            read_text(storage, LONGHAUL_SOURCE_DIR "/build/gpt2/vocab.bpe", 1 << 22));
  const std::string python = first_line(LONGHAUL_SOURCE_DIR "/tools/judges --check 2>/dev/null");
  const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  struct Kind {
    const char* name;
    std::string expression;
  };
  const Kind kinds[] = {{"GPT-2", ""},
                        {"Llama 3's split", llama3},
                        // One group around it makes it an expression that is not known by hand.
                        {"a split by PCRE2", "(?:" + llama3 + ")"}};
  std::vector<BenchFigure> figures;
  for (const auto& [text_name, made] :
       {std::pair{"the Bible", bible_text(storage)}, {"code", code_text(storage)}}) {
    if (!made) {
      fmt::print("{}: left out, {}\n", text_name, made.error().message);
      continue;
    }
    const std::string& text = *made;
    const double megabytes = static_cast<double>(text.size()) * 1e-6;
    const std::string text_file = fmt::format("{}/text.txt", kFolder);
    LH_TRY(write_file(storage, text_file, text));
    for (const Kind& kind : kinds) {
      const std::string file = fmt::format("{}/tokenizer.json", kFolder);
      LH_TRY(write_file(storage, file, tokenizer_json(vocabulary, merges, kind.expression)));
      LH_ASSIGN(const auto tokenizer, load_tokenizer(storage, file));
      const std::optional<Peer> peer =
          peer_speed(python, file, text_file, megabytes, quick ? 1 : 2);
      const Measured ours = encode(*tokenizer, text, runs);
      const double target = peer ? peer->megabytes_per_second : 5;
      figures.push_back({fmt::format("encode, {}, {}", kind.name, text_name),
                         ours.megabytes_per_second, "MB/s", target, "higher",
                         ours.megabytes_per_second >= target, peer ? peer->name : "given",
                         command});
      if (&kind != &kinds[0]) continue;
      LH_ASSIGN(const double whole, prepare_speed(storage, *tokenizer, text_file, megabytes));
      figures.push_back({fmt::format("data prepare, {}, {}", kind.name, text_name), whole, "MB/s",
                         target, "higher", whole >= target, peer ? peer->name : "given", command});
    }
  }
  return figures;
}

}  // namespace

int bench_data(bool quick, int) {
  const auto figures = measure(quick);
  if (figures) return report("data", *figures);
  fmt::print(stderr, "{}\n", figures.error().text());
  return static_cast<int>(figures.error().code);
}

}  // namespace longhaul
