#include "kernels/codec/codec_error.h"

#include <fmt/core.h>

#include <string>

#include "kernels/codec/codec_traits.h"

namespace longhaul {

double relative_error(TensorCodec codec, Rounding rounding) {
  const bool is_nearest = rounding == Rounding::kNearest;
  switch (codec) {
    case TensorCodec::kRaw:
      return 0;
    case TensorCodec::kBf16:
      return 0.00166;
    case TensorCodec::kF16:
      return 0.000208;
    case TensorCodec::kQ8:
      return is_nearest ? 0.00595 : 0.00848;
    case TensorCodec::kQ6:
      return is_nearest ? 0.0243 : 0.0346;
    case TensorCodec::kQ4:
      return is_nearest ? 0.0859 : 0.121;
    case TensorCodec::kQ4Symmetric:
      return is_nearest ? 0.0969 : 0.138;
    case TensorCodec::kHadamardQ4:
      return is_nearest ? 0.0949 : 0.134;
    case TensorCodec::kQ3:
      return is_nearest ? 0.174 : 0.243;
    case TensorCodec::kQ2:
      return is_nearest ? 0.362 : 0.486;
  }
  LH_CHECK(false, "every codec of the wire has a row");
}

Result<void> check_history_codec(std::string_view name, double error) {
  if (error < kHistoryErrorMax) return {};
  return invalid(
      fmt::format("{} loses {:.2f} of a tensor's size, and differences to a history may lose at "
                  "most {:.2f}: above sqrt(1/2) AQ-SGD need not converge",
                  name, error, kHistoryErrorMax),
      "round to nearest, or take a codec of more bits");
}

Result<void> check_history_codec(TensorCodec codec, Rounding rounding) {
  const std::string_view how = rounding == Rounding::kNearest ? "nearest" : "stochastic";
  return check_history_codec(fmt::format("{} ({})", name_of(codec), how),
                             relative_error(codec, rounding));
}

}  // namespace longhaul
