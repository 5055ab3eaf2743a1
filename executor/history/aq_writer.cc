#include <algorithm>

#include "executor/history/aq_edge.h"

namespace longhaul {
namespace {

/// Elements that are encoded at a time: half a MiB of fp32 and, at 4 bits, 64 KiB of message.
constexpr std::size_t kPieceElements = std::size_t{1} << 17;

constexpr std::uint16_t kBf16Exponent = 0x7f80;
bool is_finite(std::span<const std::uint16_t> history) {
  return std::ranges::none_of(
      history, [](std::uint16_t bits) { return (bits & kBf16Exponent) == kBf16Exponent; });
}

}  // namespace

/// A place for a new sample: a free one, or that of one which nobody visits any more. Visited once
/// an epoch, in whatever order, a sample comes back within less than two epochs.
History* AqWriter::admit(std::uint64_t sample, std::uint64_t& evicted) {
  HistoryStore& store = edge_->store;
  if (History* const free = store.admit(sample)) return free;
  const History* const oldest = store.oldest();
  if (oldest == nullptr) return nullptr;
  const std::int64_t patience = 2 * std::int64_t{edge_->options.steps_per_epoch};
  if (std::int64_t{step_} - oldest->step < patience) return nullptr;
  evicted = oldest->sample;
  store.drop(evicted);
  return store.admit(sample);
}

AqWriter::Choice AqWriter::choose(std::int64_t sample) {
  Choice choice;
  choice.codec = edge_->first_codec;
  choice.header.layout = edge_->options.layout;
  if (is_validation_ || sample < 0) return choice;
  choice.header.sample = static_cast<std::uint64_t>(sample);
  choice.history = edge_->store.find(choice.header.sample);
  if (choice.history != nullptr) {
    choice.codec = edge_->delta_codec;
    choice.header.kind = HistoryKind::kDelta;
    choice.header.base_hash = choice.history->hash;
    choice.header.version = choice.history->visits;
    ++edge_->counts.deltas;
    return choice;
  }
  choice.history = admit(choice.header.sample, choice.header.evicted);
  if (choice.history != nullptr) choice.header.kind = HistoryKind::kFirst;
  ++(choice.history != nullptr ? edge_->counts.first : edge_->counts.full);
  return choice;
}

Result<void> AqWriter::begin_frame(std::span<const float> x, std::int64_t sample) {
  const bool is_padding = !is_validation_ && sample < 0;
  const Choice choice = choose(sample);
  HistoryStore& store = edge_->store;
  std::span<std::uint16_t> values;
  HistoryStore::Change change;
  if (choice.history != nullptr) {
    change = store.begin_change(*choice.history);
    values = store.values(change);
  }
  LH_ASSIGN(TensorEncoder encoder,
            TensorEncoder::begin(flat_view(is_padding ? x.first(0) : x),
                                 {.codec = choice.codec, .step = step_, .history = choice.header},
                                 wire_.subspan(message_bytes_), values));
  if (choice.history != nullptr && encoder.header().elements() == 0) {
    // Something is not finite. If it is the history (a sum that grew too large), a new one begins
    // with the next visit.
    const bool is_sound = choice.header.kind == HistoryKind::kDelta && is_finite(values);
    store.cancel_change(change);
    if (!is_sound) store.drop(choice.header.sample);
  }
  const std::size_t bytes = encoder.frame_bytes();
  frames_.push_back(
      {.encoder = encoder,
       .at = message_bytes_,
       .changes_history = encoder.header().elements() > 0 && !values.empty(),
       .change = change,
       .outcome = {
           .base = choice.header.base_hash, .visits = choice.header.version + 1, .step = step_}});
  message_bytes_ += aligned_frame(bytes);
  return {};
}

Result<std::size_t> AqWriter::begin(AqEdge& edge, const BoundaryTensor& which,
                                    std::span<const float> tensor, std::span<std::byte> wire) {
  const std::size_t sequences = tensor.size() / edge.elements();
  LH_CHECK(sequences * edge.elements() == tensor.size(), "a boundary tensor is whole sequences");
  LH_CHECK(which.is_validation || which.samples.size() == sequences,
           "a sequence of a training step has a sample or is padding");
  LH_CHECK(wire.size() >= edge.message_bytes_max(sequences), "a message has room");
  // Changes of a message that was given up are not ended, so these histories are gone.
  for (const Frame& frame : frames_) {
    if (frame.changes_history) edge_->store.give_up(frame.change);
  }
  frames_.clear();
  edge_ = &edge;
  step_ = which.step;
  is_validation_ = which.is_validation;
  wire_ = wire;
  current_ = 0;
  message_bytes_ = 0;
  for (std::size_t i = 0; i < sequences; ++i) {
    const std::int64_t sample = is_validation_ ? -1 : which.samples[i];
    LH_CHECK(sample < 0 || std::ranges::count(which.samples, sample) == 1,
             "a sample is in one slot of a step");
    LH_TRY(begin_frame(tensor.subspan(i * edge.elements(), edge.elements()), sample));
  }
  return message_bytes_;
}

/// The history is whole: both ends know it by its new hash from here on.
void AqWriter::end_frame(Frame& frame) {
  const std::size_t end = frame.at + frame.encoder.frame_bytes();
  const std::size_t next = frame.at + aligned_frame(frame.encoder.frame_bytes());
  std::fill(wire_.begin() + static_cast<std::ptrdiff_t>(end),
            wire_.begin() + static_cast<std::ptrdiff_t>(next), std::byte{0});
  if (!frame.changes_history) return;
  frame.outcome.values_crc = frame.encoder.history_crc();
  frame.outcome.hash = next_history_hash(frame.outcome.base, frame.outcome.values_crc);
  edge_->store.end_change(frame.change, frame.outcome);
}

Result<std::size_t> AqWriter::advance() {
  std::size_t left = kPieceElements;  // of this piece, which may span several frames
  while (current_ < frames_.size() && left >= kCodecPiece) {
    Frame& frame = frames_[current_];
    const std::size_t n = frame.encoder.header().elements();
    const std::size_t count = std::min(left / kCodecPiece * kCodecPiece, n - frame.encoded);
    frame.encoder.advance(count);
    frame.encoded += count;
    left -= count;
    if (frame.encoded < n) break;
    end_frame(frame);
    ++current_;
  }
  if (current_ == frames_.size()) return message_bytes_;
  return frames_[current_].at + frames_[current_].encoder.ready_bytes();
}

}  // namespace longhaul
