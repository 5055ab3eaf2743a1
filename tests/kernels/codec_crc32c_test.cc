#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "kernels/codec/crc32c.h"

namespace longhaul {
namespace {

using Sizes = std::initializer_list<std::size_t>;

std::uint32_t both(std::span<const std::byte> bytes) {
  EXPECT_EQ(crc32c(bytes), crc32c_table(bytes)) << bytes.size() << " bytes";
  EXPECT_EQ(crc32c_words(bytes), crc32c_table(bytes)) << bytes.size() << " bytes";
  return crc32c(bytes);
}

TEST(Crc32c, published_values) {
  constexpr std::string_view digits = "123456789";
  EXPECT_EQ(both(std::as_bytes(std::span(digits))), 0xE3069283u);
  // RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and counting up.
  std::vector<std::byte> bytes(32);
  EXPECT_EQ(both(bytes), 0x8A9136AAu);
  bytes.assign(32, std::byte{0xff});
  EXPECT_EQ(both(bytes), 0x62A8AB43u);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(both(bytes), 0x46DD794Eu);
  EXPECT_EQ(both({}), 0u);
}

TEST(Crc32c, hardware_and_table_agree_at_any_length_and_address) {
  Rng rng("crc", 1);
  std::vector<std::byte> bytes(8192);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
  // 256 is four registers folded at once, begun at 512; 1536 one round of three stretches side by
  // side where the processor cannot fold.
  for (const std::size_t length : Sizes{0, 1, 7, 8, 9, 511, 512, 513, 767, 768, 1023, 1025, 1535,
                                        1536, 1537, 3071, 3072, 3080, 8000}) {
    for (std::size_t from = 0; from < 9; ++from) both(std::span(bytes).subspan(from, length));
  }
}

TEST(Crc32c, continues_and_combines_at_any_cut) {
  Rng rng("crc", 2);
  std::vector<std::byte> bytes(4000);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : Sizes{0, 1, 64, 1536, 2049, 3999, 4000}) {
    const std::uint32_t first = crc32c(all.first(cut));
    EXPECT_EQ(crc32c(all.subspan(cut), first), crc32c(all)) << cut;
    EXPECT_EQ(crc32c_table(all.subspan(cut), first), crc32c(all)) << cut;
    EXPECT_EQ(crc32c_combine(first, crc32c(all.subspan(cut)), all.size() - cut), crc32c(all))
        << cut;
  }
}

}  // namespace
}  // namespace longhaul
