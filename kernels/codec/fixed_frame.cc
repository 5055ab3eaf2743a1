#include "kernels/codec/fixed_frame.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/codec/tensor_codec.h"

namespace longhaul {

Result<void> encode_fixed_frame(std::span<const float> x, TensorCodec codec,
                                std::span<std::byte> frame) {
  if (x.empty() || x.size() > kTensorElementsMax) {
    return invalid("a tensor frame holds 1 to 2^32 - 1 elements");
  }
  LH_CHECK(frame.size() == tensor_frame_bytes(codec, Precision::kFp32, x.size()),
           "the frame was made for this tensor");
  // The encoder wants room for its fallback. The memory is kept: a thread encodes again and again.
  static thread_local std::vector<std::byte> room;
  room.resize(std::max(room.size(), tensor_frame_capacity(codec, Precision::kFp32, x.size())));
  LH_TRY(encode_tensor(flat_view(x), {.codec = codec}, room));
  LH_ASSIGN(const TensorHeader header, parse_tensor_header(room));
  if ((header.flags & kFlagFallback) != 0) {
    std::ranges::fill(frame, std::byte{0});
  } else {
    std::copy_n(room.begin(), frame.size(), frame.begin());
  }
  return {};
}

Result<void> decode_fixed_frame(std::span<const std::byte> frame, std::span<float> x) {
  if (frame.size() >= kTensorHeaderBytes &&
      std::ranges::all_of(frame.first(kTensorHeaderBytes),
                          [](std::byte byte) { return byte == std::byte{0}; })) {
    std::ranges::fill(x, std::numeric_limits<float>::quiet_NaN());
    return {};
  }
  LH_TRY(decode_tensor(frame, x));
  return {};
}

}  // namespace longhaul
