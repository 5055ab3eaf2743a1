// Two ends of a boundary with histories, and messages from one to the other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "executor/history/aq_boundary.h"
#include "executor/storage/sim_storage.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul::fixtures {

inline constexpr int kSenderCell = 0;
inline constexpr int kReceiverCell = 1;
inline constexpr std::uint64_t kAqLayout = 0xabc;

struct AqOptions {
  Codec codec = Codec::kAqInt4;
  Codec first_visit = Codec::kBf16;
  std::size_t elements = 100;
  std::size_t capacity = 1000;
  std::size_t in_memory = 1000;
  std::uint32_t steps_per_epoch = 1;
};

/// One end. Sends to or receives from the other one.
class AqEnd {
 public:
  AqEnd(const AqOptions& options, int peer) : options_(options), peer_(peer) { restart(); }

  /// As after a crash: all histories are gone.
  void restart() {
    writer_.reset();
    reader_.reset();
    format_.reset();
    const std::vector<Codec> direct(2, Codec::kInt8);
    auto made = AqBoundary::make(CodecBoundary(direct),
                                 {{.peer = peer_,
                                   .codec = options_.codec,
                                   .first_visit = options_.first_visit,
                                   .layout = kAqLayout,
                                   .steps_per_epoch = options_.steps_per_epoch,
                                   .histories = {.elements = options_.elements,
                                                 .capacity = options_.capacity,
                                                 .in_memory = options_.in_memory,
                                                 .folder = "/"}}},
                                 storage_);
    LH_CHECK(made.has_value(), "the test's disk has room");
    format_ = std::move(*made);
    writer_ = format_->make_writer();
    reader_ = format_->make_reader();
  }

  AqBoundary& format() { return *format_; }
  BoundaryWriter& writer() { return *writer_; }
  BoundaryReader& reader() { return *reader_; }
  HistoryStore& store() { return *format_->store(peer_); }
  std::size_t wire_bytes_max(std::size_t elements) const {
    return format_->wire_bytes_max(Op::kSendActivation, peer_, elements);
  }

 private:
  AqOptions options_;
  int peer_;
  SimStorage storage_;
  std::unique_ptr<AqBoundary> format_;
  std::unique_ptr<BoundaryWriter> writer_;
  std::unique_ptr<BoundaryReader> reader_;
};

struct AqMessage {
  std::uint32_t step = 0;
  std::vector<std::int64_t> samples;  // empty: of a validation
  std::vector<std::byte> bytes = {};

  BoundaryTensor named(int peer) const {
    return {.op = Op::kSendActivation,
            .micro_batch = 0,
            .peer = peer,
            .step = step,
            .is_validation = samples.empty(),
            .samples = samples};
  }
};

/// Encodes piece by piece, and checks what a writer promises.
inline void encode(AqEnd& sender, std::span<const float> tensor, AqMessage& message) {
  message.bytes.resize(sender.wire_bytes_max(tensor.size()));
  const auto size = sender.writer().begin(message.named(kReceiverCell), tensor, message.bytes);
  ASSERT_TRUE(size) << size.error().text();
  ASSERT_LE(*size, message.bytes.size());
  std::vector<std::byte> sent;
  for (std::size_t ready = 0; ready < *size;) {
    const auto now = sender.writer().advance();
    ASSERT_TRUE(now) << now.error().text();
    ASSERT_GT(*now, ready);
    // As the wire would: each byte once it is final.
    sent.insert(sent.end(), message.bytes.begin() + static_cast<std::ptrdiff_t>(ready),
                message.bytes.begin() + static_cast<std::ptrdiff_t>(*now));
    ready = *now;
  }
  message.bytes = std::move(sent);
}

/// What a receiver makes of it, in pieces of `rng`'s choice; `resent` says what it asked for again,
/// from `sender` when there is one.
inline Result<std::vector<float>> decode(AqEnd& receiver, const AqMessage& message,
                                         std::size_t elements, Rng& rng, AqEnd* sender,
                                         std::size_t* resent = nullptr) {
  std::vector<float> tensor(elements, -1.0f);
  std::vector<std::byte> wire(receiver.wire_bytes_max(elements));
  LH_CHECK(message.bytes.size() <= wire.size(), "the test's messages fit their buffers");
  BoundaryReader& reader = receiver.reader();
  LH_TRY(reader.begin(message.named(kSenderCell), wire, tensor));
  for (std::size_t arrived = 0; arrived < message.bytes.size();) {
    const std::size_t now = std::min(message.bytes.size(), arrived + 1 + rng.index(500));
    std::copy(message.bytes.begin() + static_cast<std::ptrdiff_t>(arrived),
              message.bytes.begin() + static_cast<std::ptrdiff_t>(now),
              wire.begin() + static_cast<std::ptrdiff_t>(arrived));
    arrived = now;
    LH_TRY(reader.advance(arrived, arrived == message.bytes.size()));
  }
  const std::vector<int> missing(reader.missing().begin(), reader.missing().end());
  if (resent != nullptr) *resent += missing.size();
  for (const int sequence : missing) {
    LH_CHECK(!reader.done() && sender != nullptr, "a reader that misses something is not done");
    LH_ASSIGN(const std::vector<std::byte> frame,
              sender->format().resend(message.named(kReceiverCell), sequence));
    LH_TRY(reader.repair(sequence, frame));
  }
  if (!reader.done()) return failed("the reader is not done");
  return tensor;
}

/// The two ends, and traffic between them.
class AqBoundaryTest : public testing::Test {
 protected:
  explicit AqBoundaryTest(const AqOptions& options = {.elements = 128})
      : options_(options), sender_(options, kReceiverCell), receiver_(options, kSenderCell) {}

  /// Numbers of a sample that drift a little from visit to visit.
  std::vector<float> sequence(std::int64_t sample, std::uint32_t step) const {
    Rng base("sample", static_cast<std::uint64_t>(sample));
    Rng drift("drift", static_cast<std::uint64_t>(sample) * 1000 + step);
    std::vector<float> x(options_.elements);
    for (float& value : x) {
      value = static_cast<float>(base.uniform() - 0.5 + 0.01 * (drift.uniform() - 0.5));
    }
    return x;
  }
  std::vector<float> tensor(const AqMessage& message) const {
    std::vector<float> x;
    for (const std::int64_t sample : message.samples) {
      const std::vector<float> one = sequence(std::max<std::int64_t>(sample, 0), message.step);
      x.insert(x.end(), one.begin(), one.end());
    }
    return x;
  }

  /// From end to end; what went wrong is a failure of the test.
  std::vector<float> deliver(AqMessage& message, std::span<const float> x) {
    encode(sender_, x, message);
    auto y = decode(receiver_, message, x.size(), rng_, &sender_, &resent_);
    EXPECT_TRUE(y) << y.error().text();
    return y.value_or(std::vector<float>());
  }
  std::vector<float> visit(std::uint32_t step, std::vector<std::int64_t> samples) {
    AqMessage message{.step = step, .samples = std::move(samples)};
    auto y = deliver(message, tensor(message));
    last_bytes_ = message.bytes.size();
    return y;
  }
  /// The sequence as a first visit in bf16 gives it.
  static std::vector<float> rounded(std::vector<float> x) {
    for (float& value : x) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      value = std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u);
    }
    return x;
  }

  /// Every sample that the sender remembers, the receiver remembers with the same bits.
  void expect_equal_ends() {
    for (const History* const history : sender_.store().by_last_visit()) {
      const History* const other = receiver_.store().find(history->sample);
      ASSERT_NE(other, nullptr) << "sample " << history->sample;
      EXPECT_EQ(other->hash, history->hash) << "sample " << history->sample;
      EXPECT_EQ(other->visits, history->visits) << "sample " << history->sample;
      EXPECT_TRUE(
          std::ranges::equal(sender_.store().values(*history), receiver_.store().values(*other)))
          << "sample " << history->sample;
    }
  }
  bool remembers(AqEnd& end, std::uint64_t sample) { return end.store().find(sample) != nullptr; }

  AqOptions options_;
  AqEnd sender_, receiver_;
  Rng rng_{"pieces", 1};
  std::size_t resent_ = 0;
  std::size_t last_bytes_ = 0;
};

}  // namespace longhaul::fixtures
