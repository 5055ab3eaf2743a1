// Max-min fair sharing of capacities among flows: the bandwidth model that the simulator and the
// executor's link emulation share.
//
// Definition (Bertsekas and Gallager, Data Networks, section 6.5.2): an allocation is max-min fair
// when no flow's rate can grow without shrinking that of a flow whose rate is no larger.
// Equivalently every flow is at its own cap, or crosses a saturated resource on which no
// other flow is faster. With weights, `rate / weight` takes the place of the rate: a flow of weight
// 2 gets what two equal flows would get together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

/// A solver instance keeps its buffers between calls; it belongs to one thread.
class MaxMinSolver {
 public:
  /// Rates in the unit of `capacities`. Flow f crosses resources
  /// path[path_begin[f] .. path_begin[f+1]) (no duplicates within a flow) and never exceeds caps[f]
  /// (may be infinite). Capacities are > 0 and may be infinite. A flow with no finite limit gets an
  /// infinite rate. Sizes: path_begin has flows + 1 entries, caps, weights and rates have `flows`.
  /// Weights are > 0 and finite.
  /// The result does not depend on the order of flows or resources beyond rounding.
  void solve(std::span<const double> capacities, std::span<const std::int32_t> path_begin,
             std::span<const std::int32_t> path, std::span<const double> caps,
             std::span<const double> weights, std::span<double> rates);
  /// The same with a weight of 1 for every flow.
  void solve(std::span<const double> capacities, std::span<const std::int32_t> path_begin,
             std::span<const std::int32_t> path, std::span<const double> caps,
             std::span<double> rates);

 private:
  void index_flows(std::span<const double> capacities, std::span<const std::int32_t> path_begin,
                   std::span<const std::int32_t> path, std::span<const double> weights);
  double lowest_share();
  void fix_capped(std::span<const std::int32_t> path_begin, std::span<const std::int32_t> path,
                  std::span<const double> caps, std::span<const double> weights, double level,
                  std::span<double> rates);
  void fix_crossing_full(std::span<const std::int32_t> path_begin,
                         std::span<const std::int32_t> path, std::span<const double> weights,
                         double level, std::span<double> rates);
  void refresh_touched_shares();

  // By resource. Only finite resources that some flow crosses are ever looked at.
  std::vector<double> left_;            // capacity not yet given away
  std::vector<double> share_;           // left_ / weight_, infinite when nobody is left
  std::vector<double> weight_;          // of the flows not yet fixed
  std::vector<double> taken_;           // weight of the flows fixed at the level of this round
  std::vector<std::int32_t> crossing_;  // flows not yet fixed
  std::vector<std::int32_t> list_end_;  // of its list in flows_of_, which the next one's follows
  std::vector<std::int32_t> flows_of_;  // the flows that cross it
  std::vector<std::int32_t> open_resources_;
  std::vector<std::int32_t> touched_;
  // By flow.
  std::vector<std::int32_t> open_flows_;
  std::vector<char> fixed_;
  std::vector<double> ones_;
  double open_cap_min_ = 0;     // a lower bound of cap / weight of flows not yet fixed
  std::size_t open_count_ = 0;  // flows not yet fixed
};

}  // namespace longhaul
