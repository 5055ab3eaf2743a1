#include "executor/checkpoint/hugging_face.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "executor/checkpoint/safetensors.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

using fixtures::empty_part;
using fixtures::part_at_step;
using fixtures::PartValues;
using fixtures::small_model;
using fixtures::write_checkpoint;

constexpr const char* kCheckpoint = "c/term-000001-step-000000010";

/// Weights of a part of an import, which must have an optimiser state of zeros.
std::vector<std::vector<float>> imported_weights(SimStorage& storage,
                                                 const HuggingFaceImport& imported,
                                                 CheckpointPart part) {
  PartValues values = empty_part(imported.model, part);
  const PartValues zeros = values;
  const auto read =
      read_part(storage, "imported", imported.model, part, imported.files, values.state<float>());
  EXPECT_TRUE(read) << read.error().text();
  EXPECT_EQ(values.m, zeros.m);
  EXPECT_EQ(values.v, zeros.v);
  return values.weights;
}

/// How a tensor of the sample folder differs from the plain one.
struct Sample {
  std::string prefix = {};
  TensorType type = TensorType::kF32;
  std::vector<StoredTensor> more = {};  // filled with ones
  std::string without = {};             // this tensor is left out
  std::string transposed = {};          // this one is the other way round
};

StoredTensor tensor(std::string name, TensorType type, std::vector<std::uint64_t> shape) {
  StoredTensor made;
  made.name = std::move(name);
  made.type = type;
  made.shape = std::move(shape);
  return made;
}

/// A folder of small_model(1) whose every element is 1.5, in `files` files.
void put_folder(SimStorage& storage, const Sample& sample, int files = 1) {
  const ModelShape model = small_model(1);
  std::vector<std::vector<StoredTensor>> shards(static_cast<std::size_t>(files));
  std::size_t next = 0;
  for (const CheckpointPart part : parts_of(model)) {
    for (PartTensor& wanted : tensors_of(model, part)) {
      if (wanted.name == sample.without) continue;
      if (wanted.name == sample.transposed) std::swap(wanted.shape[0], wanted.shape[1]);
      shards[next++ % shards.size()].push_back(
          tensor(sample.prefix + wanted.name, sample.type, wanted.shape));
    }
  }
  for (const StoredTensor& more : sample.more) shards[0].push_back(more);
  ASSERT_TRUE(make_folders(storage, "hf"));
  std::string map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        files == 1 ? "model.safetensors" : "model-" + std::to_string(i) + ".safetensors";
    for (const StoredTensor& stored : shards[i]) {
      map += (map.empty() ? "\"" : ",\"") + stored.name + "\":\"" + name + "\"";
    }
    auto writer = SafetensorsWriter::create(storage, "hf/" + name, shards[i]);
    ASSERT_TRUE(writer) << writer.error().text();
    for (const StoredTensor& stored : writer->tensors()) {
      const float wide = 1.5;
      const std::uint16_t narrow = stored.type == TensorType::kF16 ? 0x3e00 : 0x3fc0;
      const auto element = bytes_of(stored.type) == 4 ? std::as_bytes(std::span(&wide, 1))
                                                      : std::as_bytes(std::span(&narrow, 1));
      for (std::uint64_t at = 0; at < stored.bytes(); at += element.size()) {
        ASSERT_TRUE(writer->append(element.first(
            std::min<std::size_t>(element.size(), static_cast<std::size_t>(stored.bytes() - at)))));
      }
    }
    ASSERT_TRUE(writer->commit());
  }
  if (files > 1) {
    storage.put("hf/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  }
  storage.put("hf/config.json", hugging_face_config(model));
}

TEST(HuggingFace, folder_has_prefixed_keys_and_no_tied_head) {
  const ModelShape model = small_model(1);
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
  const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  const auto written = write_hugging_face(storage, *manifest, kCheckpoint, "out/hf");
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_EQ(
      storage.list("out/hf"),
      (std::vector<std::string>{"config.json", "generation_config.json", "model.safetensors"}));
  auto reader = SafetensorsReader::open(storage, "out/hf/model.safetensors");
  ASSERT_TRUE(reader);
  std::vector<std::string> lines;
  for (const StoredTensor& stored : reader->tensors()) {
    lines.push_back(stored.name + " " + shape_text(stored.shape));
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "transformer.h.0.attn.c_attn.bias [6]", "transformer.h.0.attn.c_attn.weight [2, 6]",
                "transformer.h.0.attn.c_proj.bias [2]", "transformer.h.0.attn.c_proj.weight [2, 2]",
                "transformer.h.0.ln_1.bias [2]", "transformer.h.0.ln_1.weight [2]",
                "transformer.h.0.ln_2.bias [2]", "transformer.h.0.ln_2.weight [2]",
                "transformer.h.0.mlp.c_fc.bias [3]", "transformer.h.0.mlp.c_fc.weight [2, 3]",
                "transformer.h.0.mlp.c_proj.bias [2]", "transformer.h.0.mlp.c_proj.weight [3, 2]",
                "transformer.ln_f.bias [2]", "transformer.ln_f.weight [2]",
                "transformer.wpe.weight [2, 2]", "transformer.wte.weight [5, 2]"}));
  EXPECT_EQ(reader->metadata(), (TensorMetadata{{"format", "pt"}}));
  // A matrix goes as it is: the checkpoint has Conv1D's layout too.
  std::vector<float> fc(6);
  ASSERT_TRUE(reader->read(*reader->find("transformer.h.0.mlp.c_fc.weight"), 0,
                           std::as_writable_bytes(std::span(fc))));
  EXPECT_EQ(fc, part_at_step(model, {PartKind::kLayer, 0}, 10).weights[8]);
}

TEST(HuggingFace, config_is_the_documented_one) {
  ModelShape model = small_model(3);
  model.vocabulary = 50257;  // the smallest that has GPT-2's end-of-text token
  EXPECT_EQ(hugging_face_config(model), R"({
  "activation_function": "gelu_new",
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0.0,
  "bos_token_id": 50256,
  "embd_pdrop": 0.0,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": 2,
  "n_embd": 2,
  "n_head": 1,
  "n_inner": 3,
  "n_layer": 3,
  "n_positions": 2,
  "reorder_and_upcast_attn": false,
  "resid_pdrop": 0.0,
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "tie_word_embeddings": true,
  "torch_dtype": "float32",
  "use_cache": true,
  "vocab_size": 50257
}
)");
  EXPECT_EQ(hugging_face_generation_config(model), R"({
  "_from_model_config": true,
  "bos_token_id": 50256,
  "eos_token_id": 50256
}
)");
  model.vocabulary = 50256;
  EXPECT_NE(hugging_face_config(model).find("\"eos_token_id\": null"), std::string::npos);
  EXPECT_EQ(hugging_face_generation_config(model), "{\n  \"_from_model_config\": true\n}\n");
}

TEST(HuggingFace, what_is_written_is_read_back) {
  for (const bool tied : {true, false}) {
    const ModelShape model = small_model(12, tied);  // h.10 sorts before h.2
    SimStorage storage;
    ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
    const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
    ASSERT_TRUE(manifest);
    ASSERT_TRUE(write_hugging_face(storage, *manifest, kCheckpoint, "hf"));
    const auto imported = read_hugging_face(storage, "hf", "imported");
    ASSERT_TRUE(imported) << imported.error().text();
    EXPECT_TRUE(imported->notes.empty());
    EXPECT_EQ(imported->model.layers, 12);
    EXPECT_EQ(imported->model.ffn_width, 3);
    EXPECT_EQ(imported->model.tied_embedding, tied);
    for (const CheckpointPart part : parts_of(model)) {
      EXPECT_EQ(imported_weights(storage, *imported, part), part_at_step(model, part, 10).weights);
    }
    // Its files make a checkpoint that a run can start from.
    CheckpointManifest start = fixtures::manifest_at_step(imported->model, 0);
    for (const CheckpointFile& file : imported->files) start.files.push_back({file, {"a/0"}});
    EXPECT_TRUE(write_manifest(storage, "runs", start));
  }
}

TEST(HuggingFace, both_key_styles_and_three_types_are_read) {
  for (const char* const prefix : {"", "transformer."}) {
    for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBf16}) {
      SimStorage storage;
      put_folder(storage, {.prefix = prefix, .type = type});
      const auto imported = read_hugging_face(storage, "hf", "imported");
      ASSERT_TRUE(imported) << imported.error().text();
      for (const CheckpointPart part : parts_of(imported->model)) {
        for (const auto& values : imported_weights(storage, *imported, part)) {
          for (const float value : values) EXPECT_EQ(value, 1.5f);
        }
      }
    }
  }
}

TEST(HuggingFace, half_precision_is_widened_exactly) {
  // Bits of IEEE half precision and their values: signs, subnormals, the largest, infinity.
  const std::pair<std::uint16_t, float> halves[] = {
      {0x0000, 0.0f},     {0x8000, -0.0f},         {0x3c00, 1.0f},     {0xc000, -2.0f},
      {0x0001, 0x1p-24f}, {0x83ff, -0x1.ff8p-15f}, {0x0400, 0x1p-14f}, {0x7bff, 65504.0f},
      {0x7c00, INFINITY}, {0x3555, 0x1.554p-2f}};
  SimStorage storage;
  put_folder(storage, {.prefix = "", .type = TensorType::kF16});
  auto reader = SafetensorsReader::open(storage, "hf/model.safetensors");
  const std::uint64_t header =
      storage.bytes("hf/model.safetensors").size() - reader->tensors().back().end;
  std::string bytes = storage.bytes("hf/model.safetensors");
  const StoredTensor* const wte = reader->find("wte.weight");  // 5 x 2: ten values
  ASSERT_EQ(wte->bytes(), 20u);
  for (std::size_t i = 0; i < 10; ++i) {
    std::memcpy(&bytes[header + wte->begin + 2 * i], &halves[i].first, 2);
  }
  storage.put("hf/model.safetensors", bytes);
  const auto imported = read_hugging_face(storage, "hf", "imported");
  ASSERT_TRUE(imported) << imported.error().text();
  const auto weights = imported_weights(storage, *imported, {PartKind::kEmbedding, 0});
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(weights[0][i]),
              std::bit_cast<std::uint32_t>(halves[i].second))
        << i;
  }
}

TEST(HuggingFace, shards_are_read_through_their_index) {
  SimStorage storage;
  put_folder(storage, {.prefix = "transformer."}, 3);
  const auto imported = read_hugging_face(storage, "hf", "imported");
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(imported->files.size(), 6u);
  ASSERT_TRUE(storage.remove("hf/model-1.safetensors"));
  EXPECT_EQ(read_hugging_face(storage, "hf", "imported").error().message,
            "cannot open hf/model-1.safetensors: No such file or directory");
}

TEST(HuggingFace, mask_buffers_and_a_tied_head_are_left_out) {
  SimStorage storage;
  put_folder(storage, {.prefix = "",
                       .more = {tensor("h.0.attn.bias", TensorType::kU8, {1, 1, 2, 2}),
                                tensor("h.0.attn.masked_bias", TensorType::kF32, {}),
                                tensor("lm_head.weight", TensorType::kF32, {5, 2})}});
  const auto imported = read_hugging_face(storage, "hf", "imported");
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(imported->notes, std::vector<std::string>{
                                 "`lm_head.weight` is ignored: the head is tied to the embedding"});
}

TEST(HuggingFace, wrong_tensors_are_refused_by_name) {
  const auto refusal = [](const Sample& sample) {
    SimStorage storage;
    put_folder(storage, sample);
    const auto imported = read_hugging_face(storage, "hf", "imported");
    EXPECT_FALSE(storage.has("imported"));  // all is checked before anything is written
    return imported ? "" : imported.error().text();
  };
  EXPECT_EQ(refusal({.prefix = "", .without = "h.0.ln_2.bias"}),
            "hf: error: tensor `h.0.ln_2.bias` is missing");
  EXPECT_EQ(refusal({.prefix = "transformer.", .transposed = "h.0.mlp.c_fc.weight"}),
            "hf/model.safetensors: error: tensor `transformer.h.0.mlp.c_fc.weight` is [3, 2], and "
            "its config wants [2, 3]\n"
            "  hint: GPT-2's matrices are stored as Conv1D, [in, out]");
  EXPECT_EQ(refusal({.prefix = "", .more = {tensor("h.1.ln_1.bias", TensorType::kF32, {2})}}),
            "hf: error: tensor `h.1.ln_1.bias` has no place in a GPT-2 of 1 layers");
  EXPECT_EQ(
      refusal({.prefix = "", .more = {tensor("transformer.wte.weight", TensorType::kF32, {5, 2})}}),
      "hf/model.safetensors: error: tensor `wte.weight` is in the folder twice");
  EXPECT_EQ(refusal({.prefix = "", .type = TensorType::kI32}),
            "hf/model.safetensors: error: tensor `wte.weight` is I32, not F32, F16 or BF16");
}

TEST(HuggingFace, config_that_is_another_model_is_refused) {
  struct Edit {
    std::string_view from, to, message;
  };
  const Edit edits[] = {
      {"\"gpt2\"", "\"llama\"", "`model_type` is \"llama\"; only gpt2 folders can be read"},
      {"\"model_type\": \"gpt2\",", "", "`model_type` is missing; only gpt2 folders can be read"},
      {"gelu_new", "relu", "`activation_function` is \"relu\"; longhaul has gelu_new"},
      {"1e-05", "1e-06", "`layer_norm_epsilon` is 1e-06; longhaul has 1e-05"},
      {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false",
       "`scale_attn_weights` is false; longhaul has true"},
      {"layer_idx\": false", "layer_idx\": true",
       "`scale_attn_by_inverse_layer_idx` is true; longhaul has false"},
      {"\"n_layer\": 1", "\"n_layer\": 0", "`n_layer` is 0, not a whole number from 1 to 4096"},
      {"\"n_layer\": 1", "\"n_layer\": 4097",
       "`n_layer` is 4097, not a whole number from 1 to 4096"},
      {"\"n_layer\": 1", "\"n_layer\": -1", "`n_layer` is -1, not a whole number from 1 to 4096"},
      {"\"n_layer\": 1", "\"n_layer\": 1.0", "`n_layer` is 1.0, not a whole number from 1 to 4096"},
      {"\"n_layer\": 1,", "", "`n_layer` is missing"},
      {"\"n_head\": 1", "\"n_head\": 3", "`n_embd` 2 is not a multiple of `n_head` 3"},
      {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1",
       "`tie_word_embeddings` is 1, not true or false"},
      {"0.02,", "0.02", "no JSON from here on"},
  };
  const std::string good = hugging_face_config(small_model(1));
  ASSERT_TRUE(parse_hugging_face_config(good, "config.json"));
  for (const Edit& edit : edits) {
    std::string text = good;
    ASSERT_NE(text.find(edit.from), std::string::npos) << edit.from;
    text.replace(text.find(edit.from), edit.from.size(), edit.to);
    const auto config = parse_hugging_face_config(text, "config.json");
    ASSERT_FALSE(config) << edit.to;
    EXPECT_EQ(config.error().message, edit.message);
    EXPECT_EQ(config.error().place.file, "config.json");
  }
  EXPECT_FALSE(parse_hugging_face_config("[]", "config.json"));
  EXPECT_FALSE(parse_hugging_face_config("", "config.json"));
  EXPECT_FALSE(parse_hugging_face_config(std::string(100'000, '['), "config.json"));
}

TEST(HuggingFace, dropout_is_noted_and_defaults_are_gpt2s) {
  // The hub's own config of gpt2, in essence: no n_inner, no tie_word_embeddings, dropout 0.1.
  const auto config = parse_hugging_face_config(
      R"({"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":768,"n_layer":12,)"
      R"("n_head":12,"attn_pdrop":0.1,"embd_pdrop":0.0,"resid_pdrop":0.1,"n_inner":null})",
      "config.json");
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->model.ffn_width, 3072);
  EXPECT_EQ(config->model.head_width, 64);
  EXPECT_TRUE(config->model.tied_embedding);
  EXPECT_EQ(config->notes, (std::vector<std::string>{"`resid_pdrop` 0.1 is ignored: dropout is 0",
                                                     "`attn_pdrop` 0.1 is ignored: dropout is 0"}));
}

TEST(HuggingFace, index_stays_in_its_folder) {
  EXPECT_EQ(parse_hugging_face_index(R"({"weight_map":{"a":"y","b":"x","c":"y"}})", "i"),
            (std::vector<std::string>{"x", "y"}));
  for (const char* const bad :
       {"{}", "[]", R"({"weight_map":{}})", R"({"weight_map":{"a":"../x"}})",
        R"({"weight_map":{"a":""}})", R"({"weight_map":{"a":1}})", R"({"weight_map":["x"]})"}) {
    EXPECT_FALSE(parse_hugging_face_index(bad, "i")) << bad;
  }
}

TEST(HuggingFace, nothing_is_overwritten_and_damage_is_not_passed_on) {
  const ModelShape model = small_model(1);
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
  auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  storage.put("mine/config.json", "{}");
  EXPECT_EQ(write_hugging_face(storage, *manifest, kCheckpoint, "mine").error().message,
            "mine has a config.json already");
  const std::string layer = std::string(kCheckpoint) + "/layer-0000.safetensors";
  storage.flip_bit(layer, storage.bytes(layer).size() - 1, 3);
  const auto damaged = write_hugging_face(storage, *manifest, kCheckpoint, "out");
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().place.file, layer);
  EXPECT_TRUE(storage.list("out")->empty());

  manifest->model.head_width = 4;
  EXPECT_EQ(write_hugging_face(storage, *manifest, kCheckpoint, "out").error().message,
            "Hugging Face's GPT-2 has heads as wide as the model: 1 x 4 is not 2");
  manifest->model.family = ModelFamily::kLlama;
  EXPECT_EQ(write_hugging_face(storage, *manifest, kCheckpoint, "out").error().message,
            "only GPT-2 models can be gathered into a Hugging Face folder");
}

}  // namespace
}  // namespace longhaul
