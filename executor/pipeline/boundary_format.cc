#include "executor/pipeline/boundary_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/codec/codec_traits.h"
#include "kernels/codec/fixed_frame.h"
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
    const EncodeOptions options = format_.options_of(which);
    LH_CHECK(wire.size() >= tensor_frame_bytes(options.codec, Precision::kFp32, tensor.size()),
             "a message has room for its codec");
    // What is wrong can only be that the tensor does not fit the codec.
    if (auto encoder = TensorEncoder::begin(flat_view(tensor), options, wire)) {
      encoder_ = *encoder;
      return encoder_->frame_bytes();
    }
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
    is_marked_ = is_unpackable_mark(header);
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

void BoundaryFormat::set_codec(int, Op, Codec) {
  LH_CHECK(false, "this format has one way to write a tensor");
}

std::unique_ptr<BoundaryWriter> PlainBoundary::make_writer() {
  return std::make_unique<PlainWriter>(element_bytes_);
}
std::unique_ptr<BoundaryReader> PlainBoundary::make_reader() {
  return std::make_unique<PlainReader>(element_bytes_);
}

CodecBoundary::CodecBoundary(const std::vector<Codec>& codecs, Precision precision,
                             std::uint64_t seed)
    : precision_(precision), seed_(seed) {
  for (const Codec codec : codecs) ways_[0].push_back({codec, codec, codec == Codec::kNone});
  ways_[1] = ways_[0];
}

void CodecBoundary::let_vary(int peer, Op op, Codec finest) {
  way(op, peer).finest = finest;
  way(op, peer).is_plain = false;
}

void CodecBoundary::set_gradients(int peer, Codec codec) {
  way(Op::kSendGradient, peer) = {codec, codec, codec == Codec::kNone};
}

void CodecBoundary::set_codec(int peer, Op op, Codec codec) {
  constexpr std::size_t kMany = 1 << 20;
  Way& changed = way(op, peer);
  LH_CHECK(!changed.is_plain, "a plain boundary stays one");
  LH_CHECK(tensor_frame_bytes(frame_codec(op, codec), Precision::kFp32, kMany) <=
               tensor_frame_bytes(frame_codec(op, changed.finest), Precision::kFp32, kMany),
           "a codec that there is room for");
  changed.codec = codec;
}

std::size_t CodecBoundary::wire_bytes_max(Op op, int peer, std::size_t elements) const {
  if (is_plain(op, peer)) return PlainBoundary(precision_).wire_bytes_max(op, peer, elements);
  const Codec finest = way(op, peer).finest;
  const auto bytes = [&](Codec codec) {
    return tensor_frame_bytes(frame_codec(op, codec), Precision::kFp32, elements);
  };
  if (op == Op::kSendGradient) return bytes(finest);
  return std::max(bytes(finest), bytes(validation_codec(finest)));
}

TensorCodec CodecBoundary::frame_codec(Op op, Codec codec) const {
  // Numbers that are rounded to bf16 already lose nothing in it.
  if (codec == Codec::kNone && precision_ == Precision::kBf16) return TensorCodec::kBf16;
  const TensorCodec frame = tensor_codec(codec);
  if (op == Op::kSendGradient && frame == TensorCodec::kQ4) return TensorCodec::kQ4Symmetric;
  return frame;
}

EncodeOptions CodecBoundary::options_of(const BoundaryTensor& which) const {
  const Codec trained = codec_of(which.op, which.peer);
  const Codec codec = which.is_validation ? validation_codec(trained) : trained;
  const bool is_gradient = which.op == Op::kSendGradient;
  EncodeOptions options;
  options.codec = frame_codec(which.op, codec);
  options.step = which.step;
  options.seed = seed_;
  // A cell gives each peer one kind of tensor, so these three name it in a step.
  options.tensor_id = static_cast<std::uint64_t>(which.peer) << 32 |
                      static_cast<std::uint64_t>(which.micro_batch) << 1 | (is_gradient ? 1u : 0u);
  const bool is_coarse = codec != Codec::kNone && format_of(codec).code_bits < 8;
  // Signs that change with step and tensor make a rotated tensor's errors random already.
  if (is_gradient && is_coarse && !traits_of(options.codec).is_rotated) {
    options.rounding = Rounding::kStochastic;
  }
  options.has_fallback = false;
  return options;
}

std::unique_ptr<BoundaryWriter> CodecBoundary::make_writer() {
  return std::make_unique<CodecWriter>(*this, PlainBoundary(precision_).make_writer());
}
std::unique_ptr<BoundaryReader> CodecBoundary::make_reader() {
  return std::make_unique<CodecReader>(*this, PlainBoundary(precision_).make_reader());
}

}  // namespace longhaul
