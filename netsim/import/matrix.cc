#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "core/config_errors.h"
#include "core/quantity.h"
#include "netsim/import/table_columns.h"

namespace longhaul {

bool is_matrix(const Table& table) {
  if (table.header.size() < 2 || table.rows.empty()) return false;
  const std::set<std::string_view> columns(table.header.begin() + 1, table.header.end());
  if (columns.size() + 1 != table.header.size() || columns.contains("")) return false;
  for (const std::string& name : table.header) {
    if (&name == &table.header.front()) continue;
    const ColumnRole role = meaning_of(name).role;
    if (role == ColumnRole::kFrom || role == ColumnRole::kTo) return false;
  }
  const ColumnRole corner = meaning_of(table.header[0]).role;
  // Some places are rows and columns, unless the corner says what this is (Azure's: `Source`).
  bool overlaps =
      corner == ColumnRole::kLatency || corner == ColumnRole::kRate || table.header[0] == "Source";
  for (const Table::Row& row : table.rows) {
    if (row.cells[0].empty()) return false;
    overlaps = overlaps || columns.contains(row.cells[0]);
  }
  return overlaps;
}

Result<void> import_matrix(const Table& table, const MatrixFormat& format, Importer& importer) {
  LatencyBasis basis = LatencyBasis::kRoundTrip;
  std::optional<UnitScale> unit = format.unit;
  int streams = 1;
  if (format.is_latency) {
    LH_ASSIGN(basis, importer.basis(format.basis, format.why, table.line, "the latencies"));
    if (!unit) {
      LH_ASSIGN(unit, importer.latency_unit(table.line, "the latencies"));
    }
  } else {
    LH_ASSIGN(streams, importer.streams(std::nullopt, "", table.line));
    if (!unit) {
      LH_ASSIGN(unit, importer.rate_unit(table.line, "the rates"));
    }
  }
  importer.assume("rows of the matrix are where from, columns where to");
  for (const Table::Row& row : table.rows) {
    for (std::size_t column = 1; column < table.header.size(); ++column) {
      LH_ASSIGN(const std::optional<double> number,
                cell_number(table, row, static_cast<int>(column), importer));
      if (!number) continue;
      Measurement one{.from = row.cells[0],
                      .to = table.header[column],
                      .unix_s = format.unix_s,
                      .basis = basis,
                      .streams = streams,
                      .line = row.line};
      if (one.from == one.to && *number == 0) {
        importer.assume("zeros on the diagonal are taken for not measured");
        continue;
      }
      const double value = unit->apply(*number);
      if (format.is_latency) {
        one.latency = Seconds(basis == LatencyBasis::kRoundTrip ? value / 2 : value);
      } else {
        one.rate = BytesPerSecond(value);
      }
      LH_TRY(importer.add(std::move(one)));
    }
  }
  return {};
}

Result<void> import_plain_matrix(const Table& table, Importer& importer) {
  const ColumnMeaning corner = meaning_of(table.header[0]);
  const ImportOptions& options = importer.options();
  MatrixFormat format;
  if (corner.role == ColumnRole::kLatency || corner.role == ColumnRole::kRate) {
    format.is_latency = corner.role == ColumnRole::kLatency;
    if (!corner.unit_is_ambiguous) format.unit = corner.unit;
    format.basis = corner.basis;
    format.why = "so the corner of the matrix says";
  } else if (options.latency_unit.empty() != options.rate_unit.empty()) {
    format.is_latency = !options.latency_unit.empty();
  } else {
    return importer.error(
        table.line, 0, "nothing says what the numbers of this matrix are",
        options.rate_unit.empty()
            ? "say --latency-unit ms --basis rtt, or --rate-unit Mbit/s --streams 1 (or name it in "
              "the first cell: rtt_ms, Mbit/s)"
            : "both --latency-unit and --rate-unit are given: import one matrix at a time, then "
              "both traces together");
  }
  return import_matrix(table, format, importer);
}

}  // namespace longhaul
