#include "executor/transport/frame.h"

#include <fmt/core.h>

#include <cstring>

#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

constexpr std::uint32_t kMagic = 0x314c484c;  // "LHL1" in memory
constexpr std::size_t kHeaderCrcAt = 8;

/// Fields are copied byte by byte in little-endian order, whatever the machine's.
template <class T>
void put(FrameHeaderBytes& bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <class T>
T get(std::span<const std::byte, kFrameHeaderBytes> bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

std::uint32_t header_checksum(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  FrameHeaderBytes copy;
  std::memcpy(copy.data(), bytes.data(), copy.size());
  put<std::uint32_t>(copy, kHeaderCrcAt, 0);
  return crc32c(copy);
}

std::uint32_t longest_payload(FrameType type) {
  switch (type) {
    case FrameType::kData:
      return kMaxDataPayload;
    case FrameType::kHello:
    case FrameType::kHelloAck:
    case FrameType::kError:
    case FrameType::kControl:
      return kMaxControlPayload;
    case FrameType::kPing:
    case FrameType::kPong:
    case FrameType::kCredit:
    case FrameType::kGoAway:
      return 0;
  }
  return 0;
}

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(FrameType::kHello) &&
         type <= static_cast<std::uint8_t>(FrameType::kGoAway);
}

}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  LH_CHECK(header.payload_bytes <= longest_payload(header.type), "a frame's payload fits its type");
  FrameHeaderBytes bytes{};
  put<std::uint32_t>(bytes, 0, kMagic);
  put<std::uint8_t>(bytes, 4, kFrameVersion);
  put<std::uint8_t>(bytes, 5, static_cast<std::uint8_t>(header.type));
  put<std::uint16_t>(bytes, 6, header.flags);
  put<std::uint32_t>(bytes, 12, header.payload_bytes);
  put<std::uint64_t>(bytes, 16, header.job);
  put<std::uint32_t>(bytes, 24, header.term);
  put<std::uint32_t>(bytes, 28, header.sender);
  put<std::uint64_t>(bytes, 32, header.operation);
  put<std::uint32_t>(bytes, 40, header.segment);
  put<std::uint16_t>(bytes, 44, header.stream);
  put<std::uint8_t>(bytes, 46, header.element_type);
  put<std::uint8_t>(bytes, 47, header.codec);
  put<std::uint64_t>(bytes, 48, header.offset);
  put<std::uint32_t>(bytes, 56, header.raw_bytes);
  put<std::uint32_t>(bytes, 60, header.payload_crc);
  put<std::uint32_t>(bytes, kHeaderCrcAt, header_checksum(bytes));
  return bytes;
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  if (get<std::uint32_t>(bytes, 0) != kMagic) {
    return failed("the peer does not speak longhaul: a frame starts with other bytes than LHL1");
  }
  if (const auto version = get<std::uint8_t>(bytes, 4); version != kFrameVersion) {
    return failed(fmt::format("the peer speaks frame version {}, this program speaks {}", version,
                              kFrameVersion),
                  "run the same release on every node");
  }
  if (get<std::uint32_t>(bytes, kHeaderCrcAt) != header_checksum(bytes)) {
    return failed("a frame's header does not match its checksum");
  }
  const auto type = get<std::uint8_t>(bytes, 5);
  if (!is_known(type)) return failed(fmt::format("a frame has the unknown type {}", type));
  FrameHeader header;
  header.type = static_cast<FrameType>(type);
  header.flags = get<std::uint16_t>(bytes, 6);
  header.payload_bytes = get<std::uint32_t>(bytes, 12);
  if (header.payload_bytes > longest_payload(header.type)) {
    return failed(fmt::format("a frame of type {} announces {} bytes, more than the {} allowed",
                              type, header.payload_bytes, longest_payload(header.type)));
  }
  header.job = get<std::uint64_t>(bytes, 16);
  header.term = get<std::uint32_t>(bytes, 24);
  header.sender = get<std::uint32_t>(bytes, 28);
  header.operation = get<std::uint64_t>(bytes, 32);
  header.segment = get<std::uint32_t>(bytes, 40);
  header.stream = get<std::uint16_t>(bytes, 44);
  header.element_type = get<std::uint8_t>(bytes, 46);
  header.codec = get<std::uint8_t>(bytes, 47);
  header.offset = get<std::uint64_t>(bytes, 48);
  header.raw_bytes = get<std::uint32_t>(bytes, 56);
  header.payload_crc = get<std::uint32_t>(bytes, 60);
  return header;
}

std::uint32_t payload_checksum(std::span<const std::byte> payload) {
  return crc32c(payload);
}

std::uint64_t encode_operation(const OperationName& name) {
  LH_CHECK(name.step < (1u << 28) && name.kind < (1u << 4) && name.micro_batch < (1u << 20) &&
               name.stage < (1u << 12),
           "an operation's parts fit their fields");
  return static_cast<std::uint64_t>(name.step) << 36 | static_cast<std::uint64_t>(name.kind) << 32 |
         static_cast<std::uint64_t>(name.micro_batch) << 12 | name.stage;
}

OperationName decode_operation(std::uint64_t operation) {
  return {static_cast<std::uint32_t>(operation >> 36),
          static_cast<std::uint8_t>(operation >> 32 & 0xf),
          static_cast<std::uint32_t>(operation >> 12 & 0xfffff),
          static_cast<std::uint16_t>(operation & 0xfff)};
}

}  // namespace longhaul
