// What the planner prices is what the codecs write.

#include <gtest/gtest.h>

#include "core/model_math.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {
namespace {

TEST(CodecSize, prices_are_the_frames_real_sizes) {
  for (const std::uint64_t n :
       {1u, 63u, 64u, 65u, 2047u, 2048u, 2049u, 4096u, 4194304u, 4194305u}) {
    for (const Codec codec : kCodecs) {
      if (codec == Codec::kNone) continue;  // no frame
      EXPECT_EQ(codec_bytes(codec, static_cast<double>(n), 4).value(),
                static_cast<double>(tensor_frame_bytes(tensor_codec(codec), Precision::kFp32, n)))
          << name_of(codec) << " " << n;
    }
  }
}

}  // namespace
}  // namespace longhaul
