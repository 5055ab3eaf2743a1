// What the codecs have in common and what tells them apart: one row a codec. The format itself is
// described in kernels/codec/tensor_frame.h.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/codec/tensor_frame.h"

namespace longhaul {

// "Magnitude" is a float's bit pattern without its sign: it orders as absolute values do, with Inf
// and then NaN above all numbers.
inline constexpr std::uint32_t kFp32Infinity = 0x7f800000u;
inline constexpr std::uint32_t kBf16Infinity = 0x7f80u;
inline constexpr std::uint32_t kFp16Infinity = 0x7c00u;

/// The numbers that a block's codes stand for: q s, for whole q from -largest to largest, or to
/// largest - 1 where the scale has the peak's sign. block 0: the codec has no scales.
struct CodecGrid {
  int bits = 0;
  int block = 0;
  int largest = 0;
  bool has_signed_scale = false;

  constexpr int code_max() const { return has_signed_scale ? largest - 1 : largest; }
  bool operator==(const CodecGrid&) const = default;
};

struct CodecTraits {
  TensorCodec codec;
  std::string_view name;
  CodecGrid grid = {};
  /// The first fp32 magnitude that the codec cannot hold (where it rotates: of rotated numbers).
  std::uint32_t magnitude_limit = kFp32Infinity;
  /// The largest magnitude of a scale, bf16.
  std::uint16_t scale_max = 0;
  bool is_rotated = false;  // by the Hadamard transform
};

/// Smallest magnitudes of a scale. 2^-125: its reciprocal is exact and normal, and inputs below the
/// normal range (under 2^-126) then round to code 0 whether or not the processor flushes them to
/// zero. 2^-109: the same for codes of 16 more bits.
inline constexpr std::uint16_t kScaleMin = 0x0100;
inline constexpr std::uint16_t kStochasticScaleMin = 0x0900;

constexpr std::uint16_t bf16_rounded_up(float magnitude) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(magnitude) + 0xffffu) >> 16);
}
/// A block codec of numbers below 2^127, so that whatever a frame holds decodes to finite ones.
constexpr CodecTraits block_codec(TensorCodec codec, std::string_view name, CodecGrid grid) {
  const auto scale_max = bf16_rounded_up(0x1p127f / static_cast<float>(grid.largest));
  return {codec, name, grid, std::bit_cast<std::uint32_t>(0x1p127f), scale_max};
}
/// A rotation adds up 64 numbers before it divides by 8, so its limit, of rotated numbers, is
/// lower.
constexpr CodecTraits rotated_codec(TensorCodec codec, std::string_view name, CodecGrid grid) {
  const auto scale_max = bf16_rounded_up(0x1p118f / static_cast<float>(grid.largest));
  return {codec, name, grid, std::bit_cast<std::uint32_t>(0x1p118f), scale_max, true};
}

inline constexpr std::array<CodecTraits, kTensorCodecs.size()> kCodecTraits = {{
    {.codec = TensorCodec::kRaw, .name = "raw", .magnitude_limit = 0xffffffffu},
    // Halfway above the largest: the first number that rounds to infinity.
    {.codec = TensorCodec::kBf16, .name = "bf16", .magnitude_limit = 0x7f7f8000u},
    block_codec(TensorCodec::kQ8, "q8", {8, 64, 127, false}),
    block_codec(TensorCodec::kQ6, "q6", {6, 64, 31, false}),
    block_codec(TensorCodec::kQ4, "q4", {4, 32, 8, true}),
    block_codec(TensorCodec::kQ3, "q3", {3, 32, 4, true}),
    block_codec(TensorCodec::kQ2, "q2", {2, 32, 2, true}),
    rotated_codec(TensorCodec::kHadamardQ4, "hadamard-q4", {4, 64, 8, true}),
    {.codec = TensorCodec::kF16,
     .name = "f16",
     .magnitude_limit = std::bit_cast<std::uint32_t>(65520.0f)},
    block_codec(TensorCodec::kQ4Symmetric, "q4-symmetric", {4, 32, 7, false}),
}};

/// Null for a number that no codec has.
constexpr const CodecTraits* find_traits(TensorCodec codec) {
  for (const CodecTraits& traits : kCodecTraits) {
    if (traits.codec == codec) return &traits;
  }
  return nullptr;
}
constexpr const CodecTraits& traits_of(TensorCodec codec) {
  return *find_traits(codec);
}

}  // namespace longhaul
