// How a boundary tensor is written on the wire: the place of the job's codec. A pipeline encodes
// what it sends and decodes what it received, both as part of the instruction that computes with
// the tensor, on the compute thread.
//
// Invariant: where the schedule recomputes, an activation is decoded twice, so decoding must give
// the same bits each time.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "core/schedule.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {

/// Which tensor: what a codec with a memory of its own tells senders and receivers apart by.
struct BoundaryTensor {
  Op op = Op::kSendActivation;  // or kSendGradient, on either side
  int micro_batch = 0;
  int peer = 0;  // cell at the other end
};

class BoundaryFormat {
 public:
  virtual ~BoundaryFormat() = default;
  /// The same on both sides, and for every tensor of that many elements between the two.
  virtual std::size_t wire_bytes(const BoundaryTensor& which, std::size_t elements) const = 0;
  virtual Result<void> encode(const BoundaryTensor& which, std::span<const float> tensor,
                              std::span<std::byte> wire) = 0;
  virtual Result<void> decode(const BoundaryTensor& which, std::span<const std::byte> wire,
                              std::span<float> tensor) = 0;
};

/// As computed, little-endian: the codec `none`. fp32, or the upper half of fp32 numbers that are
/// rounded to bf16 already (ModelStage in bf16), so that nothing is lost either way.
class PlainBoundary final : public BoundaryFormat {
 public:
  explicit PlainBoundary(Precision precision = Precision::kFp32)
      : element_bytes_(precision == Precision::kFp32 ? 4 : 2) {}
  std::size_t wire_bytes(const BoundaryTensor&, std::size_t elements) const override {
    return elements * element_bytes_;
  }
  Result<void> encode(const BoundaryTensor& which, std::span<const float> tensor,
                      std::span<std::byte> wire) override;
  Result<void> decode(const BoundaryTensor& which, std::span<const std::byte> wire,
                      std::span<float> tensor) override;

 private:
  std::size_t element_bytes_;
};

/// To and from each cell a tensor frame of its codec (kernels/codec/fixed_frame.h), or plain where
/// that is none, as it is inside a site.
class CodecBoundary final : public BoundaryFormat {
 public:
  /// `codecs[cell]`: of the tensors that this cell gives and gets.
  explicit CodecBoundary(std::vector<Codec> codecs, Precision precision = Precision::kFp32)
      : codecs_(std::move(codecs)), plain_(precision) {}
  std::size_t wire_bytes(const BoundaryTensor& which, std::size_t elements) const override;
  Result<void> encode(const BoundaryTensor& which, std::span<const float> tensor,
                      std::span<std::byte> wire) override;
  Result<void> decode(const BoundaryTensor& which, std::span<const std::byte> wire,
                      std::span<float> tensor) override;

 private:
  Codec codec(const BoundaryTensor& which) const {
    return codecs_[static_cast<std::size_t>(which.peer)];
  }

  std::vector<Codec> codecs_;
  PlainBoundary plain_;
};

}  // namespace longhaul
