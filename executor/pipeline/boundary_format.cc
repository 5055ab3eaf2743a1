#include "executor/pipeline/boundary_format.h"

#include <algorithm>
#include <bit>

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

}  // namespace longhaul
