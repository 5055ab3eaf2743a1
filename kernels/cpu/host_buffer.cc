#include "kernels/cpu/host_buffer.h"

#include <fmt/core.h>

#include <cstring>
#include <new>

namespace longhaul {
namespace {

/// Sizes beyond any machine's memory are refused here, the same under every allocator.
constexpr std::size_t kHostBufferMax = std::size_t{1} << 38;

}  // namespace

Result<ComputeBuffer> allocate_host_buffer(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  void* address =
      bytes <= kHostBufferMax ? ::operator new(bytes, kAlignment, std::nothrow) : nullptr;
  if (address == nullptr) return failed(fmt::format("no memory for a buffer of {} bytes", bytes));
  std::memset(address, 0, bytes);
  return ComputeBuffer(address, bytes, [](void* memory) { ::operator delete(memory, kAlignment); });
}

}  // namespace longhaul
