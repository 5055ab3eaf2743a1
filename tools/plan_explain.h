// What `longhaul plan` says beyond the plan: why it takes as long as it does, what else was found,
// and what time costs. For people, and as the text of a JSON value. Same input, same text.
#pragma once

#include <string>
#include <vector>

#include "core/job.h"
#include "core/topology.h"
#include "planner/explanation.h"
#include "planner/search.h"

namespace longhaul {

/// Tiers, memory of the devices, the binding link and what better links would save, and where the
/// constants of devices, links and TCP come from.
std::string explanation_text(const Explanation& explanation, const Topology& topology,
                             const Job& job);
std::string explanation_json(const Explanation& explanation, const Topology& topology,
                             const Job& job);

/// "also: 4 x 2 step 1.05 s (+16 %)", a line each; percent of what the goal makes small.
std::string alternatives_text(const JudgedPlan& best, const std::vector<const JudgedPlan*>& others,
                              const Job& job, const Goal& goal);
std::string alternatives_json(const std::vector<const JudgedPlan*>& others, const Job& job);

/// Plans that none beats in both time and price, the knee marked.
std::string pareto_text(const std::vector<const JudgedPlan*>& front, const Topology& topology,
                        const Job& job);
std::string pareto_json(const std::vector<const JudgedPlan*>& front, const Topology& topology,
                        const Job& job);

/// US dollars of a billion tokens.
double usd_per_billion_tokens(const JudgedPlan& judged, const Job& job);

}  // namespace longhaul
