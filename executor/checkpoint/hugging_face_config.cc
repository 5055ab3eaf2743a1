#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "executor/checkpoint/hugging_face.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

constexpr int kExtentMax = 1 << 24;
constexpr int kLayersMax = 4096;
constexpr double kNormEpsilon = 1e-5;
constexpr int kGpt2EndOfText = 50256;

std::unexpected<Error> bad_file(const std::string& path, std::string message,
                                std::string hint = "") {
  return std::unexpected(
      Error{ErrorCode::kInvalid, std::move(message), std::move(hint), {.file = path}, "", {}});
}

Result<Json> parse_object(std::string_view text, const std::string& path) {
  try {
    Json document = Json::parse(text.begin(), text.end());
    if (!document.is_object()) return bad_file(path, "no JSON object");
    return document;
  } catch (const Json::parse_error& error) {
    const std::size_t until = std::min(text.size(), error.byte);
    const auto lines =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(until), '\n');
    auto bad = bad_file(path, "no JSON from here on");
    bad.error().place.line = static_cast<int>(lines) + 1;
    return bad;
  }
}

/// A value for messages: short, whatever it is.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

/// Reads the keys of config.json. The first wrong one is kept; the others are silent.
class ConfigReader {
 public:
  ConfigReader(const Json& document, const std::string& path) : document_(document), path_(path) {}

  int extent(const char* key, int max = kExtentMax) {
    const auto at = document_.find(key);
    if (at == document_.end()) return wrong(fmt::format("`{}` is missing", key)), 1;
    if (!at->is_number_unsigned() || at->get<std::uint64_t>() < 1 ||
        at->get<std::uint64_t>() > static_cast<std::uint64_t>(max)) {
      wrong(fmt::format("`{}` is {}, not a whole number from 1 to {}", key, shown(*at), max));
      return 1;
    }
    return at->get<int>();
  }
  bool boolean(const char* key, bool fallback) {
    const auto at = document_.find(key);
    if (at == document_.end() || at->is_null()) return fallback;
    if (!at->is_boolean()) {
      wrong(fmt::format("`{}` is {}, not true or false", key, shown(*at)));
      return fallback;
    }
    return at->get<bool>();
  }
  double number(const char* key, double fallback) {
    const auto at = document_.find(key);
    if (at == document_.end() || at->is_null()) return fallback;
    if (!at->is_number()) {
      wrong(fmt::format("`{}` is {}, not a number", key, shown(*at)));
      return fallback;
    }
    return at->get<double>();
  }
  /// Absent and null are the same.
  bool has(const char* key) const {
    const auto at = document_.find(key);
    return at != document_.end() && !at->is_null();
  }
  /// The value must be one of these texts; absent is fine.
  void expect_text(const char* key, std::initializer_list<std::string_view> allowed) {
    const auto at = document_.find(key);
    if (at == document_.end()) return;
    const bool known =
        at->is_string() && std::find(allowed.begin(), allowed.end(),
                                     at->get_ref<const std::string&>()) != allowed.end();
    if (!known)
      wrong(fmt::format("`{}` is {}; longhaul has {}", key, shown(*at), *allowed.begin()));
  }
  void expect_boolean(const char* key, bool wanted) {
    if (boolean(key, wanted) != wanted) {
      wrong(fmt::format("`{}` is {}; longhaul has {}", key, !wanted, wanted));
    }
  }
  void wrong(std::string message) {
    if (message_.empty()) message_ = std::move(message);
  }
  Result<void> finish() const {
    if (message_.empty()) return {};
    return bad_file(path_, message_);
  }

 private:
  const Json& document_;
  const std::string& path_;
  std::string message_;
};

}  // namespace

std::string hugging_face_config(const ModelShape& model) {
  const bool usual_ffn = model.ffn_width == 4 * model.width;
  // The token that GPT-2's tokeniser ends a text with, if this vocabulary has it.
  const std::string end_of_text =
      model.vocabulary > kGpt2EndOfText ? fmt::format("{}", kGpt2EndOfText) : "null";
  return fmt::format(
      "{{\n"
      "  \"activation_function\": \"gelu_new\",\n"
      "  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  ],\n"
      "  \"attn_pdrop\": 0.0,\n"
      "  \"bos_token_id\": {},\n"
      "  \"embd_pdrop\": 0.0,\n"
      "  \"eos_token_id\": {},\n"
      "  \"initializer_range\": 0.02,\n"
      "  \"layer_norm_epsilon\": 1e-05,\n"
      "  \"model_type\": \"gpt2\",\n"
      "  \"n_ctx\": {},\n"
      "  \"n_embd\": {},\n"
      "  \"n_head\": {},\n"
      "  \"n_inner\": {},\n"
      "  \"n_layer\": {},\n"
      "  \"n_positions\": {},\n"
      "  \"reorder_and_upcast_attn\": false,\n"
      "  \"resid_pdrop\": 0.0,\n"
      "  \"scale_attn_by_inverse_layer_idx\": false,\n"
      "  \"scale_attn_weights\": true,\n"
      "  \"tie_word_embeddings\": {},\n"
      "  \"torch_dtype\": \"float32\",\n"
      "  \"use_cache\": true,\n"
      "  \"vocab_size\": {}\n"
      "}}\n",
      end_of_text, end_of_text, model.context, model.width, model.heads,
      usual_ffn ? "null" : fmt::format("{}", model.ffn_width), model.layers, model.context,
      model.tied_embedding, model.vocabulary);
}

std::string hugging_face_generation_config(const ModelShape& model) {
  if (model.vocabulary <= kGpt2EndOfText) return "{\n  \"_from_model_config\": true\n}\n";
  return fmt::format(
      "{{\n  \"_from_model_config\": true,\n  \"bos_token_id\": {0},\n  \"eos_token_id\": "
      "{0}\n}}\n",
      kGpt2EndOfText);
}

Result<HuggingFaceConfig> parse_hugging_face_config(std::string_view text,
                                                    const std::string& path) {
  LH_ASSIGN(const Json document, parse_object(text, path));
  ConfigReader reader(document, path);
  const auto type = document.find("model_type");
  if (type == document.end() || *type != "gpt2") {
    return bad_file(path, fmt::format("`model_type` is {}; only gpt2 folders can be read",
                                      type == document.end() ? "missing" : shown(*type)));
  }
  HuggingFaceConfig config;
  ModelShape& model = config.model;
  model.family = ModelFamily::kGpt2;
  model.layers = reader.extent("n_layer", kLayersMax);
  model.width = reader.extent("n_embd");
  model.heads = model.kv_heads = reader.extent("n_head");
  model.context = reader.extent("n_positions");
  model.vocabulary = reader.extent("vocab_size");
  model.ffn_width = reader.has("n_inner")           ? reader.extent("n_inner")
                    : model.width <= kExtentMax / 4 ? 4 * model.width
                                                    : kExtentMax;
  model.tied_embedding = reader.boolean("tie_word_embeddings", true);
  if (model.width % model.heads != 0) {
    reader.wrong(
        fmt::format("`n_embd` {} is not a multiple of `n_head` {}", model.width, model.heads));
  }
  model.head_width = std::max(1, model.width / model.heads);
  // The second and third are other names of the first: the tanh form.
  reader.expect_text("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  reader.expect_boolean("scale_attn_weights", true);
  reader.expect_boolean("scale_attn_by_inverse_layer_idx", false);
  reader.expect_boolean("add_cross_attention", false);
  if (reader.number("layer_norm_epsilon", kNormEpsilon) != kNormEpsilon) {
    reader.wrong(fmt::format("`layer_norm_epsilon` is {}; longhaul has 1e-05",
                             shown(document["layer_norm_epsilon"])));
  }
  for (const char* const key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    // Also GPT-2's default where the file does not say.
    const double dropout = reader.number(key, 0.1);
    if (dropout != 0)
      config.notes.push_back(fmt::format("`{}` {} is ignored: dropout is 0", key, dropout));
  }
  LH_TRY(reader.finish());
  return config;
}

Result<std::vector<std::string>> parse_hugging_face_index(std::string_view text,
                                                          const std::string& path) {
  LH_ASSIGN(const Json document, parse_object(text, path));
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object() || map->empty()) {
    return bad_file(path, "`weight_map` is not a map from tensors to files");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    // A name from the file must not lead out of its folder.
    if (!file.is_string() || file.get_ref<const std::string&>().empty() ||
        file.get_ref<const std::string&>().find('/') != std::string::npos) {
      return bad_file(path, fmt::format("`weight_map` has {}, which is no file name", shown(file)));
    }
    names.insert(file.get<std::string>());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace longhaul
