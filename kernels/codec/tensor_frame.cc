#include "kernels/codec/tensor_frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers and planes are copied as they lie in memory");

constexpr std::array<char, 4> kMagic{'L', 'H', 'C', '1'};
constexpr std::uint8_t kVersion = 1;
constexpr std::uint16_t kFlagsKnown = kFlagNonFinite | kFlagFallback;

// Places of the header's fields.
constexpr std::size_t kVersionAt = 4, kCodecAt = 5, kSourceAt = 6, kScaleAt = 7, kFlagsAt = 8,
                      kBlockAt = 10, kStepAt = 12, kElementsAt = 16, kRowsAt = 24,
                      kRowLengthAt = 28, kSeedAt = 32, kTensorIdAt = 40, kPayloadAt = 48,
                      kExtensionAt = 56, kHeaderCrcAt = 60;

template <class T>
void put(std::span<std::byte> frame, std::size_t at, T value) {
  std::memcpy(frame.data() + at, &value, sizeof value);
}
template <class T>
T get(std::span<const std::byte> frame, std::size_t at) {
  T value;
  std::memcpy(&value, frame.data() + at, sizeof value);
  return value;
}

bool is_built(TensorCodec codec) {
  return codec == TensorCodec::kRaw || codec == TensorCodec::kBf16 || codec == TensorCodec::kQ8;
}
bool has_scales(TensorCodec codec) {
  return codec == TensorCodec::kQ8;
}
ScaleType scale_type(TensorCodec codec) {
  return has_scales(codec) ? ScaleType::kBf16 : ScaleType::kNone;
}
std::uint16_t block_of(TensorCodec codec) {
  return has_scales(codec) ? std::uint16_t{kQ8Block} : std::uint16_t{0};
}

constexpr std::size_t align(std::size_t bytes) {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

/// Magic, version and CRC: whether the 64 bytes are a header of ours and whole.
Result<void> check_envelope(std::span<const std::byte> frame) {
  if (frame.size() < kTensorHeaderBytes) {
    return failed(fmt::format("a tensor frame's header has {} bytes, only {} are here",
                              kTensorHeaderBytes, frame.size()));
  }
  if (get<std::array<char, 4>>(frame, 0) != kMagic) {
    return failed("not a tensor frame: it does not begin with LHC1");
  }
  const auto version = get<std::uint8_t>(frame, kVersionAt);
  if (version != kVersion) {
    return failed(
        fmt::format("tensor frame of version {}, this program reads {}", version, kVersion),
        "run the same version of longhaul on every node");
  }
  if (get<std::uint32_t>(frame, kHeaderCrcAt) != crc32c(frame.first(kHeaderCrcAt))) {
    return failed("the checksum of a tensor frame's header is wrong");
  }
  return {};
}

/// Codec and source type, and what they imply for scales, block and flags.
Result<void> read_codec(std::span<const std::byte> frame, TensorHeader& header) {
  const auto codec = get<std::uint8_t>(frame, kCodecAt);
  header.codec = static_cast<TensorCodec>(codec);
  if (!is_built(header.codec)) {
    return failed(fmt::format("tensor frame of codec {} ({}), which this program cannot read",
                              codec, name_of(header.codec)),
                  "run the same version of longhaul on every node");
  }
  const auto source = get<std::uint8_t>(frame, kSourceAt);
  if (source < 1 || source > kPrecisions) {
    return failed(fmt::format("tensor frame of unknown element type {}", source));
  }
  header.source = static_cast<Precision>(source - 1);
  if (header.codec != TensorCodec::kRaw && header.source != Precision::kFp32) {
    return failed(fmt::format("tensor frame packs {} with {}, which is for fp32",
                              name_of(header.source), name_of(header.codec)));
  }
  if (get<std::uint8_t>(frame, kScaleAt) != static_cast<std::uint8_t>(scale_type(header.codec))) {
    return failed(
        fmt::format("tensor frame's scale type does not belong to {}", name_of(header.codec)));
  }
  if (get<std::uint16_t>(frame, kBlockAt) != block_of(header.codec)) {
    return failed(fmt::format("tensor frame's block does not belong to {}", name_of(header.codec)));
  }
  header.flags = get<std::uint16_t>(frame, kFlagsAt);
  if ((header.flags & ~kFlagsKnown) != 0) {
    return failed(fmt::format("tensor frame with unknown flags {:#x}", header.flags));
  }
  if (header.codec != TensorCodec::kRaw && header.flags != 0) {
    return failed("tensor frame marked as not packable, yet packed");
  }
  return {};
}

/// Shape, and the lengths that follow from it.
Result<void> read_shape(std::span<const std::byte> frame, TensorHeader& header) {
  header.rows = get<std::uint32_t>(frame, kRowsAt);
  header.row_length = get<std::uint32_t>(frame, kRowLengthAt);
  const auto elements = get<std::uint64_t>(frame, kElementsAt);
  if (header.elements() != elements) {
    return failed(fmt::format("tensor frame of {} elements in {} rows of {}", elements, header.rows,
                              header.row_length));
  }
  if (elements > kTensorElementsMax) {
    return failed(
        fmt::format("tensor frame of {} elements, the limit is {}", elements, kTensorElementsMax));
  }
  const std::uint64_t payload =
      tensor_frame_bytes(header.codec, header.source, elements) - kTensorHeaderBytes;
  if (get<std::uint64_t>(frame, kPayloadAt) != payload) {
    return failed(fmt::format("tensor frame's payload is said to be {} bytes and must be {}",
                              get<std::uint64_t>(frame, kPayloadAt), payload));
  }
  if (get<std::uint32_t>(frame, kExtensionAt) != 0) {
    return failed("tensor frame with a header extension, which this program cannot read");
  }
  return {};
}

}  // namespace

std::string_view name_of(TensorCodec codec) {
  switch (codec) {
    case TensorCodec::kRaw:
      return "raw";
    case TensorCodec::kBf16:
      return "bf16";
    case TensorCodec::kQ8:
      return "q8";
    case TensorCodec::kQ6:
      return "q6";
    case TensorCodec::kQ4:
      return "q4";
    case TensorCodec::kQ3:
      return "q3";
    case TensorCodec::kQ2:
      return "q2";
    case TensorCodec::kHadamardQ4:
      return "hadamard-q4";
    case TensorCodec::kAq:
      return "aq";
    case TensorCodec::kF16:
      return "f16";
  }
  return "unknown";
}

TensorCodec tensor_codec(Codec codec) {
  switch (without_history(codec)) {
    case Codec::kNone:
      return TensorCodec::kRaw;
    case Codec::kBf16:
      return TensorCodec::kBf16;
    case Codec::kFp16:
      return TensorCodec::kF16;
    case Codec::kInt8:
      return TensorCodec::kQ8;
    case Codec::kInt6:
      return TensorCodec::kQ6;
    case Codec::kInt4:
      return TensorCodec::kQ4;
    case Codec::kHadamard4:
      return TensorCodec::kHadamardQ4;
    case Codec::kInt3:
      return TensorCodec::kQ3;
    case Codec::kInt2:
      return TensorCodec::kQ2;
    default:
      LH_CHECK(false, "every codec of a job has a frame");
  }
}

std::size_t bytes_of(Precision type) {
  return type == Precision::kFp32 ? 4 : 2;
}

std::size_t code_bytes(TensorCodec codec, Precision source) {
  LH_CHECK(is_built(codec), "only codecs that are built have a layout");
  if (codec == TensorCodec::kBf16) return 2;
  return codec == TensorCodec::kQ8 ? 1 : bytes_of(source);
}

TensorLayout tensor_layout(TensorCodec codec, Precision source, std::uint64_t elements) {
  LH_CHECK(elements <= kTensorElementsMax, "a tensor of one frame is limited");
  TensorLayout layout;
  layout.scales_at = kTensorHeaderBytes;
  if (has_scales(codec)) layout.scales_bytes = 2 * ((elements + kQ8Block - 1) / kQ8Block);
  layout.codes_at = align(layout.scales_at + layout.scales_bytes);
  layout.codes_bytes = elements * code_bytes(codec, source);
  layout.checksum_at = layout.codes_at + layout.codes_bytes;
  layout.frame_bytes = layout.checksum_at + kTensorChecksumBytes;
  return layout;
}

std::size_t tensor_frame_bytes(TensorCodec codec, Precision source, std::uint64_t elements) {
  return tensor_layout(codec, source, elements).frame_bytes;
}

std::size_t tensor_frame_capacity(TensorCodec codec, Precision source, std::uint64_t elements) {
  return std::max(tensor_frame_bytes(codec, source, elements),
                  tensor_frame_bytes(TensorCodec::kRaw, source, elements));
}

void write_tensor_header(const TensorHeader& header, std::span<std::byte> frame) {
  LH_CHECK(frame.size() >= kTensorHeaderBytes, "a header has 64 bytes");
  put(frame, 0, kMagic);
  put(frame, kVersionAt, kVersion);
  put(frame, kCodecAt, static_cast<std::uint8_t>(header.codec));
  put(frame, kSourceAt, static_cast<std::uint8_t>(static_cast<int>(header.source) + 1));
  put(frame, kScaleAt, static_cast<std::uint8_t>(scale_type(header.codec)));
  put(frame, kFlagsAt, header.flags);
  put(frame, kBlockAt, block_of(header.codec));
  put(frame, kStepAt, header.step);
  put(frame, kElementsAt, header.elements());
  put(frame, kRowsAt, header.rows);
  put(frame, kRowLengthAt, header.row_length);
  put(frame, kSeedAt, header.seed);
  put(frame, kTensorIdAt, header.tensor_id);
  put(frame, kPayloadAt,
      std::uint64_t{tensor_frame_bytes(header.codec, header.source, header.elements()) -
                    kTensorHeaderBytes});
  put(frame, kExtensionAt, std::uint32_t{0});
  put(frame, kHeaderCrcAt, crc32c(frame.first(kHeaderCrcAt)));
}

Result<TensorHeader> parse_tensor_header(std::span<const std::byte> frame) {
  LH_TRY(check_envelope(frame));
  TensorHeader header;
  LH_TRY(read_codec(frame, header));
  LH_TRY(read_shape(frame, header));
  header.step = get<std::uint32_t>(frame, kStepAt);
  header.seed = get<std::uint64_t>(frame, kSeedAt);
  header.tensor_id = get<std::uint64_t>(frame, kTensorIdAt);
  return header;
}

}  // namespace longhaul
