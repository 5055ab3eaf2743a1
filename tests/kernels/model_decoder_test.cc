#include "kernels/model_decoder.h"

#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// More positions than the decoder takes at once (128) and than attention's blocks have (64).
ModelShape small_model(ModelFamily family) {
  ModelShape model = {.family = family,
                      .layers = 2,
                      .width = 20,
                      .heads = 2,
                      .kv_heads = 2,
                      .head_width = 10,
                      .ffn_width = 44,
                      .context = 150,
                      .vocabulary = 19};
  if (family == ModelFamily::kLlama) {
    model.heads = 6;
    model.head_width = 4;
    model.tied_embedding = false;
  }
  return model;
}

struct DecoderCase {
  ModelFamily family;
  Precision precision;
};

class Decoder : public testing::TestWithParam<DecoderCase> {
 protected:
  Decoder() : tokens_(150) {
    Rng rng("tokens", 2);
    for (auto& token : tokens_) token = static_cast<std::int32_t>(rng.below(19));
    ModelStage stage = make_stage();
    StageBatch window(stage, 1);
    std::copy(tokens_.begin(), tokens_.end(), window.tokens().begin());
    stage.forward(window);
    const auto logits = stage.logits(window);
    expected_.assign(logits.begin(), logits.end());
  }
  ModelStage make_stage() const {
    const auto [family, precision] = GetParam();
    auto stage = ModelStage::create(small_model(family), {0, 2, true, true}, precision).value();
    stage.initialise_weights(3);
    // Larger than a model begins with, so that attention is far from uniform.
    for (float& weight : stage.weights()) weight *= 5;
    return stage;
  }
  /// Of the token after the first `size`, by a forward of the whole window.
  std::span<const float> expected_after(int size) const {
    return std::span(expected_).subspan(static_cast<std::size_t>(size - 1) * 19, 19);
  }

  std::vector<std::int32_t> tokens_;
  std::vector<float> expected_;
};

TEST_P(Decoder, token_by_token_has_the_bits_of_the_whole_window) {
  ModelDecoder decoder(make_stage());
  for (int i = 0; i < 150; ++i) {
    const auto logits = decoder.feed(std::span(tokens_).subspan(static_cast<std::size_t>(i), 1));
    ASSERT_TRUE(same_bits(logits, expected_after(i + 1))) << i;
  }
  EXPECT_EQ(decoder.room(), 0);
}

TEST_P(Decoder, chunks_of_any_size_have_the_bits_of_the_whole_window) {
  for (const std::vector<int>& chunks : std::vector<std::vector<int>>{
           {150}, {1, 149}, {63, 1, 1, 64, 21}, {128, 22}, {129, 21}, {70, 3, 77}}) {
    SCOPED_TRACE(testing::PrintToString(chunks));
    ModelDecoder decoder(make_stage());
    for (const int chunk : chunks) {
      const auto from = static_cast<std::size_t>(decoder.size());
      const auto logits =
          decoder.feed(std::span(tokens_).subspan(from, static_cast<std::size_t>(chunk)));
      EXPECT_TRUE(same_bits(logits, expected_after(decoder.size()))) << decoder.size();
    }
  }
}

TEST_P(Decoder, every_instruction_set_has_the_same_bits) {
  with_each_isa([&](Isa) {
    ModelDecoder decoder(make_stage());
    decoder.feed(std::span(tokens_).first(70));
    EXPECT_TRUE(same_bits(decoder.feed(std::span(tokens_).subspan(70, 2)), expected_after(72)));
  });
}

TEST_P(Decoder, a_reset_forgets_everything) {
  ModelDecoder decoder(make_stage());
  decoder.feed(std::span(tokens_).last(100));
  decoder.reset();
  EXPECT_EQ(decoder.room(), 150);
  EXPECT_TRUE(same_bits(decoder.feed(std::span(tokens_).first(9)), expected_after(9)));
}

INSTANTIATE_TEST_SUITE_P(, Decoder,
                         testing::Values(DecoderCase{ModelFamily::kGpt2, Precision::kFp32},
                                         DecoderCase{ModelFamily::kGpt2, Precision::kBf16},
                                         DecoderCase{ModelFamily::kLlama, Precision::kFp32},
                                         DecoderCase{ModelFamily::kLlama, Precision::kBf16}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.family)) + "_" +
                                  std::string(name_of(info.param.precision));
                         });

TEST(DecoderDeathTest, tokens_beyond_the_context_stop_the_program) {
  auto stage = ModelStage::create(small_model(ModelFamily::kLlama), {0, 2, true, true}).value();
  ModelDecoder decoder(std::move(stage));
  const std::vector<std::int32_t> tokens(151);
  decoder.feed(std::span(tokens).first(150));  // the most accepted
  EXPECT_DEATH(decoder.feed(std::span(tokens).first(1)), "fit the context");
  decoder.reset();
  EXPECT_DEATH(decoder.feed(tokens), "fit the context");
  EXPECT_DEATH(decoder.feed({}), "fit the context");
}

}  // namespace
}  // namespace longhaul
