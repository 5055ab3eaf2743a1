// What `longhaul plan --from` says of the plan in use: what it is worth now, what moves to the new
// one, and whether that pays.
#pragma once

#include <string>

#include "tools/plan_policies.h"

namespace longhaul {

/// Of an outcome with `from`. Lines for people, and the value of "from" in plan --json.
std::string warm_start_text(const Outcome& outcome, const PlanOptions& options,
                            const Topology& topology);
std::string warm_start_json(const Outcome& outcome, const PlanOptions& options,
                            const Topology& topology);

}  // namespace longhaul
