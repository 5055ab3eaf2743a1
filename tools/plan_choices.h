// What a plan chooses beside its grid and its schedule, as commands show it.
#pragma once

#include <string>

#include "core/plan.h"

namespace longhaul {

/// A row a choice; empty where the plan has none of its own.
std::string choices_table(const Plan& plan, const Topology& topology, const Job& job);
/// A JSON object of `recompute`, `codecs` and `reductions` (docs/formats.md).
std::string choices_json(const Plan& plan, const Topology& topology, const Job& job);

}  // namespace longhaul
