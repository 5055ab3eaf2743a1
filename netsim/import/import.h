// Reads the measurements that people have (CloudPing, iperf3, ping, tables of all kinds, ...) into
// one Trace. docs/formats.md lists the formats, how each is recognised, and what is assumed.
//
//   ImportOptions options;
//   options.basis = LatencyBasis::kRoundTrip;
//   LH_ASSIGN(ImportedTrace imported, import_traces({{"links.csv", text}}, options));
//
// Nothing is guessed silently: bits or bytes, round trip or one way, one or many streams are said
// by the file, known of its format, or declared by an option; else the file is refused with a hint.
// What was taken without the file saying it is listed in `assumptions`. Of two single measurements
// of the same thing the newest stays, and `conflicts` names both. Any thread may call this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "netsim/trace.h"

namespace longhaul {

struct ImportFile {
  std::string name;  // stands in messages and, without its folder, in the column `source`
  std::string text;
};

/// What the files do not say. An option that a file does not need is not looked at.
struct ImportOptions {
  std::string format;                 // of all files; empty: by content
  std::optional<LatencyBasis> basis;  // of latencies
  std::string latency_unit;           // `ms`
  std::string rate_unit;              // `Mbit/s`, `MB/s`: as in core/quantity.h
  std::optional<int> streams;         // that a rate was measured with
  /// The ends of files that measure one pair (ping, iperf3, ...): one for all of them, or one for
  /// each such file, in their order.
  std::vector<std::string> from;
  std::vector<std::string> to;
  std::optional<Bytes> message;  // size at which a rate that depends on it is taken (Sailor)
  std::string event_type;        // perfSONAR: `throughput`, `packet-loss-rate`, ...
  /// `OLD=NEW`: places under another name; `aws:*=*`: without that beginning.
  std::vector<std::string> rename;
};

struct ImportedTrace {
  Trace trace;
  std::vector<std::string> recognised;   // a line for each file
  std::vector<std::string> assumptions;  // in the order in which they were made
  std::vector<std::string> conflicts;
  std::vector<std::string> sources;  // what the files say of where they come from
};

/// Errors are kInvalid and name the file, with a line and column where it has lines.
Result<ImportedTrace> import_traces(const std::vector<ImportFile>& files,
                                    const ImportOptions& options);

/// A format's name for `--format` and what it is, for people.
struct ImportFormat {
  std::string_view name;
  std::string_view title;
};
const std::vector<ImportFormat>& import_formats();

}  // namespace longhaul
