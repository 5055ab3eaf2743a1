// A worker's ends of the boundaries whose activations have histories (executor/history): which its
// stage has by the plan, what room they have, and their files beside a checkpoint.
//
// All but history_edges belong to the codec stream, or to when nothing is on it.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "executor/history/aq_boundary.h"
#include "executor/run/run_spec.h"
#include "executor/storage/storage.h"

namespace longhaul {

/// Of a cell, towards the stage before it and the one behind it. `folder`: on the disk for what
/// RAM has no room for.
std::vector<AqBoundary::Edge> history_edges(const RunSpec& spec, int cell,
                                            const std::string& folder);

/// Writes the histories of a cell's boundaries into a checkpoint's folder on this node.
Result<void> save_histories(Storage& storage, const std::string& folder, const RunSpec& spec,
                            int cell, AqBoundary& format);
/// Reads what is there of them.
Result<void> load_histories(Storage& storage, const std::string& folder, const RunSpec& spec,
                            int cell, AqBoundary& format);

}  // namespace longhaul
