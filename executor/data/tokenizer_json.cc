#include "executor/data/tokenizer_json.h"
#include "executor/data/nfc.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/hash.h"
#include "executor/data/bpe_tokenizer.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

/// Names of the token between documents, the most usual first.
constexpr std::string_view kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>",
                                            "<｜end▁of▁sentence｜>", "</s>", "<eos>"};
constexpr std::size_t kSplittersMax = 16;
constexpr std::size_t kAddedBytesMax = std::size_t{1} << 20;

/// A value, or null where it is absent.
const Json& at(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string text_at(const Json& object, const char* key) {
  const Json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

/// `fallback` where the key is absent or null.
bool flag_at(const Json& object, const char* key, bool fallback) {
  const Json& value = at(object, key);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

std::string type_of(const Json& object) {
  const std::string type = text_at(object, "type");
  return type.empty() ? "without a type" : type;
}

class Reader {
 public:
  explicit Reader(const TokenizerJson& source) : source_(source) {}

  Result<std::unique_ptr<Tokenizer>> run() {
    const Json json = Json::parse(source_.text, nullptr, false);
    if (!json.is_object() || !at(json, "model").is_object()) {
      return bad("not a tokenizer.json: there is no object with a `model`", "");
    }
    LH_TRY(read_normalizer(at(json, "normalizer")));
    LH_TRY(read_model(at(json, "model"), at(json, "added_tokens")));
    LH_TRY(read_pre_tokenizer(at(json, "pre_tokenizer")));
    const Json& decoder = at(json, "decoder");
    if (!decoder.is_null() && type_of(decoder) != "ByteLevel") {
      return bad(fmt::format("the decoder {}", type_of(decoder)));
    }
    parts_.name = "tokenizer.json";
    parts_.fingerprint = hash_text(source_.text);
    parts_.files = source_.files;
    return make_tokenizer(std::move(parts_), std::move(splitters_));
  }

 private:
  std::unexpected<Error> bad(
      std::string what, std::string_view why = " is not supported",
      std::string hint = "byte-level byte-pair encodings are read (GPT-2's, Llama 3's, Qwen's)") {
    if (why.empty()) hint = "";
    what += why;
    return invalid_at({source_.file}, std::move(what), std::move(hint));
  }

  Result<void> read_normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return {};
    if (type_of(normalizer) == "Sequence") {
      for (const Json& one : at(normalizer, "normalizers")) LH_TRY(read_normalizer(one));
      return {};
    }
    if (type_of(normalizer) != "NFC") {
      return bad(fmt::format("the normalizer {}", type_of(normalizer)));
    }
    parts_.nfc = true;
    return {};
  }

  Result<void> read_model(const Json& model, const Json& added) {
    // Old files leave the type out; a BPE is what has merges.
    const bool typed = at(model, "type").is_string();
    if (typed && type_of(model) != "BPE") return bad(fmt::format("the model {}", type_of(model)));
    if (flag_at(model, "byte_fallback", false)) {
      return bad("the model's byte_fallback (a sentencepiece vocabulary, as Llama 2's)");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_at(model, key).empty()) return bad(fmt::format("the model's {}", key));
    }
    if (const Json& dropout = at(model, "dropout"); dropout.is_number() && dropout != 0) {
      return bad("the model's dropout");
    }
    const Json& vocabulary = at(model, "vocab");
    const Json& merges = at(model, "merges");
    if (!vocabulary.is_object() || !merges.is_array()) {
      return bad("the model has no `vocab` of tokens and ids and no list of `merges`", "");
    }
    LH_ASSIGN(const std::size_t size, vocabulary_size(vocabulary, added));
    BpeBuilder builder(size, merges.size());
    for (const auto& [text, id] : vocabulary.items()) {
      if (text.empty()) return bad("a token of `vocab` has no text", "");
      if (std::string wrong = builder.add_token(text, id.get<Token>(), true); !wrong.empty()) {
        return bad(std::move(wrong), "");
      }
    }
    for (std::size_t i = 0; i < merges.size(); ++i) LH_TRY(read_merge(merges[i], i, builder));
    if (std::string wrong = builder.finish(flag_at(model, "ignore_merges", false));
        !wrong.empty()) {
      return bad(std::move(wrong), " in `vocab`");
    }
    LH_TRY(read_added(added, builder));
    parts_.model = std::move(builder.model());
    return {};
  }

  /// One more than the largest id.
  Result<std::size_t> vocabulary_size(const Json& vocabulary, const Json& added) {
    std::uint64_t largest = 0;
    const auto take = [&](const Json& id) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kBpeVocabularyMax) return false;
      largest = std::max(largest, id.get<std::uint64_t>());
      return true;
    };
    const auto wrong = [&](const std::string& text) {
      return bad(
          fmt::format("the id of `{}` is not a number from 0 to {}", text, kBpeVocabularyMax - 1),
          "");
    };
    for (const auto& [text, id] : vocabulary.items()) {
      if (!take(id)) return wrong(text);
    }
    if (!added.is_null() && !added.is_array()) return bad("`added_tokens` is not a list", "");
    for (const Json& token : added) {
      if (text_at(token, "content").empty()) return bad("an added token has no `content`", "");
      if (!take(at(token, "id"))) return wrong(text_at(token, "content"));
    }
    return largest + 1;
  }

  Result<void> read_merge(const Json& merge, std::size_t number, BpeBuilder& builder) {
    std::string_view wrong = "a merge is two tokens: a pair, or a text with a space between them";
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (number == 0 && text.starts_with("#version")) return {};
      const std::size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos) {
        wrong = builder.add_merge(text.substr(0, space), text.substr(space + 1));
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      wrong = builder.add_merge(merge[0].get_ref<const std::string&>(),
                                merge[1].get_ref<const std::string&>());
    }
    if (wrong.empty()) return {};
    return bad(fmt::format("merge {}: {}", number, wrong), "");
  }

  Result<void> read_added(const Json& added, BpeBuilder& builder) {
    std::vector<std::string>& tokens = builder.model().tokens;
    std::size_t bytes = 0;
    std::size_t best = std::size(kEndsOfText);
    for (const Json& token : added) {
      const std::string text = text_at(token, "content");
      const auto id = at(token, "id").get<Token>();
      for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        if (flag_at(token, key, false)) {
          return bad(fmt::format("the added token `{}` with {}", text, key));
        }
      }
      const std::optional<Token> known = builder.find(text);
      std::string& own = tokens[static_cast<std::size_t>(id)];
      if (known ? *known != id : !own.empty() && own != text) {
        return bad(fmt::format("the added token `{}` has the id of another token", text), "");
      }
      own = text;
      if ((bytes += text.size()) > kAddedBytesMax) return bad("so many added tokens");
      const bool special = flag_at(token, "special", false);
      if (!flag_at(token, "normalized", !special)) {
        parts_.raw_tokens.add(text, id);
      } else {  // looked for in normalised text, so its own is, too
        parts_.normalised_tokens.add(parts_.nfc ? NfcText(text).text() : text, id);
      }
      const auto place = static_cast<std::size_t>(
          std::find(std::begin(kEndsOfText), std::end(kEndsOfText), text) - kEndsOfText);
      if (place < best) {
        best = place;
        parts_.end_of_text = id;
      } else if (best == std::size(kEndsOfText) && text == source_.end_of_text) {
        parts_.end_of_text = id;
      }
    }
    return {};
  }

  Result<void> read_pre_tokenizer(const Json& pre) {
    if (pre.is_null()) {
      return bad("a tokenizer without a pre-tokenizer (sentencepiece, as Llama 2's)");
    }
    if (type_of(pre) != "Sequence") {
      LH_TRY(read_step(pre));
    } else {
      const Json& steps = at(pre, "pretokenizers");
      if (!steps.is_array()) return bad("a Sequence has no list of `pretokenizers`", "");
      for (const Json& step : steps) LH_TRY(read_step(step));
    }
    if (byte_level_) return {};
    return bad("a pre-tokenizer without ByteLevel");
  }

  Result<void> read_step(const Json& step) {
    const std::string type = type_of(step);
    if (byte_level_) return bad(fmt::format("the pre-tokenizer {} behind ByteLevel", type));
    if (splitters_.size() == kSplittersMax) return bad("so long a Sequence of pre-tokenizers");
    if (type == "ByteLevel") return read_byte_level(step);
    if (type == "Digits") {
      splitters_.push_back(make_digit_splitter(flag_at(step, "individual_digits", false)));
      return {};
    }
    if (type == "Split") return read_split(step);
    return bad(fmt::format("the pre-tokenizer {}", type));
  }

  Result<void> read_byte_level(const Json& step) {
    byte_level_ = true;
    parts_.prefix_space = flag_at(step, "add_prefix_space", true);
    if (parts_.prefix_space && !splitters_.empty()) {
      return bad("add_prefix_space behind another pre-tokenizer");
    }
    if (flag_at(step, "use_regex", true)) {
      splitters_.push_back(make_gpt2_splitter());
    } else if (splitters_.empty()) {
      return bad("a pre-tokenizer that cuts nothing (ByteLevel with use_regex false, alone)");
    }
    return {};
  }

  Result<void> read_split(const Json& step) {
    const std::string behavior = text_at(step, "behavior");
    const bool invert = flag_at(step, "invert", false);
    // Where the expression matches every character, what lies between matches is nothing, and
    // removing that is the same as keeping it.
    const Json& pattern = at(step, "pattern");
    const std::string expression = text_at(pattern, "Regex");
    const bool total = expression.find("[^\\s\\p{L}\\p{N}]+") != expression.npos &&
                       expression.find("\\p{L") < expression.rfind("\\p{L}") &&
                       expression.find("\\p{N}") < expression.rfind("\\p{N}") &&
                       expression.ends_with("|\\s+");
    if (behavior != "Isolated" && !(behavior == "Removed" && invert && total)) {
      return bad(fmt::format("a Split with behavior {}{}", behavior, invert ? " and invert" : ""));
    }
    const bool literal = at(pattern, "String").is_string();
    Result<std::unique_ptr<Splitter>> splitter =
        literal ? make_text_splitter(text_at(pattern, "String")) : make_regex_splitter(expression);
    if (!splitter) return bad("a Split", ": " + splitter.error().message);
    splitters_.push_back(*std::move(splitter));
    return {};
  }

  const TokenizerJson& source_;
  BpeParts parts_;
  std::vector<std::unique_ptr<Splitter>> splitters_;
  bool byte_level_ = false;
};

/// The text of `eos_token`, or nothing.
std::string end_of_text_in(const std::string& config) {
  const Json json = Json::parse(config, nullptr, false);
  const Json& token = at(json, "eos_token");
  return token.is_string() ? token.get<std::string>() : text_at(token, "content");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const TokenizerJson& source) {
  return Reader(source).run();
}

Result<std::unique_ptr<Tokenizer>> load_json_tokenizer(Storage& storage, const std::string& path) {
  LH_ASSIGN(const std::string text, read_text(storage, path, kTokenizerBytesMax));
  TokenizerJson source = {text, path, "", {path}};
  const std::string config = parent_folder(path) + "/tokenizer_config.json";
  LH_ASSIGN(const EntryKind kind, storage.kind(config));
  if (kind == EntryKind::kFile) {
    LH_ASSIGN(const std::string config_text, read_text(storage, config, kTokenizerBytesMax));
    source.end_of_text = end_of_text_in(config_text);
    source.files.push_back(config);
  }
  return make_json_tokenizer(source);
}

}  // namespace longhaul
