#include "executor/checkpoint/hugging_face.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/hugging_face_config.h"
#include "executor/checkpoint/companion_files.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"
#include "kernels/model_stage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

using fixtures::empty_part;
using fixtures::part_at_step;
using fixtures::PartValues;
using fixtures::small_llama;
using fixtures::small_model;
using fixtures::write_checkpoint;
using fixtures::write_folder;

constexpr const char* kCheckpoint = "c/term-000001-step-000000010";

struct HuggingFaceImport {
  ModelShape model;
  std::vector<CheckpointFile> files;
  std::vector<std::string> notes;
};
/// A folder as the files of a checkpoint.
Result<HuggingFaceImport> read_hugging_face(Storage& storage, const std::string& folder,
                                            const std::string& checkpoint_folder) {
  LH_ASSIGN(const ModelSource source, open_hugging_face(storage, folder));
  LH_ASSIGN(auto files, import_model(storage, source, checkpoint_folder));
  return HuggingFaceImport{source.model, std::move(files), source.notes};
}

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
  storage.put("hf/config.json", hugging_face_config(model, "float32"));
}

TEST(HuggingFace, folder_has_prefixed_keys_and_no_tied_head) {
  const ModelShape model = small_model(1);
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
  const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  const auto written = write_folder(storage, *manifest, kCheckpoint, "out/hf");
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
  EXPECT_EQ(hugging_face_config(model, "bfloat16"), R"({
  "activation_function": "gelu_new",
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0.0,
  "bos_token_id": 50256,
  "dtype": "bfloat16",
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
  "torch_dtype": "bfloat16",
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
  EXPECT_TRUE(hugging_face_config(model, "float32").contains("\"eos_token_id\": null"));
  EXPECT_EQ(hugging_face_generation_config(model), "{\n  \"_from_model_config\": true\n}\n");
}

TEST(HuggingFace, a_llamas_config_says_all_of_its_shape) {
  ModelShape model = small_llama(3, false);
  const auto read = [&] {
    return parse_hugging_face_config(hugging_face_config(model, "float16"), "c");
  };
  ASSERT_TRUE(read()) << read().error().text();
  EXPECT_EQ(read()->model, model);
  EXPECT_EQ(read()->dtype, "float16");
  model.rope_scaling.reset();
  model.tied_embedding = true;
  EXPECT_EQ(read()->model, model);
}

TEST(HuggingFace, what_a_source_says_stays_but_for_what_has_changed) {
  ModelShape model = small_model(3);
  std::string source = hugging_face_config(model, "float32");
  const auto edit = [&](std::string_view from, std::string_view to) {
    ASSERT_TRUE(source.contains(from)) << from;
    source.replace(source.find(from), from.size(), to);
  };
  edit("\"bos_token_id\": null", "\"bos_token_id\": 3");
  edit("\"resid_pdrop\": 0.0", "\"resid_pdrop\": 0.1");
  edit("GPT2LMHeadModel", "GPT2Model");
  edit("  \"dtype\": \"float32\",\n", "");  // as transformers 4 has it
  EXPECT_EQ(hugging_face_config(model, "float32", source), [&] {
    return std::string(source).replace(source.find("GPT2Model"), 9, "GPT2LMHeadModel");
  }());
  // Fewer positions are another GPT-2, and what the config says of them goes.
  model.context = 1;
  const std::string cut = hugging_face_config(model, "bfloat16", source);
  EXPECT_TRUE(cut.contains("\"n_positions\": 1") && cut.contains("\"n_ctx\": 1")) << cut;
  EXPECT_TRUE(cut.contains("\"torch_dtype\": \"bfloat16\"") && !cut.contains("\"dtype\": \"f"));
  EXPECT_TRUE(cut.contains("\"bos_token_id\": 3"));
  // A Llama has as many positions as before: nothing of it was cut.
  ModelShape llama = small_llama(1, true);
  const std::string whole = hugging_face_config(llama, "float32");
  llama.context = 1;
  EXPECT_EQ(hugging_face_config(llama, "float32", whole), whole);
  // The config of another model is no help.
  llama.layers = 2;
  EXPECT_TRUE(hugging_face_config(llama, "float32", whole).contains("\"num_hidden_layers\": 2"));
  EXPECT_EQ(hugging_face_config(llama, "float32", "no JSON"),
            hugging_face_config(llama, "float32"));
}

TEST(HuggingFace, a_llama_is_read_back_tied_and_not_in_one_file_and_in_shards) {
  for (const bool tied : {true, false}) {
    for (const std::uint64_t shard_bytes : {std::uint64_t{1} << 40, std::uint64_t{200}}) {
      const ModelShape model = small_llama(2, tied);
      SimStorage storage;
      ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
      const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
      ASSERT_TRUE(manifest) << manifest.error().text();
      EXPECT_EQ(manifest->model, model);
      const auto written =
          write_folder(storage, *manifest, kCheckpoint, "hf", {.shard_bytes = shard_bytes});
      ASSERT_TRUE(written) << written.error().text();
      EXPECT_EQ(storage.has("hf/model.safetensors"), shard_bytes > 200);
      EXPECT_EQ(storage.has("hf/model.safetensors.index.json"), shard_bytes == 200);
      const auto imported = read_hugging_face(storage, "hf", "imported");
      ASSERT_TRUE(imported) << imported.error().text();
      EXPECT_EQ(imported->model, model);
      for (const CheckpointPart part : parts_of(model)) {
        EXPECT_EQ(imported_weights(storage, *imported, part),
                  part_at_step(model, part, 10).weights);
      }
    }
  }
}

TEST(HuggingFace, shards_are_as_full_as_may_be_and_indexed) {
  const ModelShape model = small_llama(1, true);
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
  const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  // In bf16: embedding 5 x 4 x 2 = 40 bytes; norm 8, q 32, k 16, v 16, o 32, norm 8, gate, up and
  // down 24 each; norm 8. In shards of at most 72: 40 + 8; 32 + 16 + 16; 32 + 8 + 24; 24 + 24 + 8.
  ASSERT_TRUE(write_folder(storage, *manifest, kCheckpoint, "hf",
                           {.dtype = "bfloat16", .shard_bytes = 72}));
  std::vector<std::string> shards;
  for (const std::string& name : *storage.list("hf")) {
    auto reader = SafetensorsReader::open(storage, "hf/" + name);
    if (!name.ends_with(".safetensors")) continue;
    ASSERT_TRUE(reader);
    std::string line = name + ":";
    for (const StoredTensor& tensor : reader->tensors()) line += fmt::format(" {}", tensor.bytes());
    shards.push_back(line);
  }
  EXPECT_EQ(shards, (std::vector<std::string>{"model-00001-of-00004.safetensors: 40 8",
                                              "model-00002-of-00004.safetensors: 16 32 16",
                                              "model-00003-of-00004.safetensors: 24 8 32",
                                              "model-00004-of-00004.safetensors: 24 24 8"}));
  const std::string index = storage.bytes("hf/model.safetensors.index.json");
  EXPECT_TRUE(index.contains("\"total_size\": 232")) << index;
  EXPECT_TRUE(index.contains("\"model.norm.weight\": \"model-00004-of-00004.safetensors\""));
}

TEST(HuggingFace, what_is_written_is_read_back) {
  for (const bool tied : {true, false}) {
    const ModelShape model = small_model(12, tied);  // h.10 sorts before h.2
    SimStorage storage;
    ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
    const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
    ASSERT_TRUE(manifest);
    ASSERT_TRUE(write_folder(storage, *manifest, kCheckpoint, "hf"));
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
  const auto missing = read_hugging_face(storage, "hf", "imported");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().text(),
            "hf/model.safetensors.index.json: error: model-1.safetensors is named here and is not "
            "in the folder\n  hint: fetch all shards of the model");
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
            "hf: error: tensor `h.1.ln_1.bias` has no place in a gpt2 of 1 layers");
  EXPECT_EQ(
      refusal({.prefix = "", .more = {tensor("transformer.wte.weight", TensorType::kF32, {5, 2})}}),
      "hf/model.safetensors: error: tensor `wte.weight` is in the folder twice");
  EXPECT_EQ(refusal({.prefix = "", .type = TensorType::kI32}),
            "hf/model.safetensors: error: tensor `wte.weight` is I32, not F32, F16 or BF16");
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
  EXPECT_EQ(write_folder(storage, *manifest, kCheckpoint, "mine").error().message,
            "mine has a config.json already");
  const std::string layer = std::string(kCheckpoint) + "/layer-0000.safetensors";
  storage.flip_bit(layer, storage.bytes(layer).size() - 1, 3);
  const auto damaged = write_folder(storage, *manifest, kCheckpoint, "out");
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().place.file, layer);
  EXPECT_TRUE(storage.list("out")->empty());

  manifest->model.head_width = 4;
  EXPECT_EQ(write_folder(storage, *manifest, kCheckpoint, "out").error().message,
            "Hugging Face's GPT-2 has heads as wide as the model: 1 x 4 is not 2");
}

TEST(HuggingFace, keys_and_buffers_of_other_llamas_are_read) {
  const ModelShape model = small_llama(1, true);
  SimStorage storage;
  ASSERT_TRUE(make_folders(storage, "hf"));
  std::vector<StoredTensor> tensors = {
      tensor("layers.0.self_attn.rotary_emb.inv_freq", TensorType::kF32, {1})};
  for (const CheckpointPart part : parts_of(model)) {
    for (const PartTensor& wanted : tensors_of(model, part)) {
      tensors.push_back(tensor(wanted.name.substr(6), TensorType::kF32, wanted.shape));
    }
  }
  auto writer = SafetensorsWriter::create(storage, "hf/model.safetensors", tensors);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(
      std::vector<std::byte>(static_cast<std::size_t>(writer->tensors().back().end))));
  ASSERT_TRUE(writer->commit());
  storage.put("hf/config.json", hugging_face_config(model, "float32"));
  const auto source = open_hugging_face(storage, "hf");
  EXPECT_TRUE(source) << source.error().text();
}

TEST(HuggingFace, companions_and_their_config_go_along) {
  SimStorage storage;
  put_folder(storage, {.prefix = "", .type = TensorType::kBf16});
  std::string config = storage.bytes("hf/config.json");
  config.replace(config.find("\"bos_token_id\": null"), 20, "\"bos_token_id\": 1");
  storage.put("hf/config.json", config);
  storage.put("hf/tokenizer.json", "{\"tokens\": 1}");
  storage.put("hf/chat_template.jinja", "{{ messages }}");
  storage.put("hf/generation_config.json", "{\"eos_token_id\": 2}");
  storage.put("hf/pytorch_model.bin", "not ours");

  // Through a checkpoint, which keeps them beside itself.
  const auto source = open_model_source(storage, "hf");
  ASSERT_TRUE(source) << source.error().text();
  ASSERT_TRUE(import_checkpoint(storage, *source, "mine"));
  const auto imported = open_model_source(storage, "mine");
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(imported->kind, "a checkpoint");
  EXPECT_EQ(imported->copied_as, "");  // the config says float32
  ASSERT_TRUE(write_hugging_face(storage, *imported, "out", {.dtype = "bfloat16"}));
  EXPECT_EQ(storage.list("out"), (std::vector<std::string>{"chat_template.jinja", "config.json",
                                                           "generation_config.json",
                                                           "model.safetensors", "tokenizer.json"}));
  EXPECT_EQ(storage.bytes("out/tokenizer.json"), "{\"tokens\": 1}");
  EXPECT_EQ(storage.bytes("out/generation_config.json"), "{\"eos_token_id\": 2}");
  EXPECT_TRUE(storage.bytes("out/config.json").contains("\"bos_token_id\": 1"));
  EXPECT_TRUE(storage.bytes("out/config.json").contains("\"dtype\": \"bfloat16\""));

  EXPECT_EQ(import_checkpoint(storage, *source, "mine").error().message,
            "mine has a manifest.yaml already");
}

TEST(HuggingFace, gpt2s_first_names_of_its_tables_become_those_of_today) {
  SimStorage storage;
  storage.put("data/encoder.json", "tokens");
  storage.put("data/vocab.bpe", "merges");
  storage.put("data/config.json", "no model's");
  EXPECT_EQ(copy_companions(storage, "data", "out", false), true);
  EXPECT_EQ(storage.files(),
            (std::vector<std::string>{"data/config.json", "data/encoder.json", "data/vocab.bpe",
                                      "out/merges.txt", "out/vocab.json"}));
  EXPECT_EQ(storage.bytes("out/vocab.json"), "tokens");
  storage.put("none/merges.txt", "");
  EXPECT_EQ(copy_companions(storage, "none", "out", false), false);
}

TEST(HuggingFace, a_copy_has_the_type_of_the_config) {
  SimStorage storage;
  put_folder(storage, {.prefix = "", .type = TensorType::kF32});
  std::string config = storage.bytes("hf/config.json");
  for (std::size_t at = 0; (at = config.find("float32", at)) != std::string::npos;) {
    config.replace(at, 7, "float16");
  }
  storage.put("hf/config.json", config);
  const auto source = open_hugging_face(storage, "hf");
  ASSERT_TRUE(source);
  EXPECT_EQ(source->dtype, "float32");
  ASSERT_TRUE(write_hugging_face(storage, *source, "out"));
  auto reader = SafetensorsReader::open(storage, "out/model.safetensors");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->tensors()[0].type, TensorType::kF16);
  EXPECT_EQ(write_hugging_face(storage, *source, "int8", {.dtype = "int8"}).error().message,
            "`int8` is not float32, bfloat16 or float16");
}

TEST(HuggingFace, a_full_disk_leaves_no_folder_that_looks_whole) {
  const ModelShape model = small_llama(2, false);
  SimStorage storage;
  ASSERT_TRUE(write_checkpoint(storage, "c", model, 10, 1));
  const auto manifest = read_manifest(storage, "c", {.term = 1, .step = 10});
  ASSERT_TRUE(manifest);
  std::uint64_t used = 0;
  for (const std::string& name : *storage.list(kCheckpoint)) {
    used += storage.bytes(std::string(kCheckpoint) + "/" + name).size();
  }
  // The disk fills after we have asked for room, at another place each time.
  storage.pretend_free_space(1 << 30);
  std::uint64_t room = 0;
  for (; room < 100'000; room += 500) {
    storage.set_capacity(used + room);
    const std::string folder = fmt::format("out-{}", room);
    const auto written =
        write_folder(storage, *manifest, kCheckpoint, folder, {.shard_bytes = 200});
    if (written) break;
    EXPECT_FALSE(storage.has(folder + "/config.json")) << room;
    EXPECT_FALSE(read_hugging_face(storage, folder, "imported"));
    for (const std::string& name : *storage.list(folder)) {
      EXPECT_TRUE(storage.remove(folder + "/" + name));
    }
  }
  EXPECT_GE(room, 2000u);  // the weights alone are more than 1.4 kB, and each shard has a header
  EXPECT_LT(room, 100'000u);
}

// ---- what transformers wrote (tests/golden/hugging_face/make.py)

std::string golden(const std::string& name) {
  return std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/hugging_face/" + name;
}

struct Expected {
  std::vector<std::int32_t> tokens;
  std::map<std::size_t, std::vector<float>> logits;  // by position
};

Expected read_expected(const std::string& folder) {
  std::ifstream file(folder + "/expected.txt");
  Expected expected;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    std::size_t position = 0;
    if (kind == "tokens") {
      for (std::int32_t token = 0; words >> token;) expected.tokens.push_back(token);
    } else {
      words >> position;
      for (float logit = 0; words >> logit;) expected.logits[position].push_back(logit);
    }
  }
  return expected;
}

/// The logits of the source's model at the context of the tokens.
void expect_logits(const ModelSource& source, const Expected& expected) {
  ModelShape model = source.model;
  model.context = static_cast<int>(expected.tokens.size());
  auto stage = ModelStage::create(model, {0, model.layers, true, true});
  ASSERT_TRUE(stage) << stage.error().text();
  for (const CheckpointPart part : parts_of(model)) {
    for (const PartTensor& tensor : tensors_of(model, part)) {
      const auto values = source.read(tensor);
      ASSERT_TRUE(values) << values.error().text();
      const auto parameter =
          std::ranges::find(stage->parameters(), tensor.name, &ModelParameter::name);
      ASSERT_NE(parameter, stage->parameters().end());
      std::ranges::copy(*values, stage->weight(*parameter).begin());
    }
  }
  StageBatch batch(*stage, 1);
  std::ranges::copy(expected.tokens, batch.tokens().begin());
  stage->forward(batch);
  const auto logits = stage->logits(batch);
  const auto vocabulary = static_cast<std::size_t>(model.vocabulary);
  for (const auto& [position, row] : expected.logits) {
    ASSERT_EQ(row.size(), vocabulary);
    for (std::size_t i = 0; i < vocabulary; ++i) {
      EXPECT_NEAR(logits[position * vocabulary + i], row[i], 2e-5) << position << " " << i;
    }
  }
}

TEST(HuggingFace, models_of_transformers_have_its_logits) {
  RealStorage storage;
  for (const char* const name : {"gpt2", "gpt2-old", "llama", "llama-old"}) {
    SCOPED_TRACE(name);
    const auto source = open_model_source(storage, golden(name));
    ASSERT_TRUE(source) << source.error().text();
    expect_logits(*source, read_expected(golden(name)));
  }
  const auto llmc = open_model_source(storage, golden("gpt2.bin"));
  ASSERT_TRUE(llmc) << llmc.error().text();
  expect_logits(*llmc, read_expected(golden("gpt2")));
}

}  // namespace
}  // namespace longhaul
