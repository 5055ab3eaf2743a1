#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/codec/codec_pieces.h"
#include "kernels/codec/crc32c.h"
#include "kernels/codec/tensor_codec.h"

namespace longhaul {

Result<TensorDecoder> TensorDecoder::open(std::span<const std::byte> frame,
                                          const TensorTarget& target, HistorySpan history,
                                          const CodecKernels& kernels) {
  LH_CHECK(reinterpret_cast<std::uintptr_t>(target.bytes.data()) % bytes_of(target.type) == 0,
           "a tensor is aligned to its elements");
  TensorDecoder decoder;
  LH_ASSIGN(decoder.header_, parse_tensor_header(frame));
  const TensorHeader& header = decoder.header_;
  if (header.source != target.type) {
    return failed(fmt::format("a frame of {} arrived where {} is expected", name_of(header.source),
                              name_of(target.type)));
  }
  const std::size_t expected = target.bytes.size() / bytes_of(target.type);
  const bool is_empty = header.history && header.elements() == 0;
  if (header.elements() != expected && !is_empty) {
    return failed(fmt::format("a frame of {} elements arrived where {} are expected",
                              header.elements(), expected));
  }
  if (changes_history(header.history) && !is_empty && history.size() != expected) {
    return failed(
        fmt::format("a frame that changes a history of {} elements arrived where there "
                    "is one of {}",
                    expected, history.size()));
  }
  decoder.traits_ = &traits_of(header.codec);
  decoder.layout_ =
      tensor_layout(header.codec, header.source, header.elements(), header.history.has_value());
  decoder.key_ = noise_key(header.seed, header.step, header.tensor_id);
  decoder.target_ = target.bytes;
  if (changes_history(header.history)) decoder.history_ = history;
  decoder.kernels_ = &kernels;
  return decoder;
}

/// The scale plane with its padding.
void TensorDecoder::read_scales(std::span<const std::byte> frame) {
  const std::byte* at = frame.data() + layout_.scales_at;
  const std::byte* const scales_end = at + layout_.scales_bytes;
  const std::byte* const end = frame.data() + layout_.codes_at;
  crc_ = crc32c({at, end}, crc_);
  const std::uint16_t magnitude_mask = traits_->grid.has_signed_scale ? 0x7fff : 0xffff;
  bool is_sound = true;
  for (; at < scales_end; at += 2) {
    std::uint16_t scale;
    std::memcpy(&scale, at, sizeof scale);
    const auto magnitude = static_cast<std::uint16_t>(scale & magnitude_mask);
    is_sound = is_sound & (magnitude >= kScaleMin) & (magnitude <= traits_->scale_max);
  }
  is_sound_ = is_sound && std::all_of(at, end, [](std::byte b) { return b == std::byte{0}; });
  has_scales_ = true;
}

/// The next elements, at most kStage. False if the codes are not such as an encoder writes.
bool TensorDecoder::decode_piece(const std::byte* frame, std::size_t count) {
  const auto block = static_cast<std::size_t>(std::max(traits_->grid.block, 1));
  const std::byte* scales = frame + layout_.scales_at + 2 * (decoded_ / block);
  const std::byte* codes =
      frame + layout_.codes_at + code_bytes(header_.codec, header_.source, decoded_);
  std::byte* to = target_.data() + decoded_ * bytes_of(header_.source);
  bool is_sound = true;
  if (header_.codec == TensorCodec::kRaw) {
    std::memcpy(to, codes, count * bytes_of(header_.source));
  } else {
    is_sound =
        decode_codes(*kernels_, *traits_, key_, scales, codes, count, reinterpret_cast<float*>(to));
  }
  if (history_.empty()) return is_sound;
  std::uint16_t* history = history_.data() + decoded_;
  if (header_.history->kind != HistoryKind::kDelta) std::fill_n(history, count, std::uint16_t{0});
  const std::uint32_t largest = kernels_->add_history(reinterpret_cast<float*>(to), count, history);
  history_crc_ = crc32c(std::as_bytes(std::span(history, count)), history_crc_);
  return is_sound && largest < kBf16Infinity;
}

/// The next elements, at most kPiece.
void TensorDecoder::read_codes(const std::byte* frame, std::size_t count) {
  const std::byte* codes = frame + layout_.codes_at;
  const auto bytes_before = [&](std::size_t elements) {
    return code_bytes(header_.codec, header_.source, elements);
  };
  crc_ = crc32c({codes + bytes_before(decoded_), codes + bytes_before(decoded_ + count)}, crc_);
  for (const std::size_t end = decoded_ + count; decoded_ < end;) {
    const std::size_t here = std::min(end - decoded_, kStage);
    is_sound_ = decode_piece(frame, here) && is_sound_;
    decoded_ += here;
  }
}

/// A frame of no elements that stands for a whole tensor.
void TensorDecoder::fill_empty_frame() {
  const bool is_padding = (header_.flags & (kFlagNonFinite | kFlagFallback)) == 0;
  const float value = is_padding ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  auto* const to = reinterpret_cast<float*>(target_.data());
  std::fill_n(to, target_.size() / sizeof(float), value);
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
  std::size_t complete = n;
  if (arrived_ < layout_.checksum_at) {
    const std::size_t piece_bytes = code_bytes(header_.codec, header_.source, kCodecPiece);
    complete = (arrived_ - layout_.codes_at) / piece_bytes * kCodecPiece;
  }
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
  if (n == 0 && header_.history) fill_empty_frame();
  is_verified_ = true;
  return {};
}

Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, const TensorTarget& target,
                                   HistorySpan history, const CodecKernels& kernels) {
  LH_ASSIGN(TensorDecoder decoder, TensorDecoder::open(frame, target, history, kernels));
  LH_TRY(decoder.advance(frame));
  if (!decoder.done()) {
    return failed(fmt::format("a tensor frame of {} bytes ends after {}", decoder.frame_bytes(),
                              frame.size()));
  }
  return decoder.header();
}

Result<TensorHeader> decode_tensor(std::span<const std::byte> frame, std::span<float> target,
                                   HistorySpan history, const CodecKernels& kernels) {
  return decode_tensor(frame, {Precision::kFp32, std::as_writable_bytes(target)}, history, kernels);
}

}  // namespace longhaul
