#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "netsim/csv_text.h"
#include "netsim/trace.h"

namespace longhaul {
namespace {

/// Twelve digits hide the last bits of a round trip that was halved and doubled again.
std::string number(double value) {
  return fmt::format("{:.12g}", value);
}

std::string one_line(std::string text) {
  for (std::size_t at = 0; (at = find_control_character(text)) != std::string::npos;) {
    text[at] = '?';
  }
  return text;
}

struct Column {
  std::string_view name;
  std::function<bool(const TraceRow&)> is_said;
  std::function<std::string(const TraceRow&)> text;
};

std::vector<Column> columns_of(const Trace& trace) {
  const auto latency_ms = [](const TraceRow& row) {
    if (!row.latency) return std::string();
    return number(row.latency->value() * (row.basis == LatencyBasis::kRoundTrip ? 2 : 1) * 1e3);
  };
  const auto place = [&trace](int index) {
    return csv_field(trace.places[static_cast<std::size_t>(index)]);
  };
  const auto always = [](const TraceRow&) { return true; };
  const auto has_latency = [](const TraceRow& row) { return row.latency.has_value(); };
  const auto has_rate = [](const TraceRow& row) { return row.rate.has_value(); };
  return {
      {"from", always, [place](const TraceRow& row) { return place(row.from); }},
      {"to", always, [place](const TraceRow& row) { return place(row.to); }},
      {"scope", [](const TraceRow& row) { return row.scope == LinkScope::kSitePair; },
       [](const TraceRow& row) {
         return std::string(row.scope == LinkScope::kSitePair ? "site_pair" : "node");
       }},
      {"time_s", [](const TraceRow& row) { return row.time_s.has_value(); },
       [](const TraceRow& row) { return row.time_s ? number(*row.time_s) : ""; }},
      {"latency_ms", has_latency, latency_ms},
      {"basis", has_latency,
       [](const TraceRow& row) {
         if (!row.latency) return std::string();
         return std::string(row.basis == LatencyBasis::kRoundTrip ? "rtt" : "one_way");
       }},
      {"gbit_per_s", has_rate,
       [](const TraceRow& row) { return row.rate ? number(row.rate->value() * 8 / 1e9) : ""; }},
      {"streams", has_rate,
       [](const TraceRow& row) { return row.rate ? fmt::format("{}", row.streams) : ""; }},
      {"loss", [](const TraceRow& row) { return row.loss.has_value(); },
       [](const TraceRow& row) { return row.loss ? number(*row.loss) : ""; }},
      {"jitter_ms", [](const TraceRow& row) { return row.jitter.has_value(); },
       [](const TraceRow& row) { return row.jitter ? number(row.jitter->value() * 1e3) : ""; }},
      {"origin", [](const TraceRow& row) { return row.origin != Origin::kMeasured; },
       [](const TraceRow& row) { return std::string(name_of(row.origin)); }},
      {"source", [](const TraceRow& row) { return !row.source.empty(); },
       [](const TraceRow& row) { return csv_field(row.source); }},
  };
}

}  // namespace

std::string trace_csv(const Trace& trace, const std::vector<std::string>& comments) {
  std::string out;
  for (const std::string& comment : comments) out += "# " + one_line(comment) + "\n";
  std::vector<Column> columns = columns_of(trace);
  std::erase_if(columns, [&trace](const Column& column) {
    return std::ranges::none_of(trace.rows, column.is_said);
  });
  std::vector<std::string> fields;
  for (const Column& column : columns) fields.emplace_back(column.name);
  out += fmt::format("{}\n", fmt::join(fields, ","));
  for (const TraceRow& row : trace.rows) {
    fields.clear();
    for (const Column& column : columns) fields.push_back(column.text(row));
    out += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return out;
}

}  // namespace longhaul
