// Network traces: what was measured between places, in the project's canonical CSV.
//
//   from,to,scope,time_s,latency_ms,basis,gbit_per_s,streams,loss,jitter_ms,origin,source
//   tokyo,oregon,node,,96,rtt,0.523,1,,,measured,DT-FM cda948f
//
// One row is one measurement of a directed pair of places (`from` = `to`: inside the place). A pair
// may have many rows over time. `basis` says whether a latency is a round trip or one way; it is
// never guessed. Lines that start with `#` are comments. The format is written down in
// docs/formats.md. A Trace is a value; any thread may read it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"

namespace longhaul {

/// How a latency was measured. Trace keeps all of them one way.
enum class LatencyBasis { kOneWay, kRoundTrip };

struct TraceRow {
  int from = 0;  // index into Trace::places
  int to = 0;
  LinkScope scope = LinkScope::kNode;
  std::optional<double> time_s;                // since the start of the trace
  std::optional<Seconds> latency;              // one way: a round trip is halved on reading
  LatencyBasis basis = LatencyBasis::kOneWay;  // what the file has, and trace_csv writes
  std::optional<BytesPerSecond> rate;          // what `streams` connections reach together
  int streams = 1;
  std::optional<double> loss;
  std::optional<Seconds> jitter;
  Origin origin = Origin::kMeasured;
  std::string source;
  int line = 0;
};

struct Trace {
  std::string name;                 // the file
  std::vector<std::string> places;  // in order of first appearance
  std::vector<TraceRow> rows;
  std::uint64_t hash = 0;  // of the text

  int find_place(std::string_view place) const;  // -1 if absent
};

Result<Trace> load_trace(const std::string& path);
Result<Trace> parse_trace(std::string_view text, const std::string& name);
/// The text of a file of measurements, at most 256 MiB.
Result<std::string> read_trace_text(const std::string& path);

/// The trace as text that parse_trace reads; columns in which every row has its default are left
/// out. Numbers have twelve digits. Each line of `comments` comes first, after a `#`.
std::string trace_csv(const Trace& trace, const std::vector<std::string>& comments);

/// What the trace says of one directed pair.
struct PairSummary {
  std::optional<Seconds> latency;
  std::optional<BytesPerSecond> rate;
  LinkScope scope = LinkScope::kNode;
  double loss = 0;  // and jitter: of the rows that say it; 0 where none does
  Seconds jitter;
  Origin latency_origin = Origin::kMeasured;  // of the last row that has one
  Origin rate_origin = Origin::kMeasured;
  std::size_t rows = 0;
};

/// Percentile q (0..100) of latency, loss and jitter, and 100 - q of the rate, so that q = 95 is a
/// bad day in every respect; linear interpolation between order statistics. Row-major, places x
/// places; pairs without rows have `rows` = 0.
std::vector<PairSummary> summarise(const Trace& trace, double percentile);

/// The matrices of latency and rate as a table for people.
std::string trace_table(const Trace& trace, double percentile);

}  // namespace longhaul
