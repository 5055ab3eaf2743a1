// A message that is encoded, sent and decoded piece by piece.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/kernels/codec_fixtures.h"

namespace longhaul {
namespace {

using fixtures::ByteVector;
using fixtures::Sizes;

/// Encodes in pieces; checks that what was ready never changes.
ByteVector encode_in_pieces(std::span<const float> x, TensorCodec codec, std::size_t piece) {
  ByteVector frame(tensor_frame_capacity(codec, Precision::kFp32, x.size()), std::byte{0x5a});
  auto encoder = TensorEncoder::begin(flat_view(x), {.codec = codec, .step = 3}, frame);
  LH_CHECK(encoder.has_value(), "the tensors of the tests can be encoded");
  ByteVector sent;
  const auto send = [&] {
    for (std::size_t i = sent.size(); i < encoder->ready_bytes(); ++i) sent.push_back(frame[i]);
  };
  send();
  EXPECT_GE(sent.size(), kTensorHeaderBytes);
  while (!encoder->done()) {
    encoder->advance(piece);
    send();
  }
  EXPECT_EQ(sent.size(), encoder->frame_bytes());
  return sent;
}

TEST(TensorStream, bytes_do_not_depend_on_the_pieces) {
  for (const fixtures::Family& family : fixtures::kFamilies) {
    for (const std::size_t n : Sizes{0, 1, 64, 65, 700, 6145, 12289}) {
      const std::vector<float> x = fixtures::tensor_of(family, n);
      for (const TensorCodec codec : kTensorCodecs) {
        const ByteVector whole = fixtures::encode(x, codec);
        for (const std::size_t piece : Sizes{64, 192, 512, 6144, 6208, 100000}) {
          ASSERT_EQ(encode_in_pieces(x, codec, piece), whole)
              << family.name << " " << n << " by " << piece;
        }
      }
    }
  }
}

TEST(TensorStream, the_codec_is_known_before_the_first_byte_is_sent) {
  std::vector<float> x(20000, 1.0f);
  x.back() = std::numeric_limits<float>::quiet_NaN();
  for (const TensorCodec codec : {TensorCodec::kBf16, TensorCodec::kQ8}) {
    ByteVector frame(tensor_frame_capacity(codec, Precision::kFp32, x.size()));
    const auto encoder = TensorEncoder::begin(flat_view(x), {.codec = codec}, frame);
    ASSERT_TRUE(encoder);
    EXPECT_EQ(encoder->header().codec, TensorCodec::kRaw);
    EXPECT_EQ(encoder->ready_bytes(), 64u);
    const auto header = parse_tensor_header(std::span(frame).first(encoder->ready_bytes()));
    ASSERT_TRUE(header);
    EXPECT_EQ(header->flags, kFlagNonFinite | kFlagFallback);
    EXPECT_EQ(encode_in_pieces(x, codec, 4096), fixtures::encode(x, codec));
  }
}

TEST(TensorStream, ready_bytes_are_header_and_scales_then_codes_then_all) {
  const std::vector<float> x(130, 1.0f);
  ByteVector frame(68 + 520);
  auto encoder = TensorEncoder::begin(flat_view(x), {.codec = TensorCodec::kQ8}, frame);
  ASSERT_TRUE(encoder);
  EXPECT_EQ(encoder->ready_bytes(), 64u + 64);  // three scales, padded
  encoder->advance(64);
  EXPECT_EQ(encoder->ready_bytes(), 128u + 64);
  encoder->advance(64);
  EXPECT_EQ(encoder->ready_bytes(), 128u + 128);
  EXPECT_FALSE(encoder->done());
  encoder->advance(2);  // all that are left, though not a whole block
  EXPECT_TRUE(encoder->done());
  EXPECT_EQ(encoder->ready_bytes(), 128u + 130 + 4);
}

TEST(TensorStream, decodes_whatever_way_the_bytes_arrive) {
  for (const std::size_t n : Sizes{0, 1, 64, 65, 700, 6145}) {
    const std::vector<float> x = fixtures::tensor_of(fixtures::kFamilies[2], n);
    for (const TensorCodec codec : kTensorCodecs) {
      const ByteVector frame = fixtures::encode(x, codec);
      const std::vector<float> expected = fixtures::decode(frame, n);
      for (const std::size_t piece : Sizes{1, 7, 64, 100, 4096}) {
        std::vector<float> y(n, -1.0f);
        auto decoder =
            TensorDecoder::open(frame, {Precision::kFp32, std::as_writable_bytes(std::span(y))});
        ASSERT_TRUE(decoder);
        for (std::size_t arrived = 0; arrived < frame.size();) {
          EXPECT_FALSE(decoder->done());
          arrived = std::min(frame.size(), arrived + piece);
          // A copy of that length, so that a sanitizer sees a read too far.
          const ByteVector prefix(frame.begin(), frame.begin() + static_cast<int>(arrived));
          ASSERT_TRUE(decoder->advance(prefix));
        }
        EXPECT_TRUE(decoder->done());
        EXPECT_TRUE(fixtures::same_bits(y, expected)) << n << " by " << piece;
      }
    }
  }
}

TEST(TensorStream, blocks_are_decoded_as_soon_as_they_are_complete) {
  std::vector<float> x(130, 1.0f);
  x[0] = 127;  // the first block has scale 1
  const ByteVector frame = fixtures::encode(x, TensorCodec::kQ8);
  std::vector<float> y(130, -1.0f);
  auto decoder =
      TensorDecoder::open(frame, {Precision::kFp32, std::as_writable_bytes(std::span(y))});
  ASSERT_TRUE(decoder);
  const std::span<const std::byte> bytes(frame);
  ASSERT_TRUE(decoder->advance(bytes.first(128 + 63)));
  EXPECT_EQ(y[0], -1.0f);
  ASSERT_TRUE(decoder->advance(bytes.first(128 + 64)));
  EXPECT_EQ(y[0], 127.0f);
  EXPECT_EQ(y[63], 1.0f);
  EXPECT_EQ(y[64], -1.0f);
  ASSERT_TRUE(decoder->advance(bytes.first(frame.size() - 1)));
  EXPECT_FALSE(decoder->done());  // all values are there, but not the checksum
}

TEST(TensorStream, damage_is_found_at_the_end_at_the_latest) {
  const std::vector<float> x(700, 1.0f);
  ByteVector frame = fixtures::encode(x, TensorCodec::kQ8);
  frame[300] ^= std::byte{4};
  std::vector<float> y(700);
  auto decoder =
      TensorDecoder::open(frame, {Precision::kFp32, std::as_writable_bytes(std::span(y))});
  ASSERT_TRUE(decoder);
  ASSERT_TRUE(decoder->advance(std::span(frame).first(frame.size() - 1)));
  const auto end = decoder->advance(frame);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().message, "the checksum of a tensor frame's payload is wrong");
  EXPECT_FALSE(decoder->done());
}

TEST(TensorStreamDeathTest, a_piece_that_cuts_a_block_is_a_programming_mistake) {
  const std::vector<float> x(130, 1.0f);
  ByteVector frame(68 + 520);
  auto encoder = TensorEncoder::begin(flat_view(x), {.codec = TensorCodec::kQ8}, frame);
  ASSERT_TRUE(encoder);
  EXPECT_DEATH(encoder->advance(65), "pieces are whole blocks");
}

}  // namespace
}  // namespace longhaul
