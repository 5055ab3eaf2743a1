// How much the codecs lose: against published figures, and what that means for histories.
#include "kernels/codec/codec_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/codec_fixtures.h"

namespace longhaul {
namespace {

using fixtures::ByteVector;
using fixtures::gauss;
using fixtures::relative_distance;

std::vector<float> round_trip(std::span<const float> x, const EncodeOptions& options) {
  ByteVector frame(tensor_frame_capacity(options.codec, Precision::kFp32, x.size()));
  const auto bytes = encode_tensor(flat_view(x), options, frame);
  LH_CHECK(bytes.has_value(), "the tensors of the tests can be encoded");
  std::vector<float> y(x.size());
  LH_CHECK(decode_tensor(std::span(frame).first(*bytes), std::span<float>(y)).has_value(),
           "the frames of the tests can be decoded");
  return y;
}

TEST(CodecError, relative_error_is_what_is_measured) {
  const std::vector<float> x = gauss(1 << 20, 11);
  for (const TensorCodec codec : kTensorCodecs) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      const double measured =
          relative_distance(x, round_trip(x, {.codec = codec, .rounding = rounding}));
      const double stated = relative_error(codec, rounding);
      EXPECT_NEAR(measured, stated, 0.02 * stated) << name_of(codec);
    }
  }
}

TEST(CodecError, relative_error_agrees_with_other_measurements) {
  // Of the same grids elsewhere: int8 by the largest magnitude of 64, 4, 3 and 2 bits by the signed
  // maximum of 32 (ggml's rule of Q4_0), each to the digits that were given.
  struct Row {
    TensorCodec codec;
    double nearest, stochastic;
  };
  for (const Row& row :
       {Row{TensorCodec::kQ8, 0.0059, 0.0084}, Row{TensorCodec::kQ4, 0.086, 0.120},
        Row{TensorCodec::kQ3, 0.174, 0.242}, Row{TensorCodec::kQ2, 0.361, 0.484}}) {
    EXPECT_NEAR(relative_error(row.codec, Rounding::kNearest), row.nearest, 0.02 * row.nearest);
    EXPECT_NEAR(relative_error(row.codec, Rounding::kStochastic), row.stochastic,
                0.02 * row.stochastic);
  }
}

TEST(CodecError, stochastic_rounding_has_the_right_mean) {
  // The mean of 64 independent draws is off by an eighth of a single one, if nothing is biased.
  std::vector<float> x = gauss(1 << 16, 12);
  for (const TensorCodec codec :
       {TensorCodec::kQ8, TensorCodec::kQ6, TensorCodec::kQ4Symmetric, TensorCodec::kHadamardQ4}) {
    std::vector<double> sums(x.size());
    double single = 0;
    for (std::uint32_t draw = 0; draw < 64; ++draw) {
      const std::vector<float> y = round_trip(
          x, {.codec = codec, .step = draw, .seed = 1, .rounding = Rounding::kStochastic});
      for (std::size_t i = 0; i < x.size(); ++i) sums[i] += static_cast<double>(y[i]) / 64;
      single += relative_distance(x, y) / 64;
    }
    const std::vector<float> mean(sums.begin(), sums.end());
    EXPECT_NEAR(relative_distance(x, mean), single / 8, 0.1 * single / 8) << name_of(codec);
  }
}

TEST(CodecError, the_peak_of_a_block_is_not_biased) {
  // Nothing saturates: scales are rounded up. Peaks over a binade of significands, either sign; the
  // mean of 64 draws lies within 5 standard deviations of at most half a step over 8.
  for (const TensorCodec codec : {TensorCodec::kQ8, TensorCodec::kQ6, TensorCodec::kQ4Symmetric}) {
    const CodecGrid& grid = traits_of(codec).grid;
    const auto block = static_cast<std::size_t>(grid.block);
    std::vector<float> x(block * 512, 0.01f);
    for (std::size_t b = 0; b < 512; ++b) {
      const float peak = 1.0f + static_cast<float>(b) / 512;
      x[b * block + b % block] = b % 2 == 0 ? peak : -peak;
    }
    std::vector<double> sums(512);
    for (std::uint32_t draw = 0; draw < 64; ++draw) {
      const std::vector<float> y =
          round_trip(x, {.codec = codec, .step = draw, .rounding = Rounding::kStochastic});
      for (std::size_t b = 0; b < 512; ++b) {
        sums[b] += static_cast<double>(y[b * block + b % block]) / 64;
      }
    }
    double bias = 0;
    for (std::size_t b = 0; b < 512; ++b) {
      const auto peak = static_cast<double>(x[b * block + b % block]);
      const double step = std::fabs(peak) / grid.largest * 1.01;
      EXPECT_NEAR(sums[b], peak, 5 * step / 2 / 8) << name_of(codec) << " " << peak;
      bias += (sums[b] - peak) / peak / 512;
    }
    // All of them together: 512 x 64 draws, five deviations of half a step.
    EXPECT_NEAR(bias, 0, 5 * 0.5 / grid.largest / std::sqrt(512.0 * 64)) << name_of(codec);
  }
}

TEST(CodecError, codecs_for_histories_lose_less_than_the_theorem_asks) {
  for (const TensorCodec codec : kTensorCodecs) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      EXPECT_TRUE(check_history_codec(codec, rounding)) << name_of(codec);
    }
  }
  EXPECT_TRUE(check_history_codec("a grid", 0.6999));
  EXPECT_FALSE(check_history_codec("a grid", 0.70));
}

// ---- grids that are not on the wire, because they must not be

/// Rounds each block of `block` numbers to multiples q of amax / `largest`, q from -largest up in
/// steps of 1.
struct BadGrid {
  const char* name;
  std::size_t block;
  float largest;
  bool is_stochastic;
  double error;  // measured elsewhere
};
std::vector<float> quantise(std::span<const float> x, const BadGrid& grid, Rng& rng) {
  std::vector<float> y(x.size());
  for (std::size_t first = 0; first < x.size(); first += grid.block) {
    float peak = 0;
    for (std::size_t i = 0; i < grid.block; ++i) peak = std::max(peak, std::fabs(x[first + i]));
    const float scale = peak / grid.largest;
    for (std::size_t i = 0; i < grid.block && scale > 0; ++i) {
      const float steps = x[first + i] / scale + grid.largest;
      const float noise = grid.is_stochastic ? static_cast<float>(rng.uniform()) : 0.5f;
      const float code = std::min(std::floor(steps + noise), 2 * grid.largest) - grid.largest;
      y[first + i] = code * scale;
    }
  }
  return y;
}
const std::vector<BadGrid> kBadGrids = {
    {"ternary, nearest", 64, 1.0f, false, 0.718},
    {"ternary, stochastic", 32, 1.0f, true, 0.947},
    {"ternary, stochastic", 64, 1.0f, true, 1.039},
    {"mid-rise of 2 bits, stochastic", 64, 1.5f, true, 0.713},
};

TEST(CodecError, grids_that_lose_too_much_are_refused_with_the_reason) {
  const std::vector<float> x = gauss(1 << 18, 13);
  for (const BadGrid& grid : kBadGrids) {
    Rng rng("bad grid", 1);
    const double error = relative_distance(x, quantise(x, grid, rng));
    EXPECT_NEAR(error, grid.error, 0.02 * grid.error) << grid.name;
    const Result<void> checked = check_history_codec(grid.name, error);
    ASSERT_FALSE(checked) << grid.name;
    EXPECT_NE(checked.error().message.find("sqrt(1/2)"), std::string::npos);
    EXPECT_NE(checked.error().message.find(grid.name), std::string::npos);
  }
}

TEST(CodecError, a_history_of_ternary_stochastic_codes_is_worse_than_none) {
  // A tensor that moves by half of its size from visit to visit, keeping it. What both ends
  // remember of it in ternary codes stays further from it than nothing at all is, |d| / |a| = 1; in
  // Q2 the difference d obeys d^2 = 0.36^2 (d^2 + 0.27), so it ends at 0.2.
  std::vector<float> a = gauss(1 << 16, 14);
  Rng rng("run away", 1);
  std::vector<float> wild(a.size()), tame(a.size());
  for (std::uint64_t visit = 1; visit <= 12; ++visit) {
    std::vector<float> wild_d(a), tame_d(a);
    for (std::size_t i = 0; i < a.size(); ++i) {
      wild_d[i] -= wild[i];
      tame_d[i] -= tame[i];
    }
    const std::vector<float> sent = quantise(wild_d, kBadGrids[2], rng);
    const std::vector<float> sound = round_trip(tame_d, {.codec = TensorCodec::kQ2});
    for (std::size_t i = 0; i < a.size(); ++i) {
      wild[i] += sent[i];
      tame[i] += sound[i];
    }
    EXPECT_GT(relative_distance(a, wild), 1) << visit;
    EXPECT_LT(relative_distance(a, tame), visit == 1 ? 0.37 : 0.25) << visit;
    const std::vector<float> way = gauss(a.size(), 100 + visit);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = 0.866f * a[i] + 0.5f * way[i];
  }
}

}  // namespace
}  // namespace longhaul
