#include "core/hugging_face_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace longhaul {
namespace {

using Json = nlohmann::json;

constexpr int kExtentMax = 1 << 24;
constexpr int kLayersMax = 4096;
constexpr int kDepthMax = 64;

Result<Json> parse_object(std::string_view text, const std::string& path) {
  bool is_too_deep = false;  // to be printed, or to be destroyed, by recursion
  const auto is_kept = [&](int depth, Json::parse_event_t, Json&) {
    is_too_deep = is_too_deep || depth > kDepthMax;
    return !is_too_deep;
  };
  try {
    Json document = Json::parse(text.begin(), text.end(), is_kept);
    if (is_too_deep) return invalid_at({path}, fmt::format("more than {} levels", kDepthMax));
    if (!document.is_object()) return invalid_at({path}, "no JSON object");
    return document;
  } catch (const Json::parse_error& error) {
    const std::size_t until = std::min(text.size(), error.byte);
    const auto lines =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(until), '\n');
    return invalid_at({path, static_cast<int>(lines) + 1}, "no JSON from here on");
  } catch (const Json::out_of_range&) {
    return invalid_at({path}, "a number is too large for JSON");
  }
}

/// A value for messages: short, whatever it is.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

/// Reads the keys of a JSON object. The first wrong one is kept; the others are silent.
class ObjectReader {
 public:
  /// `prefix`: "rope_scaling." inside that.
  ObjectReader(const Json& object, std::string prefix, std::string& message)
      : object_(object), prefix_(std::move(prefix)), message_(message) {}

  /// Null where it is absent or null, which mean the same.
  const Json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  int extent(const char* key, int max = kExtentMax) {
    const Json* const value = find(key);
    if (value == nullptr) return wrong("`{}` is missing", name(key)), 1;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(max)) {
      wrong("`{}` is {}, not a whole number from 1 to {}", name(key), shown(*value), max);
      return 1;
    }
    return value->get<int>();
  }
  int extent_or(const char* key, int fallback) {
    return find(key) == nullptr ? fallback : extent(key);
  }
  bool boolean(const char* key, bool fallback) {
    const Json* const value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      wrong("`{}` is {}, not true or false", name(key), shown(*value));
      return fallback;
    }
    return value->get<bool>();
  }
  /// In (0, max], or [0, max] with `zero`.
  double number(const char* key, std::optional<double> fallback, double max, bool zero = false) {
    const Json* const value = find(key);
    if (value == nullptr) {
      if (!fallback) wrong("`{}` is missing", name(key));
      return fallback.value_or(1);
    }
    const double read = value->is_number() ? value->get<double>() : -1;
    if (!(read > 0 || (zero && read == 0)) || read > max) {
      wrong("`{}` is {}, not a number {} 0 and up to {}", name(key), shown(*value),
            zero ? "from" : "above", max);
      return 1;
    }
    return read;
  }
  /// The value must be one of these texts; absent is fine.
  void expect_text(const char* key, std::initializer_list<std::string_view> allowed) {
    const Json* const value = find(key);
    if (value == nullptr) return;
    const bool known =
        value->is_string() && std::find(allowed.begin(), allowed.end(),
                                        value->get_ref<const std::string&>()) != allowed.end();
    if (!known) wrong("`{}` is {}; longhaul has {}", name(key), shown(*value), *allowed.begin());
  }
  void expect_boolean(const char* key, bool wanted) {
    if (boolean(key, wanted) != wanted) {
      wrong("`{}` is {}; longhaul has {}", name(key), !wanted, wanted);
    }
  }
  template <class... Values>
  void wrong(fmt::format_string<Values...> format, Values&&... values) {
    if (message_.empty()) message_ = fmt::format(format, std::forward<Values>(values)...);
  }
  std::string name(const char* key) const { return prefix_ + key; }

 private:
  const Json& object_;
  const std::string prefix_;
  std::string& message_;
};

void note_dropout(ObjectReader& reader, std::initializer_list<const char*> keys, double fallback,
                  std::vector<std::string>& notes) {
  std::string given;
  for (const char* const key : keys) {
    const double dropout = reader.number(key, fallback, 1, true);
    if (dropout != 0) given += fmt::format("{}{} {}", given.empty() ? "" : ", ", key, dropout);
  }
  if (!given.empty()) notes.push_back(fmt::format("{}: longhaul trains without dropout", given));
}

std::string dtype_of(const ObjectReader& reader) {
  for (const char* const key : {"dtype", "torch_dtype"}) {
    const Json* const value = reader.find(key);
    if (value == nullptr || !value->is_string()) continue;
    for (const char* const known : {"float32", "bfloat16", "float16"}) {
      if (*value == known) return known;
    }
  }
  return "";
}

void read_gpt2(ObjectReader& reader, HuggingFaceConfig& config) {
  ModelShape& model = config.model;
  model.family = ModelFamily::kGpt2;
  model.layers = reader.extent("n_layer", kLayersMax);
  model.width = reader.extent("n_embd");
  model.heads = model.kv_heads = reader.extent("n_head");
  model.context = reader.extent("n_positions");
  model.vocabulary = reader.extent("vocab_size");
  model.ffn_width = reader.extent_or("n_inner", 4 * std::min(model.width, kExtentMax / 4));
  model.tied_embedding = reader.boolean("tie_word_embeddings", true);
  model.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 1);
  if (model.width % model.heads != 0) {
    reader.wrong("`n_embd` {} is not a multiple of `n_head` {}", model.width, model.heads);
  }
  model.head_width = std::max(1, model.width / model.heads);
  // The second and third are other names of the first: the tanh form.
  reader.expect_text("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  reader.expect_boolean("scale_attn_weights", true);
  reader.expect_boolean("scale_attn_by_inverse_layer_idx", false);
  reader.expect_boolean("add_cross_attention", false);
  // Also GPT-2's default where the file does not say.
  note_dropout(reader, {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, 0.1, config.notes);
}

/// Theta and scaling stand at the top of transformers 4's files and in `rope_parameters` of 5's.
void read_rope(ObjectReader& reader, std::string& message, ModelShape& model) {
  model.rope_theta = reader.number("rope_theta", 10000, 1e12);
  for (const char* const key : {"rope_parameters", "rope_scaling"}) {
    const Json* const value = reader.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return reader.wrong("`{}` is {}, not an object", key, shown(*value));
    ObjectReader rope(*value, fmt::format("{}.", key), message);
    const double theta = rope.number("rope_theta", model.rope_theta, 1e12);
    if (theta != model.rope_theta && reader.find("rope_theta") != nullptr) {
      rope.wrong("`rope_theta` is {} and in `{}` it is {}", model.rope_theta, key, theta);
    }
    model.rope_theta = theta;
    if (rope.number("partial_rotary_factor", 1, 1) != 1) {
      rope.wrong("`{}` is not 1; longhaul rotates whole heads", rope.name("partial_rotary_factor"));
    }
    const char* const type_key = rope.find("rope_type") != nullptr ? "rope_type" : "type";
    const Json* const type = rope.find(type_key);
    if (type == nullptr || *type == "default") continue;
    if (*type != "llama3") {
      rope.wrong("`{}` is {}; longhaul has default and llama3", rope.name(type_key), shown(*type));
      continue;
    }
    RopeScaling scaling;
    scaling.factor = rope.number("factor", std::nullopt, 1e6);
    scaling.low_frequency = rope.number("low_freq_factor", std::nullopt, 1e6);
    scaling.high_frequency = rope.number("high_freq_factor", std::nullopt, 1e6);
    scaling.original_context = rope.extent("original_max_position_embeddings");
    if (scaling.high_frequency <= scaling.low_frequency || scaling.factor < 1) {
      rope.wrong("`{}` has a factor below 1, or high_freq_factor is not above low_freq_factor",
                 key);
    }
    model.rope_scaling = scaling;
  }
}

void read_llama(ObjectReader& reader, std::string& message, HuggingFaceConfig& config) {
  ModelShape& model = config.model;
  model.family = ModelFamily::kLlama;
  model.layers = reader.extent("num_hidden_layers", kLayersMax);
  model.width = reader.extent("hidden_size");
  model.heads = reader.extent("num_attention_heads");
  model.kv_heads = reader.extent_or("num_key_value_heads", model.heads);
  model.ffn_width = reader.extent("intermediate_size");
  model.context = reader.extent("max_position_embeddings");
  model.vocabulary = reader.extent("vocab_size");
  model.tied_embedding = reader.boolean("tie_word_embeddings", false);
  model.norm_epsilon = reader.number("rms_norm_eps", 1e-6, 1);
  if (reader.find("head_dim") == nullptr && model.width % model.heads != 0) {
    reader.wrong("`hidden_size` {} is not a multiple of `num_attention_heads` {}", model.width,
                 model.heads);
  }
  model.head_width = reader.extent_or("head_dim", std::max(1, model.width / model.heads));
  if (model.heads % model.kv_heads != 0) {
    reader.wrong("`num_attention_heads` {} is not a multiple of `num_key_value_heads` {}",
                 model.heads, model.kv_heads);
  }
  if (model.head_width % 2 != 0) {
    reader.wrong("heads are {} wide; a rotary embedding turns pairs", model.head_width);
  }
  if (std::int64_t{model.heads} * model.head_width > kExtentMax) {
    reader.wrong("all heads together are wider than {}", kExtentMax);
  }
  read_rope(reader, message, model);
  reader.expect_text("hidden_act", {"silu", "swish"});
  reader.expect_boolean("attention_bias", false);
  reader.expect_boolean("mlp_bias", false);
  if (reader.extent_or("pretraining_tp", 1) != 1) {
    reader.wrong("`pretraining_tp` is not 1: other sums than longhaul's");
  }
  note_dropout(reader, {"attention_dropout"}, 0, config.notes);
}

}  // namespace

Result<HuggingFaceConfig> parse_hugging_face_config(std::string_view text,
                                                    const std::string& path) {
  LH_ASSIGN(const Json document, parse_object(text, path));
  std::string message;
  ObjectReader reader(document, "", message);
  const Json* const type = reader.find("model_type");
  if (type == nullptr) {
    return invalid_at({path}, "`model_type` is missing",
                      "is this the config of a transformers model?");
  }
  HuggingFaceConfig config;
  config.dtype = dtype_of(reader);
  if (reader.find("quantization_config") != nullptr) {
    return invalid_at({path},
                      "the model is quantized (`quantization_config`); longhaul trains weights",
                      "take the model that it was made from");
  }
  if (*type == "gpt2") {
    read_gpt2(reader, config);
  } else if (*type == "llama") {
    read_llama(reader, message, config);
  } else if (*type == "mistral") {
    // Llama's arithmetic in every respect but for the window; a file that does not say has one.
    read_llama(reader, message, config);
    const auto window = document.find("sliding_window");
    if (window == document.end() || !window->is_null()) {
      reader.wrong("`sliding_window` is {}; longhaul's attention sees the whole context",
                   window == document.end() ? "4096 unless the file says null" : shown(*window));
    }
  } else {
    return invalid_at({path},
                      fmt::format("model type {} is not supported; longhaul trains gpt2 and llama",
                                  shown(*type)));
  }
  if (!message.empty()) return invalid_at({path}, message);
  return config;
}

Result<HuggingFaceConfig> load_hugging_face_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return invalid(fmt::format("{} is no folder", folder),
                   "give the folder of a Hugging Face model, with its config.json");
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return invalid(fmt::format("{} has no config.json", folder),
                   "give the folder of a Hugging Face model");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kHuggingFaceConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return invalid(fmt::format("cannot read {}", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kHuggingFaceConfigBytesMax) {
    return invalid_at({path}, "more than 1 MiB is no config of a model");
  }
  return parse_hugging_face_config(text, path);
}

}  // namespace longhaul
