// Tables as text: CSV (also with semicolons or tabs) and the tables of a markdown page. Internal to
// netsim/import.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "netsim/import/importer.h"

namespace longhaul {

struct Table {
  struct Row {
    std::vector<std::string> cells;  // as many as the header has
    int line = 0;
  };
  std::vector<std::string> header;
  std::vector<Row> rows;
  int line = 0;         // of the header
  std::string heading;  // of a markdown page: the last one with a date, else the nearest
  bool is_markdown = false;

  /// Index of the column of that name (exactly), or -1.
  int find(std::string_view name) const;
};

/// What stands around the tables: comments of a CSV, the text of a markdown page.
struct Tables {
  std::vector<Table> tables;
  std::string surroundings;
};

/// Every table of the text, at least one with a row.
Result<Tables> read_tables(std::string_view text, const Importer& importer);

/// Reads tables into the importer; shared by files that are tables and JSON lists of flat objects.
Result<void> import_table_list(const ImportFile& file, const Tables& tables, Importer& importer);

/// Whether a table is a matrix: rows and columns are places.
bool is_matrix(const Table& table);
/// Reads a matrix whose corner, options or `known_*` say what its numbers are.
struct MatrixFormat {
  bool is_latency = true;
  std::optional<UnitScale> unit = {};
  std::optional<LatencyBasis> basis = {};
  std::string_view why = {};
  std::optional<double> unix_s = {};
};
Result<void> import_matrix(const Table& table, const MatrixFormat& format, Importer& importer);
/// A matrix of which nothing is known but what its corner and the options say.
Result<void> import_plain_matrix(const Table& table, Importer& importer);

}  // namespace longhaul
