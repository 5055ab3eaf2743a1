#include "kernels/codec/tensor_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

// Elements that are scanned, encoded and checksummed before the next ones are touched: 24 KiB of
// fp32 stay in the first-level cache, and the 6 KiB of codes are whole rounds of the CRC's loop.
constexpr std::size_t kPiece = 6144;
static_assert(kPiece % kQ8Block == 0, "pieces are whole blocks");

bool is_aligned(const std::byte* at, Precision type) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes_of(type) == 0;
}

std::uint32_t infinity_of(Precision type) {
  if (type == Precision::kFp32) return kFp32Infinity;
  return type == Precision::kBf16 ? kBf16Infinity : kFp16Infinity;
}

std::uint16_t load_scale(const std::byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

}  // namespace

TensorView flat_view(std::span<const float> x) {
  LH_CHECK(x.size() <= kTensorElementsMax, "a tensor of one frame is limited");
  return {Precision::kFp32, 1, static_cast<std::uint32_t>(x.size()), std::as_bytes(x)};
}

// ---- encoder

Result<TensorEncoder> TensorEncoder::prepare(const TensorView& x, const EncodeOptions& options,
                                             std::span<std::byte> frame,
                                             const CodecKernels& kernels) {
  TensorEncoder encoder;
  TensorHeader& header = encoder.header_;
  header.source = x.type;
  header.step = options.step;
  header.rows = x.rows;
  header.row_length = x.row_length;
  header.seed = options.seed;
  header.tensor_id = options.tensor_id;
  const bool is_lossy = options.codec == TensorCodec::kBf16 || options.codec == TensorCodec::kQ8;
  if (!is_lossy && options.codec != TensorCodec::kRaw) {
    return invalid(fmt::format("the codec {} is not built", name_of(options.codec)));
  }
  if (is_lossy && x.type != Precision::kFp32) {
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
  const std::size_t capacity = tensor_frame_capacity(options.codec, x.type, n);
  if (frame.size() < capacity) {
    return invalid(
        fmt::format("a frame may need {} bytes, its buffer has {}", capacity, frame.size()));
  }
  LH_CHECK(is_aligned(x.bytes.data(), x.type), "a tensor is aligned to its elements");
  encoder.asked_ = options.codec;
  encoder.source_ = x.bytes.data();
  encoder.frame_ = frame;
  encoder.kernels_ = &kernels;
  encoder.use(options.codec);
  return encoder;
}

/// Starts over with `codec`.
void TensorEncoder::use(TensorCodec codec) {
  header_.codec = codec;
  layout_ = tensor_layout(codec, header_.source, header_.elements());
  magnitude_ = 0;
  codes_crc_ = 0;
  encoded_ = 0;
  const std::size_t scales_end = layout_.scales_at + layout_.scales_bytes;
  std::fill(frame_.data() + scales_end, frame_.data() + layout_.codes_at, std::byte{0});
}

/// Takes the magnitude of the elements and, where the codec has them, writes their scales.
void TensorEncoder::scan(std::size_t first, std::size_t count) {
  const std::byte* at = source_ + first * bytes_of(header_.source);
  std::uint32_t largest = 0;
  if (header_.source != Precision::kFp32) {
    largest = kernels_->magnitude_16(reinterpret_cast<const std::uint16_t*>(at), count);
  } else if (header_.codec == TensorCodec::kQ8) {
    largest = kernels_->q8_scales(reinterpret_cast<const float*>(at), count,
                                  frame_.data() + layout_.scales_at + 2 * (first / kQ8Block));
  } else {
    largest = kernels_->magnitude_fp32(reinterpret_cast<const float*>(at), count);
  }
  magnitude_ = std::max(magnitude_, largest);
}

/// Whether everything scanned so far can be written in the codec at hand.
bool TensorEncoder::is_packable() const {
  if (header_.codec == TensorCodec::kRaw) return true;
  return magnitude_ < (header_.codec == TensorCodec::kBf16 ? kBf16Overflow : kFp32Infinity);
}

/// Codes of the next elements, and their checksum while they are in the cache.
void TensorEncoder::write_codes(std::size_t count) {
  const std::size_t width = code_bytes(header_.codec, header_.source);
  const std::byte* from = source_ + encoded_ * bytes_of(header_.source);
  std::byte* to = frame_.data() + layout_.codes_at + encoded_ * width;
  if (header_.codec == TensorCodec::kRaw) {
    std::memcpy(to, from, count * width);
  } else if (header_.codec == TensorCodec::kBf16) {
    kernels_->bf16_encode(reinterpret_cast<const float*>(from), count, to);
  } else {
    kernels_->q8_encode(reinterpret_cast<const float*>(from), count,
                        frame_.data() + layout_.scales_at + 2 * (encoded_ / kQ8Block), to);
  }
  codes_crc_ = crc32c({to, count * width}, codes_crc_);
  encoded_ += count;
}

void TensorEncoder::write_header() {
  header_.flags = 0;
  if (magnitude_ >= infinity_of(header_.source)) header_.flags |= kFlagNonFinite;
  if (header_.codec != asked_) header_.flags |= kFlagFallback;
  write_tensor_header(header_, frame_);
}

void TensorEncoder::write_checksum() {
  const std::size_t plane_bytes = layout_.codes_at - layout_.scales_at;
  const std::uint32_t crc = crc32c_combine(crc32c(frame_.subspan(layout_.scales_at, plane_bytes)),
                                           codes_crc_, layout_.codes_bytes);
  std::memcpy(frame_.data() + layout_.checksum_at, &crc, sizeof crc);
}

Result<TensorEncoder> TensorEncoder::begin(const TensorView& x, const EncodeOptions& options,
                                           std::span<std::byte> frame,
                                           const CodecKernels& kernels) {
  LH_ASSIGN(TensorEncoder encoder, prepare(x, options, frame, kernels));
  const std::size_t n = encoder.header_.elements();
  encoder.scan(0, n);
  if (!encoder.is_packable()) {
    const std::uint32_t magnitude = encoder.magnitude_;
    encoder.use(TensorCodec::kRaw);
    encoder.magnitude_ = magnitude;  // that of all elements already
  }
  encoder.write_header();
  if (encoder.done()) encoder.write_checksum();
  return encoder;
}

void TensorEncoder::advance(std::size_t elements) {
  if (done()) return;
  const std::size_t left = header_.elements() - encoded_;
  LH_CHECK(elements % kQ8Block == 0 || elements >= left, "pieces are whole blocks");
  for (std::size_t todo = std::min(elements, left); todo > 0;) {
    const std::size_t count = std::min(todo, kPiece);
    write_codes(count);
    todo -= count;
  }
  if (done()) write_checksum();
}

std::size_t TensorEncoder::ready_bytes() const {
  if (done()) return layout_.frame_bytes;
  return layout_.codes_at + encoded_ * code_bytes(header_.codec, header_.source);
}

/// False as soon as an element does not fit the codec.
bool TensorEncoder::encode_in_one_pass() {
  const std::size_t n = header_.elements();
  while (encoded_ < n) {
    const std::size_t count = std::min(n - encoded_, kPiece);
    scan(encoded_, count);
    if (!is_packable()) return false;
    write_codes(count);
  }
  return true;
}

Result<std::size_t> encode_tensor(const TensorView& x, const EncodeOptions& options,
                                  std::span<std::byte> frame, const CodecKernels& kernels) {
  LH_ASSIGN(TensorEncoder encoder, TensorEncoder::prepare(x, options, frame, kernels));
  if (!encoder.encode_in_one_pass()) {
    encoder.use(TensorCodec::kRaw);
    encoder.encode_in_one_pass();
  }
  encoder.write_header();
  encoder.write_checksum();
  return encoder.frame_bytes();
}

// ---- decoder

Result<TensorDecoder> TensorDecoder::open(std::span<const std::byte> frame,
                                          const TensorTarget& target, const CodecKernels& kernels) {
  LH_CHECK(is_aligned(target.bytes.data(), target.type), "a tensor is aligned to its elements");
  TensorDecoder decoder;
  LH_ASSIGN(decoder.header_, parse_tensor_header(frame));
  const TensorHeader& header = decoder.header_;
  if (header.source != target.type) {
    return failed(fmt::format("a frame of {} arrived where {} is expected", name_of(header.source),
                              name_of(target.type)));
  }
  if (header.elements() * bytes_of(header.source) != target.bytes.size()) {
    return failed(fmt::format("a frame of {} elements arrived where {} are expected",
                              header.elements(), target.bytes.size() / bytes_of(target.type)));
  }
  decoder.layout_ = tensor_layout(header.codec, header.source, header.elements());
  decoder.target_ = target.bytes.data();
  decoder.kernels_ = &kernels;
  return decoder;
}

/// The scale plane with its padding.
void TensorDecoder::read_scales(std::span<const std::byte> frame) {
  const std::byte* at = frame.data() + layout_.scales_at;
  const std::byte* const scales_end = at + layout_.scales_bytes;
  const std::byte* const end = frame.data() + layout_.codes_at;
  crc_ = crc32c({at, end}, crc_);
  bool is_sound = true;
  for (; at < scales_end; at += 2) {
    const std::uint16_t scale = load_scale(at);
    is_sound = is_sound & (scale >= kQ8ScaleMin) & (scale <= kQ8ScaleMax);
  }
  is_sound_ = is_sound && std::all_of(at, end, [](std::byte b) { return b == std::byte{0}; });
  has_scales_ = true;
}

void TensorDecoder::read_codes(const std::byte* frame, std::size_t count) {
  const std::size_t width = code_bytes(header_.codec, header_.source);
  const std::byte* from = frame + layout_.codes_at + decoded_ * width;
  std::byte* to = target_ + decoded_ * bytes_of(header_.source);
  crc_ = crc32c({from, count * width}, crc_);
  bool is_sound = true;
  if (header_.codec == TensorCodec::kRaw) {
    std::memcpy(to, from, count * width);
  } else if (header_.codec == TensorCodec::kBf16) {
    is_sound = kernels_->bf16_decode(from, count, reinterpret_cast<float*>(to)) < kBf16Infinity;
  } else {
    is_sound = kernels_->q8_decode(frame + layout_.scales_at + 2 * (decoded_ / kQ8Block), from,
                                   count, reinterpret_cast<float*>(to));
  }
  is_sound_ = is_sound_ && is_sound;
  decoded_ += count;
}

Result<void> TensorDecoder::advance(std::span<const std::byte> arrived) {
  if (arrived.size() > layout_.frame_bytes) {
    return failed(fmt::format("a tensor frame of {} bytes is followed by {} more",
                              layout_.frame_bytes, arrived.size() - layout_.frame_bytes));
  }
  LH_CHECK(arrived.size() >= arrived_, "what has arrived once stays");
  arrived_ = arrived.size();
  if (is_verified_ || arrived_ < layout_.codes_at) return {};
  if (!has_scales_) read_scales(arrived);

  const std::size_t n = header_.elements();
  const std::size_t code_end = std::min(arrived_, layout_.checksum_at);
  std::size_t complete = (code_end - layout_.codes_at) / code_bytes(header_.codec, header_.source);
  if (complete < n) complete -= complete % kQ8Block;
  while (decoded_ < complete) {
    read_codes(arrived.data(), std::min(complete - decoded_, kPiece));
  }
  if (arrived_ < layout_.frame_bytes) return {};

  std::uint32_t crc;
  std::memcpy(&crc, arrived.data() + layout_.checksum_at, sizeof crc);
  if (crc != crc_) return failed("the checksum of a tensor frame's payload is wrong");
  // Only now, because a damaged frame is better called damaged than impossible.
  if (!is_sound_) {
    return failed(fmt::format("a {} tensor frame holds scales or codes that no encoder writes",
                              name_of(header_.codec)));
  }
  is_verified_ = true;
  return {};
}

Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, const TensorTarget& target,
                                   const CodecKernels& kernels) {
  LH_ASSIGN(TensorDecoder decoder, TensorDecoder::open(frame, target, kernels));
  LH_TRY(decoder.advance(frame));
  if (!decoder.done()) {
    return failed(fmt::format("a tensor frame of {} bytes ends after {}", decoder.frame_bytes(),
                              frame.size()));
  }
  return decoder.header();
}

Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, std::span<float> target,
                                   const CodecKernels& kernels) {
  return decode_tensor(frame, {Precision::kFp32, std::as_writable_bytes(target)}, kernels);
}

}  // namespace longhaul
