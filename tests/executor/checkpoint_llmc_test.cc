#include "executor/checkpoint/llmc.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "executor/checkpoint/weight_types.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/checkpoint_fixtures.h"

namespace longhaul {
namespace {

/// Written by tests/golden/hugging_face/make.py: 2 layers, width 8, 2 heads, context 8, 11 tokens.
std::string golden(const std::string& name) {
  std::ifstream file(std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/hugging_face/" + name,
                     std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The golden with the int32 at `index` of its header replaced.
std::string edited(std::size_t index, std::int32_t value) {
  std::string bytes = golden("gpt2.bin");
  std::memcpy(bytes.data() + 4 * index, &value, sizeof value);
  return bytes;
}

std::string refusal(const std::string& bytes) {
  SimStorage storage;
  storage.put("m.bin", bytes);
  const auto source = open_llmc(storage, "m.bin");
  if (source) return "";
  EXPECT_EQ(source.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(source.error().place.file, "m.bin");
  return source.error().message;
}

TEST(Llmc, header_says_the_shape) {
  SimStorage storage;
  storage.put("m.bin", golden("gpt2-bf16.bin"));
  const auto source = open_llmc(storage, "m.bin");
  ASSERT_TRUE(source) << source.error().text();
  const ModelShape shape = {.family = ModelFamily::kGpt2,
                            .layers = 2,
                            .width = 8,
                            .heads = 2,
                            .kv_heads = 2,
                            .head_width = 4,
                            .ffn_width = 32,
                            .context = 8,
                            .vocabulary = 11};
  EXPECT_EQ(source->model, shape);
  EXPECT_EQ(source->dtype, "bfloat16");
  // 1,024 bytes of header and 2,848 elements: 128 x 8 + 8 x 8 + 2 x (12 x 8 x 8 + 13 x 8) + 2 x 8.
  EXPECT_EQ(source->files[0].second, 1024u + 2848 * 2);
}

TEST(Llmc, what_is_written_is_what_llmc_wrote) {
  for (const char* const name : {"gpt2.bin", "gpt2-bf16.bin"}) {
    SimStorage storage;
    storage.put(name, golden(name));
    const auto source = open_llmc(storage, name);
    ASSERT_TRUE(source) << source.error().text();
    const auto written = write_llmc(storage, *source, "copy.bin", source->dtype);
    ASSERT_TRUE(written) << written.error().text();
    EXPECT_TRUE(storage.bytes("copy.bin") == golden(name)) << name;
  }
}

TEST(Llmc, matrices_are_turned_round) {
  SimStorage storage;
  storage.put("m.bin", golden("gpt2.bin"));
  const auto source = open_llmc(storage, "m.bin");
  ASSERT_TRUE(source);
  // Before c_attn.weight stand wte 128 x 8, wpe 8 x 8, and ln_1's weight and bias of two layers.
  const std::size_t offset = 1024 + 4 * (128 * 8 + 8 * 8 + 4 * 8);
  std::vector<float> stored(24 * 8);  // of layer 0: [3C, C]
  std::memcpy(stored.data(), golden("gpt2.bin").data() + offset, stored.size() * 4);
  const auto read = source->read({"h.0.attn.c_attn.weight", {8, 24}});
  ASSERT_TRUE(read);
  for (std::size_t in = 0; in < 8; ++in) {
    for (std::size_t out = 0; out < 24; ++out) {
      EXPECT_EQ((*read)[in * 24 + out], stored[out * 8 + in]);
    }
  }
}

TEST(Llmc, what_is_no_model_of_llmc_is_refused) {
  const std::string good = golden("gpt2.bin");
  EXPECT_EQ(refusal(good), "");
  const std::pair<std::string, std::string> cases[] = {
      {good.substr(0, 1023), "1023 bytes are no model of llm.c, whose header has 1024"},
      {edited(0, 20240520),
       "the file begins with 20240520, not with 20240326 as a model of llm.c does"},
      {edited(1, 1), "version 1 at byte 4; longhaul reads 3 (float32) and 5 (bfloat16)"},
      {edited(2, 0), "a context of 0 at byte 8, not from 1 to 16777216"},
      {edited(3, -1), "a vocabulary of -1 at byte 12, not from 1 to 16777216"},
      {edited(4, 4097), "a number of layers of 4097 at byte 16, not from 1 to 4096"},
      {edited(5, 0), "a number of heads of 0 at byte 20, not from 1 to 16777216"},
      {edited(5, 3), "a width of 8 at byte 24 is no multiple of 3 heads"},
      {edited(6, 1 << 23), "a width of 8388608 at byte 24, not from 1 to 4194304"},
      {edited(7, 0), "a padded vocabulary of 0 at byte 28, not from 1 to 16777216"},
      {edited(7, 10), "a padded vocabulary of 10 at byte 28, less than the vocabulary of 11"},
      {edited(4, 3), "the file ends at byte 12416, and its header's 3720 weights at 15904"},
      {good.substr(0, good.size() - 1),
       "the file ends at byte 12415, and its header's 2848 weights at 12416"},
      {good + "x", "the file ends at byte 12417, and its header's 2848 weights at 12416"},
  };
  for (const auto& [bytes, message] : cases) EXPECT_EQ(refusal(bytes), message);
}

/// Writing a model of zeros.
std::string write_refusal(const ModelShape& model, const std::string& dtype = "float32") {
  SimStorage storage;
  ModelSource source{.kind = "zeros", .path = "zeros", .model = model, .files = {}};
  source.read = [](const PartTensor& tensor) -> Result<std::vector<float>> {
    return std::vector<float>(static_cast<std::size_t>(tensor.elements()));
  };
  const auto written = write_llmc(storage, source, "out/m.bin", dtype);
  EXPECT_EQ(storage.has("out/m.bin"), written.has_value());
  return written ? "" : written.error().message;
}

TEST(Llmc, a_model_that_the_format_cannot_say_is_not_written) {
  const std::string begin = "llm.c's format has no place for this model: ";
  ModelShape model = fixtures::small_model(1);
  model.ffn_width = 8;
  EXPECT_EQ(write_refusal(model), "");
  EXPECT_EQ(write_refusal(model, "float16"),
            begin + "its weights would be float16, not float32 or bfloat16");
  const auto with = [&](auto change) {
    ModelShape changed = model;
    change(changed);
    return write_refusal(changed);
  };
  EXPECT_EQ(with([](ModelShape& m) { m.ffn_width = 7; }), begin + "its MLP is 7 wide, not 4 x 2");
  EXPECT_EQ(with([](ModelShape& m) { m.tied_embedding = false; }),
            begin + "its head is not tied to the embedding");
  EXPECT_EQ(with([](ModelShape& m) { m.norm_epsilon = 1e-6; }),
            begin + "its norm epsilon is 1e-06, not 1e-5");
  EXPECT_EQ(with([](ModelShape& m) { m.head_width = 1; }),
            begin + "1 heads of 1 are not its width of 2");
  EXPECT_EQ(with([](ModelShape& m) { m.family = ModelFamily::kLlama; }),
            begin + "it is a llama, not a gpt2");
}

TEST(Llmc, nothing_is_overwritten_and_a_full_disk_leaves_nothing) {
  SimStorage storage;
  storage.put("m.bin", golden("gpt2.bin"));
  const auto source = open_llmc(storage, "m.bin");
  ASSERT_TRUE(source);
  EXPECT_EQ(write_llmc(storage, *source, "m.bin", "float32").error().message,
            "m.bin is there already");
  storage.set_capacity(golden("gpt2.bin").size() + 5000);
  const auto full = write_llmc(storage, *source, "out/copy.bin", "float32");
  ASSERT_FALSE(full);
  EXPECT_TRUE(full.error().message.contains("out/copy.bin needs 12.12 KiB")) << full.error().text();
  EXPECT_TRUE(storage.list("out")->empty());
}

// ---- types

TEST(WeightTypes, narrowing_rounds_to_the_nearest_and_ties_to_even) {
  const auto bits = [](TensorType type, float value) {
    const auto bytes = narrow(type, std::span(&value, 1));
    std::uint16_t out = 0;
    std::memcpy(&out, bytes->data(), 2);
    return out;
  };
  // bf16 keeps 8 bits of the significand: 1 + 2^-8 lies halfway and goes to the even 1; the next
  // float goes up.
  EXPECT_EQ(bits(TensorType::kBf16, 1.0f), 0x3f80);
  EXPECT_EQ(bits(TensorType::kBf16, 1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(bits(TensorType::kBf16, 1.0f + 0x1.0002p-8f), 0x3f81);
  EXPECT_EQ(bits(TensorType::kBf16, 1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(bits(TensorType::kBf16, -INFINITY), 0xff80);
  EXPECT_EQ(bits(TensorType::kBf16, NAN) & 0x7fc0, 0x7fc0);
  // F16: 11 bits, the smallest 2^-24, the largest 65504.
  EXPECT_EQ(bits(TensorType::kF16, 1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(bits(TensorType::kF16, 1.0f + 0x3p-11f), 0x3c02);
  EXPECT_EQ(bits(TensorType::kF16, 0x1p-24f), 0x0001);
  EXPECT_EQ(bits(TensorType::kF16, 0x1p-25f), 0x0000);
  EXPECT_EQ(bits(TensorType::kF16, 0x1.8p-24f), 0x0002);
  EXPECT_EQ(bits(TensorType::kF16, 0x1.ffcp-15f), 0x0400);  // rounds up to the smallest normal
  EXPECT_EQ(bits(TensorType::kF16, -65519.0f), 0xfbff);
  EXPECT_EQ(bits(TensorType::kF16, INFINITY), 0x7c00);
}

TEST(WeightTypes, what_half_precision_holds_comes_back) {
  for (const TensorType type : {TensorType::kF16, TensorType::kBf16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      float value = 0;
      widen(type, std::as_bytes(std::span(&half, 1)), std::span(&value, 1));
      if (std::isnan(value)) continue;
      const auto bytes = narrow(type, std::span(&value, 1));
      ASSERT_TRUE(bytes);
      EXPECT_EQ(std::memcmp(bytes->data(), &half, 2), 0) << bits;
    }
  }
}

TEST(WeightTypes, what_float16_cannot_hold_is_refused) {
  const float values[] = {1, -65520.0f};
  EXPECT_EQ(narrow(TensorType::kF16, values).error().message,
            "float16 ends at 65504 and cannot hold -65520");
}

}  // namespace
}  // namespace longhaul
