#include "kernels/codec/tensor_frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/codec/codec_traits.h"
#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers and planes are copied as they lie in memory");

constexpr std::array<char, 4> kMagic{'L', 'H', 'C', '1'};
constexpr std::uint8_t kVersion = 1;
constexpr std::uint16_t kFlagsUnpackable = kFlagNonFinite | kFlagFallback;
constexpr std::uint16_t kFlagsKnown = kFlagsUnpackable | kFlagStochastic | kFlagHistory;

// Places of the header's fields.
constexpr std::size_t kVersionAt = 4, kCodecAt = 5, kSourceAt = 6, kScaleAt = 7, kFlagsAt = 8,
                      kBlockAt = 10, kStepAt = 12, kElementsAt = 16, kRowsAt = 24,
                      kRowLengthAt = 28, kSeedAt = 32, kTensorIdAt = 40, kPayloadAt = 48,
                      kExtensionAt = 56, kHeaderCrcAt = 60;
// And of the extension's, from its own start.
constexpr std::size_t kSampleAt = 0, kHistoryLayoutAt = 8, kBaseHashAt = 16, kHistoryVersionAt = 24,
                      kKindAt = 28, kEvictedAt = 32, kReservedAt = 40, kExtensionCrcAt = 60;

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

ScaleType scale_type(const CodecTraits& traits) {
  return traits.grid.block > 0 ? ScaleType::kBf16 : ScaleType::kNone;
}

std::size_t blocks_of(const CodecGrid& grid, std::uint64_t elements) {
  const auto block = static_cast<std::uint64_t>(grid.block);
  return (elements + block - 1) / block;
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

/// Codec and source type, and what they imply for scales and block.
Result<void> read_codec(std::span<const std::byte> frame, TensorHeader& header) {
  const auto codec = get<std::uint8_t>(frame, kCodecAt);
  header.codec = static_cast<TensorCodec>(codec);
  const CodecTraits* traits = find_traits(header.codec);
  if (traits == nullptr) {
    return failed(fmt::format("tensor frame of codec {}, which this program cannot read", codec),
                  "run the same version of longhaul on every node");
  }
  const auto source = get<std::uint8_t>(frame, kSourceAt);
  if (source < 1 || source > kPrecisions) {
    return failed(fmt::format("tensor frame of unknown element type {}", source));
  }
  header.source = static_cast<Precision>(source - 1);
  if (header.codec != TensorCodec::kRaw && header.source != Precision::kFp32) {
    return failed(fmt::format("tensor frame packs {} with {}, which is for fp32",
                              name_of(header.source), traits->name));
  }
  if (get<std::uint8_t>(frame, kScaleAt) != static_cast<std::uint8_t>(scale_type(*traits))) {
    return failed(fmt::format("tensor frame's scale type does not belong to {}", traits->name));
  }
  if (get<std::uint16_t>(frame, kBlockAt) != traits->grid.block) {
    return failed(fmt::format("tensor frame's block does not belong to {}", traits->name));
  }
  return {};
}

/// Flags, and whether an extension follows as they say.
Result<void> read_flags(std::span<const std::byte> frame, TensorHeader& header) {
  header.flags = get<std::uint16_t>(frame, kFlagsAt);
  if ((header.flags & ~kFlagsKnown) != 0) {
    return failed(fmt::format("tensor frame with unknown flags {:#x}", header.flags));
  }
  const bool has_history = (header.flags & kFlagHistory) != 0;
  const bool is_raw = header.codec == TensorCodec::kRaw;
  if ((header.flags & kFlagsUnpackable) != 0 && (has_history ? header.elements() != 0 : !is_raw)) {
    return failed("tensor frame marked as not packable, yet packed");
  }
  if ((header.flags & kFlagStochastic) != 0 && traits_of(header.codec).grid.block == 0) {
    return failed(
        fmt::format("tensor frame of {}, yet rounded stochastically", name_of(header.codec)));
  }
  if (has_history && header.source != Precision::kFp32) {
    return failed(fmt::format("tensor frame of {} with a history, which is for fp32",
                              name_of(header.source)));
  }
  const auto extension = get<std::uint32_t>(frame, kExtensionAt);
  if (extension != (has_history ? kHistoryExtensionBytes : 0)) {
    return failed(
        fmt::format("tensor frame with {} bytes of header extension, which do not belong to its "
                    "flags {:#x}",
                    extension, header.flags));
  }
  return {};
}

/// The 64 bytes after the header.
Result<HistoryHeader> read_history(std::span<const std::byte> frame) {
  if (frame.size() < prefix_bytes(true)) {
    return failed(fmt::format("a tensor frame's header has {} bytes, only {} are here",
                              prefix_bytes(true), frame.size()));
  }
  const auto extension = frame.subspan(kTensorHeaderBytes, kHistoryExtensionBytes);
  if (get<std::uint32_t>(extension, kExtensionCrcAt) != crc32c(extension.first(kExtensionCrcAt))) {
    return failed("the checksum of a tensor frame's history extension is wrong");
  }
  HistoryHeader history;
  history.sample = get<std::uint64_t>(extension, kSampleAt);
  history.layout = get<std::uint64_t>(extension, kHistoryLayoutAt);
  history.base_hash = get<std::uint64_t>(extension, kBaseHashAt);
  history.version = get<std::uint32_t>(extension, kHistoryVersionAt);
  const auto kind = get<std::uint32_t>(extension, kKindAt);
  if (kind < 1 || kind > static_cast<std::uint32_t>(HistoryKind::kHealing)) {
    return failed(fmt::format("tensor frame of unknown history kind {}", kind));
  }
  history.kind = static_cast<HistoryKind>(kind);
  history.evicted = get<std::uint64_t>(extension, kEvictedAt);
  const auto reserved = extension.subspan(kReservedAt, kExtensionCrcAt - kReservedAt);
  if (!std::ranges::all_of(reserved, [](std::byte b) { return b == std::byte{0}; })) {
    return failed("tensor frame with a history extension of a later version",
                  "run the same version of longhaul on every node");
  }
  return history;
}

void write_history(const HistoryHeader& history, std::span<std::byte> extension) {
  std::ranges::fill(extension, std::byte{0});
  put(extension, kSampleAt, history.sample);
  put(extension, kHistoryLayoutAt, history.layout);
  put(extension, kBaseHashAt, history.base_hash);
  put(extension, kHistoryVersionAt, history.version);
  put(extension, kKindAt, static_cast<std::uint32_t>(history.kind));
  put(extension, kEvictedAt, history.evicted);
  put(extension, kExtensionCrcAt, crc32c(extension.first(kExtensionCrcAt)));
}

/// Bytes after header and extension.
std::uint64_t payload_bytes(const TensorHeader& header) {
  return tensor_frame_bytes(header.codec, header.source, header.elements()) - kTensorHeaderBytes;
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
  if (get<std::uint64_t>(frame, kPayloadAt) != payload_bytes(header)) {
    return failed(fmt::format("tensor frame's payload is said to be {} bytes and must be {}",
                              get<std::uint64_t>(frame, kPayloadAt), payload_bytes(header)));
  }
  return {};
}

}  // namespace

std::string_view name_of(TensorCodec codec) {
  const CodecTraits* traits = find_traits(codec);
  return traits == nullptr ? "unknown" : traits->name;
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

std::size_t code_bytes(TensorCodec codec, Precision source, std::uint64_t elements) {
  const CodecGrid& grid = traits_of(codec).grid;
  if (grid.block == 0) return elements * (codec == TensorCodec::kRaw ? bytes_of(source) : 2);
  if (grid.bits == 8) return elements;
  return blocks_of(grid, elements) * static_cast<std::size_t>(grid.block * grid.bits / 8);
}

TensorLayout tensor_layout(TensorCodec codec, Precision source, std::uint64_t elements,
                           bool has_history) {
  LH_CHECK(elements <= kTensorElementsMax, "a tensor of one frame is limited");
  const CodecGrid& grid = traits_of(codec).grid;
  TensorLayout layout;
  layout.scales_at = prefix_bytes(has_history);
  if (grid.block > 0) layout.scales_bytes = 2 * blocks_of(grid, elements);
  layout.codes_at = align(layout.scales_at + layout.scales_bytes);
  layout.codes_bytes = code_bytes(codec, source, elements);
  layout.checksum_at = layout.codes_at + layout.codes_bytes;
  layout.frame_bytes = layout.checksum_at + kTensorChecksumBytes;
  return layout;
}

std::size_t tensor_frame_bytes(TensorCodec codec, Precision source, std::uint64_t elements,
                               bool has_history) {
  return tensor_layout(codec, source, elements, has_history).frame_bytes;
}

std::size_t tensor_frame_capacity(TensorCodec codec, Precision source, std::uint64_t elements,
                                  bool has_history) {
  const std::size_t bytes = tensor_frame_bytes(codec, source, elements, has_history);
  if (has_history) return bytes;
  return std::max(bytes, tensor_frame_bytes(TensorCodec::kRaw, source, elements));
}

void write_tensor_header(const TensorHeader& header, std::span<std::byte> frame) {
  const bool has_history = header.history.has_value();
  LH_CHECK(frame.size() >= prefix_bytes(has_history), "a header has 64 bytes or 128");
  LH_CHECK(has_history == ((header.flags & kFlagHistory) != 0), "the flag tells of the history");
  const CodecTraits& traits = traits_of(header.codec);
  put(frame, 0, kMagic);
  put(frame, kVersionAt, kVersion);
  put(frame, kCodecAt, static_cast<std::uint8_t>(header.codec));
  put(frame, kSourceAt, static_cast<std::uint8_t>(static_cast<int>(header.source) + 1));
  put(frame, kScaleAt, static_cast<std::uint8_t>(scale_type(traits)));
  put(frame, kFlagsAt, header.flags);
  put(frame, kBlockAt, static_cast<std::uint16_t>(traits.grid.block));
  put(frame, kStepAt, header.step);
  put(frame, kElementsAt, header.elements());
  put(frame, kRowsAt, header.rows);
  put(frame, kRowLengthAt, header.row_length);
  put(frame, kSeedAt, header.seed);
  put(frame, kTensorIdAt, header.tensor_id);
  put(frame, kPayloadAt, payload_bytes(header));
  put(frame, kExtensionAt,
      static_cast<std::uint32_t>(prefix_bytes(has_history) - kTensorHeaderBytes));
  put(frame, kHeaderCrcAt, crc32c(frame.first(kHeaderCrcAt)));
  if (has_history) {
    write_history(*header.history, frame.subspan(kTensorHeaderBytes, kHistoryExtensionBytes));
  }
}

Result<TensorHeader> parse_tensor_header(std::span<const std::byte> frame) {
  LH_TRY(check_envelope(frame));
  TensorHeader header;
  LH_TRY(read_codec(frame, header));
  LH_TRY(read_shape(frame, header));
  LH_TRY(read_flags(frame, header));
  header.step = get<std::uint32_t>(frame, kStepAt);
  header.seed = get<std::uint64_t>(frame, kSeedAt);
  header.tensor_id = get<std::uint64_t>(frame, kTensorIdAt);
  if ((header.flags & kFlagHistory) != 0) {
    LH_ASSIGN(header.history, read_history(frame));
  }
  return header;
}

}  // namespace longhaul
