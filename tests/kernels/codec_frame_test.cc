// The frame: its bytes, its sizes, and everything that is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "kernels/codec/crc32c.h"
#include "tests/kernels/codec_fixtures.h"

namespace longhaul {
namespace {

using fixtures::bytes_of_hex;
using fixtures::ByteVector;
using fixtures::Sizes;

// The checksums in these vectors come from a bit-by-bit CRC written for them alone.

TEST(TensorFrame, golden_q8) {
  // Peak 127, so the scale is 1 (bf16 3f80). 0.5 and 1.5 and -2.5 are ties: to 0, 2, -2 (fe).
  const std::vector<float> x = {127, -127, 0.5f, 1.5f, -2.5f, 100.4f};
  const ByteVector golden = bytes_of_hex(
      "4c 48 43 31 01 03 01 03 00 00 40 00 07 00 00 00"  // LHC1, v1, q8, fp32, bf16, block, step
      "06 00 00 00 00 00 00 00 02 00 00 00 03 00 00 00"  // n, rows, row length
      "88 77 66 55 44 33 22 11 08 07 06 05 04 03 02 01"  // seed, tensor id
      "4a 00 00 00 00 00 00 00 00 00 00 00 a1 3f 5b 5a"  // payload 64 + 6 + 4, extension, crc
      "80 3f 00 00 00 00 00 00 00 00 00 00 00 00 00 00"  // one scale, padding
      "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
      "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
      "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
      "7f 81 00 02 fe 64 f6 a3 36 5e");  // codes, crc of the payload
  const TensorView view{Precision::kFp32, 2, 3, std::as_bytes(std::span(x))};
  const EncodeOptions options{.codec = TensorCodec::kQ8,
                              .step = 7,
                              .seed = 0x1122334455667788,
                              .tensor_id = 0x0102030405060708};
  ByteVector frame(200);
  const auto bytes = encode_tensor(view, options, frame);
  ASSERT_TRUE(bytes);
  frame.resize(*bytes);
  EXPECT_EQ(frame, golden);
  EXPECT_EQ(fixtures::decode(golden, 6), (std::vector<float>{127, -127, 0, 2, -2, 100}));
  const auto header = parse_tensor_header(golden);
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, (TensorHeader{TensorCodec::kQ8, Precision::kFp32, 0, 7, 2, 3,
                                   0x1122334455667788, 0x0102030405060708}));
}

TEST(TensorFrame, golden_bf16) {
  // 1 + 1/128 + 1/256 lies halfway between 3f81 and 3f82: to the even one.
  const std::vector<float> x = {1, -1, 1.01171875f};
  const ByteVector golden = bytes_of_hex(
      "4c 48 43 31 01 02 01 00 00 00 00 00 01 00 00 00"
      "03 00 00 00 00 00 00 00 01 00 00 00 03 00 00 00"
      "00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"
      "0a 00 00 00 00 00 00 00 00 00 00 00 3e b9 5d 24"
      "80 3f 80 bf 82 3f c1 c7 0f 04");
  ByteVector frame(80);
  const auto bytes =
      encode_tensor(flat_view(x), {.codec = TensorCodec::kBf16, .step = 1, .tensor_id = 2}, frame);
  ASSERT_TRUE(bytes);
  frame.resize(*bytes);
  EXPECT_EQ(frame, golden);
  EXPECT_EQ(fixtures::decode(golden, 3), (std::vector<float>{1, -1, 1.015625f}));
}

TEST(TensorFrame, golden_infinity_falls_back_to_raw_and_is_flagged) {
  const std::vector<float> x = {1, std::numeric_limits<float>::infinity()};
  const ByteVector golden = bytes_of_hex(
      "4c 48 43 31 01 01 01 00 03 00 00 00 01 00 00 00"  // codec raw, flags 3, no scales
      "02 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00"
      "00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"
      "0c 00 00 00 00 00 00 00 00 00 00 00 f0 2c 29 5d"
      "00 00 80 3f 00 00 80 7f dd 46 f3 bd");
  for (const TensorCodec codec : {TensorCodec::kQ8, TensorCodec::kBf16}) {
    ByteVector frame(200);
    const auto bytes =
        encode_tensor(flat_view(x), {.codec = codec, .step = 1, .tensor_id = 2}, frame);
    ASSERT_TRUE(bytes);
    frame.resize(*bytes);
    EXPECT_EQ(frame, golden) << name_of(codec);
  }
  EXPECT_EQ(fixtures::decode(golden, 2), x);
}

TEST(TensorFrame, golden_raw_fp16) {
  const std::vector<std::uint16_t> x = {0x3c00, 0xc000};  // 1, -2
  const ByteVector golden = bytes_of_hex(
      "4c 48 43 31 01 01 02 00 00 00 00 00 01 00 00 00"
      "02 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00"
      "00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00"
      "08 00 00 00 00 00 00 00 00 00 00 00 c4 cc 87 6e"
      "00 3c 00 c0 42 71 83 bc");
  ByteVector frame(72);
  const TensorView view{Precision::kFp16, 1, 2, std::as_bytes(std::span(x))};
  ASSERT_TRUE(encode_tensor(view, {.step = 1, .tensor_id = 2}, frame));
  EXPECT_EQ(frame, golden);
  std::vector<std::uint16_t> back(2);
  ASSERT_TRUE(decode_tensor(golden, {Precision::kFp16, std::as_writable_bytes(std::span(back))}));
  EXPECT_EQ(back, x);
}

TEST(TensorFrame, golden_empty_tensor) {
  const ByteVector golden = bytes_of_hex(
      "4c 48 43 31 01 03 01 03 00 00 40 00 00 00 00 00"
      "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
      "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
      "04 00 00 00 00 00 00 00 00 00 00 00 5a b6 7f 9d"
      "00 00 00 00");  // the CRC of nothing is 0
  ByteVector frame(68);
  ASSERT_TRUE(encode_tensor({}, {.codec = TensorCodec::kQ8}, frame));
  EXPECT_EQ(frame, golden);
  EXPECT_TRUE(decode_tensor(golden, std::span<float>{}));
}

TEST(TensorFrame, sizes_are_those_of_the_formulas) {
  const auto fp32 = Precision::kFp32;
  // Header 64, checksum 4.
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kRaw, fp32, 100), 68u + 400);
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kRaw, Precision::kBf16, 100), 68u + 200);
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kBf16, fp32, 100), 68u + 200);
  // 64 bytes of scales for every 2,048 elements begun.
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kQ8, fp32, 0), 68u);
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kQ8, fp32, 1), 68u + 64 + 1);
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kQ8, fp32, 2048), 68u + 64 + 2048);
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kQ8, fp32, 2049), 68u + 128 + 2049);
  // The largest one: 2^32 - 1 elements in ceil(n / 2048) = 2^21 groups.
  EXPECT_EQ(tensor_frame_bytes(TensorCodec::kQ8, fp32, kTensorElementsMax),
            68u + 64 * (std::uint64_t{1} << 21) + kTensorElementsMax);
  // A Q8 frame of one element, 133 bytes, is longer than the RAW one, 72.
  EXPECT_EQ(tensor_frame_capacity(TensorCodec::kQ8, fp32, 1), 133u);
  EXPECT_EQ(tensor_frame_capacity(TensorCodec::kQ8, fp32, 1000), 4068u);
}

TEST(TensorFrame, planes_begin_at_multiples_of_64) {
  for (const std::size_t n : fixtures::kSizes) {
    const TensorLayout layout = tensor_layout(TensorCodec::kQ8, Precision::kFp32, n);
    EXPECT_EQ(layout.scales_at % 64, 0u);
    EXPECT_EQ(layout.codes_at % 64, 0u);
    EXPECT_GE(layout.codes_at, layout.scales_at + layout.scales_bytes);
    EXPECT_LT(layout.codes_at, layout.scales_at + layout.scales_bytes + 64);
  }
}

TEST(TensorFrame, every_codec_of_a_job_has_a_frame_of_its_bits) {
  for (const Codec codec : kCodecs) {
    const CodecGrid& grid = traits_of(tensor_codec(codec)).grid;
    EXPECT_EQ(grid.block, format_of(codec).block) << name_of(codec);
    if (grid.block > 0) EXPECT_EQ(grid.bits, format_of(codec).code_bits) << name_of(codec);
  }
  EXPECT_EQ(tensor_codec(Codec::kNone), TensorCodec::kRaw);
  EXPECT_EQ(tensor_codec(Codec::kBf16), TensorCodec::kBf16);
  EXPECT_EQ(tensor_codec(Codec::kFp16), TensorCodec::kF16);
  EXPECT_EQ(tensor_codec(Codec::kInt4), TensorCodec::kQ4);
  EXPECT_EQ(tensor_codec(Codec::kAqInt4), TensorCodec::kQ4);
}

/// Frames of every codec, short enough to try each of their bits.
std::vector<ByteVector> small_frames() {
  std::vector<ByteVector> frames;
  for (const TensorCodec codec : kTensorCodecs) {
    for (const std::size_t n : Sizes{0, 1, 3, 65}) {
      frames.push_back(fixtures::encode(fixtures::tensor_of(fixtures::kFamilies[1], n), codec));
    }
  }
  return frames;
}

/// Decodes into a buffer of the size that the original frame asks for.
Result<TensorHeader> try_decode(const ByteVector& frame, std::uint64_t elements) {
  // Exactly as long as the frame, so that a sanitizer sees one byte too many.
  const std::vector<std::byte> copy(frame);
  std::vector<float> x(elements);
  return decode_tensor(copy, std::span<float>(x));
}

TEST(TensorFrame, every_truncation_is_an_error) {
  for (const ByteVector& frame : small_frames()) {
    const std::uint64_t n = parse_tensor_header(frame)->elements();
    ASSERT_TRUE(try_decode(frame, n));
    for (std::size_t length = 0; length < frame.size(); ++length) {
      const auto result = try_decode({frame.begin(), frame.begin() + static_cast<int>(length)}, n);
      EXPECT_FALSE(result) << length << " of " << frame.size();
    }
    ByteVector longer = frame;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(try_decode(longer, n));
  }
}

TEST(TensorFrame, every_flipped_bit_is_an_error) {
  for (const ByteVector& frame : small_frames()) {
    const std::uint64_t n = parse_tensor_header(frame)->elements();
    for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      ByteVector damaged = frame;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      const auto result = try_decode(damaged, n);
      ASSERT_FALSE(result) << "bit " << bit;
      // Magic and version have a message of their own.
      const std::string checksum = bit / 8 < 5    ? "tensor frame"
                                   : bit / 8 < 64 ? "frame's header is wrong"
                                                  : "frame's payload is wrong";
      EXPECT_NE(result.error().message.find(checksum), std::string::npos) << result.error().message;
    }
  }
}

/// Puts right checksums into a frame that was changed.
void reseal(ByteVector& frame) {
  const std::span<std::byte> bytes(frame);
  const std::uint32_t header = crc32c(bytes.first(60));
  std::memcpy(frame.data() + 60, &header, 4);
  const std::uint32_t payload = crc32c(bytes.subspan(64, frame.size() - 68));
  std::memcpy(frame.data() + frame.size() - 4, &payload, 4);
}

TEST(TensorFrame, impossible_headers_are_refused_one_by_one) {
  // A Q8 frame of 65 elements: payload 64 + 65 + 4 = 133 = 0x85.
  const ByteVector good =
      fixtures::encode(fixtures::tensor_of(fixtures::kFamilies[1], 65), TensorCodec::kQ8);
  struct Row {
    std::size_t at;
    int byte;
    const char* says;
  };
  const std::vector<Row> rows = {
      {0, 'X', "does not begin with LHC1"},
      {4, 2, "version 2"},
      {5, 0, "codec 0,"},
      {5, 9, "codec 9,"},
      {5, 12, "codec 12,"},
      {6, 0, "unknown element type 0"},
      {6, 4, "unknown element type 4"},
      {6, 2, "packs fp16 with q8"},
      {7, 1, "scale type"},
      {8, 1, "marked as not packable"},
      {8, 2, "marked as not packable"},
      {8, 16, "unknown flags 0x10"},
      {9, 0x80, "unknown flags 0x8000"},
      {10, 32, "block"},
      {16, 66, "66 elements in 1 rows of 65"},
      {24, 2, "65 elements in 2 rows of 65"},
      {48, 0x84, "said to be 132 bytes and must be 133"},
      {51, 1, "and must be 133"},
      {8, 8, "with 0 bytes of header extension"},
      {56, 64, "with 64 bytes of header extension"},
      {56, 1, "with 1 bytes of header extension"},
  };
  for (const Row& row : rows) {
    ByteVector bad = good;
    bad[row.at] = static_cast<std::byte>(row.byte);
    reseal(bad);
    const auto result = parse_tensor_header(bad);
    ASSERT_FALSE(result) << row.says;
    EXPECT_NE(result.error().message.find(row.says), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().code, ErrorCode::kFailed);
  }
}

TEST(TensorFrame, more_elements_than_the_limit_are_refused_before_sizes_are_computed) {
  // 65,536 rows of 65,536 are 2^32, one more than the limit; 65,537 rows of 65,535 are the limit.
  for (const bool fits : {true, false}) {
    ByteVector frame(kTensorHeaderBytes);
    // A writer cannot write such a header, so the fields are put in by hand.
    write_tensor_header({.rows = 1, .row_length = 1}, frame);
    const std::uint32_t rows = fits ? 65537 : 65536, row_length = fits ? 65535 : 65536;
    const std::uint64_t n = std::uint64_t{rows} * row_length, payload = 4 * n + 4;
    std::memcpy(frame.data() + 16, &n, 8);
    std::memcpy(frame.data() + 24, &rows, 4);
    std::memcpy(frame.data() + 28, &row_length, 4);
    std::memcpy(frame.data() + 48, &payload, 8);
    const std::uint32_t crc = crc32c(std::span(frame).first(60));
    std::memcpy(frame.data() + 60, &crc, 4);
    const auto result = parse_tensor_header(frame);
    EXPECT_EQ(result.has_value(), fits);
    if (!result) EXPECT_NE(result.error().message.find("limit is 4294967295"), std::string::npos);
  }
}

TEST(TensorFrame, payloads_that_no_encoder_writes_are_refused) {
  const std::vector<float> x = fixtures::tensor_of(fixtures::kFamilies[1], 65);
  const ByteVector q8 = fixtures::encode(x, TensorCodec::kQ8);
  const ByteVector bf16 = fixtures::encode(x, TensorCodec::kBf16);
  struct Row {
    const char* what;
    const ByteVector& frame;
    std::size_t at;
    int low, high;  // the 16 bits put there
    bool is_accepted;
  };
  const std::vector<Row> rows = {
      {"smallest scale", q8, 64, 0x00, 0x01, true},
      {"scale too small", q8, 64, 0xff, 0x00, false},
      {"largest scale", q8, 66, 0x82, 0x7b, true},  // 2^127 / 127 = 1.00787 x 2^120, rounded up
      {"scale too large", q8, 66, 0x83, 0x7b, false},
      {"negative scale", q8, 64, 0x80, 0xbf, false},
      {"padding", q8, 68, 0x01, 0x00, false},
      {"end of padding", q8, 126, 0x00, 0x01, false},
      {"least code", q8, 128 + 62, 0x81, 0x81, true},
      {"code -128 at the start of a block", q8, 128, 0x80, 0x00, false},
      {"code -128 in a whole block", q8, 128 + 62, 0x81, 0x80, false},
      {"code -128 in the last block", q8, 128 + 63, 0x81, 0x80, false},
      {"largest bf16", bf16, 64 + 10, 0x7f, 0x7f, true},
      {"bf16 infinity", bf16, 64 + 10, 0x80, 0x7f, false},
      {"bf16 NaN at the end", bf16, 64 + 128, 0xc0, 0xff, false},
  };
  for (const Row& row : rows) {
    ByteVector changed = row.frame;
    changed[row.at] = static_cast<std::byte>(row.low);
    changed[row.at + 1] = static_cast<std::byte>(row.high);
    reseal(changed);
    for (const CodecKernels* kernels : all_kernels()) {
      std::vector<float> out(65);
      const auto result = decode_tensor(changed, std::span<float>(out), {}, *kernels);
      EXPECT_EQ(result.has_value(), row.is_accepted) << row.what << ", " << kernels->name;
      if (!result) {
        EXPECT_NE(result.error().message.find("no encoder writes"), std::string::npos);
      } else {
        for (const float value : out) EXPECT_TRUE(std::isfinite(value)) << row.what;
      }
    }
  }
}

TEST(TensorFrame, a_target_of_another_size_or_type_is_refused_and_left_alone) {
  const std::vector<float> x(65, 1.0f);
  const ByteVector frame = fixtures::encode(x, TensorCodec::kQ8);
  for (const std::size_t n : Sizes{0, 64, 66}) {
    std::vector<float> target(n, 5.0f);
    const auto result = decode_tensor(frame, std::span<float>(target));
    ASSERT_FALSE(result) << n;
    EXPECT_EQ(target, std::vector<float>(n, 5.0f));
  }
  std::vector<std::uint16_t> halves(65);
  const auto result =
      decode_tensor(frame, {Precision::kFp16, std::as_writable_bytes(std::span(halves))});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "a frame of fp32 arrived where fp16 is expected");
}

TEST(TensorFrame, what_cannot_be_encoded_is_refused) {
  const std::vector<float> x(64, 1.0f);
  const TensorView good = flat_view(x);
  ByteVector frame(tensor_frame_capacity(TensorCodec::kQ8, Precision::kFp32, 64));
  const EncodeOptions q8{.codec = TensorCodec::kQ8};
  EXPECT_TRUE(encode_tensor(good, q8, frame));
  // One byte less than a fall-back to RAW might need: 68 + 256 - 1.
  EXPECT_FALSE(encode_tensor(good, q8, std::span(frame).first(323)));
  EXPECT_FALSE(encode_tensor(good, {.codec = static_cast<TensorCodec>(9)}, frame));
  TensorView bad = good;
  bad.row_length = 63;
  EXPECT_FALSE(encode_tensor(bad, q8, frame));
  bad = good;
  bad.type = Precision::kFp16;
  bad.bytes = bad.bytes.first(128);
  EXPECT_FALSE(encode_tensor(bad, q8, frame));
  EXPECT_TRUE(encode_tensor(bad, {}, frame));
  bad = good;
  bad.rows = 0xffffffffu;
  bad.row_length = 0xffffffffu;
  EXPECT_FALSE(encode_tensor(bad, q8, frame));
}

}  // namespace
}  // namespace longhaul
