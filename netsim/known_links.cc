#include "netsim/known_links.h"

#include <fmt/core.h>

#include <algorithm>

namespace longhaul {
namespace {

constexpr Seconds kAssumedInsideLatency(0.25e-3);
constexpr double kAssumedInsideGbit = 10;

/// How often each rule was applied.
struct Counts {
  int mirrored = 0;
  int rates = 0;
  int inside = 0;
  int modelled_latencies = 0;
  int modelled_rates = 0;
};

/// Takes from the other direction what this one lacks.
void mirror(KnownLink& link, const KnownLink& back, Counts& counts) {
  const bool has_own_row = link.latency.has_value();
  const bool lacks_rate = !link.rate && back.rate;
  if (!link.latency && back.latency) {
    link.latency = back.latency;
    link.jitter = back.jitter;
    link.latency_origin = Origin::kMirrored;
    ++counts.mirrored;
  } else if (lacks_rate) {
    ++counts.mirrored;
  }
  if (lacks_rate) {
    link.rate = back.rate;
    link.scope = back.scope;
    link.rate_origin = Origin::kMirrored;
    if (!has_own_row) link.loss = back.loss;
  }
}

void assume_inside(KnownLink& link) {
  if (!link.latency) {
    link.latency = kAssumedInsideLatency;
    link.latency_origin = Origin::kAssumed;
  }
  if (!link.rate) {
    link.rate = gigabits_per_second(kAssumedInsideGbit);
    link.rate_origin = Origin::kAssumed;
  }
}

BytesPerSecond slowest_nic(const Topology& topology, int site) {
  BytesPerSecond nic = BytesPerSecond::infinity();
  for (const Node& node : topology.nodes) {
    if (node.site == site) nic = std::min(nic, node.nic);
  }
  return nic;
}

bool has_several_nodes(const Topology& topology, int site) {
  return std::count_if(topology.nodes.begin(), topology.nodes.end(),
                       [&](const Node& node) { return node.site == site; }) > 1;
}

/// What is taken for a rate that nobody measured: all that NICs and windows let through.
BytesPerSecond assumed_rate(const Topology& topology, const TcpModel& tcp, int from, int to,
                            Seconds round_trip) {
  const BytesPerSecond nic = std::min(slowest_nic(topology, from), slowest_nic(topology, to));
  const int streams = tcp.streams == 0 ? kMaxStreams : tcp.streams;
  return std::min(nic, streams * (tcp.window / round_trip));
}

}  // namespace

BytesPerSecond limit_by_tcp(Topology& topology, int from_site, int to_site) {
  Link& link =
      topology.links[static_cast<std::size_t>(from_site * topology.site_count() + to_site)];
  TcpModel tcp = topology.tcp;
  if (link.streams_wanted > 0) tcp.streams = link.streams_wanted;
  const Seconds round_trip = link.latency + topology.link(to_site, from_site).latency;
  const BytesPerSecond path = link.measured.finite()
                                  ? link.measured
                                  : assumed_rate(topology, tcp, from_site, to_site, round_trip);
  link.rate = tcp_rate(tcp, path, round_trip, link.loss);
  link.streams = tcp_streams(tcp, path, round_trip);
  return path;
}

std::vector<LinkProblem> complete_links(Topology& topology, const std::vector<KnownLink>& known) {
  std::vector<LinkProblem> problems;
  Counts counts;
  const int sites = topology.site_count();
  const auto known_of = [&](int from, int to) -> const KnownLink& {
    return known[static_cast<std::size_t>(from * sites + to)];
  };
  for (int from = 0; from < sites; ++from) {
    for (int to = 0; to < sites; ++to) {
      KnownLink link = known_of(from, to);
      const KnownLink& back = known_of(to, from);
      mirror(link, back, counts);
      if (from == to && (!link.latency || !link.rate)) {
        assume_inside(link);
        counts.inside += has_several_nodes(topology, from) ? 1 : 0;
      }
      const std::string pair =
          fmt::format("{} and {}", topology.sites[static_cast<std::size_t>(from)].name,
                      topology.sites[static_cast<std::size_t>(to)].name);
      if (!link.latency) {
        if (from < to) {
          problems.push_back({fmt::format("nothing says how far {} are apart", pair),
                              "add rows to the trace, or a link under `links`"});
        }
        continue;
      }
      const Seconds round_trip = *link.latency + back.latency.value_or(*link.latency);
      if (!link.rate) {
        link.rate_origin = Origin::kAssumed;
        ++counts.rates;
        if (!assumed_rate(topology, topology.tcp, from, to, round_trip).finite()) {
          problems.push_back({fmt::format("nothing limits the rate between {}", pair),
                              "give the link a `bandwidth`, the nodes a `nic`, or tcp a `window`"});
        }
      }
      counts.modelled_latencies += link.latency_origin == Origin::kModelled ? 1 : 0;
      counts.modelled_rates += link.rate_origin == Origin::kModelled ? 1 : 0;
      topology.links.push_back({.latency = *link.latency,
                                .rate = {},  // below, when both directions are known
                                .scope = link.scope,
                                .loss = link.loss,
                                .jitter = link.jitter,
                                .latency_origin = link.latency_origin,
                                .rate_origin = link.rate_origin,
                                .measured = link.rate.value_or(BytesPerSecond::infinity())});
    }
  }
  const auto note = [&](int count, std::string_view text) {
    if (count > 0) topology.assumptions.push_back(fmt::format("{} {}", count, text));
  };
  note(counts.mirrored, "directions without a measurement mirror the other direction");
  note(counts.rates, "links without a rate get min(NIC, streams x window / RTT)");
  note(counts.modelled_latencies, "latencies are modelled, not measured");
  note(counts.modelled_rates, "rates are modelled, not measured");
  note(counts.inside, "sites without an inside link get 0.25 ms and 10 Gbit/s between their nodes");
  if (!problems.empty()) return problems;
  for (int from = 0; from < sites; ++from) {
    for (int to = 0; to < sites; ++to) limit_by_tcp(topology, from, to);
  }
  return problems;
}

}  // namespace longhaul
