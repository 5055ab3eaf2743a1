// Formats that are tables: known ones by the names of their columns, others by what those say.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/config_errors.h"
#include "core/quantity.h"
#include "netsim/csv_text.h"
#include "netsim/import/table_columns.h"

namespace longhaul {
namespace {

constexpr UnitScale kMilliseconds{1, 1e3};
constexpr UnitScale kBits{1, 8};

bool has_columns(const Table& table, std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(names, [&](std::string_view name) { return table.find(name) >= 0; });
}

/// The first of `names` that the table has, or -1.
int find_any(const Table& table, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const int column = table.find(name); column >= 0) return column;
  }
  return -1;
}

int find_ending(const Table& table, std::string_view ending) {
  const auto found = std::ranges::find_if(
      table.header, [&](const std::string& name) { return name.ends_with(ending); });
  return found == table.header.end() ? -1 : static_cast<int>(found - table.header.begin());
}

char first_character(std::string_view text) {
  const std::size_t at = text.find_first_not_of("\xef\xbb\xbf");
  return at == std::string_view::npos ? ' ' : text[at];
}

bool is_trace_of_ours(const Table& table) {
  const std::set<std::string_view> known = {"from",       "to",        "scope",      "time_s",
                                            "latency_ms", "basis",     "gbit_per_s", "streams",
                                            "loss",       "jitter_ms", "origin",     "source"};
  return has_columns(table, {"from", "to"}) &&
         (table.find("latency_ms") < 0 || table.find("basis") >= 0) &&
         std::ranges::all_of(table.header,
                             [&](const std::string& name) { return known.contains(name); }) &&
         table.header.size() > 2;
}

bool has_ends(const Table& table) {
  bool from = false;
  bool to = false;
  for (const std::string& name : table.header) {
    from = from || meaning_of(name).role == ColumnRole::kFrom;
    to = to || meaning_of(name).role == ColumnRole::kTo;
  }
  return from && to;
}

std::string_view matrix_format(const Tables& tables, const Table& table) {
  if (lowered(table.header[0]) == "average latency (ms)") return "ibm";
  if (table.header[0] == "Source" &&
      (tables.surroundings.contains("Azure") || table.find("West Europe") >= 0 ||
       table.find("East US") >= 0)) {
    return "azure";
  }
  if (lowered(tables.surroundings).contains("cloudping")) return "cloudping";
  return "table";
}

std::string_view recognised(const Tables& tables, const Table& table) {
  if (has_columns(table, {"id", "title", "latitude", "longitude"})) return "wondernetwork";
  if (is_trace_of_ours(table)) return "longhaul";
  if (has_columns(table, {"src_region", "dst_region", "throughput_sent"})) return "skyplane";
  if (has_columns(table, {"src_region", "dst_region", "avg_rtt"})) return "skyplane-latency";
  if (has_columns(table, {"src", "dst", "cost"})) return "egress";
  if (has_columns(table, {"from_cloud", "from_region", "to_cloud", "to_region", "bitrate_Bps"})) {
    return "doit";
  }
  if (has_columns(table, {"src", "dst", "delay_ms", "bandwidth_gbps"})) return "dtfm";
  if (has_columns(table, {"source", "destination", "min", "avg", "max"})) return "wondernetwork";
  if (find_ending(table, "MeanThroughputMbps") >= 0) return "mlab";
  if (table.find("Throughput Units") >= 0 || find_ending(table, "Latency Microseconds") >= 0) {
    return "netperf";
  }
  if (find_any(table, {"sending_region", "sending_zone"}) >= 0) return "gcp";
  if (is_matrix(table)) return matrix_format(tables, table);
  return "table";
}

Result<void> import_own(const ImportFile& file, const Tables& tables, Importer& importer) {
  LH_ASSIGN(const Trace trace, parse_trace(file.text, file.name));
  // What trace_csv wrote says when it began.
  std::optional<double> start;
  constexpr std::string_view kStart = "time 0 of the trace is ";
  if (const std::size_t at = tables.surroundings.find(kStart); at != std::string::npos) {
    const std::string_view rest = std::string_view(tables.surroundings).substr(at + kStart.size());
    start = parse_time(rest.substr(0, rest.find('\n')));
  }
  std::map<std::tuple<int, int, bool>, int> rows;  // of a pair and quantity
  for (const TraceRow& row : trace.rows) {
    if (row.latency) ++rows[{row.from, row.to, false}];
    if (row.rate) ++rows[{row.from, row.to, true}];
  }
  for (const TraceRow& row : trace.rows) {
    Measurement one{.from = trace.places[static_cast<std::size_t>(row.from)],
                    .to = trace.places[static_cast<std::size_t>(row.to)],
                    .latency = row.latency,
                    .basis = row.basis,
                    .rate = row.rate,
                    .streams = row.streams,
                    .loss = row.loss,
                    .jitter = row.jitter,
                    .scope = row.scope,
                    .origin = row.origin,
                    .line = row.line,
                    .in_series = row.time_s ||
                                 (row.latency && rows[{row.from, row.to, false}] > 1) ||
                                 (row.rate && rows[{row.from, row.to, true}] > 1),
                    .source = row.source};
    if (row.time_s && start) one.unix_s = *start + *row.time_s;
    if (row.time_s && !start) one.trace_s = row.time_s;
    LH_TRY(importer.add(std::move(one)));
  }
  return {};
}

Result<void> refuse_egress(const Table& table, Importer& importer) {
  return importer.error(
      table.line, 0, "these are prices of egress, and a trace has no prices",
      "a cluster file has them: each site's key `egress`, for example `egress: 0.09 USD/GB`");
}

Result<void> import_skyplane(const Table& table, bool is_latency, Importer& importer) {
  PairColumns columns{.from = {table.find("src_region")}, .to = {table.find("dst_region")}};
  if (is_latency) {
    columns.latency = table.find("avg_rtt");
    columns.latency_unit = kMilliseconds;
    columns.basis = LatencyBasis::kRoundTrip;
    columns.basis_why = "Skyplane pings";
    columns.jitter = table.find("mdev_rtt");
  } else {
    // Early grids have the misspelt name.
    columns.rate = find_any(table, {"throughput_received", "throughput_recieved"});
    if (columns.rate < 0) {
      return importer.error(table.line, 0, "column `throughput_received` is missing");
    }
    columns.rate_unit = kBits;
    columns.streams = table.find("iperf3_connections");
    columns.streams_known = 64;
    columns.streams_why = "Skyplane's grids are";
    importer.assume(
        "rates are in bit/s as iperf3 received them, with many streams: what one "
        "stream reaches is less");
  }
  const int from_tier = table.find("src_tier");
  const int to_tier = table.find("dst_tier");
  const int success = table.find("success");
  const auto cell = [](const Table::Row& row, int column) -> std::string_view {
    return column < 0 ? "" : std::string_view(row.cells[static_cast<std::size_t>(column)]);
  };
  columns.skip = [=](const Table::Row& row) {
    return cell(row, from_tier) == "STANDARD" || cell(row, to_tier) == "STANDARD" ||
           cell(row, success) == "False";
  };
  columns.skip_why = "the standard network tier, or a test that failed";
  return import_pairs(table, std::move(columns), importer);
}

Result<void> import_doit(const Table& table, Importer& importer) {
  importer.assume("bitrate_Bps is in bytes a second");
  return import_pairs(table,
                      {.from = {table.find("from_cloud"), table.find("from_region")},
                       .to = {table.find("to_cloud"), table.find("to_region")},
                       .latency = table.find("avgrtt"),
                       .latency_unit = kMilliseconds,
                       .basis = LatencyBasis::kRoundTrip,
                       .basis_why = "avgrtt",
                       .rate = table.find("bitrate_Bps"),
                       .rate_unit = UnitScale{},
                       .streams_known = 1,
                       .streams_why = "one iperf3 test between two small machines",
                       .time = table.find("timestamp")},
                      importer);
}

Result<void> import_dtfm(const Table& table, Importer& importer) {
  if (!importer.options().basis) {
    return importer.error(
        table.line, 0, "delay_ms: round trips or one way? The file does not say",
        "DT-FM's model reads its table one way (--basis one_way, to repeat its figures); the "
        "figures themselves are those of round trips (--basis rtt)");
  }
  importer.assume("bandwidth_gbps is in Gbit/s, as DT-FM's model reads it");
  return import_pairs(table,
                      {.from = {table.find("src")},
                       .to = {table.find("dst")},
                       .latency = table.find("delay_ms"),
                       .latency_unit = kMilliseconds,
                       .rate = table.find("bandwidth_gbps"),
                       .rate_unit = UnitScale{1e9, 8},
                       .streams_known = 1,
                       .streams_why = "one NCCL transfer between two instances"},
                      importer);
}

Result<void> read_servers(const Table& table, Importer& importer) {
  const auto cell = [](const Table::Row& row, int column) {
    return column < 0 ? std::string() : row.cells[static_cast<std::size_t>(column)];
  };
  std::map<std::string, int> titles;
  for (const Table::Row& row : table.rows) ++titles[cell(row, table.find("title"))];
  for (const Table::Row& row : table.rows) {
    std::string name = cell(row, table.find("title"));
    // Several towns have one name: state and country tell them apart, else the number.
    if (titles[name] > 1) {
      const std::string state = cell(row, table.find("state"));
      name += fmt::format(", {}", state.empty() ? cell(row, table.find("country")) : state);
      if (++titles[name] > 1) name += fmt::format(" {}", cell(row, table.find("id")));
    }
    if (!importer.servers().emplace(cell(row, table.find("id")), name).second) {
      return importer.error(
          row.line, 0, fmt::format("server {} appears twice", shown(cell(row, table.find("id")))));
    }
  }
  return {};
}

Result<void> import_wondernetwork(Table table, Importer& importer) {
  const std::map<std::string, std::string>& servers = importer.servers();
  if (servers.empty()) {
    return importer.error(table.line, 0, "the pings name servers by numbers alone",
                          "give WonderNetwork's servers file beside this one");
  }
  const int from = table.find("source");
  const int to = table.find("destination");
  for (Table::Row& row : table.rows) {
    for (const int column : {from, to}) {
      std::string& cell = row.cells[static_cast<std::size_t>(column)];
      const auto server = servers.find(cell);
      if (server == servers.end()) {
        return importer.error(row.line, 0, fmt::format("no server has the number {}", shown(cell)));
      }
      cell = server->second;
    }
  }
  const int time = table.find("timestamp");
  return import_pairs(table,
                      {.from = {from},
                       .to = {to},
                       .latency = table.find("avg"),
                       .latency_unit = kMilliseconds,
                       .basis = LatencyBasis::kRoundTrip,
                       .basis_why = "WonderNetwork pings",
                       .jitter = table.find("mdev"),
                       .time = time,
                       .in_series = time >= 0},
                      importer);
}

Result<void> import_mlab(const Table& table, Importer& importer) {
  importer.assume(
      "--from is where the data came from: of a download M-Lab's server, of an upload the client");
  importer.assume("tests between a user and an edge server: not what two data centres reach");
  const int time = find_ending(table, "TestTime");
  return import_pairs(table,
                      {.latency = find_ending(table, "MinRTT"),
                       .latency_unit = kMilliseconds,
                       .basis = LatencyBasis::kRoundTrip,
                       .basis_why = "MinRTT, the least of each test",
                       .rate = find_ending(table, "MeanThroughputMbps"),
                       .rate_unit = UnitScale{1e6, 8},
                       .streams_known = 1,
                       .streams_why = "ndt7 opens one",
                       .loss = find_ending(table, "LossRate"),
                       .time = time,
                       .in_series = time >= 0},
                      importer);
}

/// `10^6bits/s`, `MBytes/s`; nothing for `Trans/s`.
std::optional<UnitScale> netperf_unit(std::string_view text) {
  static const std::map<std::string_view, UnitScale> units = {
      {"10^3bits/s", {1e3, 8}},     {"10^6bits/s", {1e6, 8}}, {"10^9bits/s", {1e9, 8}},
      {"Bytes/s", {1, 1}},          {"KBytes/s", {1024, 1}},  {"MBytes/s", {1048576, 1}},
      {"GBytes/s", {1073741824, 1}}};
  const auto found = units.find(text);
  return found == units.end() ? std::nullopt : std::optional(found->second);
}

Result<void> import_netperf(const Tables& tables, const Table& table, Importer& importer) {
  const int units = table.find("Throughput Units");
  const std::string unit_text =
      units < 0 ? "" : table.rows[0].cells[static_cast<std::size_t>(units)];
  const bool is_request_response =
      tables.surroundings.contains("REQUEST/RESPONSE") || unit_text == "Trans/s";
  PairColumns columns{.streams_known = 1, .streams_why = "netperf opens one"};
  if (is_request_response) {
    columns.latency = find_any(table, {"Mean Latency Microseconds", "Round Trip Latency usec/tran",
                                       "50th Percentile Latency Microseconds"});
    columns.latency_unit = UnitScale{1, 1e6};
    columns.basis = LatencyBasis::kRoundTrip;
    columns.basis_why = "a request and its response";
    columns.jitter = table.find("Stddev Latency Microseconds");
    columns.jitter_unit = UnitScale{1, 1e6};
  } else {
    columns.rate = table.find("Throughput");
    columns.rate_unit = netperf_unit(unit_text);
    if (columns.rate >= 0 && !columns.rate_unit) {
      return importer.error(table.line, 0,
                            unit_text.empty()
                                ? "the throughput has no `Throughput Units`"
                                : fmt::format("{} is no unit of a throughput", shown(unit_text)),
                            "select THROUGHPUT,THROUGHPUT_UNITS with netperf's -o");
    }
    if (find_ending(table, "Latency Microseconds") >= 0) {
      importer.assume(
          "latencies of a stream test are times of its calls, not of the network: left out");
    }
  }
  if (columns.latency < 0 && columns.rate < 0) {
    return importer.error(table.line, 0, "neither a throughput nor a mean latency is selected",
                          "netperf -t TCP_RR -- -o MEAN_LATENCY, or -t TCP_STREAM -- -o "
                          "THROUGHPUT,THROUGHPUT_UNITS");
  }
  return import_pairs(table, std::move(columns), importer);
}

/// Google's dashboard says that its latencies are round trips; the rest is as the columns say.
Result<void> import_gcp(const Table& table, Importer& importer) {
  LH_ASSIGN(PairColumns columns, columns_by_name(table, importer));
  if (!columns.basis) {
    columns.basis = LatencyBasis::kRoundTrip;
    columns.basis_why = "so Google documents its dashboard";
  }
  return import_pairs(table, std::move(columns), importer);
}

Result<void> import_plain_table(const Table& table, Importer& importer) {
  if (is_matrix(table)) return import_plain_matrix(table, importer);
  if (!has_ends(table)) {
    return importer.error(
        table.line, 0,
        fmt::format("not a format that is known, and no columns for the two ends (columns: {})",
                    shown(fmt::format("{}", fmt::join(table.header, ", ")))),
        "a table of pairs has columns such as from,to,rtt_ms; docs/formats.md lists the formats");
  }
  LH_ASSIGN(PairColumns columns, columns_by_name(table, importer));
  if (columns.latency < 0 && columns.rate < 0) {
    return importer.error(table.line, 0, "no column is a latency or a rate",
                          "columns such as rtt_ms, latency_ms, throughput_mbit_per_s");
  }
  return import_pairs(table, std::move(columns), importer);
}

Result<void> import_known_matrices(const Tables& tables, std::string_view format,
                                   Importer& importer) {
  for (const Table& table : tables.tables) {
    if (!is_matrix(table)) continue;
    MatrixFormat matrix{.unit = kMilliseconds, .basis = LatencyBasis::kRoundTrip};
    if (format == "azure") matrix.why = "so Azure's page says (medians, in ms)";
    if (format == "ibm") {
      matrix.why =
          "IBM's page does not say; its figures are those of round trips (London-Frankfurt 13 ms)";
      matrix.unix_s = parse_time(table.heading);
    }
    if (format == "cloudping") matrix.why = "CloudPing times a TCP connect, in ms";
    LH_TRY(import_matrix(table, matrix, importer));
  }
  return {};
}

Result<void> import_one_table(const ImportFile& file, const Tables& tables, const Table& table,
                              std::string_view format, Importer& importer) {
  if (format == "longhaul") return import_own(file, tables, importer);
  if (format == "skyplane") return import_skyplane(table, false, importer);
  if (format == "skyplane-latency") return import_skyplane(table, true, importer);
  if (format == "egress") return refuse_egress(table, importer);
  if (format == "doit") return import_doit(table, importer);
  if (format == "dtfm") return import_dtfm(table, importer);
  if (format == "mlab") return import_mlab(table, importer);
  if (format == "netperf") return import_netperf(tables, table, importer);
  if (format == "gcp") return import_gcp(table, importer);
  if (format == "wondernetwork") {
    return table.find("title") >= 0 ? read_servers(table, importer)
                                    : import_wondernetwork(table, importer);
  }
  return import_plain_table(table, importer);
}

/// The columns that a format declared by --format cannot do without.
Result<void> check_declared(std::string_view format, const Table& table, const Importer& importer) {
  static const std::map<std::string_view, std::vector<std::string_view>> needed = {
      {"skyplane", {"src_region", "dst_region"}},
      {"skyplane-latency", {"src_region", "dst_region", "avg_rtt"}},
      {"doit", {"from_cloud", "from_region", "to_cloud", "to_region", "bitrate_Bps", "avgrtt"}},
      {"dtfm", {"src", "dst", "delay_ms", "bandwidth_gbps"}},
  };
  const auto found = needed.find(format);
  if (found == needed.end()) {
    if (format == "gcp" && !has_ends(table)) {
      return importer.error(table.line, 0, "no columns for the two ends");
    }
    if (format == "wondernetwork" && table.find("title") < 0 &&
        !has_columns(table, {"source", "destination", "avg"})) {
      return importer.error(table.line, 0, "columns source, destination and avg are needed");
    }
    if (format == "wondernetwork" && table.find("title") >= 0 && table.find("id") < 0) {
      return importer.error(table.line, 0, "column `id` is missing");
    }
    if (format == "mlab" && find_ending(table, "MeanThroughputMbps") < 0) {
      return importer.error(table.line, 0, "column `a.MeanThroughputMbps` is missing");
    }
    return {};
  }
  for (const std::string_view name : found->second) {
    if (table.find(name) < 0) {
      return importer.error(table.line, 0, fmt::format("column `{}` is missing", name));
    }
  }
  return {};
}

}  // namespace

bool is_server_list(std::string_view text) {
  TextLines lines(text);
  while (lines.next()) {
    const std::string_view line = trimmed(lines.line());
    if (line.empty() || line.front() == '#') continue;
    return line.contains("id") && line.contains("title") && line.contains("latitude") &&
           line.contains("longitude");
  }
  return false;
}

Result<void> import_table_list(const ImportFile& file, const Tables& tables, Importer& importer) {
  const Table& first = tables.tables.front();
  const std::string& wanted = importer.options().format;
  const std::string_view format = wanted.empty() ? recognised(tables, first) : wanted;
  std::string shape = is_matrix(first) ? "matrix" : "pairs";
  if (tables.tables.size() > 1) shape = fmt::format("{} tables", tables.tables.size());
  importer.recognise(format, format == "netperf" ? "" : shape);
  if (format == "azure" || format == "ibm" || format == "cloudping") {
    return import_known_matrices(tables, format, importer);
  }
  LH_TRY(check_declared(format, first, importer));
  if (format != "table") {
    return import_one_table(file, tables, first, format, importer);
  }
  for (const Table& table : tables.tables) {
    LH_TRY(import_one_table(file, tables, table, format, importer));
  }
  return {};
}

Result<void> import_tables(const ImportFile& file, Importer& importer) {
  LH_ASSIGN(const Tables tables, read_tables(file.text, importer));
  if (first_character(file.text) == '#' && !tables.tables.front().is_markdown) {
    importer.keep_source(tables.surroundings);
  }
  return import_table_list(file, tables, importer);
}

}  // namespace longhaul
