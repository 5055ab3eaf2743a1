// Codecs of a plan whose job leaves them open (`auto` with a floor): the search prices the floor's,
// the fastest; afterwards every link class gets the finest codec that does not make the step
// longer. So the numbers that lossy codecs cost are paid only where they buy time.
#pragma once

#include "planner/judgement.h"
#include "planner/problem.h"

namespace longhaul {

/// Link classes are pairs of sites between which activations travel, and the exchange of each
/// stage. Tries the finest codec first, pair by pair and stage by stage; the step may become a
/// thousandth longer in all. Unchanged where the job fixes its codecs.
JudgedPlan finer_codecs(const Problem& problem, JudgedPlan judged);

}  // namespace longhaul
