// One end of a boundary with histories, and what writes and reads its messages: the parts of
// AqBoundary, which says what a message is (aq_boundary.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "executor/history/aq_boundary.h"
#include "executor/history/history_store.h"
#include "executor/pipeline/boundary_format.h"
#include "kernels/codec/tensor_codec.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {

/// Each frame of a message begins where its planes may, see boundary_message_bytes.
constexpr std::size_t aligned_frame(std::size_t bytes) {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

struct AqEdge {
  AqBoundary::Edge options;
  HistoryStore store;
  TensorCodec first_codec{};
  TensorCodec delta_codec{};
  HistoryCounts counts = {};

  std::size_t elements() const { return store.elements(); }
  /// No delta is longer than a first visit.
  std::size_t message_bytes_max(std::size_t sequences) const {
    return sequences *
           aligned_frame(tensor_frame_bytes(first_codec, Precision::kFp32, elements(), true));
  }
};

/// As BoundaryWriter, for one edge after another.
class AqWriter {
 public:
  Result<std::size_t> begin(AqEdge& edge, const BoundaryTensor& which,
                            std::span<const float> tensor, std::span<std::byte> wire);
  Result<std::size_t> advance();

 private:
  /// One sequence.
  struct Frame {
    TensorEncoder encoder;
    std::size_t at = 0;       // of the message
    std::size_t encoded = 0;  // elements
    bool changes_history = false;
    HistoryStore::Change change = {};
    HistoryStore::Outcome outcome = {};
  };
  /// What a sequence is sent as, and the history that changes with it.
  struct Choice {
    TensorCodec codec{};
    HistoryHeader header;
    History* history = nullptr;
  };
  Choice choose(std::int64_t sample);
  History* admit(std::uint64_t sample, std::uint64_t& evicted);
  Result<void> begin_frame(std::span<const float> x, std::int64_t sample);
  void end_frame(Frame& frame);

  AqEdge* edge_ = nullptr;
  std::uint32_t step_ = 0;
  bool is_validation_ = false;
  std::span<std::byte> wire_;
  std::vector<Frame> frames_;
  std::size_t current_ = 0;
  std::size_t message_bytes_ = 0;
};

/// What becomes of a frame that arrives.
enum class FrameWay {
  kDecode,    // what it says
  kUpdate,    // likewise, and the history takes it up
  kRemember,  // the history is its result already, if it is the frame that made it
  kMissing,   // nothing: it must be asked for again
};

/// The frame of a sequence, once its header is here.
struct ArrivingFrame {
  FrameWay way = FrameWay::kDecode;
  TensorHeader header;
  std::size_t bytes = 0;
  std::optional<TensorDecoder> decoder;
  HistoryStore::Change change;
};

/// As BoundaryReader, for one edge after another.
class AqReader {
 public:
  Result<void> begin(AqEdge& edge, const BoundaryTensor& which, std::span<const std::byte> wire,
                     std::span<float> tensor);
  Result<void> advance(std::size_t arrived, bool is_last);
  bool done() const { return is_complete() && missing_.empty(); }
  std::span<const int> missing() const { return missing_; }
  Result<void> repair(int sequence, std::span<const std::byte> frame);

 private:
  bool is_complete() const { return edge_ != nullptr && current_ == sequences_; }
  std::span<float> target(std::size_t sequence) const;
  Result<TensorHeader> read_header(std::span<const std::byte> frame, std::size_t sequence) const;
  Result<void> check_kind(const TensorHeader& header) const;
  Result<void> begin_frame(std::span<const std::byte> arrived);
  Result<FrameWay> choose_way(const HistoryHeader& history);
  Result<History*> take_in(std::uint64_t sample);
  void end_frame(std::span<const std::byte> bytes);
  Result<void> read(std::size_t arrived, bool is_last);

  AqEdge* edge_ = nullptr;
  std::uint32_t step_ = 0;
  bool is_validation_ = false;
  std::span<const std::int64_t> samples_;
  std::span<const std::byte> wire_;
  std::span<float> tensor_;
  std::size_t sequences_ = 0;
  std::size_t current_ = 0;  // sequence
  std::size_t at_ = 0;       // where its frame begins
  std::optional<ArrivingFrame> frame_;
  /// Of each missing sequence, the frame that could not be used.
  struct MissingFrame {
    std::uint64_t base = kNoHash;
    std::uint64_t frame = 0;
  };
  std::vector<int> missing_;
  std::vector<MissingFrame> missing_frames_;
};

}  // namespace longhaul
