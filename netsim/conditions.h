// What is not as it always is while a plan runs: networks that change over time, traffic of others,
// jitter, devices that are slow for a while, failures. Read from configs/conditions/*.yaml (format:
// docs/formats.md). A plain value; any thread may read it.
//
// Times are seconds since the run's first step began.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"
#include "netsim/link_replay.h"

namespace longhaul {

/// When something is so: from `begin` until `end`; with `every` > 0 only for the first `lasts` of
/// each period of that length, counted from `begin`.
struct Window {
  Seconds begin = {};
  Seconds end = Seconds(std::numeric_limits<double>::infinity());
  Seconds every = {};
  Seconds lasts = {};

  bool contains(Seconds time) const;
  /// The first moment after `time` at which contains() may change; infinite when there is none.
  Seconds next_edge(Seconds time) const;
};

/// How flows share what is full.
enum class Sharing {
  kFair,  // equally
  kRtt,   // as the inverse of their round trips, as long-lived TCP flows tend to (SimGrid's CM02)
  /// Between two sites one pipeline at a time has the link, in the order in which they ask
  /// (temporal sharing: Atlas, arXiv 2411.14458).
  kTurns,
};
std::string_view name_of(Sharing sharing);

/// Traffic of others from site to site: as so many flows, which together never exceed `rate`.
struct Background {
  int from_site = 0;
  int to_site = 0;
  BytesPerSecond rate;  // may be infinite
  int flows = 1;
  Window window = {};
};

/// Work that begins in the window takes `factor` times as long.
struct Slowdown {
  std::vector<int> devices;  // ascending
  double factor = 1;
  Window window = {};
};

/// A device that fails at a given time.
struct PlannedFailure {
  int device = 0;
  Seconds time;
};

/// Failures, and what the executor's rules make of them: heartbeats notice, the run ends, and it
/// goes on from the last checkpoint once the device, or one like it, is there.
struct Failures {
  bool by_rate = false;                 // as often as the kinds' failures_per_hour say
  double per_hour = 0;                  // and kinds that do not say
  std::vector<PlannedFailure> planned;  // in order of time
  Seconds notice{3};                    // six heartbeats of 500 ms
  Seconds repair{300};                  // until there is a device again
  Seconds restart{30};                  // processes, connections, weights from the checkpoint
};

struct Checkpoints {
  int every = 0;  // steps; 0: none, and failures begin again from step 0
  Seconds time;   // for which a step waits for one
};

struct Conditions {
  Sharing sharing = Sharing::kFair;
  bool jitter = false;     // latencies vary by the links' jitter, and lost packets are sent again
  std::uint64_t seed = 1;  // of jitter and failures
  std::optional<LinkReplay> replay;
  std::vector<Background> background;
  std::vector<Slowdown> slowdowns;
  Failures failures;
  Checkpoints checkpoints;

  /// How much longer a device's work takes.
  double slowdown(int device, Seconds time) const;
  /// The first moment after `time` at which replay, background or slowdowns change.
  Seconds next_change(Seconds time) const;
};

/// Errors (kInvalid) name the place in the file: unknown sites and devices, windows of no length,
/// traffic that crosses nothing shared. All errors of the file at once.
Result<Conditions> load_conditions(const std::string& path, const Topology& topology);
/// The same from text; paths inside start at `folder`.
Result<Conditions> parse_conditions(std::string_view text, const std::string& name,
                                    const std::string& folder, const Topology& topology);

}  // namespace longhaul
