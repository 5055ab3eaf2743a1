// Time of one pipeline on links of its own: the closed form (part of tier T1) and the exact
// recursion over its schedule (tier T2).
//
// Both know nothing of devices: a pipeline is a list of stage times and hop times. Formulas carry
// their source; tests check them against each other and against the simulator.
#pragma once

#include <span>
#include <vector>

namespace longhaul {

/// One stage, for one micro-batch; seconds.
struct StageTime {
  double forward = 0;
  double backward = 0;  // recompute included
};
/// The hop from a stage to the next, for one micro-batch; seconds.
struct HopTime {
  double forward_send = 0;     // serialisation of the activation
  double forward_latency = 0;  // one way
  double backward_send = 0;    // serialisation of its gradient
  double backward_latency = 0;
  double round_trip() const {
    return forward_send + forward_latency + backward_send + backward_latency;
  }
};

/// Latency of one micro-batch through all stages and back: sum of stage times and round trips.
double pipeline_fill(std::span<const StageTime> stages, std::span<const HopTime> hops);

/// Steady-state time between micro-batches of an in-order schedule with in-flight vector K: the
/// maximum cycle mean of its event graph,
///   max over i <= j of (sum of stage times i..j + sum of round trips i..j-1) / (K_i - K_j + 1),
/// and no less than any serialisation. K_i is capped at `micro_batches`; a stage whose K is not
/// below `micro_batches` never waits for a backward (no cycle starts there), as in GPipe.
double pipeline_period(std::span<const StageTime> stages, std::span<const HopTime> hops,
                       std::span<const int> in_flight, int micro_batches);

/// The same for GPipe: all forwards, then all backwards, each at the pace of the slowest stage or
/// serialisation.
double gpipe_period(std::span<const StageTime> stages, std::span<const HopTime> hops);

/// Closed form of the makespan. GPipe (every K >= M): sum of forwards and forward hops, plus (M -
/// 1) times the slowest forward or serialisation, and the same for backwards [Huang et al., NeurIPS
/// 2019, with links as stages]; exact. In-order with smaller K: fill + (M - 1) x period, an
/// estimate: a few percent high for K well below M (the last K micro-batches are not held back),
/// low where K comes near M and the schedule turns into GPipe's two phases.
double pipeline_closed_form(std::span<const StageTime> stages, std::span<const HopTime> hops,
                            std::span<const int> in_flight, int micro_batches);

/// When each stage ends its last backward, by exact max-plus recursion over the schedule of
/// core/schedule (K_i forwards, then backwards and forwards in turn). K must be valid
/// (non-increasing, 1 <= K_i); values above `micro_batches` are capped.
std::vector<double> pipeline_recursion(std::span<const StageTime> stages,
                                       std::span<const HopTime> hops,
                                       std::span<const int> in_flight, int micro_batches);

}  // namespace longhaul
