// Encoding a tensor into a frame and back (layout: kernels/codec/tensor_frame.h), whole or piece by
// piece, so that quantising, sending and dequantising of one message overlap.
//
//   auto encoder = TensorEncoder::begin(x, options, frame);   // reads x once, may fall back to RAW
//   send(frame.first(encoder->ready_bytes()));                // header and scales
//   while (!encoder->done()) { encoder->advance(65536); send(what became ready); }
//
//   auto decoder = TensorDecoder::open(frame.first(64), {type, destination});
//   while (!decoder->done()) { receive more; LH_TRY(decoder->advance(frame.first(received))); }
//
// A frame becomes ready strictly from front to back and its bytes do not depend on the processor,
// on the pieces or on which of the two ways was used. What a decoder has written is to be believed
// only once it is done: the payload's checksum is the last thing in the frame.
//
// Nothing is allocated unless there is an error to describe. An encoder or decoder borrows its
// buffers and belongs to one thread at a time; the free functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "kernels/codec/codec_kernels.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {

/// A tensor to encode: rows x row_length elements, contiguous, aligned to their type.
struct TensorView {
  Precision type = Precision::kFp32;
  std::uint32_t rows = 0;
  std::uint32_t row_length = 0;
  std::span<const std::byte> bytes;
};
/// x as one row of fp32. x.size() <= kTensorElementsMax.
TensorView flat_view(std::span<const float> x);

/// Where to decode to. The frame's tensor must have this type and fill the bytes exactly.
struct TensorTarget {
  Precision type = Precision::kFp32;
  std::span<std::byte> bytes;
};

struct EncodeOptions {
  TensorCodec codec = TensorCodec::kRaw;
  std::uint32_t step = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensor_id = 0;
};

class TensorEncoder {
 public:
  /// Reads x once, decides the codec, and writes header and scales. `frame` holds at least
  /// tensor_frame_capacity bytes. Error (kInvalid): a codec that is not built or does not take x's
  /// type, sizes that do not fit.
  static Result<TensorEncoder> begin(const TensorView& x, const EncodeOptions& options,
                                     std::span<std::byte> frame,
                                     const CodecKernels& kernels = best_kernels());

  /// Encodes the next elements: a multiple of 64, or all that are left (more is taken as all).
  void advance(std::size_t elements);

  /// What the frame turned out to be: the codec asked for, or RAW.
  const TensorHeader& header() const { return header_; }
  std::size_t frame_bytes() const { return layout_.frame_bytes; }
  /// The frame's first bytes that are final.
  std::size_t ready_bytes() const;
  bool done() const { return encoded_ == header_.elements(); }

 private:
  friend Result<std::size_t> encode_tensor(const TensorView& x, const EncodeOptions& options,
                                           std::span<std::byte> frame, const CodecKernels& kernels);
  TensorEncoder() = default;

  static Result<TensorEncoder> prepare(const TensorView& x, const EncodeOptions& options,
                                       std::span<std::byte> frame, const CodecKernels& kernels);
  void use(TensorCodec codec);
  void scan(std::size_t first, std::size_t count);
  bool is_packable() const;
  bool encode_in_one_pass();
  void write_codes(std::size_t count);
  void write_header();
  void write_checksum();

  TensorHeader header_;
  TensorLayout layout_;
  TensorCodec asked_ = TensorCodec::kRaw;
  const std::byte* source_ = nullptr;
  std::span<std::byte> frame_;
  const CodecKernels* kernels_ = nullptr;
  std::uint32_t magnitude_ = 0;  // largest seen by scan
  std::uint32_t codes_crc_ = 0;
  std::size_t encoded_ = 0;  // elements
};

/// The whole tensor in one go, reading x from memory only once. Returns the frame's bytes. Errors
/// as TensorEncoder::begin.
Result<std::size_t> encode_tensor(const TensorView& x, const EncodeOptions& options,
                                  std::span<std::byte> frame,
                                  const CodecKernels& kernels = best_kernels());

class TensorDecoder {
 public:
  /// Reads the header in the first 64 bytes of `frame`. Error (kFailed): a bad header, or a tensor
  /// that is not the target's. The target's bytes are aligned to their type.
  static Result<TensorDecoder> open(std::span<const std::byte> frame, const TensorTarget& target,
                                    const CodecKernels& kernels = best_kernels());

  /// `arrived` is the frame from its first byte to the last one received so far, in any pieces;
  /// decodes what has become complete. Error (kFailed): wrong checksum, impossible scales or codes,
  /// more bytes than the frame has. After an error the decoder must not be used.
  Result<void> advance(std::span<const std::byte> arrived);

  const TensorHeader& header() const { return header_; }
  std::size_t frame_bytes() const { return layout_.frame_bytes; }
  /// True once everything is decoded and the checksum was right.
  bool done() const { return is_verified_; }

 private:
  TensorDecoder() = default;

  void read_scales(std::span<const std::byte> frame);
  void read_codes(const std::byte* frame, std::size_t count);

  TensorHeader header_;
  TensorLayout layout_;
  std::byte* target_ = nullptr;
  const CodecKernels* kernels_ = nullptr;
  std::uint32_t crc_ = 0;
  std::size_t decoded_ = 0;  // elements
  std::size_t arrived_ = 0;
  bool has_scales_ = false;  // the scale plane, possibly empty, has been read
  bool is_sound_ = true;     // scales and codes are such as an encoder writes
  bool is_verified_ = false;
};

/// A whole frame, exactly `frame` long. Errors as TensorDecoder, and for a frame that ends early;
/// the target's contents are then undefined.
Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, const TensorTarget& target,
                                   const CodecKernels& kernels = best_kernels());
/// Into fp32.
Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, std::span<float> target,
                                   const CodecKernels& kernels = best_kernels());

}  // namespace longhaul
