#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/codec/codec_pieces.h"
#include "kernels/codec/crc32c.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul {
namespace {

/// Half of what the decoder takes: while codes are computed, the hardware's prefetcher runs ahead
/// by about as much, which makes a tensor that is not in the cache 5 to 10 % faster (in cache: 3 %
/// slower).
constexpr std::size_t kEncoderStage = kStage / 2;
static_assert(kEncoderStage % kCodecPiece == 0 && kPiece % kEncoderStage == 0);

bool is_aligned(const std::byte* at, Precision type) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes_of(type) == 0;
}

std::uint32_t infinity_of(Precision type) {
  if (type == Precision::kFp32) return kFp32Infinity;
  return type == Precision::kBf16 ? kBf16Infinity : kFp16Infinity;
}

const float* floats(const std::byte* at) {
  return reinterpret_cast<const float*>(at);
}

/// Of numbers below 2^125 a history stays finite: a code is off by at most half of the largest
/// difference, so |m'| <= 2^125 + (2^125 + |m|) / 2, which |m| <= 3 x 2^125 satisfies; and the
/// difference stays below 2^127.
constexpr std::uint32_t kHistorySourceLimit = std::bit_cast<std::uint32_t>(0x1p125f);

}  // namespace

TensorView flat_view(std::span<const float> x) {
  LH_CHECK(x.size() <= kTensorElementsMax, "a tensor of one frame is limited");
  return {Precision::kFp32, 1, static_cast<std::uint32_t>(x.size()), std::as_bytes(x)};
}

std::uint64_t next_history_hash(std::uint64_t hash, std::uint32_t crc) {
  const std::uint64_t next = mix64(hash, crc);
  return next == 0 ? 1 : next;
}

Result<TensorEncoder> TensorEncoder::prepare(const TensorView& x, const EncodeOptions& options,
                                             std::span<std::byte> frame, HistorySpan history,
                                             const CodecKernels& kernels) {
  TensorEncoder encoder;
  TensorHeader& header = encoder.header_;
  header.source = x.type;
  header.step = options.step;
  header.rows = x.rows;
  header.row_length = x.row_length;
  header.seed = options.seed;
  header.tensor_id = options.tensor_id;
  header.history = options.history;
  const bool has_history = options.history.has_value();
  if (find_traits(options.codec) == nullptr) {
    return invalid(fmt::format("there is no codec {}", static_cast<int>(options.codec)));
  }
  if (x.type != Precision::kFp32 && (options.codec != TensorCodec::kRaw || has_history)) {
    return invalid(
        fmt::format("the codec {} takes fp32, not {}", name_of(options.codec), name_of(x.type)));
  }
  const std::uint64_t n = header.elements();
  if (n > kTensorElementsMax) {
    return invalid(fmt::format("a tensor of {} elements, the limit of one frame is {}", n,
                               kTensorElementsMax));
  }
  if (x.bytes.size() != n * bytes_of(x.type)) {
    return invalid(fmt::format("a tensor of {} elements of {} in {} bytes", n, name_of(x.type),
                               x.bytes.size()));
  }
  if (history.size() != (changes_history(options.history) ? n : 0)) {
    return invalid(fmt::format("a history of {} elements for a tensor of {}", history.size(), n));
  }
  const std::size_t capacity = options.has_fallback
                                   ? tensor_frame_capacity(options.codec, x.type, n, has_history)
                                   : tensor_frame_bytes(options.codec, x.type, n, has_history);
  if (frame.size() < capacity) {
    return invalid(
        fmt::format("a frame may need {} bytes, its buffer has {}", capacity, frame.size()));
  }
  LH_CHECK(is_aligned(x.bytes.data(), x.type), "a tensor is aligned to its elements");
  encoder.asked_ = options;
  encoder.key_ = noise_key(options.seed, options.step, options.tensor_id);
  encoder.source_ = x.bytes.data();
  encoder.history_ = history;
  encoder.frame_ = frame;
  encoder.kernels_ = &kernels;
  encoder.use(options.codec);
  return encoder;
}

/// Starts over with `codec`.
void TensorEncoder::use(TensorCodec codec) {
  header_.codec = codec;
  traits_ = &traits_of(codec);
  layout_ = tensor_layout(codec, header_.source, header_.elements(), header_.history.has_value());
  magnitude_ = 0;
  codes_crc_ = 0;
  encoded_ = 0;
  const std::size_t scales_end = layout_.scales_at + layout_.scales_bytes;
  std::fill(frame_.data() + scales_end, frame_.data() + layout_.codes_at, std::byte{0});
}

/// The frame becomes RAW or, with a history, one of no elements.
void TensorEncoder::give_up_packing() {
  if (!header_.history) {
    use(TensorCodec::kRaw);
    return scan_all();
  }
  const std::uint32_t magnitude = magnitude_;
  header_.rows = header_.row_length = 0;
  use(header_.codec);
  magnitude_ = magnitude;
}

std::byte* TensorEncoder::scales_at(std::size_t element) const {
  const auto block = static_cast<std::size_t>(std::max(traits_->grid.block, 1));
  return frame_.data() + layout_.scales_at + 2 * (element / block);
}
std::byte* TensorEncoder::codes_at(std::size_t element) const {
  return frame_.data() + layout_.codes_at + code_bytes(header_.codec, header_.source, element);
}

/// What is quantised: elements of x, their difference to the history, rotated; in `room`, which
/// holds kEncoderStage, unless it is x itself.
const float* TensorEncoder::staged(std::size_t first, std::size_t count, float* room) const {
  if (header_.source != Precision::kFp32) return nullptr;  // these are never quantised
  const float* values = floats(source_) + first;
  if (header_.history && header_.history->kind == HistoryKind::kDelta) {
    kernels_->subtract_history(values, history_.data() + first, count, room);
    values = room;
  }
  if (traits_->is_rotated) {
    kernels_->rotate(values, count, key_.signs, room);
    values = room;
  }
  return values;
}

/// Takes the magnitude of the elements and, where the codec has them, writes their scales.
void TensorEncoder::scan(std::size_t first, std::size_t count, const float* values) {
  std::uint32_t largest = 0;
  if (values == nullptr) {
    const std::byte* at = source_ + first * bytes_of(header_.source);
    largest = kernels_->magnitude_16(reinterpret_cast<const std::uint16_t*>(at), count);
  } else if (traits_->grid.block == 0) {
    largest = kernels_->magnitude_fp32(values, count);
  } else {
    const BlockKernels& block = kernels_->blocks[static_cast<std::size_t>(header_.codec)];
    largest =
        block.scales(values, whole_blocks(*traits_, count), asked_.rounding, scales_at(first));
  }
  magnitude_ = std::max(magnitude_, largest);
}

/// The kernels that take a difference to the history in one pass, or null.
const BlockKernels* TensorEncoder::fused() const {
  const bool is_delta = header_.history && header_.history->kind == HistoryKind::kDelta;
  const BlockKernels& block = kernels_->blocks[static_cast<std::size_t>(header_.codec)];
  const bool is_possible = is_delta && !traits_->is_rotated &&
                           asked_.rounding == Rounding::kNearest &&
                           block.encode_difference != nullptr;
  return is_possible ? &block : nullptr;
}

void TensorEncoder::scan_all() {
  const std::size_t n = header_.elements();
  std::size_t first = 0;
  if (const BlockKernels* block = fused()) {
    const DifferenceDone done = block->difference_scales(floats(source_), history_.data(), n,
                                                         asked_.rounding, scales_at(0));
    first = done.elements;
    magnitude_ = done.largest;
    source_magnitude_ = done.source_largest;
  }
  const bool is_remembered = asked_.history && asked_.history->kind <= HistoryKind::kDelta;
  alignas(64) float room[kEncoderStage];
  for (; first < n; first += kEncoderStage) {
    const std::size_t count = std::min(n - first, kEncoderStage);
    if (is_remembered) {
      const std::uint32_t largest = kernels_->magnitude_fp32(floats(source_) + first, count);
      source_magnitude_ = std::max(source_magnitude_, largest);
    }
    scan(first, count, staged(first, count, room));
  }
}

/// Whether everything scanned so far can be written in the codec at hand.
bool TensorEncoder::is_packable() const {
  const bool is_finite = magnitude_ < infinity_of(header_.source);
  return magnitude_ < traits_->magnitude_limit && (is_finite || !header_.history) &&
         source_magnitude_ < kHistorySourceLimit;
}

/// Codes of the next elements.
void TensorEncoder::write_codes(std::size_t count, const float* values) {
  std::byte* to = codes_at(encoded_);
  if (header_.codec == TensorCodec::kRaw) {
    const std::size_t width = bytes_of(header_.source);
    const std::byte* from =
        values != nullptr ? reinterpret_cast<const std::byte*>(values) : source_ + encoded_ * width;
    std::memcpy(to, from, count * width);
  } else if (header_.codec == TensorCodec::kBf16) {
    kernels_->bf16_encode(values, count, to);
  } else if (header_.codec == TensorCodec::kF16) {
    kernels_->f16_encode(values, count, to);
  } else {
    const BlockKernels& block = kernels_->blocks[static_cast<std::size_t>(header_.codec)];
    const std::size_t whole = whole_blocks(*traits_, count);
    if (asked_.rounding == Rounding::kNearest) {
      block.encode(values, whole, scales_at(encoded_), to);
    } else {
      block.encode_stochastic(values, whole, scales_at(encoded_), key_, encoded_, to);
    }
  }
}

/// The history of elements that have just been encoded: what the receiver will make of it.
void TensorEncoder::take_up(std::size_t count, float* room) {
  std::uint16_t* history = history_.data() + encoded_;
  if (header_.codec == TensorCodec::kRaw) {
    std::memcpy(room, codes_at(encoded_), count * sizeof(float));
  } else {
    decode_codes(*kernels_, *traits_, key_, scales_at(encoded_), codes_at(encoded_), count, room);
  }
  if (header_.history->kind != HistoryKind::kDelta) std::fill_n(history, count, std::uint16_t{0});
  kernels_->add_history(room, count, history);
  add_to_history_crc(count);
}

void TensorEncoder::add_to_history_crc(std::size_t count) {
  history_crc_ = crc32c(std::as_bytes(history_.subspan(encoded_, count)), history_crc_);
}

void TensorEncoder::advance_checksum(std::size_t from) {
  const std::byte* first = codes_at(from);
  codes_crc_ = crc32c({first, codes_at(encoded_)}, codes_crc_);
}

void TensorEncoder::write_header() {
  header_.flags = 0;
  if (magnitude_ >= infinity_of(header_.source)) header_.flags |= kFlagNonFinite;
  if (!is_packable() || header_.codec != asked_.codec) header_.flags |= kFlagFallback;
  if (asked_.rounding == Rounding::kStochastic && traits_->grid.block > 0) {
    header_.flags |= kFlagStochastic;
  }
  if (header_.history) header_.flags |= kFlagHistory;
  write_tensor_header(header_, frame_);
}

void TensorEncoder::write_checksum() {
  const std::size_t plane_bytes = layout_.codes_at - layout_.scales_at;
  const std::uint32_t crc = crc32c_combine(crc32c(frame_.subspan(layout_.scales_at, plane_bytes)),
                                           codes_crc_, layout_.codes_bytes);
  std::memcpy(frame_.data() + layout_.checksum_at, &crc, sizeof crc);
}

Result<TensorEncoder> TensorEncoder::begin(const TensorView& x, const EncodeOptions& options,
                                           std::span<std::byte> frame, HistorySpan history,
                                           const CodecKernels& kernels) {
  LH_ASSIGN(TensorEncoder encoder, prepare(x, options, frame, history, kernels));
  encoder.scan_all();
  if (!encoder.is_packable()) {
    if (!options.has_fallback) {
      return invalid(fmt::format("the codec {} cannot hold this tensor", name_of(options.codec)));
    }
    encoder.give_up_packing();
  }
  encoder.write_header();
  if (encoder.done()) encoder.write_checksum();
  return encoder;
}

/// The next elements, at most kEncoderStage, and their history.
void TensorEncoder::encode_stage(std::size_t count, float* room) {
  if (const BlockKernels* block = fused()) {
    const std::size_t done =
        block->encode_difference(floats(source_) + encoded_, history_.data() + encoded_, count,
                                 scales_at(encoded_), codes_at(encoded_));
    add_to_history_crc(done);
    encoded_ += done;
    count -= done;
  }
  if (count == 0) return;
  write_codes(count, staged(encoded_, count, room));
  if (changes_history(header_.history)) take_up(count, room);
  encoded_ += count;
}

void TensorEncoder::advance(std::size_t elements) {
  if (done()) return;
  const std::size_t left = header_.elements() - encoded_;
  LH_CHECK(elements % kCodecPiece == 0 || elements >= left, "pieces are whole blocks");
  const std::size_t end = encoded_ + std::min(elements, left);
  alignas(64) float room[kEncoderStage];
  for (std::size_t from = encoded_; encoded_ < end;) {
    encode_stage(std::min(end - encoded_, kEncoderStage), room);
    if (encoded_ == end || encoded_ - from >= kPiece) {
      advance_checksum(from);
      from = encoded_;
    }
  }
  if (done()) write_checksum();
}

std::size_t TensorEncoder::ready_bytes() const {
  if (done()) return layout_.frame_bytes;
  return layout_.codes_at + code_bytes(header_.codec, header_.source, encoded_);
}

/// Without a history. False as soon as an element does not fit the codec.
bool TensorEncoder::encode_in_one_pass() {
  const std::size_t n = header_.elements();
  alignas(64) float room[kEncoderStage];
  for (std::size_t from = 0; encoded_ < n;) {
    const std::size_t count = std::min(n - encoded_, kEncoderStage);
    const float* values = staged(encoded_, count, room);
    scan(encoded_, count, values);
    if (!is_packable()) return false;
    write_codes(count, values);
    encoded_ += count;
    if (encoded_ == n || encoded_ - from >= kPiece) {
      advance_checksum(from);
      from = encoded_;
    }
  }
  return true;
}

Result<std::size_t> encode_tensor(const TensorView& x, const EncodeOptions& options,
                                  std::span<std::byte> frame, HistorySpan history,
                                  const CodecKernels& kernels) {
  if (options.history) {
    // A history may change only once it is certain that the whole tensor can be packed.
    LH_ASSIGN(TensorEncoder encoder, TensorEncoder::begin(x, options, frame, history, kernels));
    encoder.advance(encoder.header_.elements());
    return encoder.frame_bytes();
  }
  LH_ASSIGN(TensorEncoder encoder, TensorEncoder::prepare(x, options, frame, history, kernels));
  if (!encoder.encode_in_one_pass()) {
    if (!options.has_fallback) return 0;
    encoder.use(TensorCodec::kRaw);
    encoder.encode_in_one_pass();
  }
  encoder.write_header();
  encoder.write_checksum();
  return encoder.frame_bytes();
}

}  // namespace longhaul
