// What the name of a column says: what is in it, in which unit, measured how. `latency_ms`,
// `avg_rtt`, `Throughput (MB/s)`, `bitrate_Bps`, `loss_percent`. Internal to netsim/import.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "netsim/import/importer.h"

namespace longhaul {

enum class ColumnRole {
  kOther,
  kFrom,
  kTo,
  kLatency,
  kRate,
  kLoss,
  kJitter,
  kStreams,
  kTime,
};

struct ColumnMeaning {
  ColumnRole role = ColumnRole::kOther;
  std::optional<UnitScale> unit = {};  // of latency, jitter, rate; of loss: fraction or percent
  std::string unit_text = {};          // as the name writes it
  bool unit_is_ambiguous = false;      // bits or bytes? `mb/s`, `MBPS`
  std::optional<LatencyBasis> basis = {};
  int preference = 1;  // among several of one role: 0 mean, 1 unsaid, 2 median, 3 others
};

ColumnMeaning meaning_of(std::string_view name);

}  // namespace longhaul
