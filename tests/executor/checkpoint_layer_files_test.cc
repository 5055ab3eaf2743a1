#include "executor/checkpoint/layer_files.h"

#include <gtest/gtest.h>

#include <string>

#include "core/model_math.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

using fixtures::empty_part;
using fixtures::part_at_step;
using fixtures::PartValues;
using fixtures::small_model;

std::vector<std::string> described(const ModelShape& model, CheckpointPart part) {
  std::vector<std::string> lines;
  for (const PartTensor& tensor : tensors_of(model, part)) {
    lines.push_back(tensor.name + " " + shape_text(tensor.shape));
  }
  return lines;
}

double parameters(const ModelShape& model) {
  double sum = 0;
  for (const CheckpointPart part : parts_of(model)) {
    for (const PartTensor& tensor : tensors_of(model, part)) {
      sum += static_cast<double>(tensor.elements());
    }
  }
  return sum;
}

ModelShape small_llama(bool tied) {
  ModelShape model = small_model(2, tied);
  model.family = ModelFamily::kLlama;
  model.heads = 4;
  model.kv_heads = 2;
  return model;
}

TEST(LayerFiles, tensors_are_those_of_hugging_face) {
  const ModelShape model = small_model(12);
  EXPECT_EQ(described(model, {PartKind::kEmbedding, 0}),
            (std::vector<std::string>{"wte.weight [5, 2]", "wpe.weight [2, 2]"}));
  // Conv1D: [in, out], so q, k and v lie side by side in 3 x 2 columns.
  EXPECT_EQ(described(model, {PartKind::kLayer, 11}),
            (std::vector<std::string>{
                "h.11.ln_1.weight [2]", "h.11.ln_1.bias [2]", "h.11.attn.c_attn.weight [2, 6]",
                "h.11.attn.c_attn.bias [6]", "h.11.attn.c_proj.weight [2, 2]",
                "h.11.attn.c_proj.bias [2]", "h.11.ln_2.weight [2]", "h.11.ln_2.bias [2]",
                "h.11.mlp.c_fc.weight [2, 3]", "h.11.mlp.c_fc.bias [3]",
                "h.11.mlp.c_proj.weight [3, 2]", "h.11.mlp.c_proj.bias [2]"}));
  EXPECT_EQ(described(model, {PartKind::kHead, 0}),
            (std::vector<std::string>{"ln_f.weight [2]", "ln_f.bias [2]"}));
  EXPECT_EQ(described(small_model(1, false), {PartKind::kHead, 0}).back(), "lm_head.weight [5, 2]");

  // Llama: nn.Linear, [out, in]. 4 query heads and 2 key-value heads of width 2.
  EXPECT_EQ(described(small_llama(false), {PartKind::kLayer, 1}),
            (std::vector<std::string>{"model.layers.1.input_layernorm.weight [2]",
                                      "model.layers.1.self_attn.q_proj.weight [8, 2]",
                                      "model.layers.1.self_attn.k_proj.weight [4, 2]",
                                      "model.layers.1.self_attn.v_proj.weight [4, 2]",
                                      "model.layers.1.self_attn.o_proj.weight [2, 8]",
                                      "model.layers.1.post_attention_layernorm.weight [2]",
                                      "model.layers.1.mlp.gate_proj.weight [3, 2]",
                                      "model.layers.1.mlp.up_proj.weight [3, 2]",
                                      "model.layers.1.mlp.down_proj.weight [2, 3]"}));
}

TEST(LayerFiles, hold_every_parameter_of_the_model_once) {
  for (const ModelShape& model :
       {small_model(1), small_model(3, false), small_llama(true), small_llama(false)}) {
    EXPECT_EQ(parameters(model), model_parameters(model));
  }
  // GPT-2 124M: the published 124,439,808.
  const ModelShape gpt2 = {.family = ModelFamily::kGpt2,
                           .layers = 12,
                           .width = 768,
                           .heads = 12,
                           .kv_heads = 12,
                           .head_width = 64,
                           .ffn_width = 3072,
                           .context = 1024,
                           .vocabulary = 50257,
                           .tied_embedding = true};
  EXPECT_EQ(parameters(gpt2), 124439808);
}

TEST(LayerFiles, part_comes_back_bit_for_bit) {
  const ModelShape model = small_model(1, false);
  SimStorage storage;
  for (const CheckpointPart part : parts_of(model)) {
    PartValues written = part_at_step(model, part, 3);
    const auto files = write_part(storage, "runs/x/c", model, part, written.state<const float>());
    ASSERT_TRUE(files) << files.error().text();
    storage.restart(CrashLoss::kAllUnsynced);  // durable as soon as it is written
    PartValues read = empty_part(model, part);
    const auto result = read_part(storage, "runs/x/c", model, part, *files, read.state<float>());
    ASSERT_TRUE(result) << result.error().text();
    EXPECT_EQ(read, written);
  }
  EXPECT_EQ(
      storage.list("runs/x/c"),
      (std::vector<std::string>{"embedding.optimiser.safetensors", "embedding.safetensors",
                                "head.optimiser.safetensors", "head.safetensors",
                                "layer-0000.optimiser.safetensors", "layer-0000.safetensors"}));
}

TEST(LayerFiles, optimiser_file_has_both_moments_of_every_weight) {
  const ModelShape model = small_model(1);
  const CheckpointPart part = {PartKind::kHead, 0};
  SimStorage storage;
  PartValues values = part_at_step(model, part, 1);
  ASSERT_TRUE(write_part(storage, "c", model, part, values.state<const float>()));
  const auto reader = SafetensorsReader::open(storage, "c/head.optimiser.safetensors");
  ASSERT_TRUE(reader);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : reader->tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"ln_f.bias.m", "ln_f.bias.v", "ln_f.weight.m",
                                             "ln_f.weight.v"}));
}

TEST(LayerFiles, every_flipped_bit_is_found_and_its_file_named) {
  const ModelShape model = small_model(1);
  const CheckpointPart part = {PartKind::kHead, 0};
  SimStorage storage;
  PartValues values = part_at_step(model, part, 1);
  const auto files = write_part(storage, "c", model, part, values.state<const float>());
  ASSERT_TRUE(files);
  for (const CheckpointFile& file : *files) {
    const std::string path = "c/" + file.name;
    for (std::uint64_t offset = 0; offset < file.bytes; ++offset) {
      const int bit = static_cast<int>(offset % 8);
      storage.flip_bit(path, offset, bit);
      PartValues read = empty_part(model, part);
      const auto result = read_part(storage, "c", model, part, *files, read.state<float>());
      ASSERT_FALSE(result) << path << " byte " << offset;
      EXPECT_EQ(result.error().place.file, path);
      EXPECT_TRUE(result.error().message.starts_with("the file is damaged: its content hash is "))
          << result.error().message;
      storage.flip_bit(path, offset, bit);
    }
    EXPECT_TRUE(verify_file(storage, "c", file));
    const std::string whole = storage.bytes(path);
    for (const std::string& other : {whole + "x", whole.substr(1), std::string()}) {
      storage.put(path, other);
      const auto resized = verify_file(storage, "c", file);
      ASSERT_FALSE(resized);
      EXPECT_EQ(resized.error().place.file, path);
    }
    storage.put(path, whole);
  }
}

TEST(LayerFiles, file_of_another_model_is_refused_by_tensor) {
  const CheckpointPart part = {PartKind::kHead, 0};
  SimStorage storage;
  PartValues values = part_at_step(small_model(1), part, 1);
  const auto files = write_part(storage, "c", small_model(1), part, values.state<const float>());
  ASSERT_TRUE(files);
  ModelShape wider = small_model(1);
  wider.width = 4;
  PartValues read = empty_part(wider, part);
  const auto result = read_part(storage, "c", wider, part, *files, read.state<float>());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().text(),
            "c/head.safetensors: error: tensor `ln_f.weight` is F32 [2], not F32 [4]");
}

TEST(LayerFiles, disk_without_room_is_told_before_anything_is_written) {
  const ModelShape model = small_model(1);
  const CheckpointPart part = {PartKind::kHead, 0};
  SimStorage storage;
  PartValues values = part_at_step(model, part, 1);
  const auto files = write_part(storage, "c", model, part, values.state<const float>());
  ASSERT_TRUE(files);
  const std::uint64_t needed = files->front().bytes;
  for (const CheckpointFile& file : *files) ASSERT_TRUE(storage.remove("c/" + file.name));

  storage.pretend_free_space(needed - 1);
  const auto refused = write_part(storage, "c", model, part, values.state<const float>());
  ASSERT_FALSE(refused);
  // 184 bytes: 8 + 160 of header and 4 floats.
  EXPECT_EQ(refused.error().message, "c/head.safetensors needs 184 B, and its disk has 183 B left");
  EXPECT_TRUE(storage.files().empty());
  storage.pretend_free_space(0);
  EXPECT_TRUE(write_part(storage, "c", model, part, values.state<const float>()));
}

TEST(ReceivedFile, appears_only_when_all_of_it_is_right) {
  const std::string content = "0123456789";
  const auto bytes = std::as_bytes(std::span(std::string_view(content)));
  const CheckpointFile expected = {"head.safetensors", 10, ContentHash::of(bytes)};
  SimStorage storage;
  const auto receive = [&](std::string_view text) -> Result<void> {
    LH_ASSIGN(ReceivedFile file, ReceivedFile::create(storage, "c", expected));
    for (const char& c : text) {  // byte by byte
      LH_TRY(file.append(std::as_bytes(std::span(&c, 1))));
    }
    return file.commit();
  };
  EXPECT_FALSE(receive("012345678"));    // cut
  EXPECT_FALSE(receive("01234567890"));  // too long
  const auto damaged = receive("0123456788");
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().place.file, "c/head.safetensors");
  EXPECT_TRUE(storage.files().empty());
  EXPECT_TRUE(receive(content));
  EXPECT_EQ(storage.bytes("c/head.safetensors"), content);
  EXPECT_TRUE(verify_file(storage, "c", expected));
}

TEST(ReceivedFile, sender_of_too_much_does_not_fill_the_disk) {
  SimStorage storage;
  auto file = ReceivedFile::create(storage, "c", {"head.safetensors", 10, {}});
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->append(std::as_bytes(std::span(std::string_view("0123456789")))));
  EXPECT_FALSE(file->append(std::as_bytes(std::span(std::string_view("x")))));
  EXPECT_EQ(storage.used(), 10u);
}

TEST(ReceivedFile, name_from_another_machine_stays_in_the_folder) {
  SimStorage storage;
  for (const char* const name : {"../x.safetensors", "/x.safetensors", "", "..", "x.partial"}) {
    EXPECT_FALSE(ReceivedFile::create(storage, "c", {name, 1, {}})) << name;
  }
}

}  // namespace
}  // namespace longhaul
