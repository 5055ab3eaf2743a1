// Messages that are not what a sender makes: each is refused for its own reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/codec/crc32c.h"
#include "kernels/codec/tensor_codec.h"
#include "tests/executor/aq_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AqBoundaryTest;
using fixtures::AqEnd;
using fixtures::AqMessage;
using fixtures::AqOptions;
using fixtures::decode;
using fixtures::encode;
using fixtures::kSenderCell;

class AqRefusal : public AqBoundaryTest {
 protected:
  /// The message of a second visit of samples 7 and 8, as `change` leaves it.
  Error refused(const std::function<void(AqMessage&)>& change) {
    visit(0, {7, 8});
    AqMessage message{.step = 1, .samples = {7, 8}};
    encode(sender_, tensor(message), message);
    change(message);
    auto y = decode(receiver_, message, 2 * 128, rng_, nullptr);
    return y ? Error() : y.error();
  }
};

void put_header_crcs(std::span<std::byte> frame) {
  for (const std::size_t at : {0u, 64u}) {
    const std::uint32_t crc = crc32c(frame.subspan(at, 60));
    std::memcpy(frame.data() + at + 60, &crc, sizeof crc);
  }
}
template <class T>
void put(std::vector<std::byte>& message, std::size_t at, T value) {
  std::memcpy(message.data() + at, &value, sizeof value);
  const std::size_t frame = at / 320 * 320;
  put_header_crcs(std::span(message).subspan(frame, 320));
}

TEST_F(AqRefusal, each_for_its_own_reason) {
  struct Row {
    const char* what;
    std::function<void(AqMessage&)> change;
    const char* message;
  };
  using Bytes = std::vector<std::byte>;
  // Two frames of 260 bytes at 0 and 320; the extension begins at 64.
  const std::vector<Row> rows = {
      {"cut off", [](AqMessage& m) { m.bytes.resize(639); }, "the message ends early"},
      {"too short for a header", [](AqMessage& m) { m.bytes.resize(100); },
       "the message ends early"},
      {"something follows", [](AqMessage& m) { m.bytes.resize(641); },
       "the message goes on after the last"},
      {"filled up with something", [](AqMessage& m) { m.bytes[262] = std::byte{1}; },
       "the frame is followed by something else than zeros"},
      {"another magic", [](AqMessage& m) { m.bytes[0] = std::byte{0}; },
       "not a tensor frame: it does not begin with LHC1"},
      {"damaged code", [](AqMessage& m) { m.bytes[320 + 195] ^= std::byte{1}; },
       "the checksum of a tensor frame's payload is wrong"},
      {"another step", [](AqMessage& m) { put(m.bytes, 12, std::uint32_t{2}); },
       "a frame of step 2, this one is 1"},
      {"another sample", [](AqMessage& m) { put(m.bytes, 320 + 64, std::uint64_t{7}); },
       "a frame of sample 7, where 8 is trained"},
      {"another boundary", [](AqMessage& m) { put(m.bytes, 64 + 8, std::uint64_t{1}); },
       "a frame of the boundary 0000000000000001, this one is 0000000000000abc"},
      {"an answer to no question", [](AqMessage& m) { put(m.bytes, 64 + 28, std::uint32_t{4}); },
       "a frame that heals a history, and nobody asked for one"},
      {"no extension",
       [this](AqMessage& m) {
         Bytes frame(1000);
         const std::vector<float> x = sequence(7, 1);
         const auto size =
             encode_tensor(flat_view(x), {.codec = TensorCodec::kQ8, .step = 1}, frame);
         ASSERT_EQ(size, 260u);
         std::copy_n(frame.begin(), 260, m.bytes.begin());
       },
       "a frame without the extension of a history"},
      {"padding where a sequence is",
       [](AqMessage& m) {
         Bytes frame(192);
         ASSERT_TRUE(
             encode_tensor(flat_view({}),
                           {.codec = TensorCodec::kBf16,
                            .step = 1,
                            .history = HistoryHeader{.sample = 7, .layout = fixtures::kAqLayout}},
                           frame));
         m.bytes = frame;
       },
       "a frame of padding in the place of a sequence, or the other way round"},
      {"a shorter sequence",
       [this](AqMessage& m) {
         Bytes frame(448);
         const std::vector<float> x = sequence(7, 1);
         ASSERT_TRUE(
             encode_tensor(flat_view(std::span(x).first(64)),
                           {.codec = TensorCodec::kBf16,
                            .step = 1,
                            .history = HistoryHeader{.sample = 7, .layout = fixtures::kAqLayout}},
                           frame));
         m.bytes = frame;
       },
       "a frame of 64 elements, a sequence has 128"},
      {"longer than messages are",
       [this](AqMessage& m) {
         Bytes frame(64 + 64 + 512 + 4);
         ASSERT_TRUE(
             encode_tensor(flat_view(sequence(8, 1)),
                           {.codec = TensorCodec::kRaw,
                            .step = 1,
                            .history = HistoryHeader{.sample = 8, .layout = fixtures::kAqLayout}},
                           frame));
         // In the second place, where 896 - 320 bytes are left of the buffer.
         std::copy(frame.begin(), frame.begin() + 320, m.bytes.begin() + 320);
       },
       "a frame that is longer than its message may be"},
  };
  for (const Row& row : rows) {
    sender_.restart();
    receiver_.restart();
    const Error error = refused(row.change);
    EXPECT_TRUE(error.message.starts_with("sequence ")) << row.what << ": " << error.message;
    EXPECT_TRUE(error.message.ends_with(std::string(": ") + row.message))
        << row.what << ": " << error.message;
  }
}

TEST_F(AqRefusal, change_without_a_sample_is_no_validation) {
  AqMessage validation{.step = 1, .samples = {}};
  encode(sender_, sequence(3, 0), validation);
  put(validation.bytes, 64 + 28, std::uint32_t{1});
  const auto y = decode(receiver_, validation, 128, rng_, nullptr);
  ASSERT_FALSE(y);
  EXPECT_EQ(y.error().message,
            "sequence 0 of 1 of a boundary tensor: a frame that changes the history of no sample");
}

TEST_F(AqRefusal, sender_with_more_room_than_the_receiver_is_noticed) {
  AqOptions without = options_;
  without.capacity = 0;
  AqEnd receiver(without, kSenderCell);
  AqMessage message{.step = 0, .samples = {7}};
  encode(sender_, tensor(message), message);
  const auto y = decode(receiver, message, 128, rng_, nullptr);
  ASSERT_FALSE(y);
  EXPECT_EQ(y.error().message,
            "sequence 0 of 1 of a boundary tensor: no room for another history among 0: the sender "
            "has more");
}

}  // namespace
}  // namespace longhaul
