// The reference. It reads like the formulas of kernels/codec/tensor_frame.h; the fast kernels hand
// it what is left over of their groups.
#include "kernels/codec/codec_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace longhaul {
namespace {

constexpr std::size_t kUnit = 32;  // codes that are packed together

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

// ---- 16 bits

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

/// Nearest fp16, ties to even, of |x| < 65520.
std::uint16_t to_f16(float x) {
  const auto sign = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) >> 16) & 0x8000u);
  const std::uint32_t magnitude = magnitude_of(x);
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14f)) {
    // Below fp16's normal range its numbers are the multiples of 2^-24.
    const float steps = std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24f);
    return sign | static_cast<std::uint16_t>(steps);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
  return sign | static_cast<std::uint16_t>((rounded >> 13) - (112u << 10));
}

float from_f16(std::uint16_t code) {
  const std::uint32_t sign = (std::uint32_t{code} & 0x8000u) << 16;
  const std::uint32_t magnitude = std::uint32_t{code} & 0x7fffu;
  const float value = magnitude < 0x400u ? static_cast<float>(magnitude) * 0x1p-24f
                                         : std::bit_cast<float>((magnitude << 13) + (112u << 23));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

void f16_encode(const float* x, std::size_t n, std::byte* codes) {
  for (std::size_t i = 0; i < n; ++i) store(codes, i, to_f16(x[i]));
}

std::uint32_t f16_decode(const std::byte* codes, std::size_t n, float* x) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t code = load(codes, i);
    largest = std::max(largest, std::uint32_t{code} & 0x7fffu);
    x[i] = from_f16(code);
  }
  return largest;
}

// ---- blocks

/// The element with the largest magnitude; of two the negative one.
float peak_of(const float* x, std::size_t n) {
  float peak = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_larger = magnitude_of(x[i]) > magnitude_of(peak);
    const bool is_tie = magnitude_of(x[i]) == magnitude_of(peak) && std::signbit(x[i]);
    if (is_larger || is_tie) peak = x[i];
  }
  return peak;
}

template <CodecGrid kGrid>
std::uint16_t scale_of(float peak, Rounding rounding) {
  const float exact = std::bit_cast<float>(magnitude_of(peak)) / static_cast<float>(kGrid.largest);
  const std::uint16_t scale = rounding == Rounding::kNearest
                                  ? std::max(to_bf16(exact), kScaleMin)
                                  : std::max(bf16_rounded_up(exact), kStochasticScaleMin);
  const bool is_negative = kGrid.has_signed_scale && !std::signbit(peak);
  return is_negative ? scale | 0x8000u : scale;
}

template <CodecGrid kGrid>
std::uint32_t scales(const float* x, std::size_t n, Rounding rounding, std::byte* plane) {
  std::uint32_t largest = 0;
  for (std::size_t first = 0; first < n; first += kGrid.block) {
    const float peak = peak_of(x + first, std::min<std::size_t>(kGrid.block, n - first));
    largest = std::max(largest, magnitude_of(peak));
    store(plane, first / kGrid.block, scale_of<kGrid>(peak, rounding));
  }
  return largest;
}

template <CodecGrid kGrid>
int code_of(float x, float inverse) {
  return std::min(static_cast<int>(std::nearbyint(x * inverse)), kGrid.code_max());
}

template <CodecGrid kGrid>
int stochastic_code_of(float x, float inverse, std::uint32_t noise) {
  const int exact = static_cast<int>(std::nearbyint(x * (inverse * 65536.0f)));
  const int limited = std::clamp(exact, -kGrid.largest * 65536, kGrid.code_max() * 65536);
  return (limited + static_cast<int>(noise)) >> 16;
}

/// The bits of a unit's codes from `shift` on, `width` of each.
void pack_plane(const std::uint8_t* codes, int shift, int width, std::byte* plane) {
  const auto bytes = static_cast<std::size_t>(4 * width);
  std::fill_n(plane, bytes, std::byte{0});
  for (std::size_t i = 0; i < kUnit; ++i) {
    const int bits = (codes[i] >> shift) & ((1 << width) - 1);
    const std::size_t at = width == 1 ? i / 8 : i % bytes;
    const std::size_t place = width == 1 ? i % 8 : static_cast<std::size_t>(width) * (i / bytes);
    plane[at] |= static_cast<std::byte>(bits << place);
  }
}
void unpack_plane(const std::byte* plane, int shift, int width, std::uint8_t* codes) {
  const auto bytes = static_cast<std::size_t>(4 * width);
  for (std::size_t i = 0; i < kUnit; ++i) {
    const std::size_t at = width == 1 ? i / 8 : i % bytes;
    const std::size_t place = width == 1 ? i % 8 : static_cast<std::size_t>(width) * (i / bytes);
    const int bits = (static_cast<int>(plane[at]) >> place) & ((1 << width) - 1);
    codes[i] = static_cast<std::uint8_t>(codes[i] | (bits << shift));
  }
}

/// Bits of the first plane of a unit; what a code has beyond them is in the second.
constexpr int low_bits(int bits) {
  return bits == 6 ? 4 : std::min(bits, bits == 3 ? 2 : 8);
}

/// One unit's codes to their place, of which n are of the tensor.
template <CodecGrid kGrid>
void store_unit(const std::uint8_t* unit, std::size_t n, std::byte* to) {
  if constexpr (kGrid.bits == 8) {
    std::memcpy(to, unit, n);
  } else {
    constexpr int kLow = low_bits(kGrid.bits);
    pack_plane(unit, 0, kLow, to);
    if constexpr (kGrid.bits > kLow) pack_plane(unit, kLow, kGrid.bits - kLow, to + 4 * kLow);
  }
}

template <CodecGrid kGrid, class CodeOf>
void encode_units(std::size_t n, std::byte* codes, const CodeOf& code_at) {
  // Whole blocks, with codes of 0 beyond n.
  const std::size_t end = (n + kGrid.block - 1) / kGrid.block * kGrid.block;
  for (std::size_t first = 0; first < end; first += kUnit) {
    std::array<std::uint8_t, kUnit> unit{};
    const std::size_t here = first < n ? std::min(kUnit, n - first) : 0;
    for (std::size_t i = 0; i < here; ++i) {
      unit[i] = static_cast<std::uint8_t>(code_at(first + i));
    }
    store_unit<kGrid>(unit.data(), here, codes + first * kGrid.bits / 8);
  }
}

template <CodecGrid kGrid>
void encode(const float* x, std::size_t n, const std::byte* plane, std::byte* codes) {
  encode_units<kGrid>(n, codes, [&](std::size_t i) {
    return code_of<kGrid>(x[i], 1.0f / from_bf16(load(plane, i / kGrid.block)));
  });
}

template <CodecGrid kGrid>
void encode_stochastic(const float* x, std::size_t n, const std::byte* plane, const NoiseKey& key,
                       std::size_t first, std::byte* codes) {
  encode_units<kGrid>(n, codes, [&](std::size_t i) {
    return stochastic_code_of<kGrid>(x[i], 1.0f / from_bf16(load(plane, i / kGrid.block)),
                                     noise_of(key, first + i));
  });
}

template <CodecGrid kGrid>
bool decode(const std::byte* plane, const std::byte* codes, std::size_t n, float* x) {
  bool is_valid = true;
  const std::size_t end = (n + kGrid.block - 1) / kGrid.block * kGrid.block;
  for (std::size_t first = 0; first < end; first += kUnit) {
    const std::size_t here = first < n ? std::min(kUnit, n - first) : 0;
    std::array<std::uint8_t, kUnit> unit{};
    const std::byte* from = codes + first * kGrid.bits / 8;
    if constexpr (kGrid.bits == 8) {
      std::memcpy(unit.data(), from, here);
    } else {
      constexpr int kLow = low_bits(kGrid.bits);
      unpack_plane(from, 0, kLow, unit.data());
      if constexpr (kGrid.bits > kLow) {
        unpack_plane(from + 4 * kLow, kLow, kGrid.bits - kLow, unit.data());
      }
    }
    for (std::size_t i = 0; i < kUnit; ++i) {
      constexpr int kSign = 1 << (kGrid.bits - 1);
      const int code = (unit[i] ^ kSign) - kSign;
      is_valid = is_valid && code >= -kGrid.largest && (i < here || code == 0);
      if (i < here) {
        x[first + i] = static_cast<float>(code) * from_bf16(load(plane, (first + i) / kGrid.block));
      }
    }
  }
  return is_valid;
}

// ---- rotation and history

constexpr std::size_t kRotated = 64;

/// The Walsh-Hadamard transform, then over 8: its own inverse.
void transform(float* y) {
  for (std::size_t half = 1; half < kRotated; half *= 2) {
    for (std::size_t i = 0; i < kRotated; ++i) {
      if ((i & half) != 0) continue;
      const float a = y[i], b = y[i + half];
      y[i] = a + b;
      y[i + half] = a - b;
    }
  }
  for (std::size_t i = 0; i < kRotated; ++i) y[i] *= 0.125f;
}
float with_sign(float x, std::uint64_t signs, std::size_t i) {
  const auto flip = static_cast<std::uint32_t>((signs >> i) & 1) << 31;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ flip);
}

void rotate(const float* x, std::size_t n, std::uint64_t signs, float* y) {
  for (std::size_t first = 0; first < n; first += kRotated) {
    for (std::size_t i = 0; i < kRotated; ++i) {
      y[first + i] = with_sign(first + i < n ? x[first + i] : 0.0f, signs, i);
    }
    transform(y + first);
  }
}

void rotate_back(const float* y, std::size_t n, std::uint64_t signs, float* x) {
  for (std::size_t first = 0; first < n; first += kRotated) {
    std::array<float, kRotated> block;
    std::copy_n(y + first, kRotated, block.data());
    transform(block.data());
    for (std::size_t i = 0; i < std::min(kRotated, n - first); ++i) {
      x[first + i] = with_sign(block[i], signs, i);
    }
  }
}

void subtract_history(const float* x, const std::uint16_t* history, std::size_t n, float* d) {
  for (std::size_t i = 0; i < n; ++i) d[i] = x[i] - from_bf16(history[i]);
}

std::uint32_t add_history(float* y, std::size_t n, std::uint16_t* history) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float sum = from_bf16(history[i]) + y[i];
    const bool is_tiny = magnitude_of(sum) < 0x00800000u;
    history[i] = is_tiny ? std::uint16_t{0} : to_bf16(sum);
    largest = std::max(largest, std::uint32_t{history[i]} & 0x7fffu);
    y[i] = from_bf16(history[i]);
  }
  return largest;
}

struct Maker {
  template <CodecGrid kGrid>
  constexpr BlockKernels operator()() const {
    return {scales<kGrid>, encode<kGrid>, encode_stochastic<kGrid>,
            decode<kGrid>, nullptr,       nullptr};
  }
};

}  // namespace

const CodecKernels& reference_kernels() {
  static constexpr CodecKernels kernels{
      .name = "reference",
      .magnitude_fp32 = magnitude_fp32,
      .magnitude_16 = magnitude_16,
      .bf16_encode = bf16_encode,
      .f16_encode = f16_encode,
      .bf16_decode = bf16_decode,
      .f16_decode = f16_decode,
      .rotate = rotate,
      .rotate_back = rotate_back,
      .subtract_history = subtract_history,
      .add_history = add_history,
      .blocks = block_kernels(Maker{}),
  };
  return kernels;
}

std::span<const CodecKernels* const> all_kernels() {
  struct Found {
    std::array<const CodecKernels*, 3> kernels{&reference_kernels()};
    std::size_t count = 1;
  };
  static const Found found = [] {
    Found all;
    for (const CodecKernels* kernels : {avx2_kernels(), avx512_kernels()}) {
      if (kernels != nullptr) all.kernels[all.count++] = kernels;
    }
    return all;
  }();
  return std::span(found.kernels).first(found.count);
}

const CodecKernels& best_kernels() {
  static const CodecKernels& best = *all_kernels().back();
  return best;
}

}  // namespace longhaul
