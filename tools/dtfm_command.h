// `longhaul plan --objective dtfm`: DT-FM's placement problem on a raw pair of matrices, without a
// cluster or a job.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace longhaul {

struct DtfmCommandOptions {
  std::string latency_file;    // CSV, ms
  std::string bandwidth_file;  // CSV, Gbit/s
  int stages = 0;
  double gradient_gb = -1;    // of one stage; negative: not given
  double activation_gb = -1;  // of a pipeline's macro-batch; negative: not given
  std::uint64_t seed = 1;
  int threads = 1;
  double effort = 1;       // multiplies the rounds of the search and the work on the bound
  std::string time_limit;  // empty: none
  bool json = false;
};

/// Prints the placement, its cost and the lower bound to stdout.
Result<void> plan_dtfm(const DtfmCommandOptions& options);

}  // namespace longhaul
