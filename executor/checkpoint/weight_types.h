// Elements of weights as they lie in files: F32, F16 and BF16, to and from float. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/checkpoint/safetensors.h"

namespace longhaul {

/// Hugging Face's word: "float32", "bfloat16", "float16"; empty for another type.
std::string_view dtype_of(TensorType type);
/// The type of such a word.
std::optional<TensorType> type_of_dtype(std::string_view dtype);

/// Exact. `bytes` are `into.size()` elements of F32, F16 or BF16.
void widen(TensorType type, std::span<const std::byte> bytes, std::span<float> into);
/// Rounds to the nearest, ties to even. Error (kInvalid): a finite value that F16 cannot hold.
Result<std::vector<std::byte>> narrow(TensorType type, std::span<const float> values);

}  // namespace longhaul
