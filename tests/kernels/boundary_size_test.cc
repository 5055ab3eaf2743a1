// What the planner prices of boundary messages with histories is what their frames take.

#include <gtest/gtest.h>

#include "core/model_math.h"
#include "kernels/codec/tensor_frame.h"

namespace longhaul {
namespace {

TEST(BoundarySize, a_message_with_a_history_is_priced_frame_by_frame) {
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
