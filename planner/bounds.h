// Tier T0: lower bounds on the step time of every plan of a grid, whatever its placement, layers,
// schedule and shares. None is above a simulated step (T3).
#pragma once

#include <string>
#include <vector>

#include "planner/problem.h"

namespace longhaul {

/// A lower bound and the name of what binds.
struct Bound {
  double seconds = 0;
  std::string name;
};
Bound lower_bound(const Problem& problem, const Grid& grid);
/// All of them by name; lower_bound is the highest.
std::vector<Bound> lower_bounds(const Problem& problem, const Grid& grid);
/// No plan of the grid costs less a step: its devices are paid for at least as long as the bound.
double least_usd(const Problem& problem, const Grid& grid, const Bound& bound);

}  // namespace longhaul
