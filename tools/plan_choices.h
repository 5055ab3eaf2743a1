// What a plan chooses beside its grid and its schedule, as commands show it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/plan.h"

namespace longhaul {

/// A row a choice; empty where the plan has none of its own.
std::string choices_table(const Plan& plan, const Topology& topology, const Job& job);
/// Sets `recompute`, `codecs` and `reductions` (docs/formats.md).
void add_choices(const Plan& plan, const Topology& topology, const Job& job,
                 nlohmann::ordered_json& json);

}  // namespace longhaul
