// Tensors for tools/bench codec.
#pragma once

#include <string_view>
#include <vector>

#include "core/result.h"
#include "executor/checkpoint/safetensors.h"

namespace longhaul {

/// n elements in rows of 2,048 like one of the kinds that codecs are measured on: "gauss";
/// "laplace"; "act", activations: a lognormal size for each column, and one in 200 columns 25 times
/// as large; "grad", gradients: Student's t with 3 degrees of freedom, a lognormal size for each
/// row, 1e-6 in all.
std::vector<float> codec_tensor(std::string_view kind, std::size_t n);

/// A stored tensor as fp32; empty where it is not F32, F16 or BF16.
Result<std::vector<float>> read_floats(SafetensorsReader& reader, const StoredTensor& tensor);

}  // namespace longhaul
