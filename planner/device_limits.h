// Which devices a plan may use: all but those that a person excludes, in at most so many sites.
// Devices that are left out stand idle. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "planner/cost_model.h"

namespace longhaul {

struct DeviceLimits {
  std::vector<std::string> excluded;  // names of sites, nodes, device kinds or devices
  int sites_max = 0;                  // that a plan may span; 0: any number
};

/// By device, whether it may be used. An unknown name is kInvalid, with a guess at what was meant.
Result<std::vector<char>> admitted_devices(const Topology& topology, const DeviceLimits& limits);

/// The devices of each choice of `sites_max` sites among those that `problem` can use; first the
/// sites with the highest joint speed. Every choice where there are few; else only that first one
/// and, from each site, the nearest around it. One choice with everything where nothing limits.
std::vector<std::vector<char>> site_choices(const Problem& problem, int sites_max);

/// " without tokyo, t4 and in at most 2 sites", for messages; empty where nothing is limited.
std::string text_of(const DeviceLimits& limits);

}  // namespace longhaul
