// Cluster files: who the sites, nodes and devices are and how they are linked. Turns
// configs/clusters/*.yaml, the traces they name and the device files into a Topology.
//
// Format: docs/formats.md. Paths inside a cluster file are relative to its folder. A device kind is
// looked up in the file's own `device_files`, then in the shipped configs/devices (environment
// variable LONGHAUL_CONFIGS overrides where those are).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "netsim/device_file.h"
#include "netsim/trace.h"

namespace longhaul {

/// Reads a cluster and everything it names. All errors of a file are reported at once (kInvalid).
/// What was not said and had to be taken is listed in Topology::assumptions.
Result<Topology> load_cluster(const std::string& path);
/// The same from text; relative paths start at `folder`.
Result<Topology> parse_cluster(std::string_view text, const std::string& name,
                               const std::string& folder);

/// Text of a cluster file for a trace and a list such as `oregon:8xv100,london:4xa100`: one node a
/// site with those devices. `trace_path` is written as it is given.
Result<std::string> cluster_text(const Trace& trace, const std::string& trace_path,
                                 std::string_view devices);

}  // namespace longhaul
