// fp32 numbers rounded to bf16, as VCVTNEPS2BF16 does it: nearest, ties to even; what is smaller
// than 2^-126 counts as zero; NaN stays NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/isa.h"

namespace longhaul {

/// An fp32 number whose lower 16 bits are zero.
LH_ALWAYS_INLINE float round_to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  rounded = magnitude < 0x00800000u ? bits & 0x80000000u : rounded;
  rounded = magnitude > 0x7f800000u ? bits | 0x00400000u : rounded;
  return std::bit_cast<float>(rounded & 0xffff0000u);
}

/// All of them, in place.
void round_to_bf16(std::span<float> values);

}  // namespace longhaul
