// The JSON files of a Hugging Face folder but for what core/hugging_face_config.h reads.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/hugging_face_config.h"
#include "executor/checkpoint/hugging_face.h"
#include "executor/checkpoint/safetensors.h"

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kGpt2EndOfText = 50256;

/// The token that GPT-2's tokeniser ends a text with, if this vocabulary has it.
Json end_of_text(const ModelShape& model) {
  const bool has_it = model.family == ModelFamily::kGpt2 && model.vocabulary > kGpt2EndOfText;
  return has_it ? Json(kGpt2EndOfText) : Json(nullptr);
}

Json gpt2_config(const ModelShape& model, const std::string& dtype) {
  const bool usual_ffn = model.ffn_width == 4 * model.width;
  return {{"activation_function", "gelu_new"},
          {"architectures", Json::array({"GPT2LMHeadModel"})},
          {"attn_pdrop", 0.0},
          {"bos_token_id", end_of_text(model)},
          {"dtype", dtype},
          {"embd_pdrop", 0.0},
          {"eos_token_id", end_of_text(model)},
          {"initializer_range", 0.02},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"model_type", "gpt2"},
          {"n_ctx", model.context},
          {"n_embd", model.width},
          {"n_head", model.heads},
          {"n_inner", usual_ffn ? Json(nullptr) : Json(model.ffn_width)},
          {"n_layer", model.layers},
          {"n_positions", model.context},
          {"reorder_and_upcast_attn", false},
          {"resid_pdrop", 0.0},
          {"scale_attn_by_inverse_layer_idx", false},
          {"scale_attn_weights", true},
          {"tie_word_embeddings", model.tied_embedding},
          {"torch_dtype", dtype},
          {"use_cache", true},
          {"vocab_size", model.vocabulary}};
}

/// rope_theta and rope_scaling at the top: versions 4 and 5 of transformers read them there.
Json llama_config(const ModelShape& model, const std::string& dtype) {
  Json scaling = nullptr;
  if (const auto& rope = model.rope_scaling) {
    scaling = {{"factor", rope->factor},
               {"high_freq_factor", rope->high_frequency},
               {"low_freq_factor", rope->low_frequency},
               {"original_max_position_embeddings", rope->original_context},
               {"rope_type", "llama3"}};
  }
  return {{"architectures", Json::array({"LlamaForCausalLM"})},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", nullptr},
          {"dtype", dtype},
          {"eos_token_id", nullptr},
          {"head_dim", model.head_width},
          {"hidden_act", "silu"},
          {"hidden_size", model.width},
          {"initializer_range", 0.02},
          {"intermediate_size", model.ffn_width},
          {"max_position_embeddings", model.context},
          {"mlp_bias", false},
          {"model_type", "llama"},
          {"num_attention_heads", model.heads},
          {"num_hidden_layers", model.layers},
          {"num_key_value_heads", model.kv_heads},
          {"pretraining_tp", 1},
          {"rms_norm_eps", model.norm_epsilon},
          {"rope_scaling", scaling},
          {"rope_theta", model.rope_theta},
          {"tie_word_embeddings", model.tied_embedding},
          {"torch_dtype", dtype},
          {"use_cache", true},
          {"vocab_size", model.vocabulary}};
}

/// What `source` says of the same model, changed where it must be; null where it is of another one.
Json changed_config(const ModelShape& model, const std::string& dtype, const std::string& source) {
  const auto parsed = parse_hugging_face_config(source, "");
  if (!parsed) return nullptr;
  ModelShape shape = parsed->model;
  if (shape.context >= model.context) shape.context = model.context;
  if (shape != model) return nullptr;
  Json json = Json::parse(source);
  const bool is_mistral = json["model_type"] == "mistral";
  const bool is_gpt2 = model.family == ModelFamily::kGpt2;
  json["architectures"] = Json::array({is_gpt2      ? "GPT2LMHeadModel"
                                       : is_mistral ? "MistralForCausalLM"
                                                    : "LlamaForCausalLM"});
  const bool has_old_key = json.contains("torch_dtype");
  if (has_old_key) json["torch_dtype"] = dtype;
  if (!has_old_key || json.contains("dtype")) json["dtype"] = dtype;
  if (is_gpt2) {
    json["n_positions"] = model.context;
    if (json.contains("n_ctx")) json["n_ctx"] = model.context;
  }
  return json;
}

}  // namespace

std::string hugging_face_config(const ModelShape& model, const std::string& dtype,
                                const std::string& source) {
  Json json = source.empty() ? Json(nullptr) : changed_config(model, dtype, source);
  if (json.is_null()) {
    json =
        model.family == ModelFamily::kGpt2 ? gpt2_config(model, dtype) : llama_config(model, dtype);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string hugging_face_generation_config(const ModelShape& model) {
  Json json = {{"_from_model_config", true}};
  if (const Json end = end_of_text(model); !end.is_null()) {
    json["bos_token_id"] = end;
    json["eos_token_id"] = end;
  }
  return json.dump(2) + "\n";
}

Result<std::vector<std::string>> parse_hugging_face_index(std::string_view text,
                                                          const std::string& path) {
  const Json document = Json::parse(text.begin(), text.end(), nullptr, false);
  if (document.is_discarded()) return invalid_at({path}, "no JSON");
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (map == document.end() || !map->is_object() || map->empty()) {
    return invalid_at({path}, "`weight_map` is not a map from tensors to files");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    // A name from the file must not lead out of its folder.
    const auto* const name = file.get_ptr<const std::string*>();
    if (name == nullptr || name->empty() || name->find('/') != std::string::npos) {
      return invalid_at(
          {path}, fmt::format("`weight_map` has {} for {}, which is no file name",
                              name == nullptr ? "no text" : shown_name(*name), shown_name(tensor)));
    }
    names.insert(*name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

std::string hugging_face_index(const std::vector<IndexEntry>& entries, std::uint64_t total_bytes) {
  nlohmann::json map;  // sorted by tensor, as transformers has it
  for (const IndexEntry& entry : entries) map[entry.tensor] = entry.file;
  const Json json = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}};
  return json.dump(2) + "\n";
}

}  // namespace longhaul
