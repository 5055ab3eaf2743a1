// How much a codec loses, and which codecs may carry differences to a history.
//
// AQ-SGD (Wang et al., NeurIPS 2022, theorem 3.1) converges if its quantiser Q has
// E ||x - Q(x)|| <= c ||x|| with c < sqrt(1/2). With c above 1 the history even moves away from
// the tensor, visit by visit (tests/kernels/codec_error_test). Pure functions, any thread.
#pragma once

#include <string_view>

#include "core/result.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {

/// c of Gaussian numbers, as the test measures it to 2 %. An outlier in a block makes it larger,
/// and nothing makes it larger than 1 in a code with a zero that is rounded to nearest.
double relative_error(TensorCodec codec, Rounding rounding);

/// Just below sqrt(1/2) = 0.707.
inline constexpr double kHistoryErrorMax = 0.70;

/// Error (kInvalid): c is kHistoryErrorMax or more.
Result<void> check_history_codec(TensorCodec codec, Rounding rounding);
Result<void> check_history_codec(std::string_view name, double error);

}  // namespace longhaul
