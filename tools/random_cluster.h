// Clusters and jobs drawn at random, for benchmarks and tests that want many: what a planner has
// not been tuned on. A seed gives the same text on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "core/job.h"
#include "core/topology.h"

namespace longhaul {

/// A cluster file of 2 to 8 sites in cities, 4 to `devices_max` devices (at least 4) of one to four
/// shipped kinds, one to eight a node. One-way latency between sites is the great circle at 200,000
/// km/s times 1.5 for the detours of fibres, plus 1 ms; rates from 0.1 to 5 Gbit/s, each direction
/// its own; some pairs of sites share one pipe, some sites one uplink; NICs of 1 to 100 Gbit/s;
/// egress prices.
std::string random_cluster_text(std::uint64_t seed, int devices_max);
Topology random_cluster(std::uint64_t seed, int devices_max);

/// A job of one of six shapes, 124 M to 6.7 B parameters, with half, once or twice the tokens a
/// step that GPT-3 [Brown et al., 2020, table 2.1] had at that size, that takes at most half the
/// memory of the cluster's devices for its states; the smallest where none does.
std::string random_job_text(std::uint64_t seed, const Topology& topology);
Job random_job(std::uint64_t seed, const Topology& topology);

/// For emulation on one machine: 4 to 8 small servers of both shipped kinds (vps and vps-half, each
/// at least once) in 2 to 4 cities. Latencies as in random_cluster, but 6 to 10 ms inside a city;
/// rates between cities of 0.1 to 1 Gbit/s, each direction its own, some pairs of cities with one
/// pipe, some cities with one uplink; NICs of 1 Gbit/s.
/// `stretch` multiplies latencies and rates between cities, and rates of uplinks.
struct LinkStretch {
  double latency = 1;
  double rate = 1;
};
std::string small_cluster_text(std::uint64_t seed, const LinkStretch& stretch = {});
Topology small_cluster(std::uint64_t seed);

/// For scale: `devices` spread over `sites` cities, eight equal ones a node (fewer on a site's
/// last), kinds mixed between nodes, links as in random_cluster.
struct CityClusterSize {
  int sites = 2;  // at most kCities
  int devices = 16;
};
inline constexpr int kCities = 100;
std::string city_cluster_text(const CityClusterSize& size, std::uint64_t seed);
Topology city_cluster(const CityClusterSize& size, std::uint64_t seed);

}  // namespace longhaul
