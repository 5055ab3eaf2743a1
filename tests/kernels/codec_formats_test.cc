// What the table of codecs promises, codec by codec: sizes, places of codes, limits, noise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "kernels/codec/crc32c.h"
#include "tests/kernels/codec_fixtures.h"

namespace longhaul {
namespace {

using fixtures::ByteVector;
using fixtures::Sizes;

constexpr TensorCodec kBlockCodecs[] = {
    TensorCodec::kQ8, TensorCodec::kQ6, TensorCodec::kQ4,         TensorCodec::kQ4Symmetric,
    TensorCodec::kQ3, TensorCodec::kQ2, TensorCodec::kHadamardQ4,
};

TEST(CodecFormats, sizes_are_those_of_the_formulas) {
  // 68 + 64 for every 32 blocks begun + the codes: whole blocks of 32 or 64, but n bytes for Q8.
  struct Row {
    TensorCodec codec;
    std::uint64_t n;
    std::size_t bytes;
  };
  const std::vector<Row> rows = {
      {TensorCodec::kF16, 100, 68 + 200},
      {TensorCodec::kQ8, 65, 68 + 64 + 65},
      {TensorCodec::kQ6, 1, 68 + 64 + 48},
      {TensorCodec::kQ6, 65, 68 + 64 + 96},
      {TensorCodec::kQ6, 2049, 68 + 128 + 33 * 48},
      {TensorCodec::kQ4, 1, 68 + 64 + 16},
      {TensorCodec::kQ4, 33, 68 + 64 + 32},
      {TensorCodec::kQ4, 1025, 68 + 128 + 33 * 16},
      {TensorCodec::kQ4Symmetric, 1025, 68 + 128 + 33 * 16},
      {TensorCodec::kHadamardQ4, 1, 68 + 64 + 32},
      {TensorCodec::kHadamardQ4, 1025, 68 + 64 + 17 * 32},
      {TensorCodec::kQ3, 33, 68 + 64 + 24},
      {TensorCodec::kQ2, 33, 68 + 64 + 16},
      {TensorCodec::kQ2, 0, 68},
      // 1,024 x 1,600: 51,200 blocks of 32, 25,600 of 64; 2 bytes a scale, whole lines of 64.
      {TensorCodec::kQ8, 1638400, 68 + 51200 + 1638400},
      {TensorCodec::kQ6, 1638400, 68 + 51200 + 1228800},
      {TensorCodec::kQ4, 1638400, 68 + 102400 + 819200},
      {TensorCodec::kQ3, 1638400, 68 + 102400 + 614400},
      {TensorCodec::kQ2, 1638400, 68 + 102400 + 409600},
      {TensorCodec::kHadamardQ4, 1638400, 68 + 51200 + 819200},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(tensor_frame_bytes(row.codec, Precision::kFp32, row.n), row.bytes)
        << name_of(row.codec) << " " << row.n;
    EXPECT_EQ(tensor_frame_bytes(row.codec, Precision::kFp32, row.n, true), row.bytes + 64);
  }
}

/// Code i of a code plane, by the format's words.
int code_at(const std::byte* codes, int bits, std::size_t i) {
  if (bits == 8) return static_cast<std::int8_t>(codes[i]);
  const auto* unit =
      reinterpret_cast<const std::uint8_t*>(codes) + i / 32 * 4 * static_cast<std::size_t>(bits);
  const std::size_t e = i % 32;
  const auto nibble = [&] { return e < 16 ? unit[e] & 15 : unit[e - 16] >> 4; };
  const auto pair = [&](std::size_t plane_at) {
    return (unit[plane_at + e % 8] >> (2 * (e / 8))) & 3;
  };
  int code = 0;
  if (bits == 4) code = nibble();
  if (bits == 2) code = pair(0);
  if (bits == 6) code = nibble() | pair(16) << 4;
  if (bits == 3) code = pair(0) | ((unit[8 + e / 8] >> (e % 8)) & 1) << 2;
  return code >= 1 << (bits - 1) ? code - (1 << bits) : code;
}

TEST(CodecFormats, codes_lie_where_the_format_says) {
  // Whole numbers that are their own codes: in each block one of -L, so that the scale is 1 (for
  // Q8, Q6 and Q4 symmetric of either sign).
  for (const TensorCodec codec : kBlockCodecs) {
    if (traits_of(codec).is_rotated) continue;
    const CodecGrid& grid = traits_of(codec).grid;
    for (const std::size_t n : Sizes{1, 40, 64, 1500, 2048}) {
      Rng rng("codes", n);
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) {
        const auto codes = static_cast<std::uint64_t>(grid.largest + grid.code_max() + 1);
        const bool is_first = i % static_cast<std::size_t>(grid.block) == 0;
        x[i] = static_cast<float>(is_first ? -grid.largest
                                           : static_cast<int>(rng.below(codes)) - grid.largest);
      }
      for (const CodecKernels* kernels : all_kernels()) {
        const ByteVector frame = fixtures::encode(x, codec, *kernels);
        const TensorLayout layout = tensor_layout(codec, Precision::kFp32, n);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(code_at(frame.data() + layout.codes_at, grid.bits, i), static_cast<int>(x[i]))
              << name_of(codec) << " " << kernels->name << " " << i << " of " << n;
        }
        EXPECT_EQ(fixtures::decode(frame, n, *kernels), x);
      }
    }
  }
}

TEST(CodecFormats, signed_scales_take_the_peak_to_the_code_that_has_no_opposite) {
  struct Row {
    std::vector<float> x;
    std::uint16_t scale;
    std::vector<int> codes;
  };
  for (const Row& row : {
           Row{{8, -8, 7.4f, 7.6f},
               0x3f80,
               {7, -8, 7, 7}},                             // a tie: the negative one; 8 has no code
           Row{{8, -7, 1, 0}, 0xbf80, {-8, 7, -1, 0}},     // a positive peak: the scale is negative
           Row{{-16, 15, 3, -3}, 0x4000, {-8, 7, 2, -2}},  // 15 / 2 = 7.5 and 1.5 are ties
           Row{{0, 0, 0, 0}, 0x8100, {0, 0, 0, 0}},        // the smallest scale
       }) {
    for (const CodecKernels* kernels : all_kernels()) {
      std::vector<float> x(1024, 0.0f);
      std::copy(row.x.begin(), row.x.end(), x.begin() + 32);
      const ByteVector frame = fixtures::encode(x, TensorCodec::kQ4, *kernels);
      std::uint16_t scale;
      std::memcpy(&scale, frame.data() + 64 + 2, 2);
      EXPECT_EQ(scale, row.scale) << kernels->name;
      const TensorLayout layout = tensor_layout(TensorCodec::kQ4, Precision::kFp32, 1024);
      for (std::size_t i = 0; i < row.codes.size(); ++i) {
        EXPECT_EQ(code_at(frame.data() + layout.codes_at, 4, 32 + i), row.codes[i]);
      }
    }
  }
}

TEST(CodecFormats, stochastic_scales_are_rounded_up) {
  // 127.0001 / 127 is just above 1: nearest 1, up 129/128; 127 / 127 is 1 either way. A block of
  // zeros has the smallest stochastic scale, 2^-109.
  for (const CodecKernels* kernels : all_kernels()) {
    std::vector<float> x(1024, 0.0f);
    x[0] = 127.0001f;
    x[64] = -127.0f;
    const ByteVector frame = fixtures::encode(x, TensorCodec::kQ8, *kernels, Rounding::kStochastic);
    std::uint16_t scale[3];
    std::memcpy(scale, frame.data() + 64, 6);
    EXPECT_EQ(scale[0], 0x3f81);
    EXPECT_EQ(scale[1], 0x3f80);
    EXPECT_EQ(scale[2], 0x0900);
    EXPECT_EQ(parse_tensor_header(frame)->flags, kFlagStochastic);
  }
}

TEST(CodecFormats, codes_that_no_encoder_writes_are_refused) {
  struct Row {
    TensorCodec codec;
    int code;  // of the two's complement
    bool is_accepted;
  };
  const std::vector<Row> rows = {
      {TensorCodec::kQ6, -31, true},         {TensorCodec::kQ6, -32, false},
      {TensorCodec::kQ4Symmetric, -7, true}, {TensorCodec::kQ4Symmetric, -8, false},
      {TensorCodec::kHadamardQ4, -8, true},  {TensorCodec::kQ4, -8, true},
      {TensorCodec::kQ3, -4, true},          {TensorCodec::kQ2, -2, true},
  };
  for (const Row& row : rows) {
    const int bits = traits_of(row.codec).grid.bits;
    const std::size_t n = 2048;
    const std::vector<float> x(n, 1.0f);
    const TensorLayout layout = tensor_layout(row.codec, Precision::kFp32, n);
    for (const std::size_t at : Sizes{0, 15, 16, 31, 63, 1000, 2047}) {
      ByteVector frame = fixtures::encode(x, row.codec);
      auto* unit = reinterpret_cast<std::uint8_t*>(frame.data() + layout.codes_at) +
                   at / 32 * 4 * static_cast<std::size_t>(bits);
      const std::size_t e = at % 32;
      const auto put = [](std::uint8_t& byte, int width, std::size_t place, int value) {
        const int mask = ((1 << width) - 1) << place;
        byte = static_cast<std::uint8_t>((byte & ~mask) | ((value << place) & mask));
      };
      if (bits == 4 || bits == 6) put(unit[e % 16], 4, e / 16 * 4, row.code);
      if (bits == 6) put(unit[16 + e % 8], 2, e / 8 * 2, row.code >> 4);
      if (bits < 4) put(unit[e % 8], 2, e / 8 * 2, row.code);
      if (bits == 3) put(unit[8 + e / 8], 1, e % 8, row.code >> 2);
      ASSERT_EQ(code_at(frame.data() + layout.codes_at, bits, at), row.code);
      const std::uint32_t crc = crc32c(std::span(frame).subspan(64, frame.size() - 64 - 4));
      std::memcpy(frame.data() + frame.size() - 4, &crc, 4);
      for (const CodecKernels* kernels : all_kernels()) {
        std::vector<float> y(n);
        EXPECT_EQ(decode_tensor(frame, std::span<float>(y), {}, *kernels).has_value(),
                  row.is_accepted)
            << name_of(row.codec) << " " << kernels->name << " at " << at;
      }
    }
  }
}

TEST(CodecFormats, codes_beyond_the_tensor_are_zero) {
  for (const TensorCodec codec : {TensorCodec::kQ6, TensorCodec::kQ4, TensorCodec::kQ3,
                                  TensorCodec::kQ2, TensorCodec::kQ4Symmetric}) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      const std::vector<float> x(33, 1.0f);
      ByteVector frame = fixtures::encode(x, codec, best_kernels(), rounding);
      const TensorLayout layout = tensor_layout(codec, Precision::kFp32, 33);
      for (std::size_t i = 33; i < 64; ++i) {
        EXPECT_EQ(code_at(frame.data() + layout.codes_at, traits_of(codec).grid.bits, i), 0);
      }
      frame[frame.size() - 5] = std::byte{0x40};  // the last byte of the codes
      const std::uint32_t crc = crc32c(std::span(frame).subspan(64, frame.size() - 64 - 4));
      std::memcpy(frame.data() + frame.size() - 4, &crc, 4);
      std::vector<float> y(33);
      EXPECT_FALSE(decode_tensor(frame, std::span<float>(y))) << name_of(codec);
    }
  }
}

TEST(CodecFormats, the_largest_number_of_each_codec_and_the_smallest_that_it_refuses) {
  struct Row {
    TensorCodec codec;
    float refused;
  };
  const std::vector<Row> rows = {
      {TensorCodec::kBf16, std::bit_cast<float>(0x7f7f8000u)},  // halfway above the largest
      {TensorCodec::kF16, 65520.0f},                            // halfway above 65504
      {TensorCodec::kQ8, 0x1p127f},
      {TensorCodec::kQ6, 0x1p127f},
      {TensorCodec::kQ4, 0x1p127f},
      {TensorCodec::kQ4Symmetric, 0x1p127f},
      {TensorCodec::kQ3, 0x1p127f},
      {TensorCodec::kQ2, 0x1p127f},
      {TensorCodec::kHadamardQ4, 0x1p121f},  // alone in its block it becomes 64 of 2^118
  };
  for (const Row& row : rows) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        for (const CodecKernels* kernels : all_kernels()) {
          std::vector<float> x(3000, 0.0f);
          x[2100] = sign * row.refused;
          const ByteVector raw = fixtures::encode(x, row.codec, *kernels, rounding);
          EXPECT_EQ(parse_tensor_header(raw)->codec, TensorCodec::kRaw) << name_of(row.codec);
          EXPECT_EQ(parse_tensor_header(raw)->flags, kFlagFallback) << name_of(row.codec);
          EXPECT_EQ(fixtures::decode(raw, x.size(), *kernels), x);
          x[2100] = std::nextafter(x[2100], 0.0f);
          const ByteVector packed = fixtures::encode(x, row.codec, *kernels, rounding);
          EXPECT_EQ(parse_tensor_header(packed)->codec, row.codec);
          const std::vector<float> y = fixtures::decode(packed, x.size(), *kernels);
          for (const float value : y) ASSERT_TRUE(std::isfinite(value)) << name_of(row.codec);
        }
      }
    }
  }
}

TEST(CodecFormats, nothing_but_finite_numbers_is_packed) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const TensorCodec codec : kTensorCodecs) {
    for (const float value : {infinity, -infinity, std::bit_cast<float>(0xffc12345u)}) {
      for (const std::size_t at : Sizes{0, 1023, 1024, 2047, 2990}) {
        for (const CodecKernels* kernels : all_kernels()) {
          std::vector<float> x(3000, 0.5f);
          x[at] = value;
          const ByteVector frame = fixtures::encode(x, codec, *kernels);
          const int fallback = codec == TensorCodec::kRaw ? 0 : kFlagFallback;
          EXPECT_EQ(parse_tensor_header(frame)->flags, kFlagNonFinite | fallback);
          EXPECT_EQ(parse_tensor_header(frame)->codec, TensorCodec::kRaw);
          EXPECT_TRUE(fixtures::same_bits(fixtures::decode(frame, x.size(), *kernels), x));
          // Without a fallback there is no frame.
          ByteVector room(tensor_frame_bytes(codec, Precision::kFp32, x.size()));
          const auto bytes = encode_tensor(flat_view(x), {.codec = codec, .has_fallback = false},
                                           room, {}, *kernels);
          ASSERT_TRUE(bytes);
          EXPECT_EQ(*bytes == 0, codec != TensorCodec::kRaw);
        }
      }
    }
  }
}

TEST(CodecFormats, zeros_and_tiny_numbers_decode_to_zero) {
  // Below half of the smallest scales: 2^-126 nearest and 2^-126 with 16 more bits stochastic.
  for (const TensorCodec codec : kBlockCodecs) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      std::vector<float> x(100, 0.0f);
      x[3] = 0x1.fffffcp-127f;
      x[50] = -0x1p-149f;
      const std::vector<float> y =
          fixtures::decode(fixtures::encode(x, codec, best_kernels(), rounding), x.size());
      EXPECT_EQ(y, std::vector<float>(100, 0.0f)) << name_of(codec);
    }
  }
}

TEST(CodecFormats, f16_is_the_nearest_half) {
  struct Row {
    float from;
    std::uint16_t to;
  };
  const std::vector<Row> rows = {
      {1.0f, 0x3c00},           {-2.0f, 0xc000},
      {65519.0f, 0x7bff},       {1.00048828125f, 0x3c00},  // halfway between 1 and 1 + 2^-10: even
      {1.00146484375f, 0x3c02},  // halfway between 1 + 2^-10 and 1 + 2^-9: even
      {0x1p-14f, 0x0400},        // smallest normal one
      {0x1p-24f, 0x0001},        // smallest one
      {0x1p-25f, 0x0000},        // halfway: even
      {0x1.8p-24f, 0x0002},      // halfway: even
      {0x1.ff8p-15f, 0x03ff},    // largest subnormal
      {0x1.ffcp-15f, 0x0400},    // halfway: carries into the normal range
      {-0.0f, 0x8000},          {0x1p-140f, 0x0000},
  };
  std::vector<float> x;
  for (const Row& row : rows) x.push_back(row.from);
  x.resize(100);
  for (const CodecKernels* kernels : all_kernels()) {
    const ByteVector frame = fixtures::encode(x, TensorCodec::kF16, *kernels);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::uint16_t code;
      std::memcpy(&code, frame.data() + 64 + 2 * i, 2);
      EXPECT_EQ(code, rows[i].to) << rows[i].from << " " << kernels->name;
    }
  }
}

TEST(CodecFormats, a_rotation_twice_is_nothing_and_keeps_sizes) {
  const std::vector<float> x = fixtures::gauss(64 * 40, 3);
  const std::uint64_t signs = noise_key(1, 2, 3).signs;
  for (const CodecKernels* kernels : all_kernels()) {
    std::vector<float> y(x.size()), expected(x.size()), back(x.size());
    kernels->rotate(x.data(), x.size(), signs, y.data());
    reference_kernels().rotate(x.data(), x.size(), signs, expected.data());
    EXPECT_TRUE(fixtures::same_bits(y, expected)) << kernels->name;
    kernels->rotate_back(y.data(), x.size(), signs, back.data());
    EXPECT_LT(fixtures::relative_distance(x, back), 1e-6);
    double before = 0, after = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      before += std::pow(static_cast<double>(x[i]), 2);
      after += std::pow(static_cast<double>(y[i]), 2);
    }
    EXPECT_NEAR(after / before, 1, 1e-6);
  }
}

TEST(CodecFormats, a_rotated_unit_is_a_row_of_the_matrix) {
  // e_5 becomes the 5th column of H / 8: +1/8 where i & 5 has an even number of bits; its sign is
  // that of the key, bit 5 of 0x20.
  std::vector<float> x(64), y(64);
  x[5] = 1;
  for (const std::uint64_t signs : {std::uint64_t{0}, std::uint64_t{0x20}}) {
    reference_kernels().rotate(x.data(), 64, signs, y.data());
    for (unsigned i = 0; i < 64; ++i) {
      const bool is_odd = std::popcount(i & 5u) % 2 == 1;
      EXPECT_EQ(y[i], is_odd == (signs == 0) ? -0.125f : 0.125f) << i;
    }
  }
}

TEST(CodecFormats, an_outlier_is_spread_by_the_rotation) {
  // 63 numbers of about 1 beside one of 50: in 4 bits of their own scale, 50 / 7 = 7, they vanish.
  std::vector<float> x = fixtures::gauss(64 * 64, 4);
  for (std::size_t i = 0; i < x.size(); i += 64) x[i] = 50;
  const auto error_of_small_ones = [&](TensorCodec codec) {
    std::vector<float> y = fixtures::decode(fixtures::encode(x, codec), x.size());
    std::vector<float> small = x;
    for (std::size_t i = 0; i < x.size(); i += 64) small[i] = y[i] = 0;
    return fixtures::relative_distance(small, y);
  };
  EXPECT_LT(error_of_small_ones(TensorCodec::kHadamardQ4), 0.6);
  EXPECT_GT(error_of_small_ones(TensorCodec::kQ4Symmetric), 0.65);
}

TEST(CodecFormats, noise_is_that_of_the_format) {
  // From a program written for this test in another language.
  const NoiseKey key = noise_key(1, 2, 3);
  EXPECT_EQ(key.first, 0x14d5e8efu);
  EXPECT_EQ(key.second, 0x970864d0u);
  EXPECT_EQ(key.signs, 0x9bd8a767fdb97d88u);
  EXPECT_EQ(noise_of(key, 0), 0x50aau);
  EXPECT_EQ(noise_of(key, 1), 0x2c2du);
  EXPECT_EQ(noise_of(key, 15), 0x439cu);
  EXPECT_EQ(noise_of(key, 16), 0xeb66u);
  EXPECT_EQ(noise_of(key, 31), 0xd401u);
  EXPECT_EQ(noise_of(key, 32), 0x7f1au);
  EXPECT_EQ(noise_of(key, 1000000), 0xc706u);
  EXPECT_EQ(mix64(5, 7), 0x9dbc62f2a125fa9du);
}

TEST(CodecFormats, noise_is_uniform_and_differs_by_seed_step_tensor_and_element) {
  // 65,536 draws: mean 32767.5 with a deviation of 18918 / 256 = 74; each of 16 bits half the time
  // (deviation 128); neighbours uncorrelated (deviation of the coefficient 1 / 256).
  for (const NoiseKey& key : {noise_key(0, 0, 0), noise_key(0, 0, 1), noise_key(1, 0, 0)}) {
    double sum = 0, product = 0, last = 0;
    std::array<int, 16> set{};
    for (std::uint64_t i = 0; i < 65536; ++i) {
      const std::uint32_t noise = noise_of(key, i);
      for (std::size_t bit = 0; bit < 16; ++bit) set[bit] += (noise >> bit) & 1;
      const double centred = (noise - 32767.5) / 18918.6;
      sum += centred;
      product += centred * last;
      last = centred;
    }
    EXPECT_LT(std::fabs(sum / 65536), 5.0 / 256);
    EXPECT_LT(std::fabs(product / 65536), 5.0 / 256);
    for (const int count : set) EXPECT_NEAR(count, 32768, 5 * 128);
  }
  const std::vector<float> x = fixtures::gauss(4096, 5);
  const auto frame_of = [&](std::uint64_t seed, std::uint32_t step, std::uint64_t id) {
    const EncodeOptions options{.codec = TensorCodec::kQ2,
                                .step = step,
                                .seed = seed,
                                .tensor_id = id,
                                .rounding = Rounding::kStochastic};
    ByteVector frame(tensor_frame_capacity(TensorCodec::kQ2, Precision::kFp32, x.size()));
    LH_CHECK(encode_tensor(flat_view(x), options, frame).has_value(), "it can be encoded");
    return ByteVector(frame.begin() + 64 + 256, frame.begin() + 64 + 256 + 1024);
  };
  const ByteVector base = frame_of(1, 1, 1);
  EXPECT_EQ(base, frame_of(1, 1, 1));
  EXPECT_NE(base, frame_of(2, 1, 1));
  EXPECT_NE(base, frame_of(1, 2, 1));
  EXPECT_NE(base, frame_of(1, 1, 2));
}

TEST(CodecFormats, threads_that_share_a_tensor_write_the_same_codes) {
  const std::size_t n = 64 * 300;
  const std::vector<float> x = fixtures::gauss(n, 6);
  const NoiseKey key = noise_key(4, 5, 6);
  for (const TensorCodec codec : kBlockCodecs) {
    const CodecGrid& grid = traits_of(codec).grid;
    const BlockKernels& kernels = best_kernels().blocks[static_cast<std::size_t>(codec)];
    const BlockKernels& plain = reference_kernels().blocks[static_cast<std::size_t>(codec)];
    const auto block = static_cast<std::size_t>(grid.block);
    const std::size_t code_size = code_bytes(codec, Precision::kFp32, n);
    ByteVector scales(2 * n / block), expected(code_size);
    plain.scales(x.data(), n, Rounding::kStochastic, scales.data());
    plain.encode_stochastic(x.data(), n, scales.data(), key, 0, expected.data());
    for (const std::size_t parts : Sizes{2, 3, 7}) {
      ByteVector own_scales(scales.size()), codes(code_size);
      std::vector<std::thread> threads;
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t first = 300 * part / parts * 64, end = 300 * (part + 1) / parts * 64;
        threads.emplace_back([&, first, end] {
          std::byte* plane = own_scales.data() + 2 * first / block;
          kernels.scales(x.data() + first, end - first, Rounding::kStochastic, plane);
          kernels.encode_stochastic(x.data() + first, end - first, plane, key, first,
                                    codes.data() + code_bytes(codec, Precision::kFp32, first));
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(own_scales, scales) << name_of(codec);
      EXPECT_EQ(codes, expected) << name_of(codec) << " in " << parts;
    }
  }
}

}  // namespace
}  // namespace longhaul
