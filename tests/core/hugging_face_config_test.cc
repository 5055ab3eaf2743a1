#include "core/hugging_face_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul {
namespace {

/// The hub's own config of gpt2, in essence: no n_inner, no tie_word_embeddings, dropout 0.1.
constexpr std::string_view kGpt2 = R"({
  "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
  "n_head": 12, "attn_pdrop": 0.1, "embd_pdrop": 0.0, "resid_pdrop": 0.1, "n_inner": null,
  "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "scale_attn_weights": true,
  "scale_attn_by_inverse_layer_idx": false, "tie_word_embeddings": true
})";

/// Of Llama 3.2 1B, in the spelling of transformers 4.
constexpr std::string_view kLlama = R"({
  "model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072,
  "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
  "attention_bias": false, "mlp_bias": false, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0, "rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "tie_word_embeddings": true, "torch_dtype": "bfloat16"
})";

std::string with(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  EXPECT_NE(out.find(from), std::string::npos) << from;
  return out.replace(out.find(from), from.size(), to);
}

ModelShape llama_shape() {
  return {.family = ModelFamily::kLlama,
          .layers = 16,
          .width = 2048,
          .heads = 32,
          .kv_heads = 8,
          .head_width = 64,
          .ffn_width = 8192,
          .context = 131072,
          .vocabulary = 128256,
          .tied_embedding = true,
          .norm_epsilon = 1e-5,
          .rope_theta = 500000,
          .rope_scaling = RopeScaling{32, 1, 4, 8192}};
}

TEST(HuggingFaceConfig, gpt2s_defaults_and_dropout_are_told) {
  const auto config = parse_hugging_face_config(kGpt2, "config.json");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->model.family, ModelFamily::kGpt2);
  EXPECT_EQ(config->model.ffn_width, 3072);
  EXPECT_EQ(config->model.head_width, 64);
  EXPECT_TRUE(config->model.tied_embedding);
  EXPECT_EQ(config->model.norm_epsilon, 1e-5);
  EXPECT_EQ(config->dtype, "");
  EXPECT_EQ(config->notes, std::vector<std::string>{
                               "resid_pdrop 0.1, attn_pdrop 0.1: longhaul trains without dropout"});
  EXPECT_EQ(parse_hugging_face_config(with(kGpt2, "1e-05", "1e-06"), "c")->model.norm_epsilon,
            1e-6);
}

TEST(HuggingFaceConfig, llamas_spelling_of_transformers_4_is_read) {
  const auto config = parse_hugging_face_config(kLlama, "config.json");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->model, llama_shape());
  EXPECT_EQ(config->dtype, "bfloat16");
  EXPECT_TRUE(config->notes.empty());
  // Still older files call the kind of scaling `type`.
  const auto older = parse_hugging_face_config(with(kLlama, "\"rope_type\"", "\"type\""), "c");
  ASSERT_TRUE(older) << older.error().text();
  EXPECT_EQ(older->model, llama_shape());
}

TEST(HuggingFaceConfig, llamas_spelling_of_transformers_5_is_read) {
  std::string text = with(kLlama, "\"rope_theta\": 500000.0, ", "");
  text = with(text, "\"rope_scaling\": {", "\"rope_parameters\": {\"rope_theta\": 500000.0, ");
  text = with(text, "torch_dtype", "dtype");
  const auto config = parse_hugging_face_config(text, "config.json");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->model, llama_shape());
  EXPECT_EQ(config->dtype, "bfloat16");
}

TEST(HuggingFaceConfig, what_a_llama_leaves_out_is_as_in_transformers) {
  const auto config = parse_hugging_face_config(
      R"({"model_type":"llama","vocab_size":32000,"max_position_embeddings":2048,"hidden_size":512,)"
      R"("intermediate_size":1376,"num_hidden_layers":8,"num_attention_heads":8,)"
      R"("rope_scaling":null})",
      "config.json");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->model.kv_heads, 8);
  EXPECT_EQ(config->model.head_width, 64);  // 512 / 8
  EXPECT_FALSE(config->model.tied_embedding);
  EXPECT_EQ(config->model.norm_epsilon, 1e-6);
  EXPECT_EQ(config->model.rope_theta, 10000);
  EXPECT_FALSE(config->model.rope_scaling);
}

TEST(HuggingFaceConfig, a_mistral_without_a_window_is_a_llama) {
  const std::string mistral = with(kLlama, "\"llama\"", "\"mistral\", \"sliding_window\": null");
  const auto config = parse_hugging_face_config(mistral, "config.json");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->model, llama_shape());
}

struct Edit {
  std::string_view from, to, message;
};

void expect_refused(std::string_view good, const Edit& edit) {
  const auto config = parse_hugging_face_config(with(good, edit.from, edit.to), "config.json");
  ASSERT_FALSE(config) << edit.to;
  EXPECT_EQ(config.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(config.error().message, edit.message);
  EXPECT_EQ(config.error().place.file, "config.json");
}

TEST(HuggingFaceConfig, another_gpt2_is_refused) {
  const Edit edits[] = {
      {"\"gpt2\"", "\"qwen2\"",
       "model type \"qwen2\" is not supported; longhaul trains gpt2 and llama"},
      {"\"gpt2\"", "7", "model type 7 is not supported; longhaul trains gpt2 and llama"},
      {"\"model_type\": \"gpt2\",", "", "`model_type` is missing"},
      {"\"n_inner\": null", "\"quantization_config\": {}",
       "the model is quantized (`quantization_config`); longhaul trains weights"},
      {"gelu_new", "relu", "`activation_function` is \"relu\"; longhaul has gelu_new"},
      {"1e-05", "0", "`layer_norm_epsilon` is 0, not a number above 0 and up to 1"},
      {"1e-05", "\"x\"", "`layer_norm_epsilon` is \"x\", not a number above 0 and up to 1"},
      {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false",
       "`scale_attn_weights` is false; longhaul has true"},
      {"layer_idx\": false", "layer_idx\": true",
       "`scale_attn_by_inverse_layer_idx` is true; longhaul has false"},
      {"\"n_inner\": null", "\"add_cross_attention\": true",
       "`add_cross_attention` is true; longhaul has false"},
      {"\"n_inner\": null", "\"n_inner\": 0",
       "`n_inner` is 0, not a whole number from 1 to 16777216"},
      {"\"n_layer\": 12", "\"n_layer\": 0", "`n_layer` is 0, not a whole number from 1 to 4096"},
      {"\"n_layer\": 12", "\"n_layer\": 4097",
       "`n_layer` is 4097, not a whole number from 1 to 4096"},
      {"\"n_layer\": 12", "\"n_layer\": -1", "`n_layer` is -1, not a whole number from 1 to 4096"},
      {"\"n_layer\": 12", "\"n_layer\": 1.0",
       "`n_layer` is 1.0, not a whole number from 1 to 4096"},
      {"\"n_layer\": 12,", "", "`n_layer` is missing"},
      {"\"n_head\": 12", "\"n_head\": 7", "`n_embd` 768 is not a multiple of `n_head` 7"},
      {"\"attn_pdrop\": 0.1", "\"attn_pdrop\": 2",
       "`attn_pdrop` is 2, not a number from 0 and up to 1"},
      {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1",
       "`tie_word_embeddings` is 1, not true or false"},
      {"50257,", "50257", "no JSON from here on"},
      {"50257,", "1e999,", "a number is too large for JSON"},
  };
  for (const Edit& edit : edits) expect_refused(kGpt2, edit);
}

TEST(HuggingFaceConfig, another_llama_is_refused) {
  const std::string_view rope = "\"rope_type\": \"llama3\"";
  const Edit edits[] = {
      {rope, "\"rope_type\": \"yarn\"",
       "`rope_scaling.rope_type` is \"yarn\"; longhaul has default and llama3"},
      {rope, "\"rope_type\": \"longrope\"",
       "`rope_scaling.rope_type` is \"longrope\"; longhaul has default and llama3"},
      {rope, "\"type\": \"linear\"",
       "`rope_scaling.type` is \"linear\"; longhaul has default and llama3"},
      {rope, "\"type\": \"dynamic\"",
       "`rope_scaling.type` is \"dynamic\"; longhaul has default and llama3"},
      {rope, "\"rope_type\": \"llama3\", \"rope_theta\": 1e4",
       "`rope_theta` is 500000 and in `rope_scaling` it is 10000"},
      {rope, "\"rope_type\": \"llama3\", \"partial_rotary_factor\": 0.5",
       "`rope_scaling.partial_rotary_factor` is not 1; longhaul rotates whole heads"},
      {"\"factor\": 32.0, ", "", "`rope_scaling.factor` is missing"},
      {"\"factor\": 32.0", "\"factor\": 0.5",
       "`rope_scaling` has a factor below 1, or high_freq_factor is not above low_freq_factor"},
      {"\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0",
       "`rope_scaling` has a factor below 1, or high_freq_factor is not above low_freq_factor"},
      {"\"original_max_position_embeddings\": 8192", "\"original_max_position_embeddings\": 0",
       "`rope_scaling.original_max_position_embeddings` is 0, not a whole number from 1 to "
       "16777216"},
      {"500000.0", "0", "`rope_theta` is 0, not a number above 0 and up to 1000000000000"},
      {"silu", "gelu", "`hidden_act` is \"gelu\"; longhaul has silu"},
      {"\"attention_bias\": false", "\"attention_bias\": true",
       "`attention_bias` is true; longhaul has false"},
      {"\"mlp_bias\": false", "\"mlp_bias\": true", "`mlp_bias` is true; longhaul has false"},
      {"\"pretraining_tp\": 1", "\"pretraining_tp\": 2",
       "`pretraining_tp` is not 1: other sums than longhaul's"},
      {"\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5",
       "`num_attention_heads` 32 is not a multiple of `num_key_value_heads` 5"},
      {"\"head_dim\": 64", "\"head_dim\": 63", "heads are 63 wide; a rotary embedding turns pairs"},
      {"\"head_dim\": 64", "\"head_dim\": 1048576", "all heads together are wider than 16777216"},
      {"\"llama\"", "\"mistral\"",
       "`sliding_window` is 4096 unless the file says null; longhaul's attention sees the whole "
       "context"},
      {"\"llama\"", "\"mistral\", \"sliding_window\": 512",
       "`sliding_window` is 512; longhaul's attention sees the whole context"},
      {"\"llama\"", "\"gemma\"",
       "model type \"gemma\" is not supported; longhaul trains gpt2 and llama"},
  };
  for (const Edit& edit : edits) expect_refused(kLlama, edit);
  expect_refused(with(kLlama, "\"head_dim\": 64, ", ""),
                 {"\"hidden_size\": 2048", "\"hidden_size\": 2050",
                  "`hidden_size` 2050 is not a multiple of `num_attention_heads` 32"});
}

TEST(HuggingFaceConfig, what_is_no_json_object_is_refused) {
  EXPECT_FALSE(parse_hugging_face_config("[]", "config.json"));
  EXPECT_FALSE(parse_hugging_face_config("", "config.json"));
  EXPECT_FALSE(parse_hugging_face_config(std::string(100'000, '['), "config.json"));
  const std::string deep =
      R"({"model_type": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_EQ(parse_hugging_face_config(deep, "config.json").error().message, "more than 64 levels");
}

TEST(HuggingFaceConfig, a_folder_without_a_config_is_refused) {
  EXPECT_EQ(load_hugging_face_config("/nowhere").error().message, "/nowhere is no folder");
  EXPECT_EQ(load_hugging_face_config(LONGHAUL_SOURCE_DIR "/docs").error().message,
            LONGHAUL_SOURCE_DIR "/docs has no config.json");
}

}  // namespace
}  // namespace longhaul
