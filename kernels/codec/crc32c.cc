#include "kernels/codec/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little, "the word loads below assume it");

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // 0x1EDC6F41 with its bits reflected

// A register holds a polynomial over GF(2) modulo the CRC's: bit 31 is x^0, bit 0 is x^31.
constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a & 1) != 0 ? (a >> 1) ^ kPolynomial : a >> 1;
}
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = times_x(b);
  }
  return sum;
}
/// x^(8 n): what n zero bytes multiply a register by.
constexpr std::uint32_t shift_factor(std::uint64_t zero_bytes) {
  std::uint32_t factor = 0x80000000u;
  std::uint32_t power = 0x00800000u;  // x^8, then its squares
  for (; zero_bytes != 0; zero_bytes >>= 1) {
    if ((zero_bytes & 1) != 0) factor = product(factor, power);
    power = product(power, power);
  }
  return factor;
}

using ByteTable = std::array<std::uint32_t, 256>;

/// Row k: what a byte followed by k zero bytes leaves in an empty register (slicing by 8).
constexpr std::array<ByteTable, 8> slicing_tables() {
  std::array<ByteTable, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (ByteTable& table : tables) {
      for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
      table[byte] = crc;
    }
  }
  return tables;
}
constexpr std::array<ByteTable, 8> kSlices = slicing_tables();

std::uint32_t load_u32(const std::byte* from) {
  std::uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

#if defined(__x86_64__)

// The crc32 instruction takes three cycles and one can start every cycle, so three stretches run
// side by side and are joined by multiplying with x^(8 kStretch), one table look-up a byte.
constexpr std::size_t kStretch = 512;

constexpr std::array<ByteTable, 4> stretch_tables() {
  std::array<ByteTable, 4> tables{};
  const std::uint32_t factor = shift_factor(kStretch);
  for (std::uint32_t k = 0; k < 4; ++k) {
    // Linear in the byte: build from its eight bits.
    for (std::uint32_t bit = 0; bit < 8; ++bit) {
      tables[k][std::size_t{1} << bit] = product(factor, std::uint32_t{1} << (8 * k + bit));
    }
    for (std::uint32_t byte = 1; byte < 256; ++byte) {
      const std::uint32_t low = byte & (0 - byte);
      tables[k][byte] = tables[k][low] ^ (byte == low ? 0 : tables[k][byte ^ low]);
    }
  }
  return tables;
}
constexpr std::array<ByteTable, 4> kStretchTables = stretch_tables();

std::uint32_t past_stretch(std::uint32_t crc) {
  return kStretchTables[0][crc & 0xff] ^ kStretchTables[1][(crc >> 8) & 0xff] ^
         kStretchTables[2][(crc >> 16) & 0xff] ^ kStretchTables[3][crc >> 24];
}

std::uint64_t load_u64(const std::byte* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(const std::byte* at, std::size_t left,
                                                             std::uint32_t crc) {
  crc = ~crc;
  for (; left >= 3 * kStretch; at += 3 * kStretch, left -= 3 * kStretch) {
    std::uint64_t a = crc, b = 0, c = 0;
    for (std::size_t i = 0; i < kStretch; i += 8) {
      a = _mm_crc32_u64(a, load_u64(at + i));
      b = _mm_crc32_u64(b, load_u64(at + kStretch + i));
      c = _mm_crc32_u64(c, load_u64(at + 2 * kStretch + i));
    }
    const std::uint32_t joined =
        past_stretch(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
    crc = past_stretch(joined) ^ static_cast<std::uint32_t>(c);
  }
  for (; left >= 8; at += 8, left -= 8) {
    crc = static_cast<std::uint32_t>(_mm_crc32_u64(crc, load_u64(at)));
  }
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*at));
  return ~crc;
}

// The carry-less product of 512-bit registers: Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel 2009. A quarter of a register is L x^64 + H, the first byte's
// lowest bit the highest power. What follows it by D bits may take L x^(D + 64) + H x^D instead of
// it, modulo the CRC's polynomial. An instruction's product of two reflected numbers is x times
// theirs, and a factor in the lower half of its 64 bits is x^32 times as much: hence D + 31 and
// D - 33.
struct FoldFactors {
  std::uint32_t low, high;
};
constexpr FoldFactors fold_factors(std::uint64_t bytes) {
  constexpr std::uint32_t kX7 = 0x80000000u >> 7;
  return {product(shift_factor(bytes + 3), kX7), product(shift_factor(bytes - 5), kX7)};
}

#define LH_FOLD \
  __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2"))) inline __attribute__((always_inline))

LH_FOLD __m512i folded(__m512i x, __m512i factors, __m512i next) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, factors, 0x00),
                                   _mm512_clmulepi64_epi128(x, factors, 0x11), next, 0x96);
}
template <std::uint64_t kBytes>
LH_FOLD __m512i factors_over() {
  constexpr FoldFactors kFactors = fold_factors(kBytes);
  return _mm512_set4_epi64(kFactors.high, kFactors.low, kFactors.high, kFactors.low);
}

constexpr std::size_t kFolded = 256;  // bytes of four registers

/// `left` is at least kFolded.
__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2"))) std::uint32_t crc32c_folding(
    const std::byte* at, std::size_t left, std::uint32_t crc) {
  __m512i parts[4];
  for (int i = 0; i < 4; ++i) parts[i] = _mm512_loadu_si512(at + 64 * i);
  // The register's state joins the first bytes.
  parts[0] =
      _mm512_xor_si512(parts[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
  const __m512i over_all = factors_over<kFolded>();
  for (at += kFolded, left -= kFolded; left >= kFolded; at += kFolded, left -= kFolded) {
    for (int i = 0; i < 4; ++i) {
      parts[i] = folded(parts[i], over_all, _mm512_loadu_si512(at + 64 * i));
    }
  }
  const __m512i over_one = factors_over<64>();
  for (int i = 0; i < 3; ++i) parts[i + 1] = folded(parts[i], over_one, parts[i + 1]);
  alignas(64) std::byte rest[64];
  _mm512_store_si512(rest, parts[3]);
  // From an empty register: crc32c_sse42 inverts what it is given.
  return crc32c_sse42(at, left, crc32c_sse42(rest, sizeof rest, 0xffffffffu));
}

bool has_folding() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("sse4.2");
}

#endif

}  // namespace

std::uint32_t crc32c_table(std::span<const std::byte> bytes, std::uint32_t crc) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint32_t low = crc ^ load_u32(at);
    const std::uint32_t high = load_u32(at + 4);
    crc = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      crc ^= kSlices[7 - i][(low >> (8 * i)) & 0xff] ^ kSlices[3 - i][(high >> (8 * i)) & 0xff];
    }
  }
  for (; left > 0; ++at, --left) {
    crc = (crc >> 8) ^ kSlices[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool can_fold = has_folding();
  if (can_fold && bytes.size() >= 2 * kFolded) {
    return crc32c_folding(bytes.data(), bytes.size(), crc);
  }
#endif
  return crc32c_words(bytes, crc);
}

std::uint32_t crc32c_words(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return crc32c_sse42(bytes.data(), bytes.size(), crc);
#endif
  return crc32c_table(bytes, crc);
}

std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b) {
  return product(shift_factor(bytes_b), crc_a) ^ crc_b;
}

}  // namespace longhaul
