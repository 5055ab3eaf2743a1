// How a tensor is written on the wire between sites: the names that people write in job and plan
// files, and what planner, simulator and executor must agree on about each. How the bytes lie is
// kernels/codec/tensor_frame.h; how many there are, core/model_math.h.
//
// One table; plain values, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace longhaul {

/// The finest first: the more bits, and of equal bits the ones with a history.
enum class Codec : std::uint8_t {
  kNone,       // as it is computed: compute type for boundary tensors, fp32 for gradients
  kBf16,       // 2 bytes an element
  kFp16,       // 2 bytes an element, |x| up to 65504
  kAqInt8,     // the difference from what the sample's last visit gave (AQ-SGD), in int8
  kInt8,       // codes of 8 bits, a bf16 scale for every 64 elements
  kAqInt6,     //
  kInt6,       // 6 bits, a scale for every 64
  kAqInt4,     //
  kInt4,       // 4 bits, a scale for every 32
  kHadamard4,  // 64 elements rotated by a seeded Hadamard transform, then 4 bits and one scale
  kAqInt3,     //
  kInt3,       // 3 bits, a scale for every 32
  kAqInt2,     //
  kInt2,       // 2 bits, a scale for every 32
};
inline constexpr Codec kCodecs[] = {
    Codec::kNone,   Codec::kBf16, Codec::kFp16,   Codec::kAqInt8, Codec::kInt8,
    Codec::kAqInt6, Codec::kInt6, Codec::kAqInt4, Codec::kInt4,   Codec::kHadamard4,
    Codec::kAqInt3, Codec::kInt3, Codec::kAqInt2, Codec::kInt2};

/// What the table says of a codec. An AQ codec has the format of what it writes differences in.
struct CodecFormat {
  std::string_view name;
  int code_bits = 0;            // of an element, without its scale; none counts as 32
  int block = 0;                // elements that share a bf16 scale; 0: no scales
  Codec direct = Codec::kNone;  // without the history; itself where it has none
};
const CodecFormat& format_of(Codec codec);

/// What tensors a codec is chosen for.
enum class CodecUse : std::uint8_t {
  kActivations,          // forwards, between two stages
  kActivationGradients,  // backwards, between two stages
  kGradients,            // of the weights, between replicas
};
/// Why a codec is none for those; null: it is one. Histories are of activations alone, and what has
/// none needs 4 bits there.
const char* unfit_reason(Codec codec, CodecUse use);
/// The codec of activation gradients where a job names that of the activations alone: the pairs of
/// AQ-SGD (4 and 8 bits, 3 and 6, 2 and 4) for those with a history, else the same.
Codec usual_beside(Codec activations);

std::string_view name_of(Codec codec);
/// Nothing where no codec has that name.
std::optional<Codec> codec_named(std::string_view name);
/// Whether both ends keep what they last had of each sample (executor/history): the AQ codecs.
bool has_history(Codec codec);
/// aq-int3: int3. Others are what they are.
Codec without_history(Codec codec);
/// What a validation's activations travel in, where those of training have `codec`: 8 bits at
/// least, so that the loss is the model's and not that of what is lost on the way. With a history
/// it is a first visit's codec instead.
Codec validation_codec(Codec codec);
/// Of an element with its share of a scale; `computed` are those of an element where nothing is
/// done.
double bits_of(Codec codec, double computed = 32);

}  // namespace longhaul
