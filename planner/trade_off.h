// Time against money: the plans that no other beats in both, and what else a search found.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/search.h"

namespace longhaul {

/// Whether a device that may be used, or the egress of its site, has a price.
bool has_prices(const Topology& topology, const DeviceLimits& limits);

/// Device kinds that may be used and have no price, by name.
std::vector<std::string> kinds_without_price(const Topology& topology, const DeviceLimits& limits);

/// Searches for the fastest plan, the cheapest, and the fastest ones at prices between. `judged` is
/// what all of them simulated; `best` is the fastest.
Result<SearchResult> search_trade_offs(const Topology& topology, const Job& job,
                                       const SearchOptions& options);

/// Plans that no other is as fast and as cheap as, the fastest first; of equal ones the first.
std::vector<const JudgedPlan*> non_dominated(const std::vector<JudgedPlan>& judged);

/// Index of the plan farthest below the straight line from the fastest to the cheapest, both axes
/// scaled to 0..1; -1 when no plan lies below it.
int knee_of(const std::vector<const JudgedPlan*>& front);

/// The best plan of each other (stages, pipelines) than that of `best`, the best first, at most
/// `most`.
std::vector<const JudgedPlan*> alternatives(const SearchResult& found, const Goal& goal,
                                            std::size_t most);

}  // namespace longhaul
