#include "kernels/codec/codec_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/codec/tensor_frame.h"

namespace longhaul {
namespace {

std::uint32_t magnitude_of(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}
/// Nearest bf16, ties to even. The carry of the addition is the rounding up.
std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
void store(std::byte* plane, std::size_t i, std::uint16_t bits) {
  std::memcpy(plane + 2 * i, &bits, sizeof bits);
}
std::uint16_t load(const std::byte* plane, std::size_t i) {
  std::uint16_t bits;
  std::memcpy(&bits, plane + 2 * i, sizeof bits);
  return bits;
}

std::uint32_t magnitude_fp32(const float* x, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return largest;
}

std::uint32_t magnitude_16(const std::uint16_t* x, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, std::uint32_t{x[i]} & 0x7fffu);
  return largest;
}

void bf16_encode(const float* x, std::size_t n, std::byte* codes) {
  for (std::size_t i = 0; i < n; ++i) store(codes, i, to_bf16(x[i]));
}

std::uint32_t bf16_decode(const std::byte* codes, std::size_t n, float* x) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t code = load(codes, i);
    largest = std::max(largest, std::uint32_t{code} & 0x7fffu);
    x[i] = from_bf16(code);
  }
  return largest;
}

std::uint32_t q8_scales(const float* x, std::size_t n, std::byte* scales) {
  std::uint32_t largest = 0;
  for (std::size_t first = 0; first < n; first += kQ8Block) {
    const std::uint32_t peak = magnitude_fp32(x + first, std::min(kQ8Block, n - first));
    largest = std::max(largest, peak);
    const std::uint16_t scale = to_bf16(std::bit_cast<float>(peak) / 127.0f);
    store(scales, first / kQ8Block, std::max(scale, kQ8ScaleMin));
  }
  return largest;
}

void q8_encode(const float* x, std::size_t n, const std::byte* scales, std::byte* codes) {
  for (std::size_t i = 0; i < n; ++i) {
    const float inverse = 1.0f / from_bf16(load(scales, i / kQ8Block));
    codes[i] = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(x[i] * inverse)));
  }
}

bool q8_decode(const std::byte* scales, const std::byte* codes, std::size_t n, float* x) {
  bool is_valid = true;
  for (std::size_t i = 0; i < n; ++i) {
    const auto code = static_cast<std::int8_t>(codes[i]);
    is_valid = is_valid && code != -128;
    x[i] = static_cast<float>(code) * from_bf16(load(scales, i / kQ8Block));
  }
  return is_valid;
}

}  // namespace

const CodecKernels& reference_kernels() {
  static constexpr CodecKernels kernels{"reference", magnitude_fp32, magnitude_16, bf16_encode,
                                        bf16_decode, q8_scales,      q8_encode,    q8_decode};
  return kernels;
}

const CodecKernels& best_kernels() {
  static const CodecKernels& best =
      avx2_kernels() != nullptr ? *avx2_kernels() : reference_kernels();
  return best;
}

}  // namespace longhaul
