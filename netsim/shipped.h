// What comes with the program: configs (devices, cities) and measured traces. Environment variable
// LONGHAUL_CONFIGS overrides where the configs are; the traces lie beside them, in `traces`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "netsim/trace.h"

namespace longhaul {

std::string shipped_configs();
/// Names of configs/devices/*.yaml, sorted.
std::vector<std::string> shipped_device_kinds();

/// Traces of cloud regions with measured round trips, in the order in which they are believed. The
/// models of netsim/latency_model.h are fitted on those marked so.
struct ShippedTrace {
  std::string_view file;  // in `traces`
  bool fits_latency;
  bool fits_rate;
};
inline constexpr ShippedTrace kShippedTraces[] = {
    {"aws-ten-regions.csv", false, true},    {"aws-cloudping-2022.csv", true, false},
    {"azure-2026.csv", true, false},         {"ibm-2025.csv", true, false},
    {"aws-gcp-doit-2022.csv", false, false},  // single tests: the last to be believed
};
Result<Trace> load_shipped_trace(const ShippedTrace& trace);

}  // namespace longhaul
