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
// With a history (EncodeOptions::history, and a span of as many bf16 as there are elements on both
// sides) d = x - m is encoded, m the history of before or, where one begins, 0; and m' = bf16(m +
// decoded d), nearest even, what is smaller than 2^-126 to +0. m' replaces m on both sides, and the
// decoder's target is m', too. A healing frame carries the sender's m as x, in BF16. A full frame
// is as without history. After a decoder's error, and after an encoder was given up half-way, the
// history is not to be trusted.
//
// Nothing is allocated unless there is an error to describe. An encoder or decoder borrows its
// buffers and belongs to one thread at a time; the free functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Where to decode to. The frame's tensor must have this type and fill the bytes exactly (or have
/// no elements and a history: tensor_frame.h).
struct TensorTarget {
  Precision type = Precision::kFp32;
  std::span<std::byte> bytes;
};

/// bf16, of one sample on one edge. Empty: none.
using HistorySpan = std::span<std::uint16_t>;

/// What a history's hash becomes when it changes: `crc` is the CRC-32C of its new bytes
/// (history_crc of encoder and decoder). Never 0, which stands for no history.
std::uint64_t next_history_hash(std::uint64_t hash, std::uint32_t crc);

struct EncodeOptions {
  TensorCodec codec = TensorCodec::kRaw;
  std::uint32_t step = 0;
  std::uint64_t seed = 0;
  std::uint64_t tensor_id = 0;
  Rounding rounding = Rounding::kNearest;  // of block codecs
  std::optional<HistoryHeader> history = {};
  /// False: a tensor that the codec cannot hold is no frame at all (encode_tensor returns 0).
  bool has_fallback = true;
};

class TensorEncoder {
 public:
  /// Reads x once, decides the codec, and writes header and scales. `frame` holds at least
  /// tensor_frame_capacity bytes (without fallback, tensor_frame_bytes). `history` belongs to a
  /// history frame that is not full, and is changed by advance. Error (kInvalid): a codec that does
  /// not take x's type, sizes that do not fit; without fallback: x does not fit the codec.
  static Result<TensorEncoder> begin(const TensorView& x, const EncodeOptions& options,
                                     std::span<std::byte> frame, HistorySpan history = {},
                                     const CodecKernels& kernels = best_kernels());

  /// Encodes the next elements: a multiple of 64, or all that are left (more is taken as all).
  void advance(std::size_t elements);

  /// What the frame turned out to be: the codec asked for, or RAW (with a history, no elements).
  const TensorHeader& header() const { return header_; }
  std::size_t frame_bytes() const { return layout_.frame_bytes; }
  /// The frame's first bytes that are final.
  std::size_t ready_bytes() const;
  bool done() const { return encoded_ == header_.elements(); }
  /// CRC-32C of the new history's bytes, once done, where the frame changes it.
  std::uint32_t history_crc() const { return history_crc_; }

 private:
  friend Result<std::size_t> encode_tensor(const TensorView& x, const EncodeOptions& options,
                                           std::span<std::byte> frame, HistorySpan history,
                                           const CodecKernels& kernels);
  TensorEncoder() = default;

  static Result<TensorEncoder> prepare(const TensorView& x, const EncodeOptions& options,
                                       std::span<std::byte> frame, HistorySpan history,
                                       const CodecKernels& kernels);
  void use(TensorCodec codec);
  void give_up_packing();
  const float* staged(std::size_t first, std::size_t count, float* room) const;
  void scan(std::size_t first, std::size_t count, const float* values);
  void scan_all();
  bool is_packable() const;
  bool encode_in_one_pass();
  void write_codes(std::size_t count, const float* values);
  void take_up(std::size_t count, float* room);
  void add_to_history_crc(std::size_t count);
  const BlockKernels* fused() const;
  void encode_stage(std::size_t count, float* room);
  void advance_checksum(std::size_t from);
  void write_header();
  void write_checksum();

  std::byte* scales_at(std::size_t element) const;
  std::byte* codes_at(std::size_t element) const;

  TensorHeader header_;
  const CodecTraits* traits_ = nullptr;
  TensorLayout layout_;
  EncodeOptions asked_;
  NoiseKey key_;
  const std::byte* source_ = nullptr;
  HistorySpan history_;
  std::span<std::byte> frame_;
  const CodecKernels* kernels_ = nullptr;
  std::uint32_t magnitude_ = 0;         // largest seen by scan, of what is quantised
  std::uint32_t source_magnitude_ = 0;  // of x, where a history takes it up
  std::uint32_t codes_crc_ = 0;
  std::uint32_t history_crc_ = 0;
  std::size_t encoded_ = 0;  // elements
};

/// The whole tensor in one go, reading x from memory only once. Returns the frame's bytes. Errors
/// as TensorEncoder::begin.
Result<std::size_t> encode_tensor(const TensorView& x, const EncodeOptions& options,
                                  std::span<std::byte> frame, HistorySpan history = {},
                                  const CodecKernels& kernels = best_kernels());

class TensorDecoder {
 public:
  /// Reads the header in the first 64 bytes of `frame`, or 128 with a history. Error (kFailed): a
  /// bad header, a tensor that is not the target's, a history that is not as long as the tensor
  /// (it may be given to a full frame, and is then left alone). The target's bytes are aligned to
  /// their type.
  static Result<TensorDecoder> open(std::span<const std::byte> frame, const TensorTarget& target,
                                    HistorySpan history = {},
                                    const CodecKernels& kernels = best_kernels());

  /// `arrived` is the frame from its first byte to the last one received so far, in any pieces;
  /// decodes what has become complete. Error (kFailed): wrong checksum, impossible scales or codes,
  /// more bytes than the frame has. After an error the decoder must not be used.
  Result<void> advance(std::span<const std::byte> arrived);

  const TensorHeader& header() const { return header_; }
  std::size_t frame_bytes() const { return layout_.frame_bytes; }
  /// True once everything is decoded and the checksum was right.
  bool done() const { return is_verified_; }
  /// CRC-32C of the new history's bytes, once done, where the frame changes it.
  std::uint32_t history_crc() const { return history_crc_; }

 private:
  TensorDecoder() = default;

  void read_scales(std::span<const std::byte> frame);
  void read_codes(const std::byte* frame, std::size_t count);
  bool decode_piece(const std::byte* frame, std::size_t count);
  void fill_empty_frame();

  TensorHeader header_;
  const CodecTraits* traits_ = nullptr;
  TensorLayout layout_;
  NoiseKey key_;
  std::span<std::byte> target_;
  HistorySpan history_;
  const CodecKernels* kernels_ = nullptr;
  std::uint32_t crc_ = 0;
  std::uint32_t history_crc_ = 0;
  std::size_t decoded_ = 0;  // elements
  std::size_t arrived_ = 0;
  bool has_scales_ = false;  // the scale plane, possibly empty, has been read
  bool is_sound_ = true;     // scales and codes are such as an encoder writes
  bool is_verified_ = false;
};

/// A whole frame, exactly `frame` long. Errors as TensorDecoder, and for a frame that ends early;
/// the target's contents are then undefined.
Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, const TensorTarget& target,
                                   HistorySpan history = {},
                                   const CodecKernels& kernels = best_kernels());
/// Into fp32.
Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, std::span<float> target,
                                   HistorySpan history = {},
                                   const CodecKernels& kernels = best_kernels());

}  // namespace longhaul
