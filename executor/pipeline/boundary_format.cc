#include "executor/pipeline/boundary_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/codec/tensor_codec.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

/// Elements of a piece: 512 KiB of fp32, so that at 4 bits a piece is what the mesh sends at a time
/// or less, and its cost far above that of a task.
constexpr std::size_t kPieceElements = std::size_t{1} << 17;

void copy_to_wire(std::span<const float> tensor, std::span<std::byte> wire,
                  std::size_t element_bytes) {
  if (element_bytes == sizeof(float)) {
    std::ranges::copy(std::as_bytes(tensor), wire.begin());
    return;
  }
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(tensor[i]) >> 16);
    std::memcpy(wire.data() + 2 * i, &upper, sizeof upper);
  }
}

void copy_from_wire(std::span<const std::byte> wire, std::span<float> tensor,
                    std::size_t element_bytes) {
  if (element_bytes == sizeof(float)) {
    std::ranges::copy(wire, std::as_writable_bytes(tensor).begin());
    return;
  }
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, wire.data() + 2 * i, sizeof upper);
    tensor[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
  }
}

class PlainWriter final : public BoundaryWriter {
 public:
  explicit PlainWriter(std::size_t element_bytes) : element_bytes_(element_bytes) {}
  Result<std::size_t> begin(const BoundaryTensor&, std::span<const float> tensor,
                            std::span<std::byte> wire) override {
    tensor_ = tensor;
    wire_ = wire.first(tensor.size() * element_bytes_);
    return wire_.size();
  }
  Result<std::size_t> advance() override {
    copy_to_wire(tensor_, wire_, element_bytes_);
    return wire_.size();
  }

 private:
  std::size_t element_bytes_;
  std::span<const float> tensor_;
  std::span<std::byte> wire_;
};

class PlainReader final : public BoundaryReader {
 public:
  explicit PlainReader(std::size_t element_bytes) : element_bytes_(element_bytes) {}
  Result<void> begin(const BoundaryTensor&, std::span<const std::byte> wire,
                     std::span<float> tensor) override {
    wire_ = wire;
    tensor_ = tensor;
    is_done_ = false;
    return {};
  }
  Result<void> advance(std::size_t arrived, bool is_last) override {
    if (!is_last) return {};
    if (arrived != tensor_.size() * element_bytes_) {
      return failed("a plain message does not have its tensor's size");
    }
    copy_from_wire(wire_.first(arrived), tensor_, element_bytes_);
    is_done_ = true;
    return {};
  }
  bool done() const override { return is_done_; }

 private:
  std::size_t element_bytes_;
  std::span<const std::byte> wire_;
  std::span<float> tensor_;
  bool is_done_ = false;
};

class CodecWriter final : public BoundaryWriter {
 public:
  CodecWriter(const CodecBoundary& format, std::unique_ptr<BoundaryWriter> plain)
      : format_(format), plain_(std::move(plain)) {}
  Result<std::size_t> begin(const BoundaryTensor& which, std::span<const float> tensor,
                            std::span<std::byte> wire) override {
    encoder_.reset();
    is_plain_ = format_.is_plain(which.op, which.peer);
    if (is_plain_) return plain_->begin(which, tensor, wire);
    if (tensor.size() > kTensorElementsMax) {
      return invalid("a tensor frame holds at most 2^32 - 1 elements");
    }
    LH_ASSIGN(encoder_,
              TensorEncoder::begin(flat_view(tensor),
                                   {.codec = tensor_codec(format_.codec_of(which.op, which.peer)),
                                    .step = which.step},
                                   wire));
    if ((encoder_->header().flags & kFlagFallback) == 0) return encoder_->frame_bytes();
    encoder_.reset();
    std::ranges::fill(wire.first(kTensorHeaderBytes), std::byte{0});
    return kTensorHeaderBytes;
  }
  Result<std::size_t> advance() override {
    if (is_plain_) return plain_->advance();
    if (!encoder_) return kTensorHeaderBytes;
    encoder_->advance(kPieceElements);
    return encoder_->ready_bytes();
  }

 private:
  const CodecBoundary& format_;
  std::unique_ptr<BoundaryWriter> plain_;
  bool is_plain_ = false;
  std::optional<TensorEncoder> encoder_;
};

class CodecReader final : public BoundaryReader {
 public:
  CodecReader(const CodecBoundary& format, std::unique_ptr<BoundaryReader> plain)
      : format_(format), plain_(std::move(plain)) {}
  Result<void> begin(const BoundaryTensor& which, std::span<const std::byte> wire,
                     std::span<float> tensor) override {
    decoder_.reset();
    is_marked_ = false;
    is_plain_ = format_.is_plain(which.op, which.peer);
    if (is_plain_) return plain_->begin(which, wire, tensor);
    wire_ = wire;
    tensor_ = tensor;
    return {};
  }
  Result<void> advance(std::size_t arrived, bool is_last) override {
    if (is_plain_) return plain_->advance(arrived, is_last);
    if (is_last && arrived < kTensorHeaderBytes) {
      return failed("a boundary tensor's message ends within its header");
    }
    if (arrived < kTensorHeaderBytes) return {};
    if (!decoder_ && !is_marked_) LH_TRY(open());
    if (is_marked_) {
      if (arrived == kTensorHeaderBytes) return {};
      return failed("bytes follow the mark of a tensor that could not be encoded");
    }
    LH_TRY(decoder_->advance(wire_.first(arrived)));
    if (is_last && !decoder_->done()) return failed("a boundary tensor's message ends early");
    return {};
  }
  bool done() const override {
    if (is_plain_) return plain_->done();
    return is_marked_ || (decoder_ && decoder_->done());
  }

 private:
  Result<void> open() {
    const auto header = wire_.first(kTensorHeaderBytes);
    is_marked_ = std::ranges::all_of(header, [](std::byte b) { return b == std::byte{0}; });
    if (is_marked_) {
      std::ranges::fill(tensor_, std::numeric_limits<float>::quiet_NaN());
      return {};
    }
    LH_ASSIGN(decoder_,
              TensorDecoder::open(header, {Precision::kFp32, std::as_writable_bytes(tensor_)}));
    return {};
  }

  const CodecBoundary& format_;
  std::unique_ptr<BoundaryReader> plain_;
  bool is_plain_ = false;
  bool is_marked_ = false;
  std::span<const std::byte> wire_;
  std::span<float> tensor_;
  std::optional<TensorDecoder> decoder_;
};

}  // namespace

Result<void> BoundaryReader::repair(int, std::span<const std::byte>) {
  return failed("a sequence was sent again that nobody asked for");
}

Result<std::vector<std::byte>> BoundaryFormat::resend(const BoundaryTensor&, int) {
  return failed("this boundary's codec keeps nothing that it could send again");
}

std::unique_ptr<BoundaryWriter> PlainBoundary::make_writer() {
  return std::make_unique<PlainWriter>(element_bytes_);
}
std::unique_ptr<BoundaryReader> PlainBoundary::make_reader() {
  return std::make_unique<PlainReader>(element_bytes_);
}

CodecBoundary::CodecBoundary(std::vector<Codec> codecs, Precision precision)
    : activations_(codecs), gradients_(std::move(codecs)), precision_(precision) {
  for (const Codec codec : activations_) plain_.push_back(codec == Codec::kNone);
}

void CodecBoundary::set_codec(int peer, Op op, Codec codec) {
  LH_CHECK(codec != Codec::kNone && !is_plain(op, peer), "a plain boundary stays one");
  (op == Op::kSendGradient ? gradients_ : activations_)[static_cast<std::size_t>(peer)] = codec;
}

/// Of a frame whatever its codec, as that may change: the longest, which is not encoded at all.
std::size_t CodecBoundary::wire_bytes_max(Op op, int peer, std::size_t elements) const {
  if (is_plain(op, peer)) return PlainBoundary(precision_).wire_bytes_max(op, peer, elements);
  return tensor_frame_bytes(TensorCodec::kRaw, Precision::kFp32, elements);
}

std::unique_ptr<BoundaryWriter> CodecBoundary::make_writer() {
  return std::make_unique<CodecWriter>(*this, PlainBoundary(precision_).make_writer());
}
std::unique_ptr<BoundaryReader> CodecBoundary::make_reader() {
  return std::make_unique<CodecReader>(*this, PlainBoundary(precision_).make_reader());
}

}  // namespace longhaul
