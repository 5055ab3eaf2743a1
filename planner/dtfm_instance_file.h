// Reads DT-FM problem instances as their scheduler is fed them: NAME.delay_ms.csv and
// NAME.bandwidth_gbps.csv, N lines of N comma-separated numbers without a header, and
// NAME.meta.json with the numbers of stages and replicas and the two amounts of data.
// May be called from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "planner/dtfm_objective.h"

namespace longhaul {

/// Parses `size` lines of `size` numbers. `file` is named in errors.
Result<std::vector<double>> parse_dtfm_matrix(std::string_view text, const std::string& file,
                                              int size);
/// The two matrices alone, in ms and Gbit/s; `devices` is the length of the first line, the rest is
/// left to the caller.
Result<DtfmInstance> load_dtfm_matrices(const std::string& latency_file,
                                        const std::string& bandwidth_file);
Result<DtfmInstance> load_dtfm_instance(const std::string& folder, const std::string& name);

}  // namespace longhaul
