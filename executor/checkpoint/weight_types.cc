#include "executor/checkpoint/weight_types.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace longhaul {
namespace {

constexpr float kHalfMax = 65504;
/// The first magnitude that rounds to infinity: halfway from the largest to 2^16.
constexpr float kHalfOverflow = 65520;

float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1f;
  const std::uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero, or mantissa x 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::uint16_t half_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= kHalfOverflow) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24, rounded by the addition
    const float shifted = magnitude + 0.5f;  // ulp 2^-24
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) -
                                             std::bit_cast<std::uint32_t>(0.5f));
  }
  const std::uint32_t rest = bits & 0x7fffffff;
  const std::uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
  return sign | static_cast<std::uint16_t>((rounded >> 13) - (std::uint32_t{127 - 15} << 10));
}

}  // namespace

std::string_view dtype_of(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "float32";
    case TensorType::kBf16:
      return "bfloat16";
    case TensorType::kF16:
      return "float16";
    default:
      return "";
  }
}

std::optional<TensorType> type_of_dtype(std::string_view dtype) {
  for (const TensorType type : {TensorType::kF32, TensorType::kBf16, TensorType::kF16}) {
    if (dtype == dtype_of(type)) return type;
  }
  return std::nullopt;
}

void widen(TensorType type, std::span<const std::byte> bytes, std::span<float> into) {
  LH_CHECK(bytes.size() == into.size() * bytes_of(type), "as many bytes as elements need");
  if (type == TensorType::kF32) {
    std::memcpy(into.data(), bytes.data(), bytes.size());
    return;
  }
  const auto convert = type == TensorType::kF16 ? float_of_half : float_of_bf16;
  for (std::size_t i = 0; i < into.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    into[i] = convert(bits);
  }
}

Result<std::vector<std::byte>> narrow(TensorType type, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * bytes_of(type));
  if (type == TensorType::kF32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  const auto convert = type == TensorType::kF16 ? half_of_float : bf16_of_float;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    if (type == TensorType::kF16 && std::isfinite(value) && std::abs(value) >= kHalfOverflow) {
      return invalid(fmt::format("float16 ends at {} and cannot hold {}", kHalfMax, value),
                     "write float32 or bfloat16");
    }
    const std::uint16_t bits = convert(value);
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof bits);
  }
  return bytes;
}

}  // namespace longhaul
