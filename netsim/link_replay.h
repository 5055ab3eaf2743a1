// What the links between sites were over time, from a trace with time_s. A value holds until the
// pair's next row; before its first row, and where rows say nothing, the cluster's own holds.
// A plain value; any thread may read it.
#pragma once

#include <cstddef>
#include <vector>

#include "core/result.h"
#include "core/topology.h"
#include "core/units.h"
#include "netsim/trace.h"

namespace longhaul {

class LinkReplay {
 public:
  struct State {
    Seconds latency;      // one way
    BytesPerSecond rate;  // of one flow, TCP's limits included
    BytesPerSecond pipe;  // of all flows, where they share one
  };

  /// Sites are found by Site::trace_name. With `loop` the trace begins again after its end, one
  /// mean distance of its times after the last row; else its last rows hold on.
  /// Errors (kInvalid): no row has a time, or none is of two sites of the topology.
  static Result<LinkReplay> make(const Topology& topology, const Trace& trace, bool loop);

  /// The link from site to site at a time >= 0.
  const State& at(int from_site, int to_site, Seconds time) const;
  /// The first moment after `time` at which a link changes; infinite when none does.
  Seconds next_change(Seconds time) const;
  /// Which stretch between two changes of the trace a time lies in.
  std::size_t interval(Seconds time) const;

 private:
  struct Point {
    double time;
    State state;
  };
  double inside(Seconds time) const;  // the trace

  int sites_ = 0;
  std::vector<std::vector<Point>> points_;  // by pair of sites, in order of time, one at 0
  std::vector<double> times_;               // of all changes, ascending
  double period_ = 0;                       // 0: no loop
};

}  // namespace longhaul
