// How a boundary tensor is written on the wire: the place of the job's codec. A message is encoded,
// sent and decoded in pieces at once: its sender knows its size when it begins, its bytes become
// final from the front, and its receiver decodes what has arrived while the rest travels.
//
//   size = writer.begin(which, tensor, wire)      reader.begin(which, wire, tensor)
//   while (ready < size) ready = writer.advance() reader.advance(arrived, is_last) ...
//
// A reader may find that it cannot decode a sequence for want of what an earlier message had: it
// names it after the last byte (missing), the sender is asked for it (BoundaryFormat::resend), and
// its answer repairs it.
//
// Writers and readers are made once and begun again and again: nothing is allocated a message. All
// of them and resend run on one stream of the queue (PipelineContext::codec_stream), except for
// plain messages, which are made and read on the stream of the stage; so whatever a format
// remembers needs no lock. The two functions about sizes are called from anywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "core/schedule.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul {

/// Which tensor: what a codec with a memory of its own tells tensors apart by.
struct BoundaryTensor {
  Op op = Op::kSendActivation;  // or kSendGradient, on either side
  int micro_batch = 0;
  int peer = 0;  // cell at the other end
  std::uint32_t step = 0;
  bool is_validation = false;
  /// Of each sequence of the micro-batch, in slot order, which one it is; -1 is padding. Empty in a
  /// validation, and where nobody has told. Valid as long as the writer or reader is at this
  /// message.
  std::span<const std::int64_t> samples{};
};

class BoundaryWriter {
 public:
  virtual ~BoundaryWriter() = default;
  /// Begins a message. `wire` has room for wire_bytes_max; answers what the message takes of it.
  /// Tensor and wire stay as they are until the last byte is final, the wire until it is sent.
  virtual Result<std::size_t> begin(const BoundaryTensor& which, std::span<const float> tensor,
                                    std::span<std::byte> wire) = 0;
  /// Encodes a piece more; answers how many of the message's first bytes are final. Each call makes
  /// progress, until all are.
  virtual Result<std::size_t> advance() = 0;
};

class BoundaryReader {
 public:
  virtual ~BoundaryReader() = default;
  /// Begins a message of at most `wire`'s size, into all of `tensor`.
  virtual Result<void> begin(const BoundaryTensor& which, std::span<const std::byte> wire,
                             std::span<float> tensor) = 0;
  /// So many first bytes are there; `is_last`: and there are no more. After an error the tensor is
  /// not to be believed, and neither is it before done().
  virtual Result<void> advance(std::size_t arrived, bool is_last) = 0;
  /// The tensor is whole.
  virtual bool done() const = 0;
  /// After the last byte, where it is not done: the sequences that must be asked for again.
  virtual std::span<const int> missing() const { return {}; }
  /// Takes the sender's answer for one of them.
  virtual Result<void> repair(int sequence, std::span<const std::byte> frame);
};

class BoundaryFormat {
 public:
  virtual ~BoundaryFormat() = default;
  /// Room that any message of so many elements needs. The same on both sides.
  virtual std::size_t wire_bytes_max(Op op, int peer, std::size_t elements) const = 0;
  /// The messages are copies, so cheap that they are made and read by the instruction that computes
  /// with the tensor, in one go, instead of on the codec stream; each then has wire_bytes_max
  /// bytes. The same on both sides, and always the same.
  virtual bool is_plain(Op, int /*peer*/) const { return false; }
  virtual std::unique_ptr<BoundaryWriter> make_writer() = 0;
  virtual std::unique_ptr<BoundaryReader> make_reader() = 0;
  /// What is sent to that peer from now on; from the codec stream. Frames say by themselves what
  /// they are, so receivers need not know. Only of a format that can.
  virtual void set_codec(int peer, Op op, Codec codec);
  /// What a sender answers a reader that misses a sequence of the message; from the codec stream.
  virtual Result<std::vector<std::byte>> resend(const BoundaryTensor& which, int sequence);
};

/// As computed, little-endian: the codec `none`. fp32, or the upper half of fp32 numbers that are
/// rounded to bf16 already (ModelStage in bf16), so that nothing is lost either way.
class PlainBoundary final : public BoundaryFormat {
 public:
  explicit PlainBoundary(Precision precision = Precision::kFp32)
      : element_bytes_(precision == Precision::kFp32 ? 4 : 2) {}
  std::size_t wire_bytes_max(Op, int, std::size_t elements) const override {
    return elements * element_bytes_;
  }
  bool is_plain(Op, int) const override { return true; }
  std::unique_ptr<BoundaryWriter> make_writer() override;
  std::unique_ptr<BoundaryReader> make_reader() override;

 private:
  std::size_t element_bytes_;
};

/// To and from each cell one tensor frame of its codec (kernels/codec/tensor_codec.h), or plain
/// where that is none, as it is inside a site. Gradients of fewer than 8 bits are rounded
/// stochastically, so that they stay unbiased; int4 is then the symmetric one. hadamard4 is rounded
/// to nearest, as its signs change with step and tensor. Activations of a validation have 8 bits at
/// least (core/codec.h validation_codec). A tensor that its
/// codec cannot hold (a NaN, an infinity, a number that rounds to one) is a message of 64 zero
/// bytes, which decodes to NaN everywhere: the receiver's step is then not finite and is skipped,
/// as it would have been.
class CodecBoundary final : public BoundaryFormat {
 public:
  /// `codecs[cell]`: of the tensors that this cell gives and gets. `seed`: of the noise.
  explicit CodecBoundary(const std::vector<Codec>& codecs, Precision precision = Precision::kFp32,
                         std::uint64_t seed = 0);

  // Before the first message:
  /// Its codec may become any that is as short as `finest`: there is room for it, and messages are
  /// no plain ones. Both ends must be told alike.
  void let_vary(int peer, Op op, Codec finest);
  /// Gradients go otherwise than activations.
  void set_gradients(int peer, Codec codec);

  /// Of a way that may vary so far.
  void set_codec(int peer, Op op, Codec codec) override;
  /// From the codec stream, like set_codec.
  Codec codec_of(Op op, int peer) const { return way(op, peer).codec; }

  std::size_t wire_bytes_max(Op op, int peer, std::size_t elements) const override;
  bool is_plain(Op op, int peer) const override { return way(op, peer).is_plain; }
  /// For whatever peer a message is.
  std::unique_ptr<BoundaryWriter> make_writer() override;
  std::unique_ptr<BoundaryReader> make_reader() override;

  /// How a message's frame is encoded.
  EncodeOptions options_of(const BoundaryTensor& which) const;

 private:
  struct Way {
    Codec codec = Codec::kNone;
    Codec finest = Codec::kNone;  // never changes, as does the next:
    bool is_plain = true;
  };
  const Way& way(Op op, int peer) const {
    return ways_[op == Op::kSendGradient ? 1 : 0][static_cast<std::size_t>(peer)];
  }
  Way& way(Op op, int peer) {
    return ways_[op == Op::kSendGradient ? 1 : 0][static_cast<std::size_t>(peer)];
  }
  TensorCodec frame_codec(Op op, Codec codec) const;

  std::array<std::vector<Way>, 2> ways_;  // of activations and of gradients, by cell
  Precision precision_;
  std::uint64_t seed_;
};

}  // namespace longhaul
