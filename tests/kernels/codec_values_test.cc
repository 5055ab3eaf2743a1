// What the codecs do to numbers, and that the fast kernels do it to the last bit.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/kernels/codec_fixtures.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace longhaul {
namespace {

using fixtures::ByteVector;
using fixtures::Family;
using fixtures::Sizes;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint16_t scale_of(const ByteVector& frame, std::size_t block) {
  std::uint16_t bits;
  std::memcpy(&bits, frame.data() + 64 + 2 * block, 2);
  return bits;
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

TEST(CodecKernels, fast_frames_are_the_reference_frames) {
  for (const Family& family : fixtures::kFamilies) {
    for (const std::size_t n : fixtures::kSizes) {
      const std::vector<float> x = fixtures::tensor_of(family, n);
      for (const TensorCodec codec : kTensorCodecs) {
        for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
          const ByteVector frame = fixtures::encode(x, codec, reference_kernels(), rounding);
          const std::vector<float> y = fixtures::decode(frame, n, reference_kernels());
          for (const CodecKernels* kernels : all_kernels().subspan(1)) {
            ASSERT_EQ(fixtures::encode(x, codec, *kernels, rounding), frame)
                << family.name << " " << n << " " << name_of(codec) << " " << kernels->name;
            ASSERT_TRUE(fixtures::same_bits(fixtures::decode(frame, n, *kernels), y))
                << family.name << " " << n << " " << name_of(codec) << " " << kernels->name;
          }
        }
      }
    }
  }
}

TEST(CodecKernels, a_tensor_at_any_address_gives_the_same_frame) {
  const std::vector<float> x = fixtures::tensor_of(fixtures::kFamilies[1], 1500);
  for (const TensorCodec codec : kTensorCodecs) {
    for (std::size_t from = 0; from < 9; ++from) {
      const std::span<const float> part(x.data() + from, 1400);
      // The frame too lies at an odd address.
      ByteVector buffer(1 + tensor_frame_capacity(codec, Precision::kFp32, 1400));
      const std::span<std::byte> frame = std::span(buffer).subspan(1);
      const auto bytes = encode_tensor(flat_view(part), {.codec = codec, .step = 3}, frame);
      ASSERT_TRUE(bytes);
      const ByteVector expected = fixtures::encode(part, codec, reference_kernels());
      EXPECT_EQ(ByteVector(frame.begin(), frame.begin() + static_cast<int>(*bytes)), expected);
      EXPECT_EQ(fixtures::decode(frame.first(*bytes), 1400), fixtures::decode(expected, 1400));
    }
  }
}

TEST(CodecKernels, magnitude_finds_the_largest_wherever_it_is) {
  for (const CodecKernels* kernels : all_kernels()) {
    for (std::size_t n = 1; n < 70; ++n) {
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<float> x(n, 1.0f);
        x[at] = -3.0f;
        ASSERT_EQ(kernels->magnitude_fp32(x.data(), n), std::bit_cast<std::uint32_t>(3.0f));
        std::vector<std::uint16_t> halves(n, 0x3c00);
        halves[at] = 0xc200;
        ASSERT_EQ(kernels->magnitude_16(halves.data(), n), 0x4200u);
      }
    }
  }
}

#if defined(__x86_64__)
TEST(CodecKernels, flushing_denormals_to_zero_changes_nothing) {
  for (const Family& family : fixtures::kFamilies) {
    const std::vector<float> x = fixtures::tensor_of(family, 1000);
    const ByteVector frame = fixtures::encode(x, TensorCodec::kQ8);
    const std::vector<float> y = fixtures::decode(frame, 1000);
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);  // flush results to zero, take denormal inputs for zero
    const ByteVector flushed = fixtures::encode(x, TensorCodec::kQ8);
    const ByteVector plain = fixtures::encode(x, TensorCodec::kQ8, reference_kernels());
    const std::vector<float> z = fixtures::decode(frame, 1000);
    _mm_setcsr(before);
    EXPECT_EQ(flushed, frame) << family.name;
    EXPECT_EQ(plain, frame) << family.name;
    EXPECT_TRUE(fixtures::same_bits(y, z)) << family.name;
  }
}
#endif

TEST(Bf16, rounds_to_nearest_even) {
  struct Row {
    std::uint32_t from;
    std::uint16_t to;
    const char* what;
  };
  const std::vector<Row> rows = {
      {0x00000000, 0x0000, "zero"},
      {0x80000000, 0x8000, "minus zero"},
      {0x3f800000, 0x3f80, "one"},
      {0x3f807fff, 0x3f80, "below the middle"},
      {0x3f808000, 0x3f80, "the middle, down to even"},
      {0x3f808001, 0x3f81, "above the middle"},
      {0x3f817fff, 0x3f81, "below the middle, odd"},
      {0x3f818000, 0x3f82, "the middle, up to even"},
      {0x3fff8000, 0x4000, "carry into the exponent"},
      {0xbf818000, 0xbf82, "sign"},
      {0x00000001, 0x0000, "smallest denormal"},
      {0x00008000, 0x0000, "half of the smallest denormal bf16"},
      {0x00008001, 0x0001, "just above it"},
      {0x007fffff, 0x0080, "largest denormal becomes normal"},
      {0x7f7f7fff, 0x7f7f, "last that stays finite"},
  };
  std::vector<float> x;
  for (const Row& row : rows) x.push_back(std::bit_cast<float>(row.from));
  while (x.size() < 16) x.push_back(0);  // a whole register
  for (const CodecKernels* kernels : all_kernels()) {
    const std::vector<float> y =
        fixtures::decode(fixtures::encode(x, TensorCodec::kBf16, *kernels), x.size(), *kernels);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::uint32_t{rows[i].to} << 16)
          << rows[i].what << ", " << kernels->name;
    }
  }
}

TEST(Q8, scale_is_the_nearest_bf16_and_the_peak_becomes_127) {
  // bf16 near 1: 1, 129/128, 130/128. Its middle, 1.00390625, times 127 is 127.49609375.
  struct Row {
    float peak;
    std::uint16_t scale;
    int code;
  };
  const std::vector<Row> rows = {
      {127.0f, 0x3f80, 127},
      {127.49609375f, 0x3f80, 127},  // the middle goes to the even one; 127.496 still rounds to 127
      {127.4961f, 0x3f81, 127},      // 127.4961 / (129/128) = 126.508
      {128.0f, 0x3f81, 127},         // 127.008
      {126.751953125f, 0x3f80, 127},  // 0.998046875 x 127, middle of 255/256 and 1: to even
      {126.75f, 0x3f7f, 127},         // 126.75 / (255/256) = 127.247
      {254.0f, 0x4000, 127},
      {0x1.fffffep126f, 0x7b81, 127},  // 2^127 / (129/128 x 2^120) = 128 x 128/129 = 127.008
  };
  for (const Row& row : rows) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(512, 0.0f);
      x[77] = sign * row.peak;
      for (const CodecKernels* kernels : all_kernels()) {
        const ByteVector frame = fixtures::encode(x, TensorCodec::kQ8, *kernels);
        EXPECT_EQ(scale_of(frame, 1), row.scale) << row.peak;
        EXPECT_EQ(static_cast<int>(static_cast<std::int8_t>(frame[128 + 77])),
                  static_cast<int>(sign) * row.code)
            << row.peak;
        EXPECT_EQ(scale_of(frame, 0), kScaleMin) << "a block of zeros";
      }
    }
  }
}

TEST(Q8, a_value_is_off_by_half_a_scale_at_most) {
  // x / s is computed as x * (1 / s), two roundings of 2^-24 each of at most 127.5: the code may be
  // the second nearest one when x is within 127.5 x 2^-23 < 2^-16 scales of a tie.
  for (const Family& family : fixtures::kFamilies) {
    for (const std::size_t n : fixtures::kSizes) {
      const std::vector<float> x = fixtures::tensor_of(family, n);
      const ByteVector frame = fixtures::encode(x, TensorCodec::kQ8);
      const std::vector<float> y = fixtures::decode(frame, n);
      for (std::size_t i = 0; i < n; ++i) {
        const double scale = from_bf16(scale_of(frame, i / 64));
        const double error = std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
        ASSERT_LE(error, scale * (0.5 + 0x1p-16)) << family.name << " " << n << " " << x[i];
      }
    }
  }
}

TEST(Q8, an_outlier_costs_only_its_own_block) {
  std::vector<float> x(192, 1.0f);
  x[64] = 1e6f;
  const std::vector<float> y = fixtures::decode(fixtures::encode(x, TensorCodec::kQ8), 192);
  // Peak 1: 1/127 = 0.0078740 = 1.00787 / 128, scale 129/128/128, code 127: 0.99988.
  EXPECT_EQ(y[63], 127 * (129.0f / 16384));
  EXPECT_EQ(y[65], 0.0f);  // scale about 7874
  EXPECT_EQ(y[128], 127 * (129.0f / 16384));
}

TEST(Q8, values_under_half_the_smallest_scale_become_zero) {
  // Scale 2^-125: 2^-126 is a tie and goes to 0; anything above becomes 2^-125.
  const std::vector<float> x = {0x1p-149f, -0x1p-126f, 0x1.000002p-126f, 0x1p-125f};
  const std::vector<float> y = fixtures::decode(fixtures::encode(x, TensorCodec::kQ8), 4);
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0x1p-125f, 0x1p-125f}));
}

TEST(Codec, decoded_tensors_survive_unchanged) {
  // The peak of a block has code 127 and 127 s / 127 is s; or s is the smallest scale, and stays
  // so.
  for (const Family& family : fixtures::kFamilies) {
    for (const std::size_t n : fixtures::kSizes) {
      const std::vector<float> x = fixtures::tensor_of(family, n);
      for (const TensorCodec codec : kTensorCodecs) {
        if (traits_of(codec).is_rotated) continue;  // a rotation and its inverse round
        const std::vector<float> once = fixtures::decode(fixtures::encode(x, codec), n);
        const std::vector<float> twice = fixtures::decode(fixtures::encode(once, codec), n);
        ASSERT_TRUE(fixtures::same_values(once, twice))
            << family.name << " " << n << " " << name_of(codec);
      }
    }
  }
}

TEST(Codec, every_scale_significand_is_a_fixed_point) {
  // Peaks over one binade in steps finer than bf16, with all codes below each.
  for (int step = 0; step < 4096; ++step) {
    std::vector<float> x(128);
    const float peak = 1.0f + static_cast<float>(step) / 4096;
    for (std::size_t i = 0; i < 128; ++i) x[i] = peak * static_cast<float>(i) / 127;
    const std::vector<float> once = fixtures::decode(fixtures::encode(x, TensorCodec::kQ8), 128);
    const std::vector<float> twice =
        fixtures::decode(fixtures::encode(once, TensorCodec::kQ8), 128);
    ASSERT_EQ(once, twice) << peak;
  }
}

TEST(Codec, what_is_not_finite_travels_raw_and_flagged) {
  const float nan = std::bit_cast<float>(0xffc12345u);
  struct Row {
    float value;
    TensorCodec codec;
    TensorCodec sent_as;
    int flags;
  };
  const float rounds_to_infinity =
      std::bit_cast<float>(traits_of(TensorCodec::kBf16).magnitude_limit);
  const float stays_finite =
      std::bit_cast<float>(traits_of(TensorCodec::kBf16).magnitude_limit - 1);
  const int both = kFlagNonFinite | kFlagFallback;
  const std::vector<Row> rows = {
      {nan, TensorCodec::kQ8, TensorCodec::kRaw, both},
      {-kInfinity, TensorCodec::kQ8, TensorCodec::kRaw, both},
      {0x1p127f, TensorCodec::kQ8, TensorCodec::kRaw, kFlagFallback},
      {-0x1.fffffep126f, TensorCodec::kQ8, TensorCodec::kQ8, 0},
      {nan, TensorCodec::kBf16, TensorCodec::kRaw, both},
      {kInfinity, TensorCodec::kBf16, TensorCodec::kRaw, both},
      {-rounds_to_infinity, TensorCodec::kBf16, TensorCodec::kRaw, kFlagFallback},
      {-stays_finite, TensorCodec::kBf16, TensorCodec::kBf16, 0},
      {nan, TensorCodec::kRaw, TensorCodec::kRaw, kFlagNonFinite},
      {kLargest, TensorCodec::kRaw, TensorCodec::kRaw, 0},
  };
  for (const Row& row : rows) {
    // First, last, either side of a block and of a piece.
    for (const std::size_t at : Sizes{0, 63, 64, 6143, 6144, 6999}) {
      std::vector<float> x(7000, 0.25f);
      x[at] = row.value;
      for (const CodecKernels* kernels : all_kernels()) {
        const ByteVector frame = fixtures::encode(x, row.codec, *kernels);
        const auto header = parse_tensor_header(frame);
        ASSERT_TRUE(header);
        EXPECT_EQ(header->codec, row.sent_as) << row.value << " " << name_of(row.codec);
        EXPECT_EQ(header->flags, row.flags) << row.value << " " << name_of(row.codec);
        const std::vector<float> y = fixtures::decode(frame, x.size(), *kernels);
        if (row.sent_as == TensorCodec::kRaw) {
          EXPECT_TRUE(fixtures::same_bits(x, y));
        }
        for (const float value : y) {
          ASSERT_TRUE(std::isfinite(value) || (header->flags & kFlagNonFinite) != 0);
        }
      }
    }
  }
}

TEST(Codec, half_tensors_travel_raw_and_are_flagged_by_their_own_infinity) {
  struct Row {
    Precision type;
    std::uint16_t bits;
    int flags;
  };
  const std::vector<Row> rows = {
      {Precision::kFp16, 0x7bff, 0},               // 65504
      {Precision::kFp16, 0xfc00, kFlagNonFinite},  // -Inf
      {Precision::kBf16, 0x7c00, 0},               // finite as bf16
      {Precision::kBf16, 0x7f80, kFlagNonFinite},
      {Precision::kBf16, 0xffc0, kFlagNonFinite},
  };
  for (const Row& row : rows) {
    for (const std::size_t at : Sizes{0, 19, 36}) {
      std::vector<std::uint16_t> x(37, 0x3c00), y(37);
      x[at] = row.bits;
      ByteVector frame(68 + 74);
      ASSERT_TRUE(
          encode_tensor({row.type, 37, 1, std::as_bytes(std::span(x))}, EncodeOptions{}, frame));
      const auto header = decode_tensor(frame, {row.type, std::as_writable_bytes(std::span(y))});
      ASSERT_TRUE(header);
      EXPECT_EQ(header->flags, row.flags);
      EXPECT_EQ(y, x);
    }
  }
}

}  // namespace
}  // namespace longhaul
