// `longhaul cluster build`: a cluster file from a list of places, with links measured where a trace
// has them and modelled elsewhere.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "core/file.h"
#include "core/quantity.h"
#include "netsim/cluster_build.h"
#include "netsim/cluster_file.h"
#include "netsim/shipped.h"
#include "tools/command.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr std::size_t kPairsShown = 40;

struct ClusterOptions {
  std::string sites;
  std::vector<std::string> traces;
  std::string nic;
  std::string uplink;
  std::string rate_cap;
  std::string name;
  std::string output = "cluster.yaml";
};

/// Those that were given, then the shipped ones: the first that knows a pair is believed.
Result<std::vector<Trace>> load_traces(const ClusterOptions& options,
                                       std::span<const BuiltSite> sites) {
  std::vector<Trace> traces;
  for (const std::string& path : options.traces) {
    LH_ASSIGN(Trace trace, load_trace(path));
    if (!has_pair_of(trace, sites)) {
      fmt::print(stderr,
                 "note: trace {} measured no pair of these sites; give a site the trace's "
                 "name for it: NAME=PLACE:8xv100\n",
                 path);
    }
    traces.push_back(std::move(trace));
  }
  for (const ShippedTrace& shipped : kShippedTraces) {
    LH_ASSIGN(Trace trace, load_shipped_trace(shipped));
    traces.push_back(std::move(trace));
  }
  return traces;
}

Result<BuildOptions> build_options(const ClusterOptions& options) {
  BuildOptions build;
  const std::filesystem::path output(options.output);
  build.name = options.name.empty() ? output.stem().string() : options.name;
  build.list = options.sites;
  build.trace_path = std::filesystem::path(output).replace_extension(".links.csv").filename();
  build.nic = options.nic;
  build.uplink = options.uplink;
  for (const auto& [option, text] : {std::pair("--nic", &options.nic),
                                     {"--uplink", &options.uplink},
                                     {"--rate-cap", &options.rate_cap}}) {
    if (text->empty()) continue;
    Result<BytesPerSecond> rate = parse_rate(*text);
    if (!rate) return within(option, std::move(rate).error());
    if (*rate <= BytesPerSecond(0)) return invalid(fmt::format("{}: no rate at all", option));
    if (option == std::string_view("--rate-cap")) build.rate.cap = *rate;
  }
  return build;
}

std::string sites_table(const BuiltCluster& built) {
  std::vector<std::vector<std::string>> rows = {{"site", "where", "coordinates", "devices"}};
  for (const BuiltSite& site : built.sites) {
    std::string devices;
    for (const BuiltNodes& nodes : site.nodes) {
      devices += fmt::format("{}{}{}x{}", devices.empty() ? "" : " + ",
                             nodes.count == 1 ? "" : fmt::format("{}x", nodes.count),
                             nodes.devices.count, nodes.devices.kind);
    }
    rows.push_back({site.name, site.location,
                    fmt::format("{:.2f} {:.2f}", site.end.at.latitude, site.end.at.longitude),
                    devices});
  }
  return aligned(rows);
}

template <class T>
std::string origin_text(const Sourced<T>& figure) {
  if (figure.origin == Origin::kModelled) return "modelled";
  return fmt::format("{}, {}", name_of(figure.origin), figure.source);
}

/// One row a pair, its first direction.
std::string pairs_table(const BuiltCluster& built) {
  std::vector<std::vector<std::string>> rows = {
      {"pair", "distance", "round trip", "origin", "rate", "origin"}};
  std::size_t left_out = 0;
  for (const BuiltLink& link : built.links) {
    if (link.from >= link.to) continue;
    if (rows.size() > kPairsShown) {
      ++left_out;
      continue;
    }
    rows.push_back({fmt::format("{} - {}", built.sites[static_cast<std::size_t>(link.from)].name,
                                built.sites[static_cast<std::size_t>(link.to)].name),
                    fmt::format("{:.0f} km", link.km),
                    fmt::format("{:.4g} ms", link.round_trip.value.value() * 1e3),
                    origin_text(link.round_trip), format_bit_rate(link.rate.value),
                    origin_text(link.rate)});
  }
  return aligned(rows) + (left_out == 0 ? "" : fmt::format("  and {} more\n", left_out));
}

/// How far to trust what is modelled.
std::string model_text(const BuiltCluster& built, const BuildOptions& options) {
  const auto count = [&](auto&& figure_of) {
    return std::ranges::count_if(built.links, [&](const BuiltLink& link) {
      return figure_of(link).origin == Origin::kModelled;
    });
  };
  const auto off = [](const Residuals& residuals) {
    return fmt::format(
        "on {} measured pairs with cities that the fit had not seen, half are within "
        "{:.0f} %, nine in ten within {:.0f} %",
        residuals.pairs, 100 * residuals.median, 100 * residuals.p90);
  };
  std::string out;
  const auto latencies = count([](const BuiltLink& link) { return link.round_trip; });
  const auto rates = count([](const BuiltLink& link) { return link.rate; });
  if (latencies > 0) {
    out += fmt::format(
        "{} of {} directed round trips are modelled: {:.3g} ms + {:.3g} us/km up to {:g} km of "
        "route "
        "+ {:.3g} us/km beyond;\n  {}\n",
        latencies, built.links.size(), kLatencyModel.base_ms, kLatencyModel.near_ms_per_km * 1e3,
        kRouteKneeKm, kLatencyModel.far_ms_per_km * 1e3, off(kLatencyResiduals));
  }
  if (rates > 0) {
    out += fmt::format(
        "{} of {} directed rates are modelled, for one process on each side: min({}, {:.3g} MB / "
        "round trip);\n  {}\n",
        rates, built.links.size(), format_bit_rate(options.rate.cap),
        options.rate.window.value() / 1e6, off(kRateResiduals));
  }
  return out;
}

Result<void> build(const ClusterOptions& options) {
  LH_ASSIGN(const CityTable cities, CityTable::load());
  Result<std::vector<BuiltSite>> sites = parse_sites(options.sites, cities);
  if (!sites) return within("--sites", std::move(sites).error());
  LH_ASSIGN(const BuildOptions build, build_options(options));
  LH_ASSIGN(const std::vector<Trace> traces, load_traces(options, *sites));
  const BuiltCluster built = build_cluster(std::move(*sites), traces, build);
  const std::string trace_path =
      std::filesystem::path(options.output).replace_extension(".links.csv").string();
  if (!built.trace_text.empty()) LH_TRY(write_file(trace_path, built.trace_text));
  LH_TRY(write_file(options.output, built.cluster_text));
  LH_ASSIGN(const Topology topology, load_cluster(options.output));  // it is what `plan` will read
  fmt::print("{}\n", sites_table(built));
  if (built.sites.size() > 1) {
    const std::string model = model_text(built, build);
    fmt::print("{}\n{}{}", pairs_table(built), model, model.empty() ? "" : "\n");
  }
  fmt::print("cluster {}: {} device{} in {} site{}\n", options.output, topology.device_count(),
             topology.device_count() == 1 ? "" : "s", topology.site_count(),
             topology.site_count() == 1 ? "" : "s");
  if (!built.trace_text.empty()) fmt::print("links {}\n", trace_path);
  return {};
}

}  // namespace

void add_cluster_command(CLI::App& app, int& exit_status) {
  CLI::App* cluster = app.add_subcommand("cluster", "make cluster files");
  cluster->require_subcommand(1);
  CLI::App* command = cluster->add_subcommand(
      "build", "a cluster from a list of cities, cloud regions or coordinates");
  const auto options = std::make_shared<ClusterOptions>();  // owned by the callback below
  command
      ->add_option("--sites", options->sites,
                   "such as tokyo:8xh100,aws/us-west-2:4xv100,lab=50.11,8.68:2x8xa100 (two nodes "
                   "of eight)")
      ->required();
  command
      ->add_option("--trace", options->traces,
                   "measured network (CSV): goes before the shipped ones and the models; may be "
                   "repeated")
      ->allow_extra_args(false);
  command->add_option("--nic", options->nic, "of every node, such as '25 Gbit/s'");
  command->add_option("--uplink", options->uplink, "that every site shares, in and out");
  command->add_option("--rate-cap", options->rate_cap,
                      "most that a modelled rate may be (default: the measured 1.1 Gbit/s)");
  command->add_option("--name", options->name, "of the cluster (default: the file's)");
  command->add_option("-o,--output", options->output, "cluster file to write; its links beside it")
      ->capture_default_str();
  command->callback([options, &exit_status] {
    const Result<void> done = build(*options);
    exit_status = done ? 0 : report_error(done.error());
  });
}

}  // namespace longhaul
