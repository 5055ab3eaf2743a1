// What a trace lacks and what in it looks wrong, in sentences; and what a cluster that uses it
// would have to assume. Pure; any thread may call it.
//
// A *note* is worth knowing and no fault: a direction that a cluster mirrors, a link that differs
// by direction. A *warning* is to be looked at before money is spent: a pair of places without any
// latency (a cluster refuses it), a time in a series far off the others, a latency that a detour
// undercuts by half, a round trip declared as one way, a rate that TCP cannot have reached.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "netsim/trace.h"

namespace longhaul {

struct TraceFinding {
  enum class Weight { kNote, kWarning };
  Weight weight = Weight::kNote;
  std::string_view kind;  // gap, asymmetry, outlier, unit, series: for scripts
  std::string from;       // places; empty where the finding is about the whole trace
  std::string to;
  std::string message;
};

struct TraceCheck {
  std::vector<TraceFinding> findings;    // warnings first, then in order of places
  std::vector<std::string> assumptions;  // of a cluster of all places, at percentile 50
  std::size_t count(TraceFinding::Weight weight) const;
};

// Beyond these a finding is made.
inline constexpr double kAsymmetryOfLatency = 0.05;
inline constexpr double kAsymmetryOfRate = 0.20;
/// A way through a third place that takes less than this part of the direct one.
inline constexpr double kDetour = 0.5;
/// Robust z-score (0.6745 x distance from the median / median absolute deviation; Iglewicz and
/// Hoaglin, 1993, who suggest 3.5; measurements of networks have longer tails) of a point in time.
inline constexpr double kOutlierScore = 10;
/// A gap in a series, in medians of its steps.
inline constexpr double kSeriesGap = 5;

TraceCheck check_trace(const Trace& trace);
std::string trace_check_text(const Trace& trace, const TraceCheck& check);
/// One JSON document with `"version": 1`.
std::string trace_check_json(const Trace& trace, const TraceCheck& check);

}  // namespace longhaul
