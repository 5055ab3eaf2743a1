// A tensor frame whose size is known before: what messages between ranks need, whose receiver posts
// a buffer of exactly its size.
//
// tensor_codec.h falls back to a longer RAW frame for a tensor that the codec cannot hold (a NaN,
// an infinity, a number too large). Here such a tensor is a frame of zero bytes, which decodes to
// NaN everywhere: the receiver's step is then not finite and is skipped, as it would have been.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"
#include "kernels/codec/tensor_codec.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {

/// Whether these bytes, a frame's first kTensorHeaderBytes or more, begin with the mark of a tensor
/// that its codec cannot hold: zeros in place of a header.
bool is_unpackable_mark(std::span<const std::byte> frame);

/// `frame` has tensor_frame_bytes(codec, fp32, x.size()) bytes. The options have no history, and
/// their fallback is not looked at. Error (kInvalid): x is empty or has more than
/// kTensorElementsMax elements.
Result<void> encode_fixed_frame(std::span<const float> x, EncodeOptions options,
                                std::span<std::byte> frame);
inline Result<void> encode_fixed_frame(std::span<const float> x, TensorCodec codec,
                                       std::span<std::byte> frame) {
  return encode_fixed_frame(x, EncodeOptions{.codec = codec}, frame);
}
/// Error (kFailed): not a whole frame of x.size() fp32 elements.
Result<void> decode_fixed_frame(std::span<const std::byte> frame, std::span<float> x);

}  // namespace longhaul
