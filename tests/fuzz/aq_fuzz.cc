// libFuzzer target: a receiver of a boundary with histories is given genuine messages of a sender
// and damaged ones, in any order. Whatever comes must be decoded within its buffers or end in an
// error; and genuine messages afterwards must bring both ends to the same histories.
//
// The first byte chooses codecs and room, then each instruction is a byte and what it takes:
//   0..63     a genuine message, which arrives       64..95   and one which does not
//   96..111   the receiver loses everything          112..127 the sender does
//   128..255  a message that is damaged: count, then for each change offset (2 bytes) and value.
//             Bit 0: checksums are put right, so that what lies behind them is reached. Bit 1: of a
//             validation. Bit 2: the damaged bytes are the sender's answer to a question.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "executor/history/aq_boundary.h"
#include "executor/storage/sim_storage.h"
#include "kernels/codec/crc32c.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {
namespace {

constexpr std::size_t kElements = 70;
constexpr std::size_t kSequencesOfMessage = 2;
constexpr std::int64_t kSamples = 5;
constexpr int kSender = 0;
constexpr int kReceiver = 1;
using ByteVector = std::vector<std::byte>;

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool is_over() const { return bytes_.empty(); }
  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

struct End {
  SimStorage storage;
  AqBoundary::Edge edge;
  std::unique_ptr<AqBoundary> format;
  std::unique_ptr<BoundaryWriter> writer;
  std::unique_ptr<BoundaryReader> reader;

  void restart() {
    writer.reset();
    reader.reset();
    format.reset();
    auto made = AqBoundary::make(CodecBoundary({Codec::kInt8, Codec::kInt8}), {edge}, storage);
    LH_CHECK(made.has_value(), "a simulated disk has room");
    format = std::move(*made);
    writer = format->make_writer();
    reader = format->make_reader();
  }
};

void put_checksums(std::span<std::byte> bytes) {
  const auto put = [&](std::size_t first, std::size_t count) {
    if (bytes.size() < first + count + 4) return;
    const std::uint32_t crc = crc32c(bytes.subspan(first, count));
    std::memcpy(bytes.data() + first + count, &crc, sizeof crc);
  };
  while (bytes.size() >= 128) {
    put(0, 60);
    put(64, 60);
    const auto header = parse_tensor_header(bytes);
    if (!header) return;
    const std::size_t frame = tensor_frame_bytes(header->codec, header->source, header->elements(),
                                                 header->history.has_value());
    const std::size_t prefix = prefix_bytes(header->history.has_value());
    if (bytes.size() < frame) return;
    put(prefix, frame - prefix - 4);
    bytes = bytes.subspan(std::min(bytes.size(), (frame + 63) / 64 * 64));
  }
}

class World {
 public:
  explicit World(std::uint8_t choice) {
    constexpr Codec kCodecsOfEdges[] = {Codec::kAqInt8, Codec::kAqInt6, Codec::kAqInt4,
                                        Codec::kAqInt3, Codec::kAqInt2};
    for (End* const end : {&sender_, &receiver_}) {
      end->edge = {.peer = end == &sender_ ? kReceiver : kSender,
                   .codec = kCodecsOfEdges[choice % 5],
                   .first_visit = choice / 5 % 2 == 0 ? Codec::kBf16 : Codec::kInt8,
                   .layout = 1,
                   .steps_per_epoch = 1,
                   .histories = {.elements = kElements,
                                 .capacity = static_cast<std::size_t>(choice / 10 % 6),
                                 .in_memory = 2,
                                 .folder = "/"}};
      end->restart();
    }
  }
  End& sender() { return sender_; }
  End& receiver() { return receiver_; }

  /// The next message: which samples follows from its number.
  void encode(bool is_validation) {
    ++step_;
    samples_.clear();
    if (!is_validation) {
      samples_ = {step_ % kSamples, step_ % 3 == 0 ? -1 : (step_ + 1) % kSamples};
    }
    std::vector<float> x(kSequencesOfMessage * kElements);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      x[i] = static_cast<float>(at * at % 37 - 18) + static_cast<float>(at * step_ % 11) / 16;
    }
    message_.resize(sender_.format->wire_bytes_max(Op::kSendActivation, kReceiver, x.size()));
    const auto size = sender_.writer->begin(named(kReceiver), x, message_);
    LH_CHECK(size.has_value(), "whatever is finite can be sent");
    for (std::size_t ready = 0; ready < *size;) {
      const auto now = sender_.writer->advance();
      LH_CHECK(now && *now > ready, "a writer makes progress");
      ready = *now;
    }
    message_.resize(*size);
  }

  /// With the sender's answers to what the receiver misses, as `change` leaves them.
  template <class Change>
  bool decode(std::size_t piece, Change change) {
    // Exactly as large as is allowed, so that a byte beyond is seen.
    ByteVector wire(receiver_.format->wire_bytes_max(Op::kSendActivation, kSender, 2 * kElements));
    message_.resize(std::min(message_.size(), wire.size()));
    std::vector<float> y(kSequencesOfMessage * kElements);
    BoundaryReader& reader = *receiver_.reader;
    LH_CHECK(reader.begin(named(kSender), wire, y).has_value(), "begins");
    for (std::size_t arrived = 0; arrived < message_.size();) {
      const std::size_t now = std::min(message_.size(), arrived + piece);
      std::memcpy(wire.data() + arrived, message_.data() + arrived, now - arrived);
      arrived = now;
      if (!is_fine(reader.advance(arrived, arrived == message_.size()))) return false;
    }
    const std::vector<int> missing(reader.missing().begin(), reader.missing().end());
    LH_CHECK(missing.empty() || !reader.done(), "what misses something is not done");
    for (const int sequence : missing) {
      auto frame = sender_.format->resend(named(kReceiver), sequence);
      if (!frame) return false;  // the sender remembers nothing, and the message was not its own
      change(*frame);
      if (!is_fine(reader.repair(sequence, *frame))) return false;
    }
    return reader.done();
  }

  void damage(Input& input, std::uint8_t how, ByteVector& bytes) {
    for (int changes = input.next() % 16; changes > 0 && !bytes.empty(); --changes) {
      const std::size_t at = (std::size_t{input.next()} << 8 | input.next()) % bytes.size();
      bytes[at] = std::byte{input.next()};
    }
    if ((how & 8) != 0)
      bytes.resize(bytes.size() - std::min(bytes.size(), std::size_t{input.next()}));
    if ((how & 1) != 0) put_checksums(bytes);
  }

  ByteVector& message() { return message_; }

  /// Genuine messages until every sample was visited twice.
  void check_healing() {
    for (std::int64_t i = 0; i < 2 * kSamples; ++i) {
      encode(false);
      LH_CHECK(decode(64, [](ByteVector&) {}), "genuine messages arrive");
    }
    HistoryStore& sent = *sender_.format->store(kReceiver);
    HistoryStore& received = *receiver_.format->store(kSender);
    for (const History* const history : sent.by_last_visit()) {
      const History* const other = received.find(history->sample);
      LH_CHECK(other != nullptr && other->hash == history->hash, "ends know the same histories");
      LH_CHECK(std::ranges::equal(sent.values(*history), received.values(*other)),
               "and their bits");
    }
  }

 private:
  BoundaryTensor named(int peer) const {
    return {.op = Op::kSendActivation,
            .micro_batch = 0,
            .peer = peer,
            .step = static_cast<std::uint32_t>(step_),
            .is_validation = samples_.empty(),
            .samples = samples_};
  }
  static bool is_fine(const Result<void>& status) {
    LH_CHECK(status || !status.error().message.empty(), "an error says something");
    return status.has_value();
  }

  End sender_, receiver_;
  std::int64_t step_ = 0;
  std::vector<std::int64_t> samples_;
  ByteVector message_;
};

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  Input input(std::span(data, std::min(size, std::size_t{4096})));
  World world(input.next());
  bool is_poisoned = false;
  const auto genuine = [](ByteVector&) {};
  while (!input.is_over()) {
    const std::uint8_t what = input.next();
    if (what >= 96 && what < 112) world.receiver().restart();
    if (what >= 112 && what < 128) world.sender().restart();
    if (what >= 96 && what < 128) continue;
    world.encode(what >= 128 && (what & 2) != 0);
    if (what < 64) {
      LH_CHECK(world.decode(1 + 7 * std::size_t{what}, genuine) || is_poisoned,
               "genuine messages arrive");
    } else if (what >= 128 && (what & 4) != 0) {
      world.receiver().restart();
      // Whoever can forge an answer can forge a history: what follows need not be equal.
      is_poisoned = true;
      world.decode(100, [&](ByteVector& frame) { world.damage(input, what, frame); });
    } else if (what >= 128) {
      world.damage(input, what, world.message());
      world.decode(1 + what % 100, genuine);
    }
  }
  if (!is_poisoned) world.check_healing();
  return 0;
}
