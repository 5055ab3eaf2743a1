#include "kernels/cpu/bf16.h"

#include "kernels/cpu/vector_math.h"

namespace longhaul {
namespace {

LH_ALWAYS_INLINE void round_body(float* values, std::ptrdiff_t count) {
  LH_INDEPENDENT
  for (std::ptrdiff_t i = 0; i < count; ++i) values[i] = round_to_bf16(values[i]);
}

}  // namespace

void round_to_bf16(std::span<float> values) {
  run_on_active_isa<round_body>(values.data(), static_cast<std::ptrdiff_t>(values.size()));
}

}  // namespace longhaul
