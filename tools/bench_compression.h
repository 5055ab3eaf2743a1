// The second half of suite `compression`: time.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "tools/bench.h"

namespace longhaul {

/// After which shares of their runs a base and a setting have the lowest loss that both reach.
struct SameLoss {
  double base = 1;
  double setting = 1;
};
struct SameLosses {
  SameLoss aq;            // fp32 and AQ fw3bw6; bf16 is taken to learn as fp32 does
  SameLoss aq_gradients;  // fp32 and the same with gradients in int4
};

/// Steps of GPT-2 XL on V100s, made small (compression_world.h), through the real executor in
/// virtual time; and one through processes on emulated links. Prints its tables.
Result<std::vector<BenchFigure>> compression_times(const SameLosses& losses, bool has_wall_clock,
                                                   int threads, const std::string& command);

}  // namespace longhaul
