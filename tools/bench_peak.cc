#include "tools/bench_peak.h"

#include <algorithm>
#include <ctime>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/isa.h"

namespace longhaul {
namespace {

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr long kCount = 10'000'000;
constexpr int kChains = 10;  // independent ones: enough to hide the latency

#if defined(__x86_64__)
/// One step of every chain of `sum`, kChains registers.
#define LH_CHAINS(instruction) \
  LH_CHAIN(instruction, 0)     \
  LH_CHAIN(instruction, 1)     \
  LH_CHAIN(instruction, 2)     \
  LH_CHAIN(instruction, 3)     \
  LH_CHAIN(instruction, 4)     \
  LH_CHAIN(instruction, 5)     \
  LH_CHAIN(instruction, 6)     \
  LH_CHAIN(instruction, 7)     \
  LH_CHAIN(instruction, 8)     \
  LH_CHAIN(instruction, 9)
#define LH_CHAIN(instruction, i) \
  asm volatile(instruction " %2, %1, %0" : "+v"(sum[i]) : "v"(factor), "v"(term));

LH_TARGET_AVX2 void run_avx2() {
  __m256 sum[kChains] = {};
  const __m256 factor = _mm256_set1_ps(0.999f);
  const __m256 term = _mm256_set1_ps(0.01f);
  for (long i = 0; i < kCount; ++i) {
    LH_CHAINS("vfmadd213ps")
  }
}

LH_TARGET_AVX512 void run_avx512() {
  __m512 sum[kChains] = {};
  const __m512 factor = _mm512_set1_ps(0.999f);
  const __m512 term = _mm512_set1_ps(0.01f);
  for (long i = 0; i < kCount; ++i) {
    LH_CHAINS("vfmadd213ps")
  }
}

LH_TARGET_AVX512 void run_bf16() {
  __m512 sum[kChains] = {};
  const __m512i factor = _mm512_set1_epi32(0x3f803f80);  // 1 and 1
  const __m512i term = factor;
  for (long i = 0; i < kCount; ++i) {
    LH_CHAINS("vdpbf16ps")
  }
}
#undef LH_CHAIN
#undef LH_CHAINS
#endif

}  // namespace

double median_cpu_seconds(int runs, const std::function<void()>& body) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const double start = cpu_seconds();
    body();
    times.push_back(cpu_seconds() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double fp32_peak_flops([[maybe_unused]] int runs) {
#if defined(__x86_64__)
  switch (supported_isas().back()) {
    case Isa::kAvx512Bf16:
    case Isa::kAvx512:
      return double{kCount} * kChains * 32 / median_cpu_seconds(runs, run_avx512);
    case Isa::kAvx2:
      return double{kCount} * kChains * 16 / median_cpu_seconds(runs, run_avx2);
    case Isa::kPortable:
      break;
  }
#endif
  return 0;
}

double bf16_peak_flops([[maybe_unused]] int runs) {
#if defined(__x86_64__)
  if (supported_isas().back() == Isa::kAvx512Bf16) {
    return double{kCount} * kChains * 64 / median_cpu_seconds(runs, run_bf16);
  }
#endif
  return 0;
}

}  // namespace longhaul
