#include "executor/history/aq_boundary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "tests/executor/aq_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AqBoundaryTest;
using fixtures::AqEnd;
using fixtures::AqMessage;
using fixtures::AqOptions;
using fixtures::decode;
using fixtures::encode;
using fixtures::kReceiverCell;
using fixtures::kSenderCell;

TEST_F(AqBoundaryTest, first_visit_goes_whole_and_later_ones_as_differences) {
  EXPECT_EQ(visit(0, {7}), rounded(sequence(7, 0)));
  // 64 of header, 64 of extension, 2 x 128, 4 of checksum are 388; filled up to 448.
  EXPECT_EQ(last_bytes_, 448u);
  EXPECT_EQ(last_bytes_, sender_.wire_bytes_max(128));
  const std::vector<float> y = visit(1, {7});
  // 128, 64 of scales, 128 / 2 of codes, 4: 260.
  EXPECT_EQ(last_bytes_, 320u);
  const std::vector<float> x = sequence(7, 1);
  // The difference is below 0.01, a step of int4 an eighth of that; and bf16 of numbers below 1/2.
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 0.01 / 8 / 2 + 0x1p-10);
  EXPECT_EQ(resent_, 0u);
  const HistoryCounts counts = sender_.format().counts(kReceiverCell);
  EXPECT_EQ(counts.first, 1u);
  EXPECT_EQ(counts.deltas, 1u);
  expect_equal_ends();
}

TEST_F(AqBoundaryTest, visits_of_what_stays_the_same_close_in_on_it) {
  // P4 through the boundary: the floor is bf16's own rounding, half of 2^-8 relative.
  const std::vector<float> x = sequence(7, 0);
  std::vector<float> y;
  for (std::uint32_t step = 0; step < 4; ++step) {
    AqMessage message{.step = step, .samples = {7}};
    y = deliver(message, x);
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_LE(std::fabs(y[i] - x[i]), 0x1p-8f * std::fabs(x[i]) + 1e-6f);
}

TEST_F(AqBoundaryTest, padding_decodes_to_zeros_and_is_short) {
  const std::vector<float> y = visit(0, {7, -1, 9});
  // 448 each, and 64 + 64 + 4 = 132, filled up to 192.
  EXPECT_EQ(last_bytes_, 448u + 192 + 448);
  EXPECT_TRUE(std::ranges::all_of(y.begin() + 128, y.begin() + 256,
                                  [](float value) { return value == 0; }));
  const std::vector<float> third = rounded(sequence(9, 0));
  EXPECT_TRUE(std::equal(third.begin(), third.end(), y.begin() + 256));
  EXPECT_EQ(sender_.store().size(), 2u);
  expect_equal_ends();
}

TEST_F(AqBoundaryTest, sequence_that_is_not_finite_arrives_as_nan_and_leaves_histories_alone) {
  visit(0, {7, 8});
  const History before = *sender_.store().find(7);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AqMessage message{.step = 1, .samples = {7, 8}};
    std::vector<float> x = tensor(message);
    x[5] = bad;
    const std::vector<float> y = deliver(message, x);
    for (std::size_t i = 0; i < 128; ++i) EXPECT_TRUE(std::isnan(y[i]));
    EXPECT_NEAR(y[128], x[128], 0.01);
    EXPECT_EQ(*sender_.store().find(7), before);
  }
  expect_equal_ends();
  visit(2, {7, 8});
  EXPECT_EQ(sender_.format().counts(kReceiverCell).first, 2u);
  EXPECT_EQ(resent_, 0u);
  expect_equal_ends();
}

TEST_F(AqBoundaryTest, first_visit_that_is_not_finite_is_not_remembered) {
  AqMessage message{.step = 0, .samples = {7}};
  std::vector<float> x = tensor(message);
  x[0] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(deliver(message, x)[0]));
  EXPECT_EQ(sender_.store().size(), 0u);
  EXPECT_EQ(receiver_.store().size(), 0u);
  EXPECT_EQ(visit(1, {7}), rounded(sequence(7, 1)));
}

TEST_F(AqBoundaryTest, validation_goes_whole_and_touches_no_history) {
  visit(0, {7});
  const History sent = *sender_.store().find(7);
  const History received = *receiver_.store().find(7);
  AqMessage validation{.step = 0, .samples = {}};
  const std::vector<float> x = sequence(3, 0);
  EXPECT_EQ(deliver(validation, x), rounded(x));
  EXPECT_EQ(validation.bytes.size(), 448u);
  EXPECT_EQ(sender_.store().size(), 1u);
  EXPECT_EQ(*sender_.store().find(7), sent);
  EXPECT_EQ(*receiver_.store().find(7), received);
}

TEST_F(AqBoundaryTest, lost_histories_heal_to_the_numbers_of_an_undisturbed_run) {
  visit(0, {7, 8, 9});
  AqMessage message{.step = 1, .samples = {7, 8, 9}};
  encode(sender_, tensor(message), message);
  AqEnd calm(options_, kSenderCell);
  AqMessage before{.step = 0, .samples = {7, 8, 9}};
  {
    AqEnd another(options_, kReceiverCell);
    encode(another, tensor(before), before);
    ASSERT_TRUE(decode(calm, before, 3 * 128, rng_, nullptr));
  }
  const auto undisturbed = decode(calm, message, 3 * 128, rng_, nullptr);
  receiver_.store().drop(7);
  receiver_.store().values(*receiver_.store().find(9))[0] ^= 1;  // unnoticed, as it is in RAM,
  receiver_.store().drop(9);                                     // so it is dropped, too
  const auto healed = decode(receiver_, message, 3 * 128, rng_, &sender_, &resent_);
  ASSERT_TRUE(undisturbed && healed);
  EXPECT_EQ(*healed, *undisturbed);
  EXPECT_EQ(resent_, 2u);
  EXPECT_EQ(sender_.format().counts(kReceiverCell).healed, 2u);
  EXPECT_EQ(receiver_.format().counts(kSenderCell).healed, 2u);
  expect_equal_ends();
}

TEST_F(AqBoundaryTest, message_that_comes_twice_gives_the_same_bits) {
  for (std::uint32_t step = 0; step < 3; ++step) {
    AqMessage message{.step = step, .samples = {7, -1, 8}};
    encode(sender_, tensor(message), message);
    if (step == 2) receiver_.store().drop(8);  // once healed it is remembered like the others
    const auto first = decode(receiver_, message, 3 * 128, rng_, &sender_, &resent_);
    const std::size_t asked = resent_;
    const auto second = decode(receiver_, message, 3 * 128, rng_, nullptr, &resent_);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(*first, *second);
    EXPECT_EQ(resent_, asked);
    expect_equal_ends();
  }
  EXPECT_EQ(resent_, 1u);
}

TEST_F(AqBoundaryTest, another_frame_on_the_same_history_is_not_taken_for_the_last_one) {
  visit(0, {7});
  AqMessage one{.step = 1, .samples = {7}};
  AqMessage other = one;
  const std::vector<float> x = tensor(one);
  AqEnd twin(options_, kReceiverCell);
  AqMessage first{.step = 0, .samples = {7}};
  encode(twin, tensor(first), first);
  encode(twin, sequence(7, 99), other);
  encode(sender_, x, one);
  ASSERT_TRUE(decode(receiver_, one, 128, rng_, nullptr));
  // The twin's delta is on the history that the receiver had a moment ago.
  const auto healed = decode(receiver_, other, 128, rng_, &twin, &resent_);
  ASSERT_TRUE(healed);
  EXPECT_EQ(resent_, 1u);
  const auto expected = twin.store().values(*twin.store().find(7));
  EXPECT_TRUE(std::ranges::equal(receiver_.store().values(*receiver_.store().find(7)), expected));
}

TEST_F(AqBoundaryTest, sender_that_lost_its_histories_begins_anew) {
  visit(0, {7, 8});
  visit(1, {7, 8});
  sender_.restart();
  EXPECT_EQ(visit(2, {7, 8})[0], rounded(sequence(7, 2))[0]);
  EXPECT_EQ(last_bytes_, 2 * 448u);
  EXPECT_EQ(resent_, 0u);
  visit(3, {7, 8});
  EXPECT_EQ(last_bytes_, 2 * 320u);
  expect_equal_ends();
}

TEST_F(AqBoundaryTest, message_that_is_given_up_costs_its_histories) {
  visit(0, {7});
  AqMessage message{.step = 1, .samples = {7}};
  message.bytes.resize(sender_.wire_bytes_max(128));
  const std::vector<float> x = tensor(message);
  ASSERT_TRUE(sender_.writer().begin(message.named(kReceiverCell), x, message.bytes));
  EXPECT_EQ(visit(1, {7}), rounded(sequence(7, 1)));
  EXPECT_EQ(last_bytes_, 448u);
  expect_equal_ends();
}

TEST_F(AqBoundaryTest, bits_may_change_from_message_to_message) {
  visit(0, {7});
  for (const auto& [codec, bytes] : std::vector<std::pair<Codec, std::size_t>>{
           // 132 + 64 of scales + 128 x bits / 8, filled up: 324, 292, 260, 244, 228
           {Codec::kAqInt8, 384},
           {Codec::kAqInt6, 320},
           {Codec::kAqInt4, 320},
           {Codec::kAqInt3, 256},
           {Codec::kAqInt2, 256}}) {
    sender_.format().set_codec(kReceiverCell, Op::kSendActivation, codec);
    EXPECT_EQ(sender_.format().codec_of(Op::kSendActivation, kReceiverCell), codec);
    visit(1, {7});
    EXPECT_EQ(last_bytes_, bytes) << name_of(codec);
    expect_equal_ends();
  }
  EXPECT_EQ(resent_, 0u);
}

TEST_F(AqBoundaryTest, gradients_and_other_cells_go_direct) {
  AqBoundary& format = sender_.format();
  EXPECT_FALSE(format.is_plain(Op::kSendActivation, kReceiverCell));
  EXPECT_FALSE(format.is_plain(Op::kSendGradient, kReceiverCell));
  EXPECT_EQ(format.codec_of(Op::kSendGradient, kReceiverCell), Codec::kInt8);
  EXPECT_EQ(format.codec_of(Op::kSendActivation, kSenderCell), Codec::kInt8);
  EXPECT_EQ(format.store(kSenderCell), nullptr);
  const std::vector<float> x = sequence(7, 0);
  std::vector<std::byte> wire(format.wire_bytes_max(Op::kSendGradient, kReceiverCell, x.size()));
  BoundaryTensor which{.op = Op::kSendGradient, .peer = kReceiverCell};
  const auto size = sender_.writer().begin(which, x, wire);
  ASSERT_TRUE(size);
  // 64 + 64 of scales + 128 + 4, and no extension.
  EXPECT_EQ(*size, 260u);
  std::size_t ready = 0;
  while (ready < *size) ready = sender_.writer().advance().value_or(*size);
  which.peer = kSenderCell;
  std::vector<float> y(x.size());
  ASSERT_TRUE(receiver_.reader().begin(which, wire, y));
  ASSERT_TRUE(receiver_.reader().advance(*size, true));
  EXPECT_TRUE(receiver_.reader().done());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 0.5 / 127);
}

TEST_F(AqBoundaryTest, only_what_the_step_has_left_is_sent_again) {
  visit(3, {7, -1});
  const AqMessage message{.step = 3, .samples = {7, -1}};
  AqBoundary& format = sender_.format();
  EXPECT_TRUE(format.resend(message.named(kReceiverCell), 0));
  EXPECT_FALSE(format.resend(message.named(kReceiverCell), 1));  // padding
  EXPECT_FALSE(format.resend(message.named(kReceiverCell), -1));
  EXPECT_FALSE(format.resend(message.named(kReceiverCell), 2));
  const AqMessage later{.step = 4, .samples = {7}};
  const auto refused = format.resend(later.named(kReceiverCell), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "sample 7 was asked for again, but step 4 has left no history of it");
  const AqMessage unknown{.step = 3, .samples = {8}};
  EXPECT_FALSE(format.resend(unknown.named(kReceiverCell), 0));
}

TEST_F(AqBoundaryTest, answer_that_is_not_the_senders_history_is_refused) {
  visit(0, {7, 8});
  AqMessage message{.step = 1, .samples = {7, 8}};
  encode(sender_, tensor(message), message);
  receiver_.store().drop(7);
  std::vector<float> y(2 * 128);
  BoundaryReader& reader = receiver_.reader();
  ASSERT_TRUE(reader.begin(message.named(kSenderCell), message.bytes, y));
  ASSERT_TRUE(reader.advance(message.bytes.size(), true));
  ASSERT_EQ(std::vector<int>(reader.missing().begin(), reader.missing().end()),
            std::vector<int>{0});
  const auto own = sender_.format().resend(message.named(kReceiverCell), 0);
  const auto others = sender_.format().resend(message.named(kReceiverCell), 1);
  ASSERT_TRUE(own && others);
  EXPECT_FALSE(reader.repair(1, *others));                              // nobody asked for it
  EXPECT_FALSE(reader.repair(0, *others));                              // another sample
  EXPECT_FALSE(reader.repair(0, std::span(message.bytes).first(260)));  // a delta
  EXPECT_FALSE(reader.repair(0, std::span(*own).first(own->size() - 1)));
  EXPECT_FALSE(reader.repair(0, {}));
  EXPECT_FALSE(reader.done());
  ASSERT_TRUE(reader.repair(0, *own));
  EXPECT_TRUE(reader.done());
  EXPECT_TRUE(reader.missing().empty());
  EXPECT_FALSE(reader.repair(0, *own));
  expect_equal_ends();
}

TEST(AqPieces, long_messages_become_final_piece_by_piece_over_several_frames) {
  // Three sequences of 100,000 elements, pieces of 2^17: they end within the second and the third.
  AqOptions options{.codec = Codec::kAqInt3, .elements = 100'000};
  AqEnd sender(options, kReceiverCell);
  AqEnd receiver(options, kSenderCell);
  Rng rng("long", 1);
  std::vector<float> x(3 * options.elements);
  for (std::uint32_t step = 0; step < 3; ++step) {
    for (float& value : x) value = static_cast<float>(rng.uniform()) - 0.5f;
    AqMessage message{.step = step, .samples = {5, 6, 7}};
    encode(sender, x, message);
    const auto whole = decode(receiver, message, x.size(), rng, nullptr);
    ASSERT_TRUE(whole) << whole.error().text();
    // The receiver's numbers are the sender's histories.
    for (std::size_t i = 0; i < 3; ++i) {
      const auto values = sender.store().values(*sender.store().find(5 + i));
      const auto y = std::span(*whole).subspan(i * options.elements, options.elements);
      EXPECT_TRUE(std::ranges::equal(values, y, [](std::uint16_t m, float value) {
        return std::bit_cast<float>(std::uint32_t{m} << 16) == value;
      }));
    }
  }
  // 300,000 elements in pieces of 131,072: three calls, and not one.
  AqMessage message{.step = 3, .samples = {5, 6, 7}};
  message.bytes.resize(sender.wire_bytes_max(x.size()));
  const auto size = sender.writer().begin(message.named(kReceiverCell), x, message.bytes);
  ASSERT_TRUE(size);
  int calls = 0;
  for (std::size_t ready = 0; ready < *size; ++calls) ready = sender.writer().advance().value();
  EXPECT_EQ(calls, 3);
}

// ---- room

class AqCapacity : public AqBoundaryTest {
 protected:
  explicit AqCapacity(std::size_t capacity = 2)
      : AqBoundaryTest(
            {.elements = 128, .capacity = capacity, .in_memory = 1, .steps_per_epoch = 3}) {}
};

TEST_F(AqCapacity, sample_without_room_travels_whole_every_time) {
  visit(0, {7, 8});
  for (std::uint32_t step = 1; step < 5; ++step) {
    EXPECT_EQ(visit(step, {9}), rounded(sequence(9, step)));
    EXPECT_EQ(last_bytes_, 448u);
    EXPECT_FALSE(remembers(receiver_, 9));
  }
  EXPECT_EQ(sender_.format().counts(kReceiverCell).full, 4u);
}

TEST_F(AqCapacity, new_sample_takes_the_place_of_one_not_visited_for_two_epochs) {
  visit(0, {7});
  visit(1, {8});
  visit(2, {7});
  // Two epochs are six steps; 8 was last visited in step 1.
  visit(6, {9});
  EXPECT_FALSE(remembers(sender_, 9));
  visit(7, {9});
  EXPECT_TRUE(remembers(sender_, 9));
  for (AqEnd* const end : {&sender_, &receiver_}) {
    EXPECT_TRUE(remembers(*end, 7));
    EXPECT_FALSE(remembers(*end, 8));
  }
  // Then 8 is new, and 7 the one that nobody visited from step 2 on.
  visit(8, {8});
  EXPECT_FALSE(remembers(receiver_, 7));
  EXPECT_EQ(visit(9, {7}), rounded(sequence(7, 9)));  // no room: 9 and 8 are young
  expect_equal_ends();
}

TEST_F(AqCapacity, receiver_follows_a_sender_that_begins_anew) {
  visit(0, {1, 2});
  sender_.restart();
  visit(1, {3, 4});  // the receiver is full of what nobody remembers
  visit(2, {3, 4});
  EXPECT_EQ(last_bytes_, 2 * 320u);
  EXPECT_EQ(resent_, 0u);
  EXPECT_FALSE(remembers(receiver_, 1));
  EXPECT_FALSE(remembers(receiver_, 2));
  expect_equal_ends();
}

class AqOneHistory : public AqCapacity {
 protected:
  AqOneHistory() : AqCapacity(1) {}
};

// A message that breaks off has begun to change the one history that there is room for. The sender,
// which began anew, has room for another one; so must the receiver.
TEST_F(AqOneHistory, broken_message_leaves_room_for_the_next) {
  visit(0, {1});
  AqMessage message{.step = 1, .samples = {1}};
  const std::vector<float> x = tensor(message);
  encode(sender_, x, message);
  message.bytes[200] ^= std::byte{1};
  ASSERT_FALSE(decode(receiver_, message, x.size(), rng_, &sender_));
  sender_.restart();
  visit(2, {2});
  EXPECT_TRUE(remembers(receiver_, 2));
  expect_equal_ends();
}

TEST_F(AqCapacity, rotten_bit_on_disk_heals_at_either_end) {
  visit(0, {1, 2});  // 1 lies in RAM, 2 on disk
  receiver_.store().values(*receiver_.store().find(2))[3] ^= 0x40;
  visit(1, {1, 2});
  EXPECT_EQ(resent_, 1u);
  expect_equal_ends();
  sender_.store().values(*sender_.store().find(2))[3] ^= 0x40;
  EXPECT_EQ(visit(2, {2}), rounded(sequence(2, 2)));  // begins anew
  expect_equal_ends();
}

class AqNoRoom : public AqCapacity {
 protected:
  AqNoRoom() : AqCapacity(0) {}
};

TEST_F(AqNoRoom, nothing_is_remembered_and_everything_arrives) {
  for (std::uint32_t step = 0; step < 3; ++step) {
    const std::vector<float> y = visit(step, {7, -1});
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 128), rounded(sequence(7, step)));
    EXPECT_EQ(last_bytes_, 448u + 192);
  }
  EXPECT_EQ(receiver_.store().size(), 0u);
}

TEST(AqBoundaryRoom, disk_without_room_is_an_error_before_anything_is_sent) {
  SimStorage storage;
  storage.set_capacity(1000);
  const auto refused = AqBoundary::make(
      CodecBoundary(std::vector<Codec>(2, Codec::kNone)),
      {{.peer = 1,
        .codec = Codec::kAqInt4,
        .histories = {.elements = 128, .capacity = 100, .in_memory = 10, .folder = "/"}}},
      storage);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "90 histories of activations need 22.5 KiB on disk: cannot reserve space in /: No "
            "space left on device");
}

}  // namespace
}  // namespace longhaul
