// Which instruction set the CPU kernels use. It is chosen when the program runs, so one binary
// serves every machine, and it never changes a result: all variants of a kernel round the same
// operations in the same order.
//
// Any thread may read the active set. Changing it is for tests and benchmarks, while no kernel
// runs.
#pragma once

#include <span>
#include <string_view>

#if defined(__x86_64__)
#define LH_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define LH_TARGET_AVX512 __attribute__((target("avx512f,avx2,fma")))
#else
#define LH_TARGET_AVX2
#define LH_TARGET_AVX512
#endif
/// For helpers that must be compiled for the instruction set of whoever calls them.
#define LH_ALWAYS_INLINE inline __attribute__((always_inline))

namespace longhaul {

enum class Isa {
  kPortable,    // any CPU; fused multiply-add through std::fma
  kAvx2,        // AVX2 and FMA
  kAvx512,      // AVX-512F
  kAvx512Bf16,  // and AVX512_BF16: products of bf16 numbers at twice the speed; else as kAvx512
};
std::string_view name_of(Isa isa);

/// What this machine can run, kPortable first and the fastest last.
std::span<const Isa> supported_isas();

/// The fastest supported one unless set otherwise.
Isa active_isa();
/// `isa` must be supported.
void set_active_isa(Isa isa);

/// Whether bf16 products are faster than fp32's here, and what to tell a person if not.
inline bool has_fast_bf16() {
  return active_isa() == Isa::kAvx512Bf16;
}
inline constexpr std::string_view kSlowBf16 =
    "this processor lacks AVX512_BF16: bf16 gives the same numbers as elsewhere, at fp32's speed";

template <auto kBody, class... Arguments>
LH_TARGET_AVX2 void run_on_avx2(Arguments... arguments) {
  kBody(arguments...);
}
template <auto kBody, class... Arguments>
LH_TARGET_AVX512 void run_on_avx512(Arguments... arguments) {
  kBody(arguments...);
}

/// Calls kBody, an LH_ALWAYS_INLINE function, compiled for the active instruction set. This is how
/// element-wise kernels are written once: the compiler vectorises each copy to its own width. A
/// body must give the same bits at any width: element-wise work, or sums through lane_sum.
template <auto kBody, class... Arguments>
void run_on_active_isa(Arguments... arguments) {
  switch (active_isa()) {
    case Isa::kAvx512Bf16:
    case Isa::kAvx512:
      return run_on_avx512<kBody>(arguments...);
    case Isa::kAvx2:
      return run_on_avx2<kBody>(arguments...);
    case Isa::kPortable:
      return kBody(arguments...);
  }
}

}  // namespace longhaul
