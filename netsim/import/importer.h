// What the readers of all formats share: where measurements go, what was declared, and errors.
// Internal to netsim/import. One Importer reads one list of files; not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "netsim/import/import.h"

namespace longhaul {

/// One measurement of a directed pair, before files are merged.
struct Measurement {
  std::string from = {};
  std::string to = {};
  std::optional<double> unix_s = {};    // when, in seconds since 1970
  std::optional<Seconds> latency = {};  // one way
  LatencyBasis basis = LatencyBasis::kRoundTrip;
  std::optional<BytesPerSecond> rate = {};
  int streams = 1;
  std::optional<double> loss = {};
  std::optional<Seconds> jitter = {};
  LinkScope scope = LinkScope::kNode;
  Origin origin = Origin::kMeasured;
  int line = 0;
  std::optional<double> trace_s = {};  // of a trace of ours, whose times have no date
  bool in_series = false;              // one of many over time: none of them replaces another
  std::string source = {};             // default: format, file and line
  std::size_t file = 0;                // set by Importer
};

/// A number that stands in the file, times `multiply`, over `divide`, is SI (seconds, bytes/s).
struct UnitScale {
  double multiply = 1;
  double divide = 1;
  double apply(double value) const { return value * multiply / divide; }
};

class Importer {
 public:
  explicit Importer(const ImportOptions& options) : options_(options) {}

  /// Reads options().rename; call first.
  Result<void> read_renames();
  /// What follows is about this file.
  void open(const ImportFile& file);
  /// It is of this format, one of import_formats(); `more` for people.
  void recognise(std::string_view format, std::string_view more = "");
  std::string_view format() const { return format_; }
  const ImportOptions& options() const { return options_; }

  /// An error of the file at hand; 0: unknown.
  std::unexpected<Error> error(int line, int column, std::string message,
                               std::string hint = "") const;
  std::unexpected<Error> error(std::string message, std::string hint = "") const {
    return error(0, 0, std::move(message), std::move(hint));
  }

  /// What the file itself says of where it comes from (its first comment).
  void keep_source(std::string_view text);
  /// Notes what was taken without the file saying so; the same text is noted once.
  void assume(std::string text);
  /// The file's measurements are points of a time series.
  void expect_series() { in_series_ = true; }
  /// Takes a measurement, or refuses what lies outside a trace's limits.
  Result<void> add(Measurement measurement);
  std::size_t count() const { return measurements_.size(); }

  /// What the format is known to use (with the reason), unless an option declares it. Without
  /// either, `what` (`the latencies`) is refused at `line`.
  Result<LatencyBasis> basis(std::optional<LatencyBasis> known, std::string_view why, int line,
                             std::string_view what);
  Result<int> streams(std::optional<int> known, std::string_view why, int line);
  Result<UnitScale> latency_unit(int line, std::string_view what);
  Result<UnitScale> rate_unit(int line, std::string_view what);
  /// The ends of a file that measures one pair; what the file itself says of them is the default.
  Result<std::pair<std::string, std::string>> pair(const std::string& from = "",
                                                   const std::string& to = "");

  /// WonderNetwork's places by their number.
  std::map<std::string, std::string>& servers() { return servers_; }

  /// All measurements, merged. Call once, last.
  Result<ImportedTrace> finish();

 private:
  std::string renamed(const std::string& place) const;

  const ImportOptions& options_;
  ImportedTrace result_;
  std::vector<Measurement> measurements_;
  std::vector<std::string> files_;
  std::string name_;
  std::string format_;
  bool in_series_ = false;
  std::size_t pairs_asked_ = 0;
  std::map<std::string, std::string> renamed_;
  std::map<std::string, std::string> servers_;
};

/// `2022-10-26T12:00:00+00:00`, `2020-07-19 00:02:12`, `2022-04-08`, `16 Nov 2025`, or seconds
/// since 1970 as a number; in seconds since 1970.
std::optional<double> parse_time(std::string_view text);
/// `2022-10-26 12:00:00 UTC`.
std::string format_time(double unix_s);
/// The file's name without its folder.
std::string base_name(const std::string& path);

/// Whether a text is WonderNetwork's list of servers, which measures nothing itself.
bool is_server_list(std::string_view text);

// The families of formats. Each reads a file into the importer, having found out which of its
// formats it is (`options().format` when that is said).
Result<void> import_tables(const ImportFile& file, Importer& importer);
Result<void> import_json(const ImportFile& file, Importer& importer);
Result<void> import_ping(const ImportFile& file, Importer& importer);
Result<void> import_shadow(const ImportFile& file, Importer& importer);
Result<void> import_astra(const ImportFile& file, Importer& importer);
Result<void> import_simgrid(const ImportFile& file, Importer& importer);

}  // namespace longhaul
