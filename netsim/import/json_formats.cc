// Formats that are JSON: one document, or one object a line. In one file, long as it is, because
// what the readers share has the JSON library in it, which no header of ours may include.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/config_errors.h"
#include "core/quantity.h"
#include "netsim/csv_text.h"
#include "netsim/import/table.h"

namespace longhaul {
namespace {

using nlohmann::json;

/// The number at `key`; nothing when it is not there or no number.
std::optional<double> number_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const json& member(const json& object, const char* key) {
  static const json kAbsent;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kAbsent : *found;
}

// ---- {from: {to: number}}

bool is_nested(const json& object, bool (*is_leaf)(const json&)) {
  if (!object.is_object()) return false;
  bool any = false;
  for (const auto& [from, row] : object.items()) {
    if (from.starts_with('_')) continue;
    if (!row.is_object()) return false;
    for (const auto& [to, leaf] : row.items()) {
      if (!is_leaf(leaf)) return false;
      any = true;
    }
  }
  return any;
}

bool is_number_or_null(const json& leaf) {
  return leaf.is_number() || leaf.is_null();
}

bool is_sailor_leaf(const json& leaf) {
  return leaf.is_array() && leaf.size() == 2 && leaf[0].is_array() && leaf[0].size() == 3 &&
         std::ranges::all_of(leaf[0], [](const json& x) { return x.is_number(); }) &&
         leaf[1].is_number();
}

/// As a table, so that one function reads all matrices.
Table matrix_of(const json& object) {
  Table table;
  table.header = {""};
  std::map<std::string, std::size_t> columns;
  for (const auto& [from, row] : object.items()) {
    if (from.starts_with('_')) continue;
    for (const auto& [to, leaf] : row.items()) {
      if (columns.emplace(to, table.header.size()).second) table.header.push_back(to);
    }
  }
  for (const auto& [from, row] : object.items()) {
    if (from.starts_with('_')) continue;
    Table::Row out;
    out.cells.resize(table.header.size());
    out.cells[0] = from;
    for (const auto& [to, leaf] : row.items()) {
      if (leaf.is_number()) out.cells[columns[to]] = format_exact(leaf.get<double>());
    }
    table.rows.push_back(std::move(out));
  }
  return table;
}

Result<void> import_cloudping(const json& root, Importer& importer) {
  const json& metadata = member(root, "metadata");
  const json& data = metadata.is_object() ? member(root, "data") : root;
  const std::string percentile = text_at(metadata, "percentile");
  const std::string timeframe = text_at(metadata, "timeframe");
  importer.recognise(
      "cloudping",
      percentile.empty() ? "" : fmt::format("{} over {}", shown(percentile), shown(timeframe)));
  const std::string unit = lowered(text_at(metadata, "unit"));
  if (!unit.empty() && unit != "ms" && unit != "milliseconds" && unit != "millisecond") {
    return importer.error(fmt::format("CloudPing's unit is {}, not milliseconds", shown(unit)));
  }
  if (!is_nested(data, is_number_or_null)) {
    return importer.error("CloudPing's data are not numbers by from and to: {from: {to: ms}}");
  }
  return import_matrix(matrix_of(data),
                       {.unit = UnitScale{1, 1e3},
                        .basis = LatencyBasis::kRoundTrip,
                        .why = "CloudPing times a TCP connect, in ms"},
                       importer);
}

// ---- Amazon

Result<void> import_aws(const json& root, Importer& importer) {
  importer.recognise("aws");
  importer.expect_series();
  const json& responses = member(root, "DataResponses");
  if (!responses.is_array()) return importer.error("`DataResponses` is no list");
  if (!text_at(root, "NextToken").empty()) {
    importer.assume("the answer has more pages (NextToken), which are not here");
  }
  std::size_t bad = 0;
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const json& response = responses[i];
    const std::string where = fmt::format("DataResponses[{}]", i);
    const std::string metric = text_at(response, "Metric");
    if (metric != "aggregate-latency") {
      return importer.error(fmt::format("{}: metric {} is not read", where, shown(metric)),
                            "aggregate-latency is");
    }
    LH_ASSIGN(const LatencyBasis basis,
              importer.basis(LatencyBasis::kRoundTrip,
                             "so Amazon documents aggregate-latency, in ms", 0, "the latencies"));
    const json& points = member(response, "MetricPoints");
    if (!points.is_array()) return importer.error(where + ": `MetricPoints` is no list");
    for (std::size_t j = 0; j < points.size(); ++j) {
      const std::string status = text_at(points[j], "Status");
      const std::optional<double> value = number_at(points[j], "Value");
      const std::optional<double> time = parse_time(text_at(points[j], "StartDate"));
      if (!status.empty() && status != "OK") {
        ++bad;
        continue;
      }
      if (!value || !time) {
        return importer.error(
            fmt::format("{}.MetricPoints[{}]: {}", where, j,
                        value ? "`StartDate` is no time" : "`Value` is no number"));
      }
      LH_TRY(importer.add(
          {.from = text_at(response, "Source"),
           .to = text_at(response, "Destination"),
           .unix_s = time,
           .latency = milliseconds(basis == LatencyBasis::kRoundTrip ? *value / 2 : *value),
           .basis = basis}));
    }
  }
  if (bad > 0) importer.assume(fmt::format("{} points are left out: their status is not OK", bad));
  return {};
}

// ---- Sailor

Result<void> import_sailor(const json& root, Importer& importer) {
  importer.recognise("sailor");
  if (!is_nested(root, is_sailor_leaf)) {
    return importer.error(
        "not {zone: {zone: [[c0, c1, c2], bytes per second]}}",
        "Sailor's whole file nests GPU kinds and counts in between: keep one of each");
  }
  if (!importer.options().message) {
    return importer.error("the rates depend on the size of a message",
                          "say --message '64 MiB': the bytes that a transfer typically has");
  }
  const double megabytes = importer.options().message->value() / 1e6;
  if (megabytes < 1 || megabytes > 1024) {
    return importer.error(fmt::format("the fit does not hold for a message of {}",
                                      format_size(*importer.options().message)),
                          "--message is from 1 MB to 1 GiB; below the fit goes negative");
  }
  const double x = std::log2(megabytes);
  importer.assume(
      fmt::format("rates at messages of {:.4g} MB, from the fit in log2(MB), at most each pair's "
                  "maximum; GB and "
                  "MB are 10^9 and 10^6 bytes; they have the latency in them",
                  megabytes));
  LH_ASSIGN(const int streams, importer.streams(1, "one NCCL transfer between two machines", 0));
  for (const auto& [from, row] : root.items()) {
    if (from.starts_with('_')) continue;
    for (const auto& [to, leaf] : row.items()) {
      const double fitted =
          (leaf[0][0].get<double>() * x + leaf[0][1].get<double>()) * x + leaf[0][2].get<double>();
      if (!(fitted > 0)) {
        return importer.error(fmt::format("{} -> {}: the fit gives {:.4g} GB/s at {:.4g} MB", from,
                                          to, fitted, megabytes),
                              "it does not hold there: take a larger --message");
      }
      LH_TRY(importer.add({.from = from,
                           .to = to,
                           .rate = BytesPerSecond(std::min(fitted * 1e9, leaf[1].get<double>())),
                           .streams = streams,
                           .origin = Origin::kModelled}));
    }
  }
  return {};
}

// ---- RIPE Atlas

/// The round trips of a result in ms: `result[].rtt`; lost ones are not there.
std::vector<double> ripe_round_trips(const json& result) {
  std::vector<double> out;
  const json& packets = member(result, "result");
  if (!packets.is_array()) return out;
  for (const json& packet : packets) {
    if (const auto rtt = number_at(packet, "rtt")) out.push_back(*rtt);
  }
  return out;
}

Result<void> import_ripe(const json& root, Importer& importer) {
  importer.recognise("ripe");
  importer.expect_series();
  LH_ASSIGN(const LatencyBasis basis,
            importer.basis(LatencyBasis::kRoundTrip, "pings, in ms", 0, "the latencies"));
  importer.assume("a probe's place is called probe-NUMBER (--rename gives it another name)");
  std::size_t all_lost = 0;
  for (std::size_t i = 0; i < root.size(); ++i) {
    const json& result = root[i];
    const auto probe = number_at(result, "prb_id");
    // Old firmware says `name` and `addr` instead of `dst_name` and `dst_addr`.
    std::string target;
    for (const char* key : {"dst_name", "dst_addr", "name", "addr"}) {
      if (target.empty()) target = text_at(result, key);
    }
    if (!probe || target.empty()) {
      return importer.error(fmt::format("result {}: no {}", i + 1,
                                        probe ? "target (dst_name, name)" : "probe (prb_id)"));
    }
    if (const std::string type = text_at(result, "type"); !type.empty() && type != "ping") {
      return importer.error(fmt::format("result {} is a {}, not a ping", i + 1, shown(type)));
    }
    const std::vector<double> round_trips = ripe_round_trips(result);
    std::optional<double> mean = number_at(result, "avg");
    if (!round_trips.empty()) {
      mean = 0;
      for (const double rtt : round_trips) *mean += rtt / static_cast<double>(round_trips.size());
    }
    const std::optional<double> sent = number_at(result, "sent");
    const std::optional<double> received = number_at(result, "rcvd");
    if (!mean || *mean < 0 || (received && *received == 0)) {
      ++all_lost;
      continue;
    }
    Measurement one{.from = fmt::format("probe-{:.0f}", *probe),
                    .to = target,
                    .unix_s = number_at(result, "timestamp"),
                    .latency = milliseconds(basis == LatencyBasis::kRoundTrip ? *mean / 2 : *mean),
                    .basis = basis};
    if (sent && received && *sent >= 1) one.loss = std::max(0.0, (*sent - *received) / *sent);
    if (round_trips.size() > 1) {
      double squares = 0;
      for (const double rtt : round_trips) squares += (rtt - *mean) * (rtt - *mean);
      one.jitter = milliseconds(std::sqrt(squares / static_cast<double>(round_trips.size())));
    }
    LH_TRY(importer.add(std::move(one)));
  }
  if (all_lost > 0) {
    importer.assume(fmt::format(
        "{} results are left out: every packet was lost, so that the losses that stay are too few",
        all_lost));
  }
  return {};
}

// ---- iperf3

Result<void> import_iperf3(const json& root, Importer& importer) {
  importer.recognise("iperf3", text_at(member(member(root, "start"), "test_start"), "protocol"));
  if (const std::string failure = text_at(root, "error"); !failure.empty()) {
    return importer.error(fmt::format("iperf3 failed: {}", shown(failure)));
  }
  const json& start = member(root, "start");
  const json& test = member(start, "test_start");
  const json& end = member(root, "end");
  const bool is_udp = text_at(test, "protocol") == "UDP";
  if (!end.is_object() || !test.is_object()) {
    return importer.error("the test did not end: `end` or `start.test_start` is missing",
                          "run it again: iperf3 -J writes its sums last");
  }
  LH_ASSIGN(auto pair, importer.pair());
  if (number_at(test, "reverse").value_or(0) != 0) {
    std::swap(pair.first, pair.second);
    importer.assume("a test with -R: the data went from the server to the client");
  }
  const double streams = number_at(test, "num_streams").value_or(1);
  if (streams < 1 || streams > 4096) return importer.error("`num_streams` is outside 1 to 4096");
  Measurement one{.from = pair.first,
                  .to = pair.second,
                  .unix_s = number_at(member(start, "timestamp"), "timesecs"),
                  .streams = static_cast<int>(streams)};
  const json& received = member(end, "sum_received");
  const std::optional<double> rate = number_at(received, "bits_per_second");
  if (!rate || *rate <= 0) {
    return importer.error("nothing was received: `end.sum_received.bits_per_second`",
                          "what was sent may have been lost, and is not taken for it");
  }
  one.rate = BytesPerSecond(*rate / 8);
  importer.assume(fmt::format("rates are what was received, in bit/s, of {:.0f} stream{}", streams,
                              streams == 1 ? "" : "s"));
  if (is_udp) {
    const json& sum = member(end, "sum");
    if (const auto lost = number_at(sum, "lost_percent")) one.loss = *lost / 100;
    if (const auto jitter = number_at(sum, "jitter_ms")) one.jitter = milliseconds(*jitter);
    if (const auto target = number_at(test, "target_bitrate"); target && *target > 0) {
      importer.assume(fmt::format("UDP sent at {}: the path may carry more",
                                  format_bit_rate(BytesPerSecond(*target / 8))));
    }
  } else {
    double sum = 0;
    int count = 0;
    const json& ends = member(end, "streams");
    for (std::size_t i = 0; ends.is_array() && i < ends.size(); ++i) {
      const auto rtt = number_at(member(ends[i], "sender"), "mean_rtt");
      if (!rtt || *rtt <= 0) continue;
      sum += *rtt;
      ++count;
    }
    if (count > 0) {
      LH_ASSIGN(one.basis, importer.basis(LatencyBasis::kRoundTrip,
                                          "mean_rtt in microseconds, under the test's load", 0,
                                          "the latencies"));
      const Seconds mean = microseconds(sum / count);
      one.latency = one.basis == LatencyBasis::kRoundTrip ? mean / 2 : mean;
    }
  }
  return importer.add(std::move(one));
}

// ---- perfSONAR

struct Histogram {
  double median_ms = 0;
  double deviation_ms = 0;
};

/// {"ms": count}: median and standard deviation.
std::optional<Histogram> read_histogram(const json& bins) {
  if (!bins.is_object() || bins.empty()) return std::nullopt;
  std::vector<std::pair<double, double>> sorted;
  double total = 0;
  double mean = 0;
  for (const auto& [text, count] : bins.items()) {
    const Result<double> ms = parse_number(text);
    if (!ms || !count.is_number() || !(count.get<double>() > 0)) return std::nullopt;
    sorted.emplace_back(*ms, count.get<double>());
    total += sorted.back().second;
    mean += *ms * sorted.back().second;
  }
  mean /= total;
  std::ranges::sort(sorted);
  Histogram out;
  double below = 0;
  double squares = 0;
  bool found = false;
  for (const auto& [ms, count] : sorted) {
    below += count;
    if (!found && below >= total / 2) {
      out.median_ms = ms;
      found = true;
    }
    squares += (ms - mean) * (ms - mean) * count;
  }
  out.deviation_ms = std::sqrt(squares / total);
  return out;
}

Result<void> import_esmond(const json& root, Importer& importer) {
  const std::string& type = importer.options().event_type;
  importer.recognise("esmond", type);
  importer.expect_series();
  if (type == "packet-loss-rate") {
    return importer.error("a trace has no row of a loss alone",
                          "import throughput and histogram-owdelay or histogram-rtt");
  }
  if (type != "throughput" && type != "histogram-owdelay" && type != "histogram-rtt") {
    return importer.error(type.empty() ? "points of which event type? The file does not say"
                                       : fmt::format("event type {} is not read", shown(type)),
                          "say --event-type throughput, histogram-owdelay or histogram-rtt");
  }
  LH_ASSIGN(const auto pair, importer.pair());
  const bool is_rate = type == "throughput";
  LatencyBasis basis = LatencyBasis::kOneWay;
  int streams = 1;
  if (is_rate) {
    importer.assume("throughput is in bit/s, so perfSONAR documents it");
    LH_ASSIGN(streams, importer.streams(std::nullopt, "", 0));
  } else {
    LH_ASSIGN(basis, importer.basis(
                         type == "histogram-rtt" ? LatencyBasis::kRoundTrip : LatencyBasis::kOneWay,
                         "so the event type says; the median of each histogram, in ms", 0,
                         "the latencies"));
  }
  for (std::size_t i = 0; i < root.size(); ++i) {
    const std::optional<double> time = number_at(root[i], "ts");
    const json& value = member(root[i], "val");
    if (!time) return importer.error(fmt::format("point {}: `ts` is no number", i + 1));
    Measurement one{
        .from = pair.first, .to = pair.second, .unix_s = time, .basis = basis, .streams = streams};
    if (is_rate) {
      if (!value.is_number())
        return importer.error(fmt::format("point {}: `val` is no number", i + 1));
      one.rate = BytesPerSecond(value.get<double>() / 8);
    } else {
      const std::optional<Histogram> histogram = read_histogram(value);
      if (!histogram) {
        return importer.error(
            fmt::format("point {}: `val` is no histogram {{\"ms\": count}}", i + 1));
      }
      const double ms = histogram->median_ms;
      one.latency = milliseconds(basis == LatencyBasis::kRoundTrip ? ms / 2 : ms);
      one.jitter = milliseconds(histogram->deviation_ms);
    }
    LH_TRY(importer.add(std::move(one)));
  }
  return {};
}

// ---- Lists of flat objects

void flatten(const json& value, const std::string& name, std::map<std::string, std::string>& out,
             int depth) {
  if (value.is_object() && depth < 6) {
    for (const auto& [key, inner] : value.items()) {
      flatten(inner, name.empty() ? key : name + "." + key, out, depth + 1);
    }
  } else if (value.is_string()) {
    out[name] = value.get<std::string>();
  } else if (value.is_number()) {
    out[name] = format_exact(value.get<double>());
  } else if (value.is_boolean()) {
    out[name] = value.get<bool>() ? "True" : "False";
  } else if (value.is_null()) {
    out[name] = "";
  }
}

/// A list of objects as a table: M-Lab rows out of BigQuery, anybody's pairs.
Result<void> import_objects(const ImportFile& file, const json& root, Importer& importer) {
  std::vector<std::map<std::string, std::string>> rows;
  std::set<std::string> names;
  for (std::size_t i = 0; i < root.size(); ++i) {
    if (!root[i].is_object()) {
      return importer.error(fmt::format("item {} of the list is no object", i + 1));
    }
    flatten(root[i], "", rows.emplace_back(), 0);
    for (const auto& [name, value] : rows.back()) names.insert(name);
    if (names.size() > 1000) return importer.error("the objects have more than 1000 keys");
  }
  Tables tables;
  Table& table = tables.tables.emplace_back();
  table.header.assign(names.begin(), names.end());
  for (const auto& values : rows) {
    Table::Row& row = table.rows.emplace_back();
    for (const std::string& name : table.header) {
      const auto found = values.find(name);
      row.cells.push_back(found == values.end() ? "" : found->second);
    }
  }
  if (rows.empty() || names.empty()) return importer.error("the list is empty");
  return import_table_list(file, tables, importer);
}

// ---- Which is it?

std::string_view format_of(const json& root) {
  if (root.is_object()) {
    if (root.contains("DataResponses")) return "aws";
    if (root.contains("metadata") && root.contains("data")) return "cloudping";
    if (root.contains("start") && (root.contains("end") || root.contains("intervals"))) {
      return "iperf3";
    }
    if (root.contains("msm_id") || root.contains("prb_id")) return "ripe";
    if (is_nested(root, is_sailor_leaf)) return "sailor";
    if (is_nested(root, is_number_or_null)) return "table";
  } else if (root.is_array() && !root.empty() && root[0].is_object()) {
    if (root[0].contains("prb_id") || root[0].contains("msm_id")) return "ripe";
    if (root[0].contains("ts") && root[0].contains("val")) return "esmond";
    return "list";
  }
  return "";
}

/// A document, or one value a line (as a list of them).
Result<json> parse_document(std::string_view text, const Importer& importer) {
  std::size_t wrong_at = 0;
  std::string reason;
  const auto parse = [&](std::string_view part, std::size_t start) -> std::optional<json> {
    try {
      return json::parse(part.begin(), part.end());
    } catch (const json::exception& error) {
      const auto* syntax = dynamic_cast<const json::parse_error*>(&error);
      wrong_at = start + (syntax != nullptr
                              ? std::min(std::max<std::size_t>(syntax->byte, 1) - 1, part.size())
                              : 0);
      reason = error.what();
      return std::nullopt;
    }
  };
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (auto document = parse(text, 0)) return std::move(*document);
  const std::size_t whole_wrong_at = wrong_at;
  json list = json::array();
  TextLines lines(text);
  bool is_lines = true;
  while (is_lines && lines.next()) {
    if (trimmed(lines.line()).empty()) continue;
    auto value = parse(lines.line(), static_cast<std::size_t>(lines.line().data() - text.data()));
    is_lines = value && value->is_object();
    if (is_lines) list.push_back(std::move(*value));
  }
  if (is_lines && !list.empty()) return list;
  const std::size_t at = list.empty() ? whole_wrong_at : wrong_at;
  const std::string_view before = text.substr(0, at);
  const int line = static_cast<int>(std::ranges::count(before, '\n')) + 1;
  const int column = static_cast<int>(before.size() - (before.rfind('\n') + 1)) + 1;
  const bool ends_early = at >= text.size() || trimmed(text.substr(at)).empty();
  return importer.error(line, column, ends_early ? "the JSON ends too early" : "this is not JSON",
                        text.contains("\"connected\"")
                            ? "iperf3 was cut off: its sums come last, so run it again"
                            : "");
}

}  // namespace

Result<void> import_json(const ImportFile& file, Importer& importer) {
  LH_ASSIGN(const json root, parse_document(file.text, importer));
  importer.keep_source(text_at(root, "_source"));
  const std::string& wanted = importer.options().format;
  const std::string_view format = wanted.empty() ? format_of(root) : std::string_view(wanted);
  const auto listed = [&root] { return root.is_array() ? root : json::array({root}); };
  if (format == "aws") return import_aws(root, importer);
  if (format == "cloudping") return import_cloudping(root, importer);
  if (format == "iperf3") return import_iperf3(root, importer);
  if (format == "sailor") return import_sailor(root, importer);
  if (format == "ripe") return import_ripe(listed(), importer);
  if (format == "esmond") return import_esmond(listed(), importer);
  if (root.is_object() && is_nested(root, is_number_or_null)) {
    importer.recognise("table", "numbers by from and to");
    if (!importer.options().latency_unit.empty() || !importer.options().rate_unit.empty()) {
      return import_plain_matrix(matrix_of(root), importer);
    }
    return importer.error(
        "nothing says what these numbers by from and to are",
        "say --latency-unit ms --basis rtt, --rate-unit Mbit/s --streams N, or --format cloudping "
        "where they are CloudPing's");
  }
  if (root.is_array()) return import_objects(file, root, importer);
  return importer.error("JSON of no format that is known",
                        "known: CloudPing, AWS network performance, RIPE Atlas, iperf3 -J, "
                        "perfSONAR, Sailor, lists of "
                        "objects with from and to, and {from: {to: number}}");
}

}  // namespace longhaul
