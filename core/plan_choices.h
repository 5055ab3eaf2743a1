// What a plan chooses beside its grid and its schedule: recomputation, codecs
// and reductions, as they stand in a plan file. Written only where they say
// something. For core/plan.cc and for those who show a plan.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/config_cursor.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"

namespace longhaul {

/// Reads `recompute`, `codecs` and `reductions`. Layers, pipelines and devices
/// have been read.
void read_plan_choices(const Cursor& root, const Topology& topology, const Job& job, Plan& plan);
std::string plan_choices_text(const Plan& plan, const Topology& topology, const Job& job);

/// What is chosen and what it is, for people: ("reduction of stage 0", "ring,
/// bf16"). Only what a plan without choices of its own would not do.
std::vector<std::pair<std::string, std::string>> shown_choices(const Plan& plan,
                                                               const Topology& topology,
                                                               const Job& job);

}  // namespace longhaul
