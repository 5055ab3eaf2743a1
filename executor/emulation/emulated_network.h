// What an emulated run pretends to be connected by: one machine plays devices in many cities.
//
// All numbers are in emulated time. An emulation runs slower than what it emulates by the dilation
// k: on the wall a latency lasts k times as long, and a rate is the k-th part. Plain data; whoever
// knows the topology fills it (the shared resources and paths of netsim/network_paths.h, by rank).
#pragma once

#include <cstddef>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace longhaul {

/// From one rank to another, one direction.
struct EmulatedPath {
  Seconds latency;
  BytesPerSecond rate_cap = BytesPerSecond::infinity();  // what this pair gets alone, at most
  std::vector<int> resources;                            // shared capacities that it crosses
};

struct EmulatedNetwork {
  int ranks = 0;
  std::vector<BytesPerSecond> capacities;  // of the shared resources; may be infinite
  std::vector<EmulatedPath> paths;         // ranks x ranks, [from][to]; the diagonal is not used
  double wire_factor = 1.036;              // bytes on the wire per byte of payload

  EmulatedPath& path(int from, int to) { return paths[index(from, to)]; }
  const EmulatedPath& path(int from, int to) const { return paths[index(from, to)]; }

 private:
  std::size_t index(int from, int to) const { return static_cast<std::size_t>(from * ranks + to); }
};

inline constexpr int kEmulatedRanksMax = 256;
inline constexpr std::size_t kEmulatedResourcesMax = std::size_t{1} << 16;
inline constexpr std::size_t kEmulatedPathMax = 64;         // resources of one path
inline constexpr Seconds kEmulatedLatencyMax{24 * 3600.0};  // on the wall, after dilation

/// What makes the network impossible to emulate at this dilation (kInvalid).
Result<void> check_emulation(const EmulatedNetwork& network, double dilation);

}  // namespace longhaul
