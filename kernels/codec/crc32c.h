// CRC-32C (Castagnoli; iSCSI, RFC 3720 appendix B.4): polynomial 0x1EDC6F41, bits reflected,
// register preset to ones and inverted at the end. The nine bytes "123456789" give 0xE3069283.
//
// Detects accidents (every flip of up to three bits in a message of up to 255 MiB), not attackers.
// All functions are pure and may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace longhaul {

/// The CRC of `bytes`; with `crc` of earlier bytes, the CRC of both in one piece:
/// crc32c(b, crc32c(a)) == crc32c(a + b). Uses AVX-512 and VPCLMULQDQ where the processor has them.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
/// The same values with SSE4.2 alone.
std::uint32_t crc32c_words(std::span<const std::byte> bytes, std::uint32_t crc = 0);
/// The same values without special instructions.
std::uint32_t crc32c_table(std::span<const std::byte> bytes, std::uint32_t crc = 0);
/// The CRC of a + b from crc32c(a), crc32c(b) and the length of b.
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b);

}  // namespace longhaul
