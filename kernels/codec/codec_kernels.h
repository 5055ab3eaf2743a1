// The inner loops of the codecs: a plain version that reads like the formula and an AVX2 version,
// with identical results to the last bit. Which one runs is decided by the processor at hand, so
// that one binary serves all nodes.
//
// Kernels do no checks: the caller gives pointers to n elements and to their planes. Planes are
// byte pointers because a frame may lie at any address. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longhaul {

/// Smallest scale. Its reciprocal is exact and normal, and inputs below the normal range (under
/// 2^-126) then round to code 0 whether or not the processor flushes them to zero.
inline constexpr std::uint16_t kQ8ScaleMin = 0x0100;  // bf16 2^-125
/// Scale of the largest float: FLT_MAX / 127 = 1.00787 x 2^121, rounded to 129/128 x 2^121.
inline constexpr std::uint16_t kQ8ScaleMax = 0x7C01;

// "Magnitude" is a float's bit pattern without its sign: it orders as absolute values do, with Inf
// and then NaN above all numbers.
inline constexpr std::uint32_t kFp32Infinity = 0x7f800000u;
/// The first fp32 magnitude that rounds to bf16 infinity: halfway above bf16's largest, 0x7f7f.
inline constexpr std::uint32_t kBf16Overflow = 0x7f7f8000u;
inline constexpr std::uint32_t kBf16Infinity = 0x7f80u;
inline constexpr std::uint32_t kFp16Infinity = 0x7c00u;

struct CodecKernels {
  const char* name;

  /// Largest magnitude of n elements; 0 if there are none.
  std::uint32_t (*magnitude_fp32)(const float* x, std::size_t n);
  std::uint32_t (*magnitude_16)(const std::uint16_t* x, std::size_t n);

  /// Codes of elements below kBf16Overflow in magnitude.
  void (*bf16_encode)(const float* x, std::size_t n, std::byte* codes);
  /// Returns the codes' largest magnitude.
  std::uint32_t (*bf16_decode)(const std::byte* codes, std::size_t n, float* x);

  /// Scales of ceil(n / 64) blocks. Returns the elements' largest magnitude; from kFp32Infinity on
  /// the scales mean nothing.
  std::uint32_t (*q8_scales)(const float* x, std::size_t n, std::byte* scales);
  /// Codes of finite elements under their own scales.
  void (*q8_encode)(const float* x, std::size_t n, const std::byte* scales, std::byte* codes);
  /// False if there was a code -128, which no encoder writes.
  bool (*q8_decode)(const std::byte* scales, const std::byte* codes, std::size_t n, float* x);
};

const CodecKernels& reference_kernels();
/// Null where the processor or the compiler's target has no AVX2.
const CodecKernels* avx2_kernels();
/// The fastest that this processor runs.
const CodecKernels& best_kernels();

}  // namespace longhaul
