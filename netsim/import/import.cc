#include "netsim/import/import.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "core/config_cursor.h"
#include "netsim/csv_text.h"
#include "netsim/import/importer.h"

namespace longhaul {
namespace {

using Reader = Result<void> (*)(const ImportFile&, Importer&);

struct Format {
  ImportFormat about;
  Reader read;
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {{"longhaul", "a trace of ours"}, import_tables},
      {{"cloudping", "CloudPing, JSON or matrix"}, nullptr},
      {{"aws", "AWS Infrastructure Performance"}, import_json},
      {{"azure", "Azure's latency tables"}, import_tables},
      {{"ibm", "IBM Cloud's latency tables"}, import_tables},
      {{"gcp", "Google Cloud's performance dashboard"}, import_tables},
      {{"skyplane", "Skyplane's throughput grid"}, import_tables},
      {{"skyplane-latency", "Skyplane's latency grid"}, import_tables},
      {{"egress", "prices of egress"}, import_tables},
      {{"doit", "DoiT's intercloud throughput"}, import_tables},
      {{"dtfm", "DT-FM's list of pairs"}, import_tables},
      {{"wondernetwork", "WonderNetwork pings"}, import_tables},
      {{"mlab", "M-Lab ndt7 rows"}, nullptr},
      {{"netperf", "netperf -o"}, import_tables},
      {{"table", "a table of pairs or a matrix"}, nullptr},
      {{"sailor", "Sailor's bandwidth coefficients"}, import_json},
      {{"ripe", "RIPE Atlas ping results"}, import_json},
      {{"iperf3", "iperf3 -J"}, import_json},
      {{"esmond", "perfSONAR esmond"}, import_json},
      {{"ping", "ping, ping -D"}, import_ping},
      {{"shadow", "Shadow's network graph, GML"}, import_shadow},
      {{"astra-sim", "ASTRA-sim's network file"}, import_astra},
      {{"simgrid", "SimGrid platform"}, import_simgrid},
  };
  return all;
}

/// The first line that is neither blank nor a comment.
std::string_view first_line(std::string_view text) {
  TextLines lines(text);
  while (lines.next()) {
    const std::string_view line = trimmed(lines.line());
    if (!line.empty() && line.front() != '#') return line;
  }
  return {};
}

bool has_line_starting(std::string_view text, std::string_view start) {
  TextLines lines(text);
  while (lines.next()) {
    if (trimmed(lines.line()).starts_with(start)) return true;
  }
  return false;
}

/// By what the text looks like.
Reader reader_for(std::string_view text) {
  const std::string_view first = first_line(text);
  // A markdown page may begin with a comment of HTML.
  if (first.starts_with("<?xml") || (first.starts_with('<') && text.contains("<platform"))) {
    return import_simgrid;
  }
  if (first.starts_with('{') || first.starts_with('[')) {
    // `ping -D` begins its lines with a time in brackets.
    if (!first.contains(" bytes from ")) return import_json;
  }
  if (first.starts_with("PING ") || text.contains(" ping statistics ---") ||
      first.contains(" bytes from ")) {
    return import_ping;
  }
  if (first.starts_with("graph") && text.contains('[') && text.contains("node"))
    return import_shadow;
  if (has_line_starting(text, "npus_count:")) return import_astra;
  return import_tables;
}

Result<void> import_one(const ImportFile& file, Importer& importer) {
  importer.open(file);
  if (first_line(file.text).empty()) return importer.error("the file is empty");
  if (file.text.contains('\0')) {
    return importer.error("this is no text", "unpack it, or save it as CSV or JSON");
  }
  if (file.text.contains("[ ID] Interval")) {
    return importer.error("this is iperf3's text for people, whose rates are rounded",
                          "run iperf3 -J, and import what it prints");
  }
  if (file.text.contains("Reply from ") && file.text.contains("TTL=")) {
    return importer.error("ping of Windows is not read: it rounds to whole milliseconds",
                          "ping from Linux or macOS, or write a table: from,to,rtt_ms");
  }
  Reader read = reader_for(file.text);
  const std::string& wanted = importer.options().format;
  if (!wanted.empty()) {
    const auto format =
        std::ranges::find(formats(), wanted, [](const Format& known) { return known.about.name; });
    if (format == formats().end()) {
      std::vector<std::string> names;
      for (const Format& known : formats()) names.emplace_back(known.about.name);
      return invalid(
          fmt::format("--format: `{}` is no format", wanted),
          did_you_mean(wanted, names, fmt::format("one of: {}", fmt::join(names, ", "))));
    }
    if (format->read != nullptr) read = format->read;
  }
  const std::size_t before = importer.count();
  LH_TRY(read(file, importer));
  if (importer.count() == before && !is_server_list(file.text)) {
    return importer.error("no measurement in this file",
                          "rows without numbers, and those that failed, are left out");
  }
  return {};
}

}  // namespace

const std::vector<ImportFormat>& import_formats() {
  static const std::vector<ImportFormat> all = [] {
    std::vector<ImportFormat> out;
    for (const Format& format : formats()) out.push_back(format.about);
    return out;
  }();
  return all;
}

Result<ImportedTrace> import_traces(const std::vector<ImportFile>& files,
                                    const ImportOptions& options) {
  Importer importer(options);
  LH_TRY(importer.read_renames());
  // WonderNetwork's list of servers gives names to the numbers of its pings.
  for (const bool wants_servers : {true, false}) {
    for (const ImportFile& file : files) {
      if (is_server_list(file.text) == wants_servers) LH_TRY(import_one(file, importer));
    }
  }
  return importer.finish();
}

}  // namespace longhaul
