#include "executor/pipeline/boundary_format.h"

#include <algorithm>
#include <bit>

#include "kernels/codec/fixed_frame.h"

namespace longhaul {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

Result<void> Fp32Boundary::encode(const BoundaryTensor&, std::span<const float> tensor,
                                  std::span<std::byte> wire) {
  LH_CHECK(wire.size() == tensor.size_bytes(), "the wire buffer was made for this tensor");
  std::ranges::copy(std::as_bytes(tensor), wire.begin());
  return {};
}

Result<void> Fp32Boundary::decode(const BoundaryTensor&, std::span<const std::byte> wire,
                                  std::span<float> tensor) {
  LH_CHECK(wire.size() == tensor.size_bytes(), "the wire buffer was made for this tensor");
  std::ranges::copy(wire, std::as_writable_bytes(tensor).begin());
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
