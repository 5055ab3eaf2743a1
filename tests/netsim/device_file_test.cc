// Shipped device kinds against their datasheets: dense peaks, without sparsity.

#include "netsim/device_file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/config_cursor.h"

namespace longhaul {
namespace {

struct Datasheet {
  std::string kind;
  double memory_gib;
  double half_tflops;    // sustained at fp16 and bf16: dense peak x the file's efficiency
  double fp32_tflops;    // likewise
  double memory_gbytes;  // sustained: bandwidth x 0.75
};

TEST(ShippedDevices, sustain_the_stated_part_of_their_dense_peaks) {
  for (const Datasheet& sheet : {
           Datasheet{"h200", 140, 0.4 * 989, 0.4 * 67, 3600},
           {"l4", 24, 0.35 * 121, 0.35 * 30.3, 225},
           {"l40s", 48, 0.4 * 362, 0.4 * 91.6, 648},
           {"rtx3090", 24, 0.6 * 71, 0.6 * 35.6, 702},
           {"rtx4090", 24, 0.5 * 165, 0.5 * 82.6, 756},
           {"mi300x", 192, 0.3 * 1307.4, 0.3 * 163.4, 3975},
       }) {
    const Result<DeviceKind> kind =
        load_device_kind(LONGHAUL_SOURCE_DIR "/configs/devices/" + sheet.kind + ".yaml");
    ASSERT_TRUE(kind) << kind.error().text();
    EXPECT_EQ(kind->memory, gibibytes(sheet.memory_gib)) << sheet.kind;
    EXPECT_NEAR(kind->rate_at(Precision::kFp16).value() / 1e12, sheet.half_tflops, 1e-6);
    EXPECT_NEAR(kind->rate_at(Precision::kBf16).value() / 1e12, sheet.half_tflops, 1e-6);
    EXPECT_NEAR(kind->rate_at(Precision::kFp32).value() / 1e12, sheet.fp32_tflops, 1e-6);
    EXPECT_NEAR(kind->memory_rate.value() / 1e9, sheet.memory_gbytes, 1e-6) << sheet.kind;
    EXPECT_EQ(kind->origin, Origin::kAssumed);
  }
}

// 36 and 95 TFLOP/s in fp16, 14 in fp32: 1 / (1/14 + 2 (1/36 - 1/95)) = 9.44 of 15.7 is 0.601.
TEST(ShippedDevices, a_v100_sustains_another_part_of_its_peak_in_each_precision) {
  const Result<DeviceKind> v100 =
      load_device_kind(LONGHAUL_SOURCE_DIR "/configs/devices/v100.yaml");
  ASSERT_TRUE(v100) << v100.error().text();
  EXPECT_NEAR(v100->rate_at(Precision::kFp32).value() / 1e12, 9.42, 1e-6);
  EXPECT_NEAR(v100->rate_at(Precision::kFp16).value() / 1e12, 50, 1e-6);
  EXPECT_NEAR(1 / (1 / 14.0 + 2 * (1 / 36.0 - 1 / 95.0)), 9.42, 0.03);
}

TEST(DeviceFile, an_efficiency_is_for_all_precisions_or_one_each) {
  const auto parsed = [](const std::string& efficiency) -> Result<DeviceKind> {
    LH_ASSIGN(ConfigFile file,
              ConfigFile::parse(
                  "schema: longhaul/device/1\nkind: k\ntitle: t\nmemory: 16 GiB\nreserved: 1 GiB\n"
                  "peak: {fp32: 10 TFLOP/s, fp16: 100 TFLOP/s}\nefficiency: " +
                      efficiency +
                      "\nmemory_bandwidth: 900 GB/s\nmemory_efficiency: 0.75\noverhead: 50 us\n"
                      "origin: assumed\nsource: s\n",
                  "k.yaml"));
    return read_device_kind(file);
  };
  EXPECT_NEAR(parsed("0.5")->rate_at(Precision::kFp16).value(), 5e13, 1);
  EXPECT_NEAR(parsed("{fp32: 0.5, fp16: 0.25}")->rate_at(Precision::kFp16).value(), 2.5e13, 1);
  for (const auto& [text, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{fp32: 0.5}", "fp16"},                        // a peak without
           {"{fp32: 0.5, fp16: 0.5, bf16: 0.5}", "bf16"},  // none of that precision
           {"{fp32: 0.5, fp16: 1.5}", "1.5"},
           {"1.5", "1.5"}}) {
    const Result<DeviceKind> kind = parsed(text);
    ASSERT_FALSE(kind) << text;
    EXPECT_NE(kind.error().text().find(message), std::string::npos) << kind.error().text();
  }
}

}  // namespace
}  // namespace longhaul
