// Epochs of random traffic over a boundary with histories, under everything that can happen to it:
// whatever was lost heals, to the same bits at both ends and, unless the sender itself forgot, to
// the numbers of a run that nothing happened to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "executor/data/slots.h"
#include "executor/history/history_files.h"
#include "executor/storage/sim_storage.h"
#include "tests/executor/aq_fixtures.h"

namespace longhaul {
namespace {

using fixtures::AqEnd;
using fixtures::AqMessage;
using fixtures::AqOptions;
using fixtures::decode;
using fixtures::encode;
using fixtures::kReceiverCell;
using fixtures::kSenderCell;

constexpr int kSlots = 4;
constexpr int kMicroBatch = 2;
constexpr std::int64_t kSequences = 11;  // three steps an epoch, one slot of padding in the last

struct Chances {
  double drop = 0;           // a message never arrives
  double duplicate = 0;      // or twice
  double receiver_loss = 0;  // a step begins with a crash of that end,
  double sender_loss = 0;
  double sample_loss = 0;  // or the loss of one history,
  double rot = 0;          // or of one bit on the receiver's disk
};

class Traffic {
 public:
  Traffic(const AqOptions& options, const Chances& chances, std::uint64_t seed)
      : options_(options),
        chances_(chances),
        rng_("aq traffic", seed),
        map_(SlotMap::make({.sequences = kSequences, .slots = kSlots, .seed = seed}).value()),
        calm_sender_(options, kReceiverCell),
        calm_receiver_(options, kSenderCell),
        sender_(options, kReceiverCell),
        receiver_(options, kSenderCell) {}

  void epochs(int count, bool is_calm = false) {
    for (const std::int64_t end = step_ + count * map_.steps_per_epoch(); step_ < end; ++step_) {
      if (!is_calm) misfortune();
      if (rng_.chance(0.2)) validate();
      run_step(is_calm);
      if (testing::Test::HasFailure()) return;
    }
  }

  /// A sample that the sender remembers is remembered with the same bits by the receiver.
  void expect_equal_ends() {
    EXPECT_EQ(sender_.store().size(), receiver_.store().size());
    for (const History* const history : sender_.store().by_last_visit()) {
      const History* const other = receiver_.store().find(history->sample);
      ASSERT_NE(other, nullptr) << "sample " << history->sample;
      EXPECT_EQ(other->hash, history->hash);
      EXPECT_EQ(other->visits, history->visits);
      EXPECT_EQ(other->step, history->step);
      EXPECT_TRUE(
          std::ranges::equal(sender_.store().values(*history), receiver_.store().values(*other)));
    }
  }

  enum class Kept { kBoth, kSender, kReceiver };
  /// A run that was stopped goes on from a checkpoint, which has the histories of both ends or one.
  void resume(Kept kept) {
    resume(sender_, HistoryEnd::kSender, kept != Kept::kReceiver);
    resume(receiver_, HistoryEnd::kReceiver, kept != Kept::kSender);
    has_forgotten_ = kept == Kept::kReceiver;
  }

  /// All samples change their names: those of now are never seen again.
  void next_text() { text_ += 1000; }

  AqEnd& sender() { return sender_; }
  AqEnd& receiver() { return receiver_; }
  std::size_t resent() const { return resent_; }

 private:
  void resume(AqEnd& end, HistoryEnd which, bool is_kept) {
    SimStorage disk;
    const std::string name = history_file_name(0, 1, which);
    ASSERT_TRUE(write_histories(disk, "/checkpoint", name, fixtures::kAqLayout, end.store()));
    end.restart();
    if (!is_kept) return;
    EXPECT_EQ(read_histories(disk, "/checkpoint", name, fixtures::kAqLayout, end.store()),
              kSequences);
  }

  void misfortune() {
    if (rng_.chance(chances_.receiver_loss)) receiver_.restart();
    if (rng_.chance(chances_.sender_loss)) {
      sender_.restart();
      has_forgotten_ = true;
    }
    if (rng_.chance(chances_.sample_loss)) receiver_.store().drop(any_sample());
    if (rng_.chance(chances_.rot)) {
      if (const History* const history = receiver_.store().find(any_sample())) {
        receiver_.store().values(*history)[rng_.index(options_.elements)] ^=
            static_cast<std::uint16_t>(1 << rng_.below(16));
      }
    }
  }
  std::uint64_t any_sample() { return static_cast<std::uint64_t>(text_) + rng_.below(kSequences); }

  std::vector<float> tensor(std::span<const std::int64_t> samples) {
    std::vector<float> x;
    for (const std::int64_t sample : samples) {
      Rng base("sample", static_cast<std::uint64_t>(sample));
      for (std::size_t i = 0; i < options_.elements; ++i) {
        x.push_back(static_cast<float>(base.uniform() - 0.5 + 0.1 * (rng_.uniform() - 0.5)));
      }
    }
    return x;
  }

  void run_step(bool is_calm) {
    const std::size_t elements = kMicroBatch * options_.elements;
    std::vector<std::pair<AqMessage, AqMessage>> messages;  // calm, and not
    for (int first = 0; first < kSlots; first += kMicroBatch) {
      AqMessage message{.step = static_cast<std::uint32_t>(step_), .samples = {}};
      for (int slot = first; slot < first + kMicroBatch; ++slot) {
        const auto sequence = map_.sequence(step_, slot);
        message.samples.push_back(sequence ? text_ + *sequence : -1);
      }
      const std::vector<float> x = tensor(message.samples);
      AqMessage calm = message;
      encode(calm_sender_, x, calm);
      encode(sender_, x, message);
      // A sender knows nothing of what happens to receivers.
      if (!has_forgotten_) EXPECT_EQ(message.bytes, calm.bytes);
      messages.emplace_back(std::move(calm), std::move(message));
    }
    rng_.shuffle(std::span(messages));
    for (const auto& [calm, message] : messages) {
      const auto expected = decode(calm_receiver_, calm, elements, rng_, nullptr);
      ASSERT_TRUE(expected) << expected.error().text();
      if (!is_calm && rng_.chance(chances_.drop)) continue;
      const int times = !is_calm && rng_.chance(chances_.duplicate) ? 2 : 1;
      for (int i = 0; i < times; ++i) {
        const auto y = decode(receiver_, message, elements, rng_, &sender_, &resent_);
        ASSERT_TRUE(y) << y.error().text();
        if (!has_forgotten_) EXPECT_EQ(*y, *expected);
      }
    }
  }

  void validate() {
    const std::vector<float> x = tensor(std::vector<std::int64_t>(kMicroBatch, 500));
    AqMessage message{.step = static_cast<std::uint32_t>(step_), .samples = {}};
    AqMessage calm = message;
    encode(calm_sender_, x, calm);
    encode(sender_, x, message);
    EXPECT_EQ(message.bytes, calm.bytes);
    const auto expected = decode(calm_receiver_, calm, x.size(), rng_, nullptr);
    const auto y = decode(receiver_, message, x.size(), rng_, &sender_, &resent_);
    ASSERT_TRUE(y && expected);
    EXPECT_EQ(*y, *expected);
  }

  AqOptions options_;
  Chances chances_;
  Rng rng_;
  SlotMap map_;
  AqEnd calm_sender_, calm_receiver_, sender_, receiver_;
  std::int64_t step_ = 0;
  std::int64_t text_ = 0;
  bool has_forgotten_ = false;
  std::size_t resent_ = 0;
};

AqOptions options_of(Codec codec, std::size_t capacity, std::size_t in_memory) {
  return {.codec = codec,
          .first_visit = codec == Codec::kAqInt3 ? Codec::kInt8 : Codec::kBf16,
          .elements = 130,  // no codec's whole blocks
          .capacity = capacity,
          .in_memory = in_memory,
          .steps_per_epoch = 3};
}

constexpr Codec kCodecsWithHistory[] = {Codec::kAqInt8, Codec::kAqInt6, Codec::kAqInt4,
                                        Codec::kAqInt3, Codec::kAqInt2};

TEST(AqTraffic, what_receivers_lose_heals_to_the_numbers_of_an_undisturbed_run) {
  std::size_t resent = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Codec codec = kCodecsWithHistory[seed % std::size(kCodecsWithHistory)];
    SCOPED_TRACE(std::string(name_of(codec)) + ", seed " + std::to_string(seed));
    Traffic traffic(
        options_of(codec, 20, 0),
        {.drop = 0.1, .duplicate = 0.2, .receiver_loss = 0.1, .sample_loss = 0.2, .rot = 0.2},
        seed);
    traffic.epochs(8);
    traffic.epochs(1, true);
    traffic.expect_equal_ends();
    if (HasFailure()) return;
    resent += traffic.resent();
  }
  // 20 runs of 24 steps: a tenth lose about 8 histories, a fifth one, two tenths of 88 visits are
  // not heard of. If it were less than one a run, nothing would have been tested.
  EXPECT_GT(resent, 20u);
}

TEST(AqTraffic, crashes_of_either_end_heal) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Codec codec = kCodecsWithHistory[seed % std::size(kCodecsWithHistory)];
    SCOPED_TRACE(std::string(name_of(codec)) + ", seed " + std::to_string(seed));
    Traffic traffic(options_of(codec, 11, 5),
                    {.drop = 0.1, .duplicate = 0.2, .receiver_loss = 0.1, .sender_loss = 0.1},
                    seed);
    traffic.epochs(8);
    traffic.epochs(1, true);
    traffic.expect_equal_ends();
    if (HasFailure()) return;
  }
}

TEST(AqTraffic, run_that_is_resumed_goes_on_as_if_nothing_had_happened) {
  Traffic traffic(options_of(Codec::kAqInt3, 20, 7), {}, 1);
  traffic.epochs(3);
  traffic.resume(Traffic::Kept::kBoth);
  traffic.epochs(2);
  EXPECT_EQ(traffic.resent(), 0u);
  // With the sender's alone the numbers are the same, but every sample is sent once again.
  traffic.resume(Traffic::Kept::kSender);
  traffic.epochs(2);
  EXPECT_EQ(traffic.resent(), static_cast<std::size_t>(kSequences));
  traffic.expect_equal_ends();
  // With the receiver's alone everything begins anew.
  traffic.resume(Traffic::Kept::kReceiver);
  traffic.epochs(1);
  EXPECT_EQ(traffic.sender().format().counts(kReceiverCell).first, std::uint64_t{kSequences});
  EXPECT_EQ(traffic.resent(), static_cast<std::size_t>(kSequences));
  traffic.expect_equal_ends();
}

TEST(AqTraffic, too_little_room_keeps_the_same_samples_at_both_ends) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Codec codec = kCodecsWithHistory[seed % std::size(kCodecsWithHistory)];
    SCOPED_TRACE(std::string(name_of(codec)) + ", seed " + std::to_string(seed));
    Traffic traffic(options_of(codec, 7, 3), {.drop = 0.1, .duplicate = 0.2, .receiver_loss = 0.05},
                    seed);
    traffic.epochs(4);
    // The first seven samples stay as long as they are visited.
    EXPECT_EQ(traffic.sender().store().size(), 7u);
    EXPECT_EQ(traffic.sender().format().counts(kReceiverCell).first, 7u);
    traffic.next_text();
    traffic.epochs(4);
    traffic.epochs(1, true);
    // And then others take their places.
    for (const History* const history : traffic.sender().store().by_last_visit()) {
      EXPECT_GE(history->sample, 1000u);
    }
    EXPECT_EQ(traffic.sender().store().size(), 7u);
    traffic.expect_equal_ends();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace longhaul
