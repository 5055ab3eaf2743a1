#include "netsim/cluster_build.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/config_cursor.h"
#include "core/quantity.h"
#include "netsim/csv_text.h"
#include "netsim/shipped.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxBuiltSites = 256;
constexpr int kMaxNodes = 4096;  // of one part of a site, as in cluster files
constexpr std::string_view kExample = "write tokyo:8xh100,aws/us-west-2:4xv100,50.11,8.68:2x8xa100";

bool is_number(std::string_view text) {
  return parse_number(text).has_value();
}

std::string_view without_name(std::string_view item) {
  const std::size_t equals = item.find('=');
  return equals == std::string_view::npos ? item : item.substr(equals + 1);
}

/// Cuts the list at its commas, but for that of coordinates: `50.11,8.68:4xa100` is one item.
std::vector<std::string_view> split_sites(std::string_view list) {
  std::vector<std::string_view> items;
  while (true) {
    std::size_t end = std::min(list.find(','), list.size());
    if (end < list.size() && is_number(without_name(list.substr(0, end)))) {
      end = std::min(list.find(',', end + 1), list.size());
    }
    const std::string_view item = list.substr(0, end);
    const std::size_t first = std::min(item.find_first_not_of(' '), item.size());
    items.push_back(item.substr(first, item.find_last_not_of(' ') + 1 - first));
    if (end == list.size()) return items;
    list.remove_prefix(end + 1);
  }
}

/// `8xh100` or `2x8xh100`.
Result<BuiltNodes> parse_nodes(std::string_view text) {
  BuiltNodes nodes;
  const auto is_digits = [](std::string_view part) {
    return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::size_t first = std::min(text.find('x'), text.size());
  const std::size_t second = std::min(text.find('x', first + 1), text.size());
  if (second < text.size() && is_digits(text.substr(0, first)) &&
      is_digits(text.substr(first + 1, second - first - 1))) {
    nodes.count = first > 6 ? 0 : std::atoi(std::string(text.substr(0, first)).c_str());
    if (nodes.count < 1 || nodes.count > kMaxNodes) {
      return invalid(fmt::format("`{}` is not a number of nodes", text),
                     fmt::format("1 to {}: 2x8xh100 for two nodes of eight", kMaxNodes));
    }
    text.remove_prefix(first + 1);
  }
  LH_ASSIGN(nodes.devices, parse_device_count(text));
  const std::vector<std::string> kinds = shipped_device_kinds();
  if (std::ranges::find(kinds, nodes.devices.kind) == kinds.end()) {
    return invalid(
        fmt::format("unknown device kind `{}`", nodes.devices.kind),
        did_you_mean(nodes.devices.kind, kinds, fmt::format("kinds: {}", fmt::join(kinds, ", "))));
  }
  return nodes;
}

Result<Coordinates> parse_coordinates(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    return invalid(fmt::format("`{}` is no place", text), "coordinates are LATITUDE,LONGITUDE");
  }
  const Result<double> latitude = parse_number(text.substr(0, comma));
  const Result<double> longitude = parse_number(text.substr(comma + 1));
  if (!latitude || !longitude) {
    return invalid(fmt::format("`{}` are no coordinates", text),
                   "LATITUDE,LONGITUDE in degrees, such as 50.11,8.68");
  }
  const Coordinates at{*latitude, *longitude};
  if (!is_on_globe(at)) {
    return invalid(fmt::format("`{}` is not on the globe", text),
                   "latitudes are -90 to 90 degrees, longitudes -180 to 180");
  }
  return at;
}

/// A place by coordinates: `50.11n-8.68e`, routed like the city nearest to it.
BuiltSite site_at(Coordinates at, const CityTable& cities) {
  const Place& city = cities.nearest_city(at);
  BuiltSite site;
  site.name = fmt::format("{:g}{}-{:g}{}", std::abs(at.latitude), at.latitude < 0 ? 's' : 'n',
                          std::abs(at.longitude), at.longitude < 0 ? 'w' : 'e');
  site.location = "near " + city.location();
  site.end = {at, city.end.zone};
  site.trace_names = {site.name};
  return site;
}

Result<BuiltSite> site_named(std::string_view name, const CityTable& cities) {
  LH_ASSIGN(const Place* place, cities.find(name));
  const std::string key = place_key(name.substr(name.find('/') + 1));  // npos + 1 is 0
  const bool is_ascii = std::ranges::all_of(key, [](char c) { return (c & 0x80) == 0; });
  BuiltSite site;
  site.name = is_ascii ? key : place->name;
  site.location = place->location();
  site.end = place->end;
  site.trace_names = {site.name, place->name};
  site.trace_names.insert(site.trace_names.end(), place->aliases.begin(), place->aliases.end());
  return site;
}

/// `[NAME=]PLACE`.
Result<BuiltSite> parse_place(std::string_view text, const CityTable& cities) {
  const std::string_view where = without_name(text);
  const bool has_coordinates = is_number(where.substr(0, where.find(',')));
  BuiltSite site;
  if (has_coordinates) {
    LH_ASSIGN(const Coordinates at, parse_coordinates(where));
    site = site_at(at, cities);
  } else {
    LH_ASSIGN(site, site_named(where, cities));
  }
  if (where.size() == text.size()) return site;
  site.name = text.substr(0, text.find('='));
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (site.name.empty() || !std::ranges::all_of(site.name, is_plain)) {
    return invalid(fmt::format("`{}` cannot name a site", site.name), "letters, digits, `-_.`");
  }
  site.trace_names.insert(site.trace_names.begin(), site.name);
  return site;
}

Result<BuiltSite> parse_site(std::string_view item, const CityTable& cities) {
  const std::size_t colon = item.find(':');
  if (colon == std::string_view::npos) {
    return invalid(fmt::format("`{}` says no devices", item), std::string(kExample));
  }
  LH_ASSIGN(BuiltSite site, parse_place(item.substr(0, colon), cities));
  std::string_view rest = item.substr(colon + 1);
  while (true) {
    const std::size_t plus = std::min(rest.find('+'), rest.size());
    LH_ASSIGN(BuiltNodes nodes, parse_nodes(rest.substr(0, plus)));
    site.nodes.push_back(std::move(nodes));
    if (plus == rest.size()) return site;
    rest.remove_prefix(plus + 1);
  }
}

/// What one trace says of two sites.
struct MeasuredLink {
  const PairSummary* there = nullptr;  // null: nothing
  const PairSummary* back = nullptr;
};

/// A trace with its summaries and the index of each site among its places, or -1.
struct IndexedTrace {
  IndexedTrace(const Trace& trace, std::span<const BuiltSite> sites)
      : name(std::filesystem::path(trace.name).filename().string()),
        summaries(summarise(trace, 50)),
        count(trace.places.size()) {
    for (const BuiltSite& site : sites) {
      int index = -1;
      for (const std::string& candidate : site.trace_names) {
        if (index < 0) index = trace.find_place(candidate);
      }
      places.push_back(index);
    }
  }

  MeasuredLink link(int from, int to) const {
    const int a = places[static_cast<std::size_t>(from)];
    const int b = places[static_cast<std::size_t>(to)];
    // Two sites may be one place of a trace; what it says of the place's inside is not their link.
    if (a < 0 || b < 0 || (a == b && from != to)) return {};
    const auto at = [&](int i, int j) {
      return &summaries[static_cast<std::size_t>(i) * count + static_cast<std::size_t>(j)];
    };
    return {at(a, b), at(b, a)};
  }

  std::string name;
  std::vector<PairSummary> summaries;
  std::size_t count;
  std::vector<int> places;
};

bool was_measured(Origin origin) {
  return origin == Origin::kMeasured || origin == Origin::kMirrored;
}

/// Takes the latency, with what belongs to it, from one direction of a trace.
bool take_latency(BuiltLink& link, const PairSummary* pair, Origin origin,
                  const std::string& source) {
  if (pair == nullptr || !pair->latency || !was_measured(pair->latency_origin)) return false;
  link.round_trip = {2 * *pair->latency,
                     pair->latency_origin == Origin::kMirrored ? pair->latency_origin : origin,
                     source};
  link.loss = pair->loss;
  link.jitter = pair->jitter;
  return true;
}

bool take_rate(BuiltLink& link, const PairSummary* pair, Origin origin, const std::string& source) {
  if (pair == nullptr || !pair->rate || !was_measured(pair->rate_origin)) return false;
  link.rate = {*pair->rate, pair->rate_origin == Origin::kMirrored ? pair->rate_origin : origin,
               source};
  link.scope = pair->scope;
  return true;
}

BuiltLink measured_link(int from, int to, std::span<const IndexedTrace> traces) {
  BuiltLink link;
  link.from = from;
  link.to = to;
  for (const IndexedTrace& trace : traces) {
    const MeasuredLink measured = trace.link(from, to);
    if (link.round_trip.source.empty() &&
        !take_latency(link, measured.there, Origin::kMeasured, trace.name)) {
      take_latency(link, measured.back, Origin::kMirrored, trace.name);
    }
    if (link.rate.source.empty() &&
        !take_rate(link, measured.there, Origin::kMeasured, trace.name)) {
      take_rate(link, measured.back, Origin::kMirrored, trace.name);
    }
  }
  return link;
}

std::string rate_rule(const RateModel& model) {
  return fmt::format("min({}, {:.3g} MB / round trip)", format_bit_rate(model.cap),
                     model.window.value() / 1e6);
}

std::vector<BuiltLink> links_of(std::span<const BuiltSite> sites, std::span<const Trace> traces,
                                const RateModel& rate) {
  std::vector<IndexedTrace> indexed;
  for (const Trace& trace : traces) indexed.emplace_back(trace, sites);
  std::vector<BuiltLink> links;
  const int count = static_cast<int>(sites.size());
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      BuiltLink link = measured_link(from, to, indexed);
      const RouteEnd& a = sites[static_cast<std::size_t>(from)].end;
      const RouteEnd& b = sites[static_cast<std::size_t>(to)].end;
      link.km = great_circle_km(a.at, b.at);
      const bool has_both = !link.round_trip.source.empty() && !link.rate.source.empty();
      if (from == to && !has_both) continue;  // the inside of a site is not modelled
      if (link.round_trip.source.empty()) {
        link.round_trip = {modelled_round_trip(a, b), Origin::kModelled, "route"};
      }
      if (link.rate.source.empty()) {
        link.rate = {modelled_rate(link.round_trip.value, rate), Origin::kModelled,
                     rate_rule(rate)};
      }
      links.push_back(std::move(link));
    }
  }
  return links;
}

std::string nonzero(double value) {
  return value == 0 ? "" : fmt::format("{:.4g}", value);
}

std::string trace_text_of(const BuiltCluster& built, const BuildOptions& options) {
  if (built.links.empty()) return "";
  std::string out = fmt::format(
      "# Links of cluster {}, by `longhaul cluster build`. Modelled round trips: {:.3g} ms + "
      "{:.3g} "
      "us/km up to {:g} km of route\n# + {:.3g} us/km beyond. Modelled rates, of one process on "
      "each "
      "side: {}.\n"
      "from,to,scope,latency_ms,basis,gbit_per_s,streams,loss,jitter_ms,origin,source\n",
      options.name, kLatencyModel.base_ms, kLatencyModel.near_ms_per_km * 1e3, kRouteKneeKm,
      kLatencyModel.far_ms_per_km * 1e3, rate_rule(options.rate));
  for (const BuiltLink& link : built.links) {
    const std::string ends =
        fmt::format("{},{},{}", built.sites[static_cast<std::size_t>(link.from)].name,
                    built.sites[static_cast<std::size_t>(link.to)].name,
                    link.scope == LinkScope::kNode ? "node" : "site_pair");
    const std::string latency = fmt::format("{:.5g},rtt", link.round_trip.value.value() * 1e3);
    const std::string rate = fmt::format("{:.4g},1", link.rate.value.value() * 8 / 1e9);
    const std::string quality = nonzero(link.loss) + "," + nonzero(link.jitter.value() * 1e3);
    const auto row = [&](std::string_view latency_part, std::string_view rate_part,
                         std::string_view quality_part, Origin origin, std::string_view source) {
      out += fmt::format("{},{},{},{},{},{}\n", ends, latency_part, rate_part, quality_part,
                         name_of(origin), csv_field(source));
    };
    // One row where both figures have one origin; a row each elsewhere.
    if (link.round_trip.origin == link.rate.origin &&
        (link.round_trip.source == link.rate.source ||
         link.round_trip.origin == Origin::kModelled)) {
      row(latency, rate, quality, link.rate.origin,
          link.round_trip.source == link.rate.source ? link.rate.source : "model");
    } else {
      row(latency, ",", quality, link.round_trip.origin, link.round_trip.source);
      row(",", rate, ",", link.rate.origin,
          link.rate.origin == Origin::kModelled ? "model" : link.rate.source);
    }
  }
  return out;
}

std::string cluster_text_of(const BuiltCluster& built, const BuildOptions& options) {
  std::string out = fmt::format(
      "schema: longhaul/cluster/1\nname: {}\ndescription: {}\nnetwork: {{{}}}\nsites:\n",
      yaml_text(options.name),
      yaml_text(fmt::format("by longhaul cluster build --sites {}", options.list)),
      built.links.empty() ? "" : "trace: " + yaml_text(options.trace_path));
  for (const BuiltSite& site : built.sites) {
    out += fmt::format("  - name: {}\n    location: {}\n    coordinates: [{:g}, {:g}]\n",
                       yaml_text(site.name), yaml_text(site.location), site.end.at.latitude,
                       site.end.at.longitude);
    if (!options.uplink.empty()) {
      out += fmt::format("    uplink: {0}\n    downlink: {0}\n", options.uplink);
    }
    out += "    nodes:\n";
    for (const BuiltNodes& nodes : site.nodes) {
      out += fmt::format("      - {{devices: {}{}{}}}\n",
                         yaml_text(fmt::format("{}x{}", nodes.devices.count, nodes.devices.kind)),
                         nodes.count == 1 ? "" : fmt::format(", count: {}", nodes.count),
                         options.nic.empty() ? "" : fmt::format(", nic: {}", options.nic));
    }
  }
  return out;
}

}  // namespace

Result<std::vector<BuiltSite>> parse_sites(std::string_view list, const CityTable& cities) {
  std::vector<BuiltSite> sites;
  std::set<std::string> names;
  const std::vector<std::string_view> items = split_sites(list);
  if (items.size() > kMaxBuiltSites) {
    return invalid(fmt::format("{} sites are more than {}", items.size(), kMaxBuiltSites));
  }
  for (const std::string_view item : items) {
    LH_ASSIGN(BuiltSite site, parse_site(item, cities));
    if (!names.insert(site.name).second) {
      return invalid(fmt::format("two sites are named `{}`", site.name),
                     fmt::format("name one of them: {0}-2={1}", site.name, item));
    }
    sites.push_back(std::move(site));
  }
  return sites;
}

BuiltCluster build_cluster(std::vector<BuiltSite> sites, std::span<const Trace> traces,
                           const BuildOptions& options) {
  BuiltCluster built;
  built.sites = std::move(sites);
  built.links = links_of(built.sites, traces, options.rate);
  built.trace_text = trace_text_of(built, options);
  built.cluster_text = cluster_text_of(built, options);
  return built;
}

bool has_pair_of(const Trace& trace, std::span<const BuiltSite> sites) {
  const IndexedTrace indexed(trace, sites);
  for (int from = 0; from < static_cast<int>(sites.size()); ++from) {
    for (int to = 0; to < static_cast<int>(sites.size()); ++to) {
      const BuiltLink link = measured_link(from, to, std::span(&indexed, 1));
      if (!link.round_trip.source.empty() || !link.rate.source.empty()) return true;
    }
  }
  return false;
}

}  // namespace longhaul
