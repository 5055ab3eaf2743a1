#include "executor/pipeline/boundary_format.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/codec/fixed_frame.h"

namespace longhaul {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

Result<void> PlainBoundary::encode(const BoundaryTensor&, std::span<const float> tensor,
                                   std::span<std::byte> wire) {
  LH_CHECK(wire.size() == tensor.size() * element_bytes_, "the buffer was made for this tensor");
  if (element_bytes_ == sizeof(float)) {
    std::ranges::copy(std::as_bytes(tensor), wire.begin());
    return {};
  }
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(tensor[i]) >> 16);
    std::memcpy(wire.data() + 2 * i, &upper, sizeof upper);
  }
  return {};
}

Result<void> PlainBoundary::decode(const BoundaryTensor&, std::span<const std::byte> wire,
                                   std::span<float> tensor) {
  LH_CHECK(wire.size() == tensor.size() * element_bytes_, "the buffer was made for this tensor");
  if (element_bytes_ == sizeof(float)) {
    std::ranges::copy(wire, std::as_writable_bytes(tensor).begin());
    return {};
  }
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, wire.data() + 2 * i, sizeof upper);
    tensor[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
  }
  return {};
}

std::size_t CodecBoundary::wire_bytes(const BoundaryTensor& which, std::size_t elements) const {
  if (codec(which) == Codec::kNone) return plain_.wire_bytes(which, elements);
  return tensor_frame_bytes(tensor_codec(codec(which)), Precision::kFp32, elements);
}

Result<void> CodecBoundary::encode(const BoundaryTensor& which, std::span<const float> tensor,
                                   std::span<std::byte> wire) {
  if (codec(which) == Codec::kNone) return plain_.encode(which, tensor, wire);
  return encode_fixed_frame(tensor, tensor_codec(codec(which)), wire);
}

Result<void> CodecBoundary::decode(const BoundaryTensor& which, std::span<const std::byte> wire,
                                   std::span<float> tensor) {
  if (codec(which) == Codec::kNone) return plain_.decode(which, wire, tensor);
  return decode_fixed_frame(wire, tensor);
}

}  // namespace longhaul
