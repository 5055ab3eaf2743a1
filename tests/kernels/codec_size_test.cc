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
      if (codec == Codec::kNone) continue;  // plain, without a frame
      EXPECT_EQ(codec_bytes(codec, static_cast<double>(n), 4).value(),
                static_cast<double>(tensor_frame_bytes(tensor_codec(codec), Precision::kFp32, n)))
          << name_of(codec) << " of " << n;
    }
  }
}

TEST(CodecSize, a_boundary_with_a_history_is_priced_frame_by_frame) {
  ModelShape model;
  model.context = 65;
  model.width = 13;
  constexpr int kSequences = 3;
  for (const Codec codec : kCodecs) {
    if (!has_history(codec)) continue;
    for (const Codec first : {Codec::kBf16, Codec::kInt8}) {
      for (const Visit visit : {Visit::kFirst, Visit::kLater}) {
        const Codec written = visit == Visit::kFirst ? first : codec;
        const std::size_t frame =
            tensor_frame_bytes(tensor_codec(written), Precision::kFp32, 65 * 13, true);
        EXPECT_EQ(boundary_message_bytes(codec, model, Precision::kFp32, kSequences, visit, first)
                      .value(),
                  static_cast<double>(kSequences * ((frame + 63) / 64 * 64)))
            << name_of(codec);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul
