// Codecs of a plan whose job leaves them open (`auto` with a floor): the search prices the floor's,
// the fastest; afterwards every link class gets the finest codec that does not make the step
// longer. So the numbers that lossy codecs cost are paid only where they buy time.
#pragma once

#include <optional>

#include "planner/judgement.h"
#include "planner/problem.h"

namespace longhaul {

/// Link classes are pairs of sites between which activations travel, their gradients apart where
/// the job says `activation_gradients: auto`, and the exchange of each stage. Tries the finest
/// codec first, pair by pair and stage by stage; the step may become a thousandth longer in all. A
/// floor with a history gives way to one without where not all samples have room and the step is as
/// short. Unchanged where the job fixes its codecs.
JudgedPlan finer_codecs(const Problem& problem, JudgedPlan judged);

/// The job with the coarsest activations that need no history, where its floor has one: what a
/// search falls back to when no device has room. Nothing where the floor has none or the job fixes
/// its codec.
std::optional<Job> without_histories(const Job& job);
/// A plan for that job as one for the job itself: each pair of sites that it crosses has its codec
/// by name.
Plan with_codecs_of(const Topology& topology, const Job& job, Plan plan);

}  // namespace longhaul
