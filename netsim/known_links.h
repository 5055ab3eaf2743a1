// From what a trace and a cluster file say of the links to the complete network of a Topology.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/topology.h"

namespace longhaul {

/// A directed link as far as it is known; the trace fills first, inline links override.
struct KnownLink {
  std::optional<Seconds> latency;  // one way
  std::optional<BytesPerSecond> rate;
  LinkScope scope = LinkScope::kNode;
  double loss = 0;
  Seconds jitter;
  Origin latency_origin = Origin::kMeasured;
  Origin rate_origin = Origin::kMeasured;
};

struct LinkProblem {
  std::string message;
  std::string hint;
};

/// Fills Topology::links from `known` (sites x sites, row-major) and says in Topology::assumptions
/// what had to be taken: a missing direction mirrors the other; a missing rate is min(NIC, streams
/// x window / RTT); nodes of one site without a link of their own get 0.25 ms and 10 Gbit/s. TCP's
/// limits are applied to every rate. Answers what cannot be completed; links are then unusable.
std::vector<LinkProblem> complete_links(Topology& topology, const std::vector<KnownLink>& known);

/// Makes rate and streams of one link anew from what the topology now says of it: the rate that was
/// measured (else NICs and windows), latency both ways, loss and TCP. Both directions are complete.
/// Answers the rate before TCP's limits.
BytesPerSecond limit_by_tcp(Topology& topology, int from_site, int to_site);

}  // namespace longhaul
