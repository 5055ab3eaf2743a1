// Where the places of well-known traces are: enough to see that a latency is not one. Internal to
// trace_check.
#pragma once

#include <optional>
#include <string_view>

#include "core/topology.h"

namespace longhaul {

/// A city or a cloud's region, by its usual names (`Tokyo`, `ap-northeast-1`, `aws:us-east-1`);
/// nothing when it is not known.
std::optional<Coordinates> place_coordinates(std::string_view name);

/// Along the surface, in km.
double distance_km(const Coordinates& a, const Coordinates& b);

}  // namespace longhaul
