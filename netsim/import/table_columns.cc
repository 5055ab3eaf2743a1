#include "netsim/import/table_columns.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/config_errors.h"
#include "core/quantity.h"

namespace longhaul {
namespace {

bool is_blank(std::string_view cell) {
  constexpr std::array<std::string_view, 10> blanks = {"",     "-",    "n/a", "N/A", "NA",
                                                       "null", "None", "nan", "NaN", "\u2014"};
  return std::ranges::find(blanks, cell) != blanks.end();
}

const std::string& cell_of(const Table::Row& row, int column) {
  return row.cells[static_cast<std::size_t>(column)];
}

std::string joined(const Table::Row& row, const std::vector<int>& columns) {
  std::string out;
  for (const int column : columns) {
    out +=
        (out.empty() ? "" : ":") +
        (columns.size() > 1 && out.empty() ? lowered(cell_of(row, column)) : cell_of(row, column));
  }
  return out;
}

/// Which of several columns of one role to take: means before medians before the rest.
Result<int> best_column(const Table& table, const std::vector<ColumnMeaning>& meanings,
                        ColumnRole role, std::string_view what, const Importer& importer) {
  std::vector<int> found;
  for (std::size_t i = 0; i < meanings.size(); ++i) {
    if (meanings[i].role == role) found.push_back(static_cast<int>(i));
  }
  if (found.empty()) return -1;
  const auto preference = [&](int column) {
    return meanings[static_cast<std::size_t>(column)].preference;
  };
  std::ranges::stable_sort(found, {}, preference);
  if (found.size() > 1 && preference(found[0]) == preference(found[1])) {
    return importer.error(table.line, 0,
                          fmt::format("columns `{}` and `{}` both look like {}",
                                      table.header[static_cast<std::size_t>(found[0])],
                                      table.header[static_cast<std::size_t>(found[1])], what),
                          "take one of them out");
  }
  return found[0];
}

class PairReader {
 public:
  PairReader(const Table& table, PairColumns columns, Importer& importer)
      : table_(table), columns_(std::move(columns)), importer_(importer) {}

  Result<void> read() {
    LH_TRY(settle());
    if (columns_.in_series) importer_.expect_series();
    std::size_t skipped = 0;
    for (const Table::Row& row : table_.rows) {
      if (columns_.skip && columns_.skip(row)) {
        ++skipped;
      } else {
        LH_TRY(read_row(row));
      }
    }
    if (skipped > 0) {
      importer_.assume(fmt::format("rows left out: {} ({})", skipped, columns_.skip_why));
    }
    return {};
  }

 private:
  std::string title(int column) const {
    return fmt::format("the values of `{}`", table_.header[static_cast<std::size_t>(column)]);
  }

  /// Asks the options for what the table does not say.
  Result<void> settle() {
    if (columns_.latency >= 0) {
      LH_ASSIGN(basis_, importer_.basis(columns_.basis, columns_.basis_why, table_.line,
                                        title(columns_.latency)));
      if (!columns_.latency_unit && !cells_have_units(columns_.latency)) {
        LH_ASSIGN(columns_.latency_unit,
                  importer_.latency_unit(table_.line, title(columns_.latency)));
      }
    }
    if (columns_.rate >= 0) {
      if (columns_.streams < 0) {
        LH_ASSIGN(columns_.streams_known,
                  importer_.streams(columns_.streams_known, columns_.streams_why, table_.line));
      }
      if (!columns_.rate_unit && !cells_have_units(columns_.rate)) {
        LH_ASSIGN(columns_.rate_unit, importer_.rate_unit(table_.line, title(columns_.rate)));
      }
    }
    return {};
  }

  /// Whether the column's first value says its unit itself: `48 ms`.
  bool cells_have_units(int column) const {
    for (const Table::Row& row : table_.rows) {
      const std::string& cell = cell_of(row, column);
      if (is_blank(cell)) continue;
      return parse_duration(cell).has_value() || parse_rate(cell).has_value();
    }
    return false;
  }

  template <class T>
  Result<std::optional<T>> value(const Table::Row& row, int column,
                                 const std::optional<UnitScale>& unit,
                                 Result<T> (*parse)(std::string_view)) const {
    if (column < 0) return std::nullopt;
    if (!unit) {
      const std::string& cell = cell_of(row, column);
      if (is_blank(cell)) return std::nullopt;
      const Result<T> quantity = parse(cell);
      if (!quantity) {
        return importer_.error(row.line, 0, quantity.error().message, quantity.error().hint);
      }
      return *quantity;
    }
    LH_ASSIGN(const std::optional<double> number, cell_number(table_, row, column, importer_));
    if (!number) return std::nullopt;
    return T(unit->apply(*number));
  }

  Result<void> read_row(const Table::Row& row) {
    Measurement one;
    one.line = row.line;
    one.basis = basis_;
    if (columns_.from.empty()) {
      one.from = pair_.first;
      one.to = pair_.second;
    } else {
      one.from = joined(row, columns_.from);
      one.to = joined(row, columns_.to);
    }
    LH_ASSIGN(one.latency,
              value<Seconds>(row, columns_.latency, columns_.latency_unit, parse_duration));
    if (one.latency && basis_ == LatencyBasis::kRoundTrip) one.latency = *one.latency / 2;
    LH_ASSIGN(one.rate, value<BytesPerSecond>(row, columns_.rate, columns_.rate_unit, parse_rate));
    LH_ASSIGN(one.jitter,
              value<Seconds>(row, columns_.jitter, columns_.jitter_unit, parse_duration));
    if (columns_.loss >= 0) {
      LH_ASSIGN(const std::optional<double> loss,
                cell_number(table_, row, columns_.loss, importer_));
      if (loss) one.loss = columns_.loss_unit.apply(*loss);
    }
    if (columns_.streams >= 0) {
      LH_ASSIGN(const std::optional<double> streams,
                cell_number(table_, row, columns_.streams, importer_));
      if (streams && (*streams < 1 || *streams > 4096 || *streams != std::floor(*streams))) {
        return importer_.error(row.line, 0, "streams are a whole number from 1 to 4096");
      }
      if (!streams && one.rate) {
        return importer_.error(row.line, 0, "this rate does not say how many streams reached it");
      }
      one.streams = static_cast<int>(streams.value_or(1));
    } else {
      one.streams = columns_.streams_known.value_or(1);
    }
    if (columns_.time >= 0 && !is_blank(cell_of(row, columns_.time))) {
      one.unix_s = parse_time(cell_of(row, columns_.time));
      if (!one.unix_s) {
        return importer_.error(
            row.line, 0, fmt::format("{} is no time", shown(cell_of(row, columns_.time))),
            "a date and time such as 2022-10-26T12:00:00Z, or seconds since 1970");
      }
    }
    return importer_.add(std::move(one));
  }

 public:
  std::pair<std::string, std::string> pair_;  // of a table without ends

 private:
  const Table& table_;
  PairColumns columns_;
  Importer& importer_;
  LatencyBasis basis_ = LatencyBasis::kRoundTrip;
};

}  // namespace

Result<std::optional<double>> cell_number(const Table& table, const Table::Row& row, int column,
                                          const Importer& importer) {
  const std::string& cell = cell_of(row, column);
  if (is_blank(cell)) return std::nullopt;
  const Result<double> number = parse_number(cell);
  if (!number) {
    return importer.error(
        row.line, 0,
        fmt::format("{} is no number for `{}`", shown(cell),
                    table.header[static_cast<std::size_t>(column)]),
        cell.contains(',') ? "write `.` before the decimals, and no separators" : "");
  }
  return *number;
}

Result<void> import_pairs(const Table& table, PairColumns columns, Importer& importer) {
  std::pair<std::string, std::string> pair;
  if (columns.from.empty()) {
    LH_ASSIGN(pair, importer.pair());
  }
  PairReader reader(table, std::move(columns), importer);
  reader.pair_ = std::move(pair);
  return reader.read();
}

Result<PairColumns> columns_by_name(const Table& table, Importer& importer) {
  std::vector<ColumnMeaning> meanings;
  for (const std::string& name : table.header) meanings.push_back(meaning_of(name));
  PairColumns columns;
  LH_ASSIGN(const int from,
            best_column(table, meanings, ColumnRole::kFrom, "the source", importer));
  LH_ASSIGN(const int to, best_column(table, meanings, ColumnRole::kTo, "the target", importer));
  columns.from = {from};
  columns.to = {to};
  LH_ASSIGN(columns.latency,
            best_column(table, meanings, ColumnRole::kLatency, "the latency", importer));
  LH_ASSIGN(columns.rate, best_column(table, meanings, ColumnRole::kRate, "the rate", importer));
  LH_ASSIGN(columns.loss, best_column(table, meanings, ColumnRole::kLoss, "the loss", importer));
  LH_ASSIGN(columns.jitter,
            best_column(table, meanings, ColumnRole::kJitter, "the jitter", importer));
  LH_ASSIGN(columns.streams,
            best_column(table, meanings, ColumnRole::kStreams, "the streams", importer));
  LH_ASSIGN(columns.time, best_column(table, meanings, ColumnRole::kTime, "the time", importer));
  columns.in_series = columns.time >= 0;
  const auto meaning = [&](int column) -> const ColumnMeaning& {
    return meanings[static_cast<std::size_t>(column)];
  };
  const auto name = [&](int column) { return table.header[static_cast<std::size_t>(column)]; };
  if (columns.latency >= 0) {
    columns.latency_unit = meaning(columns.latency).unit;
    columns.basis = meaning(columns.latency).basis;
    columns.basis_why = "so the column's name says";
  }
  if (columns.rate >= 0 && !meaning(columns.rate).unit_is_ambiguous) {
    columns.rate_unit = meaning(columns.rate).unit;
    if (columns.rate_unit) {
      importer.assume(fmt::format("`{}` is in {} a second", name(columns.rate),
                                  columns.rate_unit->divide == 8 ? "bits" : "bytes"));
    }
  }
  if (columns.loss >= 0) {
    if (!meaning(columns.loss).unit) {
      return importer.error(table.line, 0,
                            fmt::format("`{}`: percent or a fraction?", name(columns.loss)),
                            "name the column loss_percent or loss_fraction");
    }
    columns.loss_unit = *meaning(columns.loss).unit;
  }
  if (columns.jitter >= 0) {
    const std::optional<UnitScale> unit =
        meaning(columns.jitter).unit ? meaning(columns.jitter).unit : columns.latency_unit;
    if (!unit) {
      return importer.error(table.line, 0,
                            fmt::format("`{}`: in which unit?", name(columns.jitter)),
                            "name the column jitter_ms");
    }
    columns.jitter_unit = *unit;
  }
  std::vector<std::string> unread;
  for (std::size_t i = 0; i < meanings.size(); ++i) {
    const int column = static_cast<int>(i);
    const bool read = column == from || column == to || column == columns.latency ||
                      column == columns.rate || column == columns.loss ||
                      column == columns.jitter || column == columns.streams ||
                      column == columns.time;
    if (!read) unread.push_back(table.header[i]);
  }
  if (!unread.empty()) {
    importer.assume(fmt::format("columns not read: {}", fmt::join(unread, ", ")));
  }
  return columns;
}

}  // namespace longhaul
