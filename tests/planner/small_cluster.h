#pragma once

#include <string>

#include "core/rng.h"
#include "tests/core/fixtures.h"

namespace longhaul::fixtures {

/// Four devices of four speeds at three sites with uneven links: a-1/0, a-2/0, b-1/0, c-1/0. Drawn
/// by name and seed.
inline Topology small_cluster(const std::string& name, std::uint64_t seed) {
  Rng rng(name, seed);
  Topology topology = unit_topology({0, 0, 1, 2});
  for (DeviceKind& kind : topology.kinds) kind.rate.fill(flops_per_second(8 + 24 * rng.uniform()));
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      Link& link = link_of(topology, a, b);
      link.latency = Seconds(a == b ? 0.01 : 0.1 + rng.uniform());
      link.rate = bytes_per_second(a == b ? 1000 : 20 + 100 * rng.uniform());
    }
  }
  return topology;
}

}  // namespace longhaul::fixtures
