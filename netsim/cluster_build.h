// From a list such as `tokyo:8xh100,frankfurt:4xa100` to a cluster: where the sites lie, and links
// between all of them, measured where a trace has them and modelled elsewhere.
//
//   LH_ASSIGN(const CityTable cities, CityTable::load());
//   LH_ASSIGN(std::vector<BuiltSite> sites, parse_sites(list, cities));
//   const BuiltCluster built = build_cluster(std::move(sites), traces, {.name = "world"});
//
// The text of the cluster file names the trace that belongs beside it. Same input, same text.
// Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "netsim/cities.h"
#include "netsim/device_file.h"
#include "netsim/latency_model.h"
#include "netsim/trace.h"

namespace longhaul {

struct BuiltNodes {
  int count = 1;
  DeviceCount devices;  // of each node
};

struct BuiltSite {
  std::string name;
  std::string location;  // "Tokyo, JP"
  RouteEnd end;
  /// What traces may call it: its own name, then those of its place.
  std::vector<std::string> trace_names;
  std::vector<BuiltNodes> nodes;
};

/// Reads `[NAME=]PLACE:NODES[,...]`. PLACE is a name of the table or `LATITUDE,LONGITUDE`; NODES
/// are `8xh100`, `2x8xh100` (two nodes of eight) or several of them joined by `+`.
Result<std::vector<BuiltSite>> parse_sites(std::string_view list, const CityTable& cities);

/// One figure of a directed link.
template <class T>
struct Sourced {
  T value{};
  Origin origin = Origin::kModelled;
  std::string source;
};

struct BuiltLink {
  int from = 0;
  int to = 0;
  double km = 0;  // of the great circle
  Sourced<Seconds> round_trip;
  Sourced<BytesPerSecond> rate;
  LinkScope scope = LinkScope::kNode;
  double loss = 0;
  Seconds jitter;
};

struct BuildOptions {
  std::string name = "built";
  std::string list;        // for the description
  std::string trace_path;  // as the cluster file names it
  std::string nic;         // of every node, such as `25 Gbit/s`; empty: unlimited
  std::string uplink;      // of every site, both ways; empty: unlimited
  RateModel rate = kRateModel;
};

struct BuiltCluster {
  std::vector<BuiltSite> sites;
  std::vector<BuiltLink> links;  // all ordered pairs of sites; inside ones where measured
  std::string cluster_text;
  std::string trace_text;  // empty: there is no link, and the cluster names no trace
};

/// The first trace with a measured latency of a pair gives its latency, the first with a measured
/// rate its rate; a direction that was not measured mirrors the other one.
BuiltCluster build_cluster(std::vector<BuiltSite> sites, std::span<const Trace> traces,
                           const BuildOptions& options);

/// Whether a trace has a measurement between two of the sites.
bool has_pair_of(const Trace& trace, std::span<const BuiltSite> sites);

}  // namespace longhaul
