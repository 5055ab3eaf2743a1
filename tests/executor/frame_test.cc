#include "executor/transport/frame.h"

#include <gtest/gtest.h>

#include "core/rng.h"

namespace longhaul {
namespace {

FrameHeader sample() {
  FrameHeader header;
  header.type = FrameType::kData;
  header.flags = kFlagCritical;
  header.payload_bytes = 0x00010203;
  header.job = 0x1122334455667788;
  header.term = 0xa1a2a3a4;
  header.sender = 7;
  header.operation = encode_operation({5, 2, 9, 3});
  header.segment = 11;
  header.stream = 2;
  header.element_type = 1;
  header.codec = 4;
  header.offset = 0x0102030405060708;
  header.raw_bytes = 0x00020406;
  header.payload_crc = 0xdeadbeef;
  return header;
}

TEST(Frame, header_has_the_documented_bytes) {
  const FrameHeaderBytes bytes = encode_frame_header(sample());
  const auto byte = [&](std::size_t at) { return std::to_integer<int>(bytes[at]); };
  EXPECT_EQ(byte(0), 'L');
  EXPECT_EQ(byte(1), 'H');
  EXPECT_EQ(byte(2), 'L');
  EXPECT_EQ(byte(3), '1');
  EXPECT_EQ(byte(4), 1);   // version
  EXPECT_EQ(byte(5), 7);   // data
  EXPECT_EQ(byte(6), 1);   // critical
  EXPECT_EQ(byte(12), 3);  // payload length, lowest byte first
  EXPECT_EQ(byte(14), 1);
  EXPECT_EQ(byte(16), 0x88);  // job
  EXPECT_EQ(byte(24), 0xa4);  // term
  EXPECT_EQ(byte(28), 7);     // sender
  // step 5 << 36 | kind 2 << 32 | micro-batch 9 << 12 | stage 3 = 0x52_0000_9003
  EXPECT_EQ(byte(32), 0x03);
  EXPECT_EQ(byte(33), 0x90);
  EXPECT_EQ(byte(36), 0x52);
  EXPECT_EQ(byte(40), 11);
  EXPECT_EQ(byte(44), 2);
  EXPECT_EQ(byte(46), 1);
  EXPECT_EQ(byte(47), 4);
  EXPECT_EQ(byte(48), 8);
  EXPECT_EQ(byte(55), 1);
  EXPECT_EQ(byte(60), 0xef);
  const Result<FrameHeader> back = decode_frame_header(bytes);
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(*back, sample());
}

TEST(Frame, every_flipped_bit_of_a_header_is_noticed) {
  const FrameHeaderBytes good = encode_frame_header(sample());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    FrameHeaderBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(decode_frame_header(bad)) << "bit " << bit;
  }
}

TEST(Frame, other_versions_and_programs_are_named) {
  FrameHeaderBytes bytes = encode_frame_header(sample());
  bytes[4] = std::byte{2};
  EXPECT_NE(decode_frame_header(bytes).error().message.find("version 2"), std::string::npos);
  const FrameHeaderBytes nothing{};
  EXPECT_NE(decode_frame_header(nothing).error().message.find("does not speak longhaul"),
            std::string::npos);
}

TEST(Frame, payloads_up_to_the_limit_of_their_type_pass) {
  FrameHeader header = sample();
  header.payload_bytes = kMaxDataPayload;
  EXPECT_TRUE(decode_frame_header(encode_frame_header(header)));
  EXPECT_DEATH(
      {
        header.payload_bytes = kMaxDataPayload + 1;
        encode_frame_header(header);
      },
      "fits its type");
}

TEST(Frame, operations_keep_their_parts_up_to_their_limits) {
  Rng rng("operations", 1);
  for (int i = 0; i < 1000; ++i) {
    const OperationName name = {static_cast<std::uint32_t>(rng.below(1u << 28)),
                                static_cast<std::uint8_t>(rng.below(16)),
                                static_cast<std::uint32_t>(rng.below(1u << 20)),
                                static_cast<std::uint16_t>(rng.below(1u << 12))};
    EXPECT_EQ(decode_operation(encode_operation(name)), name);
  }
  const OperationName largest = {(1u << 28) - 1, 15, (1u << 20) - 1, (1u << 12) - 1};
  EXPECT_EQ(encode_operation(largest), ~std::uint64_t{0});
  EXPECT_DEATH(encode_operation({1u << 28, 0, 0, 0}), "fit their fields");
}

}  // namespace
}  // namespace longhaul
