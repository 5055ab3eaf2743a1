// Expected numbers are worked out by hand beside them.

#include "core/gradient_exchange.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(SmallTensors, a_codec_is_for_matrices_of_4096_elements_or_more) {
  EXPECT_TRUE(is_coded_gradient(2, 4096));
  EXPECT_FALSE(is_coded_gradient(2, 4095));
  EXPECT_FALSE(is_coded_gradient(1, 1e6));  // the bias of a wide layer
  EXPECT_TRUE(is_coded_gradient(3, 1e6));
}

TEST(SmallTensors, are_counted_apart_in_every_stage) {
  ModelShape model{.family = ModelFamily::kGpt2,
                   .layers = 2,
                   .width = 64,
                   .heads = 2,
                   .kv_heads = 2,
                   .head_width = 32,
                   .ffn_width = 256,
                   .context = 32,
                   .vocabulary = 100};
  // A layer: 64 x 192 + 64 x 64 + 2 x 64 x 256 = 49,152 in matrices; 192 + 64 + 256 + 64 biases and
  // 4 x 64 of norms are 832. The positions, 32 x 64 = 2,048, are too small. 6,400 of tokens go in
  // the tied exchange.
  const GradientElements first = stage_gradient_elements(model, {1, true, false}, 2);
  EXPECT_EQ(first.coded, 49152);
  EXPECT_EQ(first.plain, 832 + 2048);
  const GradientElements last = stage_gradient_elements(model, {1, false, true}, 2);
  EXPECT_EQ(last.coded, 49152);
  EXPECT_EQ(last.plain, 832 + 128);
  EXPECT_EQ(tied_gradient_elements(model).coded, 6400);
  // One stage: all of it, the tokens once.
  const GradientElements only = stage_gradient_elements(model, {2, true, true}, 1);
  EXPECT_EQ(only.coded, 2 * 49152 + 6400);
  EXPECT_EQ(only.plain, 2 * 832 + 2048 + 128);
  // Llama has no biases and no positions; with one key head of 32, its matrices for keys and values
  // have 64 x 32 = 2,048 elements each.
  model.family = ModelFamily::kLlama;
  model.kv_heads = 1;
  model.tied_embedding = false;
  const GradientElements llama = stage_gradient_elements(model, {2, true, false}, 2);
  EXPECT_EQ(llama.coded, 2 * (2 * 4096 + 3 * 16384) + 6400);
  EXPECT_EQ(llama.plain, 2 * (2 * 2048 + 128));
  EXPECT_EQ(llama.all(), stage_reduced_parameters(model, {2, true, false}, 2));
}

TEST(GradientWireBytes, are_a_frame_a_bucket_and_the_small_tensors) {
  // Without a codec nothing is told apart.
  EXPECT_EQ(gradient_wire_bytes(Codec::kNone, {1000, 24}), Bytes(4096));
  // bf16: 68 + 2 x 1,000; nothing for what is not there.
  EXPECT_EQ(gradient_wire_bytes(Codec::kBf16, {1000, 24}), Bytes(2068 + 96));
  EXPECT_EQ(gradient_wire_bytes(Codec::kBf16, {0, 24}), Bytes(96));
  EXPECT_EQ(gradient_wire_bytes(Codec::kBf16, {}), Bytes(0));
  // 2^20 elements fill a bucket; one more takes another.
  EXPECT_EQ(gradient_wire_bytes(Codec::kBf16, {1048576, 0}), Bytes(2097152 + 68));
  EXPECT_EQ(gradient_wire_bytes(Codec::kBf16, {1048577, 0}), Bytes(2097152 + 68 + 2 + 68));
}

TEST(ErrorFeedback, takes_8_bytes_an_element_below_16_bits) {
  EXPECT_EQ(feedback_bytes(Codec::kNone, 100), Bytes(0));
  EXPECT_EQ(feedback_bytes(Codec::kBf16, 100), Bytes(0));
  EXPECT_EQ(feedback_bytes(Codec::kInt8, 100), Bytes(800));
}

}  // namespace
}  // namespace longhaul
