// Orders of forwards, input gradients and weight gradients for a pipeline whose backward is split:
// the schedule family `greedy` of core/plan.h. Found by simulating the pipeline with a rule for
// what a free stage runs, then frozen; a run never decides anything.
//
// The rule [greedy F/B/W with a cap, after Qi et al., zero bubble pipeline parallelism, ICLR 2024]:
// a free stage runs B if its gradient has arrived, else F if its input has and the cap lets it in,
// else W. A cap K bounds forwards minus weight gradients, so a W makes room for the next F. Which
// variant of the rule wins depends on hops, times and caps; all are tried and the best is kept.
//
// Like planner/pipeline_time.h this knows nothing of devices. Deterministic, reentrant.
#pragma once

#include <span>
#include <vector>

#include "core/plan.h"
#include "planner/pipeline_time.h"

namespace longhaul {

/// One stage, for one micro-batch; seconds.
struct SplitStageTime {
  double forward = 0;
  double backward_input = 0;  // recompute included
  double backward_weight = 0;
  double total() const { return forward + backward_input + backward_weight; }
};

struct GreedySchedule {
  std::vector<StageOrder> orders;  // [stage]
  double makespan = 0;             // from stage 0's first forward until the last W of all
  double lower_bound = 0;          // of any schedule with these caps
};

/// Tries variants of the rule, the most promising first, at most `variants`; stops early at the
/// lower bound. A variant takes about 40 us for 8 stages and 32 micro-batches.
/// Every cap is at least 1; hops are one fewer than stages.
inline constexpr int kAllGreedyVariants = 1 << 20;
GreedySchedule greedy_schedule(std::span<const SplitStageTime> stages,
                               std::span<const HopTime> hops, std::span<const int> caps,
                               int micro_batches, int variants = kAllGreedyVariants);

/// When each stage ends its last W, by exact max-plus recursion over orders that fit one another
/// (core/plan.h: check_order at each stage, build_graph across them).
std::vector<double> order_recursion(std::span<const SplitStageTime> stages,
                                    std::span<const HopTime> hops,
                                    std::span<const StageOrder> orders);

/// No schedule with these caps ends sooner. The largest of, over stages i with f, b, w and t = f +
/// b + w; a: the earliest that the first input is there; R: from a forward's end to the arrival of
/// its gradient, at the least; d: from the end of a B here to the last W of the stages before:
///   busy       a + M t + idle. Until a + f + R only K forwards can run: idle >= R + f - K f. After
///              the last forward, until its gradient, only the B and W of K - 1 others: idle >= R -
///              (K - 1)(b + w). Where M > K both hold one after the other.
///   last B     a + M (f + b) + max(0, M - K) w + d: that many W let the last forward in.
///   cap        a + n (t + R) + max(t + R, (M - n K) t), n = floor((M - 1) / K): a forward waits
///   for
///              the W of K before it.
///   links      first send + M serialisations + the last one's way from there to the end.
double greedy_lower_bound(std::span<const SplitStageTime> stages, std::span<const HopTime> hops,
                          std::span<const int> caps, int micro_batches);

}  // namespace longhaul
