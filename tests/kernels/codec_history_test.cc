// Frames with a history: both ends remember the same of a sample, and send what has changed.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/codec/crc32c.h"
#include "tests/kernels/codec_fixtures.h"

namespace longhaul {
namespace {

using fixtures::ByteVector;
using fixtures::gauss;
using fixtures::relative_distance;
using fixtures::Sizes;
using History = std::vector<std::uint16_t>;

EncodeOptions options_of(HistoryKind kind, TensorCodec codec,
                         Rounding rounding = Rounding::kNearest) {
  return {.codec = codec,
          .step = 5,
          .seed = 7,
          .tensor_id = 9,
          .rounding = rounding,
          .history = HistoryHeader{.sample = 3, .layout = 4, .kind = kind}};
}

struct Sent {
  ByteVector frame;
  std::uint32_t crc = 0;
};
/// Encodes in pieces of `piece` elements.
Sent send(std::span<const float> x, const EncodeOptions& options, History& history,
          const CodecKernels& kernels = best_kernels(), std::size_t piece = 1 << 20) {
  ByteVector frame(tensor_frame_capacity(options.codec, Precision::kFp32, x.size(), true),
                   std::byte{0xa5});
  auto encoder = TensorEncoder::begin(flat_view(x), options, frame, history, kernels);
  LH_CHECK(encoder.has_value(), "the tensors of the tests can be encoded");
  while (!encoder->done()) encoder->advance(piece);
  frame.resize(encoder->frame_bytes());
  return {frame, encoder->history_crc()};
}

/// Decodes as if `piece` bytes came at a time; the new history's CRC.
std::uint32_t receive(const ByteVector& frame, std::span<float> y, History& history,
                      const CodecKernels& kernels = best_kernels(), std::size_t piece = 1 << 20) {
  auto decoder =
      TensorDecoder::open(frame, {Precision::kFp32, std::as_writable_bytes(y)}, history, kernels);
  LH_CHECK(decoder.has_value(), "the frames of the tests can be opened");
  for (std::size_t arrived = 0; !decoder->done();) {
    arrived = std::min(frame.size(), arrived + piece);
    LH_CHECK(decoder->advance(std::span(frame).first(arrived)).has_value(),
             "the frames of the tests can be decoded");
  }
  return decoder->history_crc();
}

std::vector<float> floats_of(const History& history) {
  std::vector<float> y(history.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = std::bit_cast<float>(std::uint32_t{history[i]} << 16);
  }
  return y;
}

TEST(CodecHistory, both_ends_remember_the_same_for_every_codec_kernel_and_piece) {
  for (const TensorCodec codec : kTensorCodecs) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const std::size_t n : Sizes{1, 33, 64, 1000, 6209}) {
        History expected(n, 0x1234);
        std::vector<ByteVector> frames;
        for (const CodecKernels* kernels : all_kernels()) {
          for (const std::size_t piece : Sizes{64, 2112, 1 << 20}) {
            History sender(n, 0x1234), receiver(n, 0x1234);
            for (std::uint64_t visit = 0; visit < 3; ++visit) {
              const HistoryKind kind = visit == 0 ? HistoryKind::kFirst : HistoryKind::kDelta;
              const std::vector<float> x = gauss(n, visit);
              const EncodeOptions options = options_of(kind, codec, rounding);
              const Sent sent = send(x, options, sender, *kernels, piece);
              std::vector<float> y(n);
              EXPECT_EQ(receive(sent.frame, y, receiver, *kernels, piece + 1), sent.crc);
              ASSERT_EQ(sender, receiver) << name_of(codec) << " " << kernels->name << " " << n;
              EXPECT_EQ(sent.crc, crc32c(std::as_bytes(std::span(sender))));
              ASSERT_TRUE(fixtures::same_bits(y, floats_of(receiver)));
              if (frames.size() <= visit) frames.push_back(sent.frame);
              ASSERT_EQ(sent.frame, frames[visit]) << name_of(codec) << " " << kernels->name;
            }
          }
        }
      }
    }
  }
}

TEST(CodecHistory, a_delta_is_rounded_as_the_formula_says) {
  // m = 1, 2, 3 and x - m = 0.5, -1, 1.75: peak 1.75, so s = -1.75 / 8 = -0.21875, exact in bf16.
  // q = -2.29, 4.57, -8 -> -2, 5, -8; q s = 0.4375, -1.09375, 1.75. m + q s = 1.4375, 0.90625,
  // 4.75, all exact in bf16 (3fb8, 3f68, 4098).
  History history = {0x3f80, 0x4000, 0x4040};
  const std::vector<float> x = {1.5f, 1.0f, 4.75f};
  const Sent sent = send(x, options_of(HistoryKind::kDelta, TensorCodec::kQ4), history);
  EXPECT_EQ(history, (History{0x3fb8, 0x3f68, 0x4098}));
  std::vector<float> y(3);
  History other = {0x3f80, 0x4000, 0x4040};
  receive(sent.frame, y, other);
  EXPECT_EQ(y, (std::vector<float>{1.4375f, 0.90625f, 4.75f}));
}

TEST(CodecHistory, visits_of_an_unchanged_tensor_converge_to_bf16) {
  // Compression reference, P4: the error shrinks by the quantiser's at each visit down to bf16's
  // own, 1.7e-3; measured 1.1e-1, 7.7e-3, 1.8e-3, 1.7e-3 for 4 bits of -7..7 in blocks of 64.
  // Ours have 32: 0.097 (nearest) and 0.137 (stochastic), so 0.097^2 = 9.4e-3 and so on.
  struct Row {
    TensorCodec codec;
    Rounding rounding;
    std::array<double, 4> most;
  };
  for (const Row& row :
       {Row{TensorCodec::kQ4Symmetric, Rounding::kNearest, {.11, 9.9e-3, 2.0e-3, 1.75e-3}},
        Row{TensorCodec::kQ4Symmetric, Rounding::kStochastic, {.15, 2.1e-2, 3.4e-3, 1.8e-3}},
        Row{TensorCodec::kQ4, Rounding::kNearest, {.09, 8e-3, 1.9e-3, 1.75e-3}},
        Row{TensorCodec::kHadamardQ4, Rounding::kNearest, {.112, 1.3e-2, 2.2e-3, 1.75e-3}},
        Row{TensorCodec::kQ2, Rounding::kNearest, {.37, .14, .052, .02}}}) {
    const std::vector<float> x = gauss(65536, 1);
    History history(x.size());
    for (std::size_t visit = 0; visit < row.most.size(); ++visit) {
      // From nothing, so that the first visit too has the codec's error.
      send(x,
           options_of(visit == 0 ? HistoryKind::kFirst : HistoryKind::kDelta, row.codec,
                      row.rounding),
           history);
      const double error = relative_distance(x, floats_of(history));
      EXPECT_LE(error, row.most[visit]) << name_of(row.codec) << " visit " << visit;
      EXPECT_GE(error, 1.6e-3) << name_of(row.codec) << " visit " << visit;
    }
  }
}

/// Sends 7,000 elements with `value` at one place over histories of ones.
void expect_an_empty_frame(TensorCodec codec, HistoryKind kind, float value, std::size_t place,
                           const CodecKernels& kernels) {
  std::vector<float> x(7000, 0.25f);
  x[place] = value;
  const History ones(x.size(), 0x3f80);
  History sender = ones;
  History none;
  const bool is_full = kind == HistoryKind::kFull;
  const Sent sent = send(x, options_of(kind, codec), is_full ? none : sender, kernels);
  EXPECT_EQ(sent.frame.size(), 128u + 4);
  EXPECT_EQ(sender, ones);
  const auto header = parse_tensor_header(sent.frame);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->elements(), 0u);
  EXPECT_EQ((header->flags & kFlagNonFinite) != 0, !std::isfinite(value));
  std::vector<float> y(x.size());
  receive(sent.frame, y, sender, kernels);
  for (const float decoded : y) ASSERT_TRUE(std::isnan(decoded));
  EXPECT_EQ(sender, ones);
}

TEST(CodecHistory, what_is_not_finite_is_an_empty_frame_and_leaves_the_history_alone) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const TensorCodec codec : kTensorCodecs) {
    for (const float value : {infinity, std::numeric_limits<float>::quiet_NaN(), 0x1p125f}) {
      for (const HistoryKind kind :
           {HistoryKind::kFirst, HistoryKind::kDelta, HistoryKind::kFull, HistoryKind::kHealing}) {
        // Only where a history takes it up is 2^125 too large.
        if (value == 0x1p125f && kind >= HistoryKind::kFull) continue;
        for (const CodecKernels* kernels : all_kernels()) {
          SCOPED_TRACE(fmt::format("{} {} {}", name_of(codec), value, kernels->name));
          // Beyond the first piece: in a group of blocks, and behind the last whole one.
          for (const std::size_t place : Sizes{6500, 6990}) {
            expect_an_empty_frame(codec, kind, value, place, *kernels);
          }
        }
      }
    }
  }
}

TEST(CodecHistory, a_slot_of_padding_decodes_to_zeros) {
  History none;
  EncodeOptions options = options_of(HistoryKind::kFull, TensorCodec::kQ2);
  options.history->sample = kNoSample;
  const Sent sent = send({}, options, none);
  std::vector<float> y(100, 5.0f);
  receive(sent.frame, y, none);
  EXPECT_EQ(y, std::vector<float>(100));
}

TEST(CodecHistory, a_full_frame_is_as_without_history) {
  const std::vector<float> x = gauss(1000, 2);
  for (const TensorCodec codec : kTensorCodecs) {
    History none;
    const Sent sent = send(x, options_of(HistoryKind::kFull, codec), none);
    std::vector<float> y(x.size());
    History history(x.size(), 0x4000);  // given, and left alone
    receive(sent.frame, y, history);
    EXPECT_EQ(history, History(x.size(), 0x4000));
    EncodeOptions plain = options_of(HistoryKind::kFull, codec);
    plain.history.reset();
    ByteVector frame(tensor_frame_capacity(codec, Precision::kFp32, x.size()));
    ASSERT_TRUE(encode_tensor(flat_view(x), plain, frame));
    EXPECT_TRUE(std::equal(sent.frame.begin() + 128, sent.frame.end(), frame.begin() + 64));
  }
}

TEST(CodecHistory, a_healing_frame_carries_the_history_to_the_last_bit) {
  History sender(500, 0);
  for (std::uint64_t visit = 0; visit < 3; ++visit) {
    send(gauss(500, visit),
         options_of(visit == 0 ? HistoryKind::kFirst : HistoryKind::kDelta, TensorCodec::kQ3),
         sender);
  }
  const History before = sender;
  const Sent sent =
      send(floats_of(sender), options_of(HistoryKind::kHealing, TensorCodec::kBf16), sender);
  EXPECT_EQ(sender, before);
  History receiver(500, 0x7777);
  std::vector<float> y(500);
  EXPECT_EQ(receive(sent.frame, y, receiver), sent.crc);
  EXPECT_EQ(receiver, before);
  EXPECT_TRUE(fixtures::same_bits(y, floats_of(before)));
}

TEST(CodecHistory, tiny_histories_are_plus_zero) {
  // -2^-127 is below bf16's normal range, and 0 + -0 is 0 in the reference's addition.
  const std::vector<float> x = {-0x1p-127f, -0.0f, 0x1p-126f, -1.0f};
  History history(4, 0x1111);
  send(x, options_of(HistoryKind::kFirst, TensorCodec::kBf16), history);
  EXPECT_EQ(history, (History{0, 0, 0x0080, 0xbf80}));
}

TEST(CodecHistory, wrong_histories_are_refused) {
  const std::vector<float> x(64, 1.0f);
  ByteVector frame(tensor_frame_capacity(TensorCodec::kQ8, Precision::kFp32, 64, true));
  History history(65);
  const std::span<std::uint16_t> all(history);
  const auto begin = [&](HistoryKind kind, HistorySpan given) {
    return TensorEncoder::begin(flat_view(x), options_of(kind, TensorCodec::kQ8), frame, given);
  };
  EXPECT_TRUE(begin(HistoryKind::kDelta, all.first(64)));
  EXPECT_FALSE(begin(HistoryKind::kDelta, all));
  EXPECT_FALSE(begin(HistoryKind::kDelta, {}));
  EXPECT_FALSE(begin(HistoryKind::kFull, all.first(64)));
  EXPECT_TRUE(begin(HistoryKind::kFull, {}));
  EXPECT_FALSE(
      TensorEncoder::begin(flat_view(x), {.codec = TensorCodec::kQ8}, frame, all.first(64)));

  History sender(64);
  const Sent sent = send(x, options_of(HistoryKind::kFirst, TensorCodec::kQ8), sender);
  std::vector<float> y(64);
  EXPECT_FALSE(decode_tensor(sent.frame, std::span<float>(y)));
  EXPECT_FALSE(decode_tensor(sent.frame, std::span<float>(y), all));
  EXPECT_TRUE(decode_tensor(sent.frame, std::span<float>(y), all.first(64)));
}

TEST(CodecHistory, a_history_that_would_become_infinite_is_an_error) {
  // A sound frame on another history than the sender's: 0x7f7f is 2^128 - 2^119, and 2^124 is
  // added.
  History sender(64, 0), receiver(64, 0x7f7f);
  const std::vector<float> x(64, 0x1p124f);
  const Sent sent = send(x, options_of(HistoryKind::kDelta, TensorCodec::kQ8), sender);
  std::vector<float> y(64);
  const auto result = decode_tensor(sent.frame, std::span<float>(y), receiver);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("no encoder writes"), std::string::npos);
}

TEST(CodecHistory, extension_is_written_byte_by_byte) {
  History history(1);
  EncodeOptions options = options_of(HistoryKind::kDelta, TensorCodec::kQ8);
  options.history = HistoryHeader{.sample = 0x0102030405060708,
                                  .layout = 0x1112131415161718,
                                  .base_hash = 0x2122232425262728,
                                  .version = 0x31323334,
                                  .kind = HistoryKind::kDelta,
                                  .evicted = 0x4142434445464748};
  const std::vector<float> x = {1};
  const ByteVector frame = send(x, options, history).frame;
  EXPECT_EQ(frame[56], std::byte{64});
  EXPECT_EQ(ByteVector(frame.begin() + 64, frame.begin() + 124),
            fixtures::bytes_of_hex("08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 11"
                                   "28 27 26 25 24 23 22 21 34 33 32 31 02 00 00 00"
                                   "48 47 46 45 44 43 42 41 00 00 00 00 00 00 00 00"
                                   "00 00 00 00 00 00 00 00 00 00 00 00"));
  const auto header = parse_tensor_header(frame);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->history, options.history);
}

TEST(CodecHistory, impossible_extensions_are_refused_one_by_one) {
  History history(65);
  const std::vector<float> x = gauss(65, 4);
  const ByteVector good = send(x, options_of(HistoryKind::kDelta, TensorCodec::kQ8), history).frame;
  struct Row {
    std::size_t at;
    int byte;
    const char* says;
  };
  for (const Row& row :
       {Row{64 + 28, 0, "unknown history kind 0"}, Row{64 + 28, 5, "unknown history kind 5"},
        Row{64 + 31, 1, "unknown history kind"}, Row{64 + 40, 1, "of a later version"},
        Row{64 + 59, 1, "of a later version"},
        Row{8, kFlagHistory | kFlagNonFinite, "marked as not packable"},
        Row{8, 0, "with 64 bytes of header extension"}}) {
    ByteVector bad = good;
    bad[row.at] = static_cast<std::byte>(row.byte);
    const std::uint32_t header = crc32c(std::span(bad).first(60));
    std::memcpy(bad.data() + 60, &header, 4);
    const std::uint32_t extension = crc32c(std::span(bad).subspan(64, 60));
    std::memcpy(bad.data() + 124, &extension, 4);
    const auto result = parse_tensor_header(bad);
    ASSERT_FALSE(result) << row.says;
    EXPECT_NE(result.error().message.find(row.says), std::string::npos) << result.error().message;
  }
  // A RAW frame of halves whose flag is set by hand.
  ByteVector halves(prefix_bytes(true) + 4);
  write_tensor_header({.flags = kFlagHistory, .history = HistoryHeader{}}, halves);
  halves[6] = std::byte{2};
  const std::uint32_t crc = crc32c(std::span(halves).first(60));
  std::memcpy(halves.data() + 60, &crc, 4);
  EXPECT_EQ(parse_tensor_header(halves).error().message,
            "tensor frame of fp16 with a history, which is for fp32");
  for (std::size_t length = 0; length < good.size(); ++length) {
    const ByteVector part(good.begin(), good.begin() + static_cast<int>(length));
    EXPECT_EQ(parse_tensor_header(part).has_value(), length >= 128) << length;
    std::vector<float> y(65);
    EXPECT_FALSE(decode_tensor(part, std::span<float>(y), history)) << length;
  }
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    ByteVector bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    std::vector<float> y(65);
    ASSERT_FALSE(decode_tensor(bad, std::span<float>(y), history)) << "bit " << bit;
  }
}

TEST(CodecHistory, hash_depends_on_every_visit_and_is_never_zero) {
  const std::uint64_t once = next_history_hash(0, 1);
  EXPECT_NE(once, next_history_hash(0, 2));
  EXPECT_NE(next_history_hash(once, 3), next_history_hash(next_history_hash(0, 3), 1));
  EXPECT_NE(once, 0u);
  EXPECT_EQ(once, next_history_hash(0, 1));
}

}  // namespace
}  // namespace longhaul
