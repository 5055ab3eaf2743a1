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

double bits_of(Codec codec, double computed) {
  if (codec == Codec::kNone) return computed;
  const CodecFormat& format = format_of(codec);
  return format.code_bits + (format.block > 0 ? kScaleBits / format.block : 0);
}

bool is_lossy(Codec codec) {
  return codec != Codec::kNone;
}

}  // namespace longhaul
