#include "kernels/codec/fixed_frame.h"

#include <algorithm>
#include <limits>

namespace longhaul {

bool is_unpackable_mark(std::span<const std::byte> frame) {
  return std::ranges::all_of(frame.first(kTensorHeaderBytes),
                             [](std::byte byte) { return byte == std::byte{0}; });
}

Result<void> encode_fixed_frame(std::span<const float> x, EncodeOptions options,
                                std::span<std::byte> frame) {
  if (x.empty() || x.size() > kTensorElementsMax) {
    return invalid("a tensor frame holds 1 to 2^32 - 1 elements");
  }
  LH_CHECK(frame.size() == tensor_frame_bytes(options.codec, Precision::kFp32, x.size()),
           "the frame was made for this tensor");
  options.has_fallback = false;
  LH_ASSIGN(const std::size_t bytes, encode_tensor(flat_view(x), options, frame));
  if (bytes == 0) std::ranges::fill(frame, std::byte{0});
  return {};
}

Result<void> decode_fixed_frame(std::span<const std::byte> frame, std::span<float> x) {
  if (frame.size() >= kTensorHeaderBytes && is_unpackable_mark(frame)) {
    std::ranges::fill(x, std::numeric_limits<float>::quiet_NaN());
    return {};
  }
  LH_TRY(decode_tensor(frame, x));
  return {};
}

}  // namespace longhaul
