#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/hash.h"
#include "executor/history/aq_edge.h"
#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

/// Every frame of these messages has an extension.
constexpr std::size_t kPrefixBytes = prefix_bytes(true);

/// Names a frame by its three checksums.
std::uint64_t name_of_frame(std::span<const std::byte> frame) {
  const auto checksum = [&](std::size_t at) {
    std::uint32_t crc;
    std::memcpy(&crc, frame.subspan(at, sizeof crc).data(), sizeof crc);
    return std::uint64_t{crc};
  };
  const std::uint64_t headers = checksum(kTensorHeaderBytes - kTensorChecksumBytes) << 32 |
                                checksum(kPrefixBytes - kTensorChecksumBytes);
  return mix(headers) ^ checksum(frame.size() - kTensorChecksumBytes);
}

bool is_padding(const TensorHeader& header) {
  return header.elements() == 0 && (header.flags & (kFlagNonFinite | kFlagFallback)) == 0;
}

}  // namespace

Result<void> AqReader::begin(AqEdge& edge, const BoundaryTensor& which,
                             std::span<const std::byte> wire, std::span<float> tensor) {
  // Of a message that failed or was given up. Its place must be free, or a store that the sender
  // knows to have room would have none.
  if (frame_ && frame_->way == FrameWay::kUpdate) edge_->store.give_up(frame_->change);
  edge_ = &edge;
  step_ = which.step;
  is_validation_ = which.is_validation;
  samples_ = which.samples;
  wire_ = wire;
  tensor_ = tensor;
  sequences_ = tensor.size() / edge.elements();
  LH_CHECK(sequences_ * edge.elements() == tensor.size(), "a boundary tensor is whole sequences");
  LH_CHECK(is_validation_ || samples_.size() == sequences_,
           "a sequence of a training step has a sample or is padding");
  current_ = 0;
  at_ = 0;
  frame_.reset();
  missing_.clear();
  missing_frames_.clear();
  return {};
}

std::span<float> AqReader::target(std::size_t sequence) const {
  return tensor_.subspan(sequence * edge_->elements(), edge_->elements());
}

/// The header of a sequence's frame: of this boundary, step and sample.
Result<TensorHeader> AqReader::read_header(std::span<const std::byte> frame,
                                           std::size_t sequence) const {
  LH_ASSIGN(TensorHeader header, parse_tensor_header(frame));
  if (!header.history) {
    return failed("a frame without the extension of a history");
  }
  if (header.history->layout != edge_->options.layout) {
    return failed(fmt::format("a frame of the boundary {:016x}, this one is {:016x}",
                              header.history->layout, edge_->options.layout));
  }
  if (header.step != step_) {
    return failed(fmt::format("a frame of step {}, this one is {}", header.step, step_));
  }
  const std::int64_t expected = is_validation_ ? -1 : samples_[sequence];
  if (header.history->sample != static_cast<std::uint64_t>(expected)) {
    return failed(fmt::format("a frame of sample {}, where {} is trained",
                              static_cast<std::int64_t>(header.history->sample), expected));
  }
  if (is_padding(header) != (!is_validation_ && expected < 0)) {
    return failed("a frame of padding in the place of a sequence, or the other way round");
  }
  if (header.elements() != 0 && header.elements() != edge_->elements()) {
    return failed(fmt::format("a frame of {} elements, a sequence has {}", header.elements(),
                              edge_->elements()));
  }
  return header;
}

Result<void> AqReader::check_kind(const TensorHeader& header) const {
  const HistoryHeader& history = *header.history;
  if (history.kind == HistoryKind::kHealing) {
    return failed("a frame that heals a history, and nobody asked for one");
  }
  if (history.sample == kNoSample && history.kind != HistoryKind::kFull) {
    return failed("a frame that changes the history of no sample");
  }
  return {};
}

/// The history of a sample that is new here, or new again.
Result<History*> AqReader::take_in(std::uint64_t sample) {
  HistoryStore& store = edge_->store;
  if (History* const there = store.find(sample)) return there;
  if (History* const free = store.admit(sample)) return free;
  const History* const oldest = store.oldest();
  if (oldest == nullptr) {
    return failed(
        fmt::format("no room for another history among {}: the sender has more", store.capacity()));
  }
  store.drop(oldest->sample);
  return store.admit(sample);
}

Result<FrameWay> AqReader::choose_way(const HistoryHeader& header) {
  HistoryStore& store = edge_->store;
  const bool is_first = header.kind == HistoryKind::kFirst;
  if (is_first && header.evicted != header.sample) store.drop(header.evicted);
  if (frame_->header.elements() == 0 || header.kind == HistoryKind::kFull) return FrameWay::kDecode;
  History* history = nullptr;
  if (is_first) {
    LH_ASSIGN(history, take_in(header.sample));
  } else {
    history = store.find(header.sample);
    if (history == nullptr) return FrameWay::kMissing;
    if (history->hash != header.base_hash) {
      const bool may_be_this = history->base == header.base_hash && history->step == step_;
      return may_be_this ? FrameWay::kRemember : FrameWay::kMissing;
    }
  }
  frame_->change = store.begin_change(*history);
  return FrameWay::kUpdate;
}

Result<void> AqReader::begin_frame(std::span<const std::byte> arrived) {
  frame_.emplace();
  ArrivingFrame& frame = *frame_;
  LH_ASSIGN(frame.header, read_header(arrived, current_));
  LH_TRY(check_kind(frame.header));
  frame.bytes =
      tensor_frame_bytes(frame.header.codec, Precision::kFp32, frame.header.elements(), true);
  if (aligned_frame(frame.bytes) > wire_.size() - at_) {
    return failed("a frame that is longer than its message may be");
  }
  LH_ASSIGN(frame.way, choose_way(*frame.header.history));
  if (frame.way != FrameWay::kDecode && frame.way != FrameWay::kUpdate) return {};
  const HistorySpan values =
      frame.way == FrameWay::kUpdate ? edge_->store.values(frame.change) : HistorySpan();
  LH_ASSIGN(frame.decoder,
            TensorDecoder::open(
                arrived, {Precision::kFp32, std::as_writable_bytes(target(current_))}, values));
  return {};
}

/// All of the frame is here.
void AqReader::end_frame(std::span<const std::byte> bytes) {
  const ArrivingFrame& frame = *frame_;
  const HistoryHeader& header = *frame.header.history;
  FrameWay way = frame.way;
  if (way == FrameWay::kUpdate) {
    const std::uint32_t crc = frame.decoder->history_crc();
    const std::uint64_t base = header.kind == HistoryKind::kDelta ? header.base_hash : kNoHash;
    edge_->store.end_change(frame.change, {.hash = next_history_hash(base, crc),
                                           .base = base,
                                           .frame = name_of_frame(bytes),
                                           .values_crc = crc,
                                           .visits = header.version + 1,
                                           .step = step_});
  }
  if (way == FrameWay::kRemember) {
    const History* const history = edge_->store.find(header.sample);
    way = FrameWay::kMissing;
    if (history != nullptr && history->base == header.base_hash && history->step == step_ &&
        history->frame == name_of_frame(bytes)) {
      way = FrameWay::kRemember;
      std::ranges::transform(
          edge_->store.values(*history), target(current_).begin(),
          [](std::uint16_t m) { return std::bit_cast<float>(std::uint32_t{m} << 16); });
    }
  }
  if (way != FrameWay::kMissing) return;
  missing_.push_back(static_cast<int>(current_));
  missing_frames_.push_back({.base = header.base_hash, .frame = name_of_frame(bytes)});
}

Result<void> AqReader::read(std::size_t arrived, bool is_last) {
  while (current_ < sequences_ && arrived - at_ >= kPrefixBytes) {
    const std::span<const std::byte> here = wire_.subspan(at_, arrived - at_);
    if (!frame_) LH_TRY(begin_frame(here.first(kPrefixBytes)));
    const std::size_t whole = aligned_frame(frame_->bytes);
    const std::span<const std::byte> bytes = here.first(std::min(here.size(), frame_->bytes));
    if (frame_->decoder) LH_TRY(frame_->decoder->advance(bytes));
    if (here.size() < whole) break;
    if (std::ranges::any_of(here.first(whole).subspan(frame_->bytes),
                            [](std::byte b) { return b != std::byte{0}; })) {
      return failed("the frame is followed by something else than zeros");
    }
    end_frame(bytes);
    frame_.reset();
    at_ += whole;
    ++current_;
  }
  if (current_ == sequences_ && arrived > at_) return failed("the message goes on after the last");
  if (is_last && current_ < sequences_) return failed("the message ends early");
  return {};
}

Result<void> AqReader::advance(std::size_t arrived, bool is_last) {
  LH_CHECK(arrived <= wire_.size(), "a message arrives in its buffer");
  auto status = read(arrived, is_last);
  if (status) return {};
  return within(fmt::format("sequence {} of {} of a boundary tensor", current_, sequences_),
                std::move(status).error());
}

Result<void> AqReader::repair(int sequence, std::span<const std::byte> bytes) {
  const auto at = std::ranges::find(missing_, sequence);
  if (!is_complete() || at == missing_.end()) {
    return failed("a sequence was sent again that nobody asked for");
  }
  const auto index = static_cast<std::size_t>(sequence);
  LH_ASSIGN(const TensorHeader header, read_header(bytes, index));
  const HistoryHeader& healing = *header.history;
  if (healing.kind != HistoryKind::kHealing || header.codec != TensorCodec::kBf16 ||
      healing.base_hash == kNoHash) {
    return failed("a sequence was sent again, but not as the sender's history");
  }
  const auto place = at - missing_.begin();
  HistoryStore& store = edge_->store;
  if (header.elements() == 0) {
    // The sender's history is not finite: no history, and the step is not finite either.
    LH_TRY(decode_tensor(bytes, target(index)));
    store.drop(healing.sample);
  } else {
    LH_ASSIGN(History* const history, take_in(healing.sample));
    const HistoryStore::Change change = store.begin_change(*history);
    const HistorySpan values = store.values(change);
    LH_TRY(decode_tensor(bytes, target(index), values));
    const MissingFrame& missing = missing_frames_[static_cast<std::size_t>(place)];
    store.end_change(change, {.hash = healing.base_hash,
                              .base = missing.base,
                              .frame = missing.frame,
                              .values_crc = crc32c(std::as_bytes(values)),
                              .visits = healing.version,
                              .step = step_});
  }
  missing_.erase(at);
  missing_frames_.erase(missing_frames_.begin() + place);
  ++edge_->counts.healed;
  return {};
}

}  // namespace longhaul
