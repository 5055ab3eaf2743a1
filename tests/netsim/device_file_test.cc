// Shipped device kinds against their datasheets: dense peaks, without sparsity.

#include "netsim/device_file.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace longhaul
