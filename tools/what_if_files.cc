// What what-if edits take from files: the trace at another percentile, devices and links of sites
// that the cluster does not have.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "core/config_cursor.h"
#include "core/config_edit.h"
#include "core/quantity.h"
#include "netsim/cities.h"
#include "netsim/cluster_build.h"
#include "netsim/cluster_file.h"
#include "netsim/shipped.h"
#include "tools/command.h"
#include "tools/what_if_world.h"

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

Link link_of(const PairSummary& pair) {
  return {.latency = *pair.latency,
          .rate = {},
          .scope = pair.scope,
          .loss = pair.loss,
          .jitter = pair.jitter,
          .latency_origin = pair.latency_origin,
          .rate_origin = pair.rate_origin,
          .measured = pair.rate.value_or(BytesPerSecond::infinity())};
}

/// What the cluster's trace says of a place that is no site yet; nothing where there is no trace,
/// or no such place in it.
Result<std::optional<NewSiteLinks>> links_in_trace(const WhatIfBase& base, const Topology& topology,
                                                   const std::string& name,
                                                   std::optional<double> percentile) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(base.cluster_path));
  const Cursor network = file.root().key("network");
  const std::string path = network.optional("trace").text();
  if (path.empty()) return std::nullopt;
  LH_ASSIGN(const Trace trace, load_trace(resolve_from(base.cluster_path, path)));
  const int place = trace.find_place(name);
  if (place < 0) return std::nullopt;
  const double q = percentile.value_or(network.optional("percentile").number({}, 50));
  const std::vector<PairSummary> summaries = summarise(trace, q);
  const auto summary = [&](int from, int to) -> std::optional<Link> {
    if (from < 0 || to < 0) return std::nullopt;
    const PairSummary& pair = summaries[at(from) * trace.places.size() + at(to)];
    if (!pair.latency) return std::nullopt;
    return link_of(pair);
  };
  NewSiteLinks out;
  for (const Site& site : topology.sites) {
    const int other = trace.find_place(site.trace_name);
    out.others.push_back({summary(place, other), summary(other, place)});
  }
  out.inside = summary(place, place);
  out.source = fmt::format("its links are those of the trace's place {}", name);
  return out;
}

/// Where the new site's name is a place, and others have coordinates: what shipped traces measured
/// between them, else what the models say.
Result<std::optional<NewSiteLinks>> links_of_place(const Topology& topology,
                                                   const std::string& name) {
  LH_ASSIGN(const CityTable cities, CityTable::load());
  const Place* place = cities.find_if_clear(name);
  if (place == nullptr) return std::nullopt;
  std::vector<BuiltSite> sites = {{name, place->location(), place->end, {name, place->name}, {}}};
  sites[0].trace_names.insert(sites[0].trace_names.end(), place->aliases.begin(),
                              place->aliases.end());
  std::vector<std::size_t> site_of = {0};  // by built site; the first is the new one
  for (std::size_t s = 0; s < topology.sites.size(); ++s) {
    const Site& site = topology.sites[s];
    if (!site.coordinates) continue;
    const RouteEnd end{*site.coordinates, cities.nearest_city(*site.coordinates).end.zone};
    sites.push_back({site.name, site.location, end, {site.name, site.trace_name}, {}});
    site_of.push_back(s);
  }
  if (sites.size() == 1) return std::nullopt;
  std::vector<Trace> traces;
  for (const ShippedTrace& shipped : kShippedTraces) {
    LH_ASSIGN(Trace trace, load_shipped_trace(shipped));
    traces.push_back(std::move(trace));
  }
  const BuiltCluster built = build_cluster(std::move(sites), traces, {});
  NewSiteLinks out;
  out.others.resize(topology.sites.size());
  int modelled = 0;
  for (const BuiltLink& link : built.links) {
    if (link.from != 0 && link.to != 0) continue;
    const Link made{.latency = link.round_trip.value / 2,
                    .rate = {},
                    .scope = link.scope,
                    .loss = link.loss,
                    .jitter = link.jitter,
                    .latency_origin = link.round_trip.origin,
                    .rate_origin = link.rate.origin,
                    .measured = link.rate.value};
    modelled += made.latency_origin == Origin::kModelled ? 1 : 0;
    if (link.from == link.to) {
      out.inside = made;
    } else if (link.from == 0) {
      out.others[site_of[at(link.to)]].out = made;
    } else {
      out.others[site_of[at(link.from)]].back = made;
    }
  }
  out.source = fmt::format("its links are those of {}, {} of {} latencies modelled",
                           place->location(), modelled, 2 * (site_of.size() - 1));
  return out;
}

}  // namespace

Result<NewSiteLinks> links_of_new_site(const WhatIfBase& base, const Topology& topology,
                                       const std::string& name, std::optional<double> percentile) {
  LH_ASSIGN(std::optional<NewSiteLinks> in_trace, links_in_trace(base, topology, name, percentile));
  if (in_trace) return *std::move(in_trace);
  NewSiteLinks out;
  out.others.resize(topology.sites.size());
  if (base.links_like.empty()) {
    LH_ASSIGN(std::optional<NewSiteLinks> of_place, links_of_place(topology, name));
    return of_place ? *std::move(of_place) : out;
  }
  const int like = base.topology.find_site(base.links_like);
  if (like < 0) {
    std::vector<std::string> names;
    for (const Site& site : base.topology.sites) names.push_back(site.name);
    return invalid(
        fmt::format("--links-like: no site is named `{}`", base.links_like),
        did_you_mean(base.links_like, names, fmt::format("sites: {}", fmt::join(names, ", "))));
  }
  for (std::size_t s = 0; s < topology.sites.size(); ++s) {
    const int other = base.topology.find_site(topology.sites[s].name);
    if (other < 0) continue;  // new, too
    // To the site that it is like: what is inside that one.
    out.others[s] = {base.topology.link(like, other), base.topology.link(other, like)};
  }
  out.inside = base.topology.link(like, like);
  out.source = fmt::format("its links are those of {}, where it is one more node to that site",
                           base.links_like);
  return out;
}

Result<Topology> cluster_at_percentile(const WhatIfBase& base, double percentile) {
  LH_ASSIGN(ConfigFile file, ConfigFile::load(base.cluster_path));
  LH_ASSIGN(const std::string trace, value_at(file.text(), base.cluster_path, "network.trace"));
  if (trace.empty()) {
    return invalid(
        fmt::format("cluster `{}` names no trace, so it has no percentiles", base.topology.name),
        "edit links instead, such as `link * latency +10%`");
  }
  LH_ASSIGN(const std::string text, with_value(file.text(), base.cluster_path, "network.percentile",
                                               format_exact(percentile)));
  return parse_cluster(text, base.cluster_path, folder_of(base.cluster_path));
}

Result<Topology> cluster_of_one_site(const WhatIfBase& base, const std::string& name,
                                     const std::string& devices) {
  std::string kinds;
  if (!base.cluster_path.empty()) {
    LH_ASSIGN(ConfigFile file, ConfigFile::load(base.cluster_path));
    const Cursor files = file.root().optional("device_files");
    if (files.present()) {
      for (const auto& [kind, path] : files.entries()) {
        kinds += fmt::format("{}{}: {}", kinds.empty() ? "" : ", ", yaml_text(kind),
                             yaml_text(path.text()));
      }
    }
  }
  std::string list;
  for (std::string_view rest = devices;;) {
    const std::string_view item = rest.substr(0, rest.find(','));
    list += (list.empty() ? "" : ", ") + yaml_text(item);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  const std::string text = fmt::format(
      "schema: longhaul/cluster/1\nname: new\nnetwork: {{}}\ndevice_files: {{{}}}\n"
      "sites: [{{name: {}, nodes: [{{devices: [{}]}}]}}]\n",
      kinds, yaml_text(name), list);
  Result<Topology> topology = parse_cluster(text, "new", folder_of(base.cluster_path));
  if (!topology) return invalid(topology.error().message, topology.error().hint);
  return topology;
}

}  // namespace longhaul
