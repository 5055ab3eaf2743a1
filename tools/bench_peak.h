// What the core that a benchmark runs on could do at most, and how its time is taken.
#pragma once

#include <functional>

namespace longhaul {

/// Median CPU time of this thread for one call: what other programs do on the machine matters less
/// than to a wall clock.
double median_cpu_seconds(int runs, const std::function<void()>& body);

/// FLOP/s of a loop of independent fp32 fused multiply-adds on the widest registers that kernels
/// use here; 0 where the CPU has no such instruction that we know.
double fp32_peak_flops(int runs);
/// Of VDPBF16PS; 0 where the CPU lacks it.
double bf16_peak_flops(int runs);

}  // namespace longhaul
