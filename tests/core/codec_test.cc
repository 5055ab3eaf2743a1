#include "core/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace longhaul {
namespace {

TEST(Codec, every_one_has_a_name_that_names_it) {
  std::set<std::string> names;
  for (const Codec codec : kCodecs) {
    EXPECT_EQ(codec_named(name_of(codec)), codec) << name_of(codec);
    names.emplace(name_of(codec));
  }
  EXPECT_EQ(names, (std::set<std::string>{"none", "bf16", "fp16", "int8", "int6", "int4", "int3",
                                          "int2", "hadamard4", "aq-int8", "aq-int6", "aq-int4",
                                          "aq-int3", "aq-int2"}));
  EXPECT_FALSE(codec_named("ternary"));
  EXPECT_FALSE(codec_named(""));
}

TEST(Codec, bits_count_the_scales) {
  const struct {
    Codec codec;
    double bits;
  } rows[] = {
      {Codec::kBf16, 16},        {Codec::kFp16, 16},  {Codec::kInt8, 8.25},  // 8 + 16 / 64
      {Codec::kInt6, 6.25},      {Codec::kInt4, 4.5},                        // 4 + 16 / 32
      {Codec::kHadamard4, 4.25}, {Codec::kInt3, 3.5}, {Codec::kInt2, 2.5},  {Codec::kAqInt3, 3.5},
  };
  for (const auto& row : rows) EXPECT_EQ(bits_of(row.codec), row.bits) << name_of(row.codec);
  EXPECT_EQ(bits_of(Codec::kNone), 32);
  EXPECT_EQ(bits_of(Codec::kNone, 16), 16);  // of the compute type
}

TEST(Codec, the_finest_come_first) {
  EXPECT_TRUE(std::ranges::is_sorted(kCodecs));
  EXPECT_TRUE(std::ranges::is_sorted(kCodecs, std::ranges::greater{},
                                     [](Codec codec) { return bits_of(codec); }));
}

TEST(Codec, a_validation_has_8_bits_at_least) {
  for (const Codec codec : {Codec::kNone, Codec::kBf16, Codec::kInt8, Codec::kAqInt2}) {
    EXPECT_EQ(validation_codec(codec), codec) << name_of(codec);
  }
  for (const Codec codec : {Codec::kInt6, Codec::kInt4, Codec::kHadamard4, Codec::kInt2}) {
    EXPECT_EQ(validation_codec(codec), Codec::kInt8) << name_of(codec);
  }
}

TEST(Codec, a_history_is_told_apart_from_what_writes_its_differences) {
  EXPECT_TRUE(has_history(Codec::kAqInt3));
  EXPECT_EQ(without_history(Codec::kAqInt3), Codec::kInt3);
  EXPECT_FALSE(has_history(Codec::kInt3));
  EXPECT_EQ(without_history(Codec::kHadamard4), Codec::kHadamard4);
}

}  // namespace
}  // namespace longhaul
