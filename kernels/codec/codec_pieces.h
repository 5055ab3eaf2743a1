// How tensors are cut while they are encoded and decoded; for tensor_encoder.cc and
// tensor_decoder.cc only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/codec/codec_kernels.h"

namespace longhaul {

// Elements that are scanned, encoded and taken up before the next ones are touched: with what is
// staged on the stack they stay in the first-level cache.
inline constexpr std::size_t kStage = 2048;
// Elements whose codes are checksummed together: for most codecs whole rounds of the CRC's loop.
inline constexpr std::size_t kPiece = 3 * kStage;
static_assert(kStage % kCodecPiece == 0, "pieces are whole blocks");

/// A rotated block is whole, wherever the tensor ends.
inline std::size_t whole_blocks(const CodecTraits& traits, std::size_t elements) {
  if (!traits.is_rotated) return elements;
  return (elements + kCodecPiece - 1) / kCodecPiece * kCodecPiece;
}

/// Decodes n elements from their planes into x. False if there was a code that no encoder writes.
inline bool decode_codes(const CodecKernels& kernels, const CodecTraits& traits,
                         const NoiseKey& key, const std::byte* scales, const std::byte* codes,
                         std::size_t n, float* x) {
  if (traits.codec == TensorCodec::kBf16) return kernels.bf16_decode(codes, n, x) < kBf16Infinity;
  if (traits.codec == TensorCodec::kF16) return kernels.f16_decode(codes, n, x) < kFp16Infinity;
  const BlockKernels& block = kernels.blocks[static_cast<std::size_t>(traits.codec)];
  if (!traits.is_rotated) return block.decode(scales, codes, n, x);
  alignas(64) float room[kStage];
  const bool is_sound = block.decode(scales, codes, whole_blocks(traits, n), room);
  kernels.rotate_back(room, n, key.signs, x);
  return is_sound;
}

/// Whether a frame of this kind writes its sample's history.
inline bool changes_history(const std::optional<HistoryHeader>& history) {
  return history && history->kind != HistoryKind::kFull;
}

}  // namespace longhaul
