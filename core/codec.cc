#include "core/codec.h"

#include <algorithm>
#include <iterator>

namespace longhaul {
namespace {

constexpr double kScaleBits = 16;

// By number of the codec.
constexpr CodecFormat kFormats[] = {
    {"none", 32, 0, Codec::kNone},    {"bf16", 16, 0, Codec::kBf16},
    {"fp16", 16, 0, Codec::kFp16},    {"aq-int8", 8, 64, Codec::kInt8},
    {"int8", 8, 64, Codec::kInt8},    {"aq-int6", 6, 64, Codec::kInt6},
    {"int6", 6, 64, Codec::kInt6},    {"aq-int4", 4, 32, Codec::kInt4},
    {"int4", 4, 32, Codec::kInt4},    {"hadamard4", 4, 64, Codec::kHadamard4},
    {"aq-int3", 3, 32, Codec::kInt3}, {"int3", 3, 32, Codec::kInt3},
    {"aq-int2", 2, 32, Codec::kInt2}, {"int2", 2, 32, Codec::kInt2},
};
static_assert(std::size(kFormats) == std::size(kCodecs));

}  // namespace

const CodecFormat& format_of(Codec codec) {
  return kFormats[static_cast<std::size_t>(codec)];
}

const char* unfit_reason(Codec codec, CodecUse use) {
  if (use != CodecUse::kActivations && has_history(codec)) {
    return use == CodecUse::kGradients
               ? "gradients between replicas are of no one sample, which is what a history is of"
               : "AQ-SGD keeps histories of activations, and sends their gradients directly";
  }
  // Relative errors of the two on Gaussian numbers; on activations with outliers they are larger.
  if (use == CodecUse::kActivations && codec == Codec::kInt3) {
    return "3 bits without a history lose 17 % of every activation, and training suffers";
  }
  if (use == CodecUse::kActivations && codec == Codec::kInt2) {
    return "2 bits without a history lose 36 % of every activation, and training diverges";
  }
  return nullptr;
}

Codec usual_beside(Codec activations) {
  switch (activations) {
    case Codec::kAqInt8:
    case Codec::kAqInt6:
    case Codec::kAqInt4:
      return Codec::kInt8;
    case Codec::kAqInt3:
      return Codec::kInt6;
    case Codec::kAqInt2:
      return Codec::kInt4;
    default:
      return activations;
  }
}

std::string_view name_of(Codec codec) {
  return format_of(codec).name;
}

std::optional<Codec> codec_named(std::string_view name) {
  const auto* const found = std::ranges::find(kCodecs, name, [](Codec c) { return name_of(c); });
  if (found == std::end(kCodecs)) return std::nullopt;
  return *found;
}

bool has_history(Codec codec) {
  return format_of(codec).direct != codec;
}

Codec without_history(Codec codec) {
  return format_of(codec).direct;
}

Codec validation_codec(Codec codec) {
  return !has_history(codec) && format_of(codec).code_bits < 8 ? Codec::kInt8 : codec;
}

double bits_of(Codec codec, double computed) {
  if (codec == Codec::kNone) return computed;
  const CodecFormat& format = format_of(codec);
  return format.code_bits + (format.block > 0 ? kScaleBits / format.block : 0);
}

}  // namespace longhaul
