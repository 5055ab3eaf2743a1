// The wire frame, version 1: a 64-byte header, then the payload. Little-endian, naturally aligned.
//
//    0 u32 magic "LHL1"        4 u8 version      5 u8 type        6 u16 flags
//    8 u32 crc32c of the header, this field counted as 0          12 u32 payload bytes
//   16 u64 job                24 u32 term       28 u32 sender (rank)
//   32 u64 operation          40 u32 segment    44 u16 stream     46 u8 element type  47 u8 codec
//   48 u64 offset in the tensor                 56 u32 raw bytes  60 u32 crc32c of the payload
//
// The operation names a message: step:28 | operation:4 | micro-batch or bucket:20 | stage:12, most
// significant first; a message is known by its name, never by its arrival. Element type and codec
// are those of kernels/codec. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace longhaul {

enum class FrameType : std::uint8_t {
  kHello = 1,
  kHelloAck = 2,
  kError = 3,
  kPing = 4,
  kPong = 5,
  kCredit = 6,
  kData = 7,
  kControl = 8,
  kGoAway = 9,
};
/// A receiver that does not know the type must close the connection instead of skipping the frame.
inline constexpr std::uint16_t kFlagCritical = 1;

inline constexpr std::size_t kFrameHeaderBytes = 64;
inline constexpr std::uint8_t kFrameVersion = 1;
/// Longest payloads; a longer one is refused before anything is allocated or read.
inline constexpr std::uint32_t kMaxDataPayload = 4u << 20;
inline constexpr std::uint32_t kMaxControlPayload = 1u << 20;

struct FrameHeader {
  FrameType type = FrameType::kControl;
  std::uint16_t flags = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t job = 0;
  std::uint32_t term = 0;
  std::uint32_t sender = 0;
  std::uint64_t operation = 0;
  std::uint32_t segment = 0;
  std::uint16_t stream = 0;
  std::uint8_t element_type = 0;
  std::uint8_t codec = 0;
  std::uint64_t offset = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t payload_crc = 0;

  bool operator==(const FrameHeader&) const = default;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

/// The header's bytes, its checksum included. payload_crc must be set (see payload_checksum).
FrameHeaderBytes encode_frame_header(const FrameHeader& header);

/// Checks magic, version, header checksum, type and payload length, in this order. Errors (kFailed)
/// name what is wrong; nothing of a refused header may be used.
Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes);

std::uint32_t payload_checksum(std::span<const std::byte> payload);

/// Parts of an operation's name. Sizes are those of the fields; a plan is checked against them when
/// it loads (core/plan.h: kMaxStages, kMaxMicroBatches).
struct OperationName {
  std::uint32_t step = 0;         // < 2^28
  std::uint8_t kind = 0;          // < 2^4
  std::uint32_t micro_batch = 0;  // or bucket, < 2^20
  std::uint16_t stage = 0;        // < 2^12

  bool operator==(const OperationName&) const = default;
};
std::uint64_t encode_operation(const OperationName& name);
OperationName decode_operation(std::uint64_t operation);

}  // namespace longhaul
