#include "kernels/rotary_table.h"

#include "tests/kernels/numbers.h"

namespace longhaul {
namespace {

ModelShape shape_of(int head_width, double theta) {
  return {.family = ModelFamily::kLlama, .head_width = head_width, .rope_theta = theta};
}

// theta^(-2i / d) of theta 10,000 and d = 8: 1, 1/10, 1/100, 1/1000.
TEST(RotaryTable, frequencies_fall_from_one_by_equal_factors) {
  const auto frequencies = rotary_frequencies(shape_of(8, 10000));
  const std::vector<float> expected = {1.0f, 0.1f, 0.01f, 0.001f};
  ASSERT_EQ(frequencies.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(frequencies[i], expected[i]);
}

// With factor 8 and an original context of 64, waves of 2 pi / f. At f = 1 the wave is 6.3, below
// 64 / 4 = 16: it stays. At 0.01 and 0.001 it is 628 and more, above 64: divided by 8. At 0.1 it is
// 62.8: smooth = (64 / 62.83 - 1) / 3 = 0.006197, f = 0.1 (0.993803 / 8 + 0.006197) = 0.0130422.
TEST(RotaryTable, llama3_scaling_slows_long_waves_and_leaves_short_ones) {
  ModelShape model = shape_of(8, 10000);
  model.rope_scaling =
      RopeScaling{.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 64};
  const auto frequencies = rotary_frequencies(model);
  EXPECT_FLOAT_EQ(frequencies[0], 1.0f);
  EXPECT_NEAR(frequencies[1], 0.0130422, 1e-7);
  EXPECT_FLOAT_EQ(frequencies[2], 0.00125f);
  EXPECT_FLOAT_EQ(frequencies[3], 0.000125f);
}

TEST(RotaryTable, values_are_the_nearest_fp32_to_cosine_and_sine) {
  const ModelShape model = shape_of(64, 500000);
  const auto frequencies = rotary_frequencies(model);
  RotaryTable table(model);
  table.cover(2048);
  ASSERT_EQ(table.cosine().size(), 2048u * 32);
  ASSERT_EQ(table.sine().size(), 2048u * 32);
  for (std::size_t position = 0; position < 2048; ++position) {
    for (std::size_t i = 0; i < 32; ++i) {
      // The library's own error, 1e-16, moves the rounding of few values, and then by one place.
      const double angle = static_cast<float>(position) * frequencies[i];
      const std::size_t at = position * 32 + i;
      ASSERT_NEAR(table.cosine()[at], std::cos(angle), 3.1e-8) << position << " " << i;
      ASSERT_NEAR(table.sine()[at], std::sin(angle), 3.1e-8) << position << " " << i;
    }
  }
}

// The same on every machine, compiler and C library.
TEST(RotaryTable, bits_never_change) {
  ModelShape model = shape_of(96, 500000);
  model.rope_scaling = RopeScaling{};
  RotaryTable table(model);
  table.cover(1);
  table.cover(8192);  // what is there is not made again
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto values : {table.cosine(), table.sine()}) {
    for (const float value : values) {
      hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
    }
  }
  EXPECT_EQ(hash, 7667244163483044372u);
}

TEST(RotaryTable, gpt2_has_none) {
  ModelShape model = shape_of(8, 10000);
  model.family = ModelFamily::kGpt2;
  RotaryTable table(model);
  table.cover(16);
  EXPECT_TRUE(table.cosine().empty());
}

}  // namespace
}  // namespace longhaul
