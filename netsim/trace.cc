#include "netsim/trace.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/config_cursor.h"
#include "core/hash.h"
#include "core/median.h"
#include "core/quantity.h"
#include "netsim/csv_text.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxTraceBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxPlaces = 1024;  // as sites of a cluster

enum Column {
  kFrom,
  kTo,
  kScope,
  kTime,
  kLatency,
  kBasis,
  kRate,
  kStreams,
  kLoss,
  kJitter,
  kOrigin,
  kSource,
  kColumns
};
constexpr std::array<std::string_view, kColumns> kColumnNames = {
    "from",       "to",      "scope", "time_s",    "latency_ms", "basis",
    "gbit_per_s", "streams", "loss",  "jitter_ms", "origin",     "source"};

using Field = CsvField;

/// Reads one trace; holds what every error needs: the file's name and the line at hand.
class TraceReader {
 public:
  TraceReader(std::string_view text, const std::string& name) : text_(text), lines_(text) {
    trace_.name = name;
  }

  Result<Trace> read() {
    trace_.hash = hash_text(text_);
    bool has_header = false;
    while (next_line()) {
      LH_TRY(check_characters());
      if (line_text_.empty() || line_text_.front() == '#') continue;
      LH_ASSIGN(std::vector<Field> fields, split());
      if (!has_header) {
        LH_TRY(read_header(fields));
        has_header = true;
      } else {
        LH_TRY(read_row(fields));
      }
    }
    if (!has_header) return error(1, "the trace is empty", header_hint());
    if (trace_.rows.empty()) return error(1, "the trace has a header but no measurement");
    return std::move(trace_);
  }

 private:
  static std::string header_hint() {
    return fmt::format("the first line names the columns: {}", fmt::join(kColumnNames, ","));
  }

  std::unexpected<Error> error(int column, std::string message, std::string hint = "") const {
    auto out = invalid_at({trace_.name, line_, column}, std::move(message), std::move(hint));
    if (!line_text_.empty() && line_text_.size() <= 200) {
      const auto indent = static_cast<std::size_t>(std::max(0, column - 1));
      out.error().excerpt =
          "  " + std::string(line_text_) + "\n  " + std::string(indent, ' ') + "^";
    }
    return out;
  }

  bool next_line() {
    if (!lines_.next()) return false;
    line_text_ = lines_.line();
    line_ = lines_.number();
    return true;
  }

  /// Messages show parts of a line: nothing in it may steer a terminal.
  Result<void> check_characters() {
    const std::size_t at = find_control_character(line_text_);
    if (at == std::string_view::npos) return {};
    const auto byte = static_cast<unsigned char>(line_text_[at]);
    line_text_ = {};  // no excerpt
    return error(static_cast<int>(at) + 1, fmt::format("control character 0x{:02x}", byte),
                 "is this a text file?");
  }

  Result<std::vector<Field>> split() const {
    std::expected<std::vector<Field>, CsvMistake> fields = split_csv(line_text_, ',');
    if (!fields) return error(fields.error().column, fields.error().message);
    return std::move(*fields);
  }

  Result<void> read_header(const std::vector<Field>& fields) {
    columns_.fill(-1);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto known = std::find(kColumnNames.begin(), kColumnNames.end(), fields[i].text);
      if (known == kColumnNames.end()) {
        return error(fields[i].column, fmt::format("unknown column `{}`", fields[i].text),
                     did_you_mean(fields[i].text, {kColumnNames.begin(), kColumnNames.end()},
                                  header_hint()));
      }
      int& column = columns_[static_cast<std::size_t>(known - kColumnNames.begin())];
      if (column >= 0)
        return error(fields[i].column, fmt::format("column `{}` appears twice", *known));
      column = static_cast<int>(i);
    }
    for (const Column needed : {kFrom, kTo}) {
      if (columns_[needed] < 0) {
        return error(1, fmt::format("column `{}` is missing", kColumnNames[needed]), header_hint());
      }
    }
    if (columns_[kLatency] < 0 && columns_[kRate] < 0) {
      return error(1, "the trace has neither `latency_ms` nor `gbit_per_s`", header_hint());
    }
    if (columns_[kLatency] >= 0 && columns_[kBasis] < 0) {
      return error(1, "`latency_ms` needs a column `basis`: `rtt` or `one_way`",
                   "ping, CloudPing and cloud dashboards print round trips: rtt");
    }
    header_size_ = fields.size();
    return {};
  }

  const Field& field(const std::vector<Field>& fields, Column column) const {
    static const Field kAbsent;
    const int index = columns_[column];
    return index < 0 ? kAbsent : fields[static_cast<std::size_t>(index)];
  }

  /// A number in [min, max], or nothing when the field is empty.
  Result<std::optional<double>> number(const std::vector<Field>& fields, Column column, double min,
                                       double max) const {
    const Field& at = field(fields, column);
    if (at.text.empty()) return std::nullopt;
    const Result<double> value = parse_number(at.text);
    if (!value) {
      return error(at.column,
                   fmt::format("`{}` is not a number for `{}`", at.text, kColumnNames[column]),
                   "the column's name gives the unit; write the number alone");
    }
    if (*value < min || *value > max) {
      return error(at.column, fmt::format("{} {} is outside {} to {}", kColumnNames[column],
                                          at.text, min, max));
    }
    return *value;
  }

  /// Index of the field's text among `choices`; `fallback` when empty.
  Result<std::size_t> choice(const std::vector<Field>& fields, Column column,
                             std::initializer_list<std::string_view> choices,
                             std::size_t fallback) const {
    const Field& at = field(fields, column);
    if (at.text.empty()) return fallback;
    const auto found = std::find(choices.begin(), choices.end(), at.text);
    if (found == choices.end()) {
      return error(at.column,
                   fmt::format("`{}` is not a value of `{}`", at.text, kColumnNames[column]),
                   fmt::format("one of: {}", fmt::join(choices, ", ")));
    }
    return static_cast<std::size_t>(found - choices.begin());
  }

  Result<int> place(const Field& at) {
    if (at.text.empty()) return error(at.column, "the name of a place is empty");
    const int known = trace_.find_place(at.text);
    if (known >= 0) return known;
    if (trace_.places.size() == kMaxPlaces) {
      return error(at.column, fmt::format("more than {} places", kMaxPlaces));
    }
    trace_.places.push_back(at.text);
    return static_cast<int>(trace_.places.size()) - 1;
  }

  Result<void> read_row(const std::vector<Field>& fields) {
    if (fields.size() != header_size_) {
      return error(
          1, fmt::format("{} fields, but the header has {} columns", fields.size(), header_size_),
          "a text with commas must stand in double quotes");
    }
    TraceRow row;
    row.line = line_;
    LH_ASSIGN(row.from, place(field(fields, kFrom)));
    LH_ASSIGN(row.to, place(field(fields, kTo)));
    LH_ASSIGN(const std::size_t scope, choice(fields, kScope, {"node", "site_pair"}, 0));
    row.scope = scope == 0 ? LinkScope::kNode : LinkScope::kSitePair;
    LH_ASSIGN(row.time_s, number(fields, kTime, 0, 1e12));
    LH_ASSIGN(const std::optional<double> latency, number(fields, kLatency, 0, 60000));
    LH_ASSIGN(const std::size_t basis, choice(fields, kBasis, {"one_way", "rtt"}, 2));
    if (latency) {
      if (basis == 2) {
        return error(field(fields, kLatency).column,
                     "this latency has no `basis`: `rtt` or `one_way`",
                     "ping, CloudPing and cloud dashboards print round trips: rtt");
      }
      row.latency = milliseconds(basis == 1 ? *latency / 2 : *latency);
      row.basis = basis == 1 ? LatencyBasis::kRoundTrip : LatencyBasis::kOneWay;
    }
    LH_ASSIGN(const std::optional<double> rate, number(fields, kRate, 1e-6, 1e6));
    if (rate) row.rate = gigabits_per_second(*rate);
    if (!latency && !rate) return error(1, "this row has neither a latency nor a rate");
    LH_ASSIGN(const std::optional<double> streams, number(fields, kStreams, 1, 4096));
    row.streams = static_cast<int>(streams.value_or(1));
    if (streams && *streams != row.streams) {
      return error(field(fields, kStreams).column, "`streams` must be a whole number");
    }
    LH_ASSIGN(row.loss, number(fields, kLoss, 0, 0.999));
    LH_ASSIGN(const std::optional<double> jitter, number(fields, kJitter, 0, 60000));
    if (jitter) row.jitter = milliseconds(*jitter);
    constexpr std::array origins = {Origin::kMeasured, Origin::kMirrored, Origin::kAssumed,
                                    Origin::kModelled};
    LH_ASSIGN(const std::size_t origin,
              choice(fields, kOrigin, {"measured", "mirrored", "assumed", "modelled"}, 0));
    row.origin = origins[origin];
    row.source = field(fields, kSource).text;
    trace_.rows.push_back(std::move(row));
    return {};
  }

  std::string_view text_;
  Trace trace_;
  TextLines lines_;
  int line_ = 0;
  std::string_view line_text_;
  std::array<int, kColumns> columns_{};
  std::size_t header_size_ = 0;
};

}  // namespace

int Trace::find_place(std::string_view place) const {
  const auto found = std::find(places.begin(), places.end(), place);
  return found == places.end() ? -1 : static_cast<int>(found - places.begin());
}

Result<std::string> read_trace_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return invalid(fmt::format("cannot read trace {}: {}", path, std::strerror(errno)));
  }
  std::string text;
  std::vector<char> piece(1 << 20);
  while (text.size() <= kMaxTraceBytes && file) {  // a device file has no size to ask for
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad() || text.empty()) {
    return invalid(fmt::format("trace {} is empty or unreadable", path));
  }
  if (text.size() > kMaxTraceBytes) {
    return invalid(fmt::format("trace {} is larger than 256 MiB", path));
  }
  return text;
}

Result<Trace> load_trace(const std::string& path) {
  LH_ASSIGN(const std::string text, read_trace_text(path));
  return parse_trace(text, path);
}

Result<Trace> parse_trace(std::string_view text, const std::string& name) {
  return TraceReader(text, name).read();
}

std::vector<PairSummary> summarise(const Trace& trace, double percentile) {
  const std::size_t places = trace.places.size();
  std::vector<std::vector<const TraceRow*>> rows(places * places);
  for (const TraceRow& row : trace.rows) {
    rows[static_cast<std::size_t>(row.from) * places + static_cast<std::size_t>(row.to)].push_back(
        &row);
  }
  std::vector<PairSummary> summaries(places * places);
  for (std::size_t pair = 0; pair < rows.size(); ++pair) {
    PairSummary& summary = summaries[pair];
    summary.rows = rows[pair].size();
    if (rows[pair].empty()) continue;
    std::vector<double> latencies;
    std::vector<double> rates;
    std::vector<double> losses;
    std::vector<double> jitters;
    bool has_rate = false;
    for (const TraceRow* row : rows[pair]) {
      if (row->latency) {
        latencies.push_back(row->latency->value());
        summary.latency_origin = row->origin;
      }
      if (row->rate) {
        rates.push_back(row->rate->value());
        summary.rate_origin = row->origin;
      }
      if (row->loss) losses.push_back(*row->loss);
      if (row->jitter) jitters.push_back(row->jitter->value());
      if (row->rate || !has_rate) summary.scope = row->scope;
      has_rate = has_rate || row->rate;
    }
    if (!latencies.empty()) summary.latency = Seconds(quantile(latencies, percentile / 100));
    if (!rates.empty()) summary.rate = BytesPerSecond(quantile(rates, (100 - percentile) / 100));
    if (!losses.empty()) summary.loss = quantile(losses, percentile / 100);
    if (!jitters.empty()) summary.jitter = Seconds(quantile(jitters, percentile / 100));
  }
  return summaries;
}

std::string trace_table(const Trace& trace, double percentile) {
  const std::vector<PairSummary> summaries = summarise(trace, percentile);
  const std::size_t places = trace.places.size();
  std::size_t width = 9;
  for (const std::string& place : trace.places) width = std::max(width, place.size());
  const auto matrix = [&](std::string_view title, auto&& cell) {
    std::string out = fmt::format("{}\n{:{}}", title, "", width);
    for (const std::string& place : trace.places) out += fmt::format("  {:>{}}", place, width);
    out += '\n';
    for (std::size_t i = 0; i < places; ++i) {
      out += fmt::format("{:<{}}", trace.places[i], width);
      for (std::size_t j = 0; j < places; ++j) {
        out += fmt::format("  {:>{}}", cell(summaries[i * places + j]), width);
      }
      out += '\n';
    }
    return out;
  };
  std::string out = fmt::format("{}: {} places, {} rows, percentile {}\n\n", trace.name, places,
                                trace.rows.size(), percentile);
  out +=
      matrix("one-way latency, ms (row to column; - = not measured)", [](const PairSummary& pair) {
        return pair.latency ? fmt::format("{:.4g}", pair.latency->value() * 1e3) : std::string("-");
      });
  out += '\n';
  out += matrix("rate, Gbit/s (row to column; - = not measured)", [](const PairSummary& pair) {
    return pair.rate ? fmt::format("{:.4g}", pair.rate->value() * 8 / 1e9) : std::string("-");
  });
  return out;
}

}  // namespace longhaul
