// AQ-SGD (Wang et al., NeurIPS 2022) over any quantiser: an activation whose sample both ends
// remember travels as the quantised difference to what they remember, and both add it up.
//
//   first visit   Q1(x)       m = bf16(Q1(x))         Q1 bf16 or q8; kind 1
//   later         Q(x - m)    m = bf16(m + Q(x - m))  Q one of q8, q6, q4, q3, q2; kind 2
//
// The receiver computes with m. A message is one tensor frame a sequence of the micro-batch
// (kernels/codec/tensor_frame.h, with its history extension), in slot order, each filled up with
// zeros to a multiple of 64 bytes. A slot of padding and a sequence with NaN or Inf are frames of 0
// elements; they decode to zeros and to NaN and leave histories alone. So does a validation, which
// sends everything as on a first visit (kind 3). Gradients, and activations to and from other
// cells, go through CodecBoundary.
//
// Both ends' histories are equal bit for bit, or found out not to be: a delta carries the rolling
// hash of the history that it is against. A receiver that has another or none (a crash of an end, a
// lost file, rot, a re-plan) says so (BoundaryReader::missing), and the sender answers with its own
// history after the update, exactly (kind 4): the step's numbers are those of an undisturbed run.
// A sender that has none sends a first visit, which replaces whatever the receiver has.
//
// The sender decides what is remembered, and tells in the frame what went for it: a new sample is
// admitted while there is room, or instead of one that was not visited for two epochs; else it
// travels as on a first visit and is not kept (kind 3). What a step touched stays until the next
// one, since an answer may be wanted. A receiver without room (the sender has lost its histories
// and begins anew) gives up what it did not visit for longest.
//
// Boundary tensors are compressed whatever their size: small ones are those of small models.
//
// A message that is decoded a second time gives the same bits, as long as its samples were not
// visited again. Threads: see boundary_format.h; make, prefetch, store and counts are called where
// writers and readers run, or while none does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/codec.h"
#include "core/job.h"
#include "core/result.h"
#include "executor/history/history_store.h"
#include "executor/pipeline/boundary_format.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// What histories at a boundary belong to: they outlive a change of the plan that leaves it as it
/// is. `layers`: how many of the model's layers come before the boundary.
std::uint64_t history_layout(const ModelShape& model, int layers);

/// Sequences by how they travelled, since the start.
struct HistoryCounts {
  std::uint64_t first = 0;
  std::uint64_t deltas = 0;
  std::uint64_t full = 0;    // of a training step, for want of room
  std::uint64_t healed = 0;  // deltas whose receiver asked again
};

struct AqEdge;

class AqBoundary final : public BoundaryFormat {
 public:
  /// One end of a boundary whose activations have histories.
  struct Edge {
    int peer = 0;                      // cell at the other end
    Codec codec = Codec::kNone;        // with a history
    Codec first_visit = Codec::kBf16;  // or kInt8
    std::uint64_t layout = 0;          // history_layout
    std::uint32_t steps_per_epoch = 1;
    HistoryStore::Options histories;  // of `elements` = context x width
  };

  /// `direct` is for everything else. Error: a codec whose deltas need not shrink, no room.
  static Result<std::unique_ptr<AqBoundary>> make(CodecBoundary direct,
                                                  const std::vector<Edge>& edges, Storage& storage);
  ~AqBoundary() override;

  std::size_t wire_bytes_max(Op op, int peer, std::size_t elements) const override;
  bool is_plain(Op op, int peer) const override;
  std::unique_ptr<BoundaryWriter> make_writer() override;
  std::unique_ptr<BoundaryReader> make_reader() override;
  Result<std::vector<std::byte>> resend(const BoundaryTensor& which, int sequence) override;

  /// What is sent from now on; with a history where there was one, without where there was none.
  void set_codec(int peer, Op op, Codec codec) override;
  Codec codec_of(Op op, int peer) const;

  /// Samples of the step to come: what lies on disk begins to be read.
  void prefetch(std::span<const std::int64_t> samples);
  /// Null where activations to or from this cell have no histories.
  HistoryStore* store(int peer);
  HistoryCounts counts(int peer) const;

 private:
  explicit AqBoundary(CodecBoundary direct);
  AqEdge* edge(int peer) const;
  AqEdge* edge(Op op, int peer) const;

  CodecBoundary direct_;
  std::vector<std::unique_ptr<AqEdge>> edges_;
};

}  // namespace longhaul
