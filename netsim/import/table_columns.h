// A table of pairs: which column is what. Internal to netsim/import.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "netsim/import/table.h"
#include "netsim/import/units.h"

namespace longhaul {

/// Columns by index, -1 where the table has none. Units, basis and streams that are not known are
/// asked of the options when a column needs them.
struct PairColumns {
  std::vector<int> from = {};  // several are joined by a colon: cloud and region
  std::vector<int> to = {};
  int latency = -1;
  std::optional<UnitScale> latency_unit = {};
  std::optional<LatencyBasis> basis = {};
  std::string basis_why = {};
  int rate = -1;
  std::optional<UnitScale> rate_unit = {};
  int streams = -1;
  std::optional<int> streams_known = {};
  std::string streams_why = {};
  int loss = -1;
  UnitScale loss_unit = {};
  int jitter = -1;
  UnitScale jitter_unit{1, 1e3};
  int time = -1;
  bool in_series = false;  // rows of a pair are points in time
  /// Rows that do not count.
  std::function<bool(const Table::Row&)> skip = {};
  std::string skip_why = {};
};

Result<void> import_pairs(const Table& table, PairColumns columns, Importer& importer);

/// The columns of a table of which only the names are known. `known_basis`: of a recognised source
/// whose names do not say it.
Result<PairColumns> columns_by_name(const Table& table, Importer& importer);

/// The number in a cell; nothing for a blank, `-`, `n/a` and the like.
Result<std::optional<double>> cell_number(const Table& table, const Table::Row& row, int column,
                                          const Importer& importer);

}  // namespace longhaul
