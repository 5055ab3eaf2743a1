// What every part of the planner works on: topology and job as flat arrays, what is searched for,
// and the branches of the search. Read-only once made.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/job.h"
#include "core/topology.h"
#include "planner/pins.h"

namespace longhaul {

/// What a search makes small.
struct Goal {
  bool cost = false;  // the price of a step instead of its time
  /// US dollars of a step that a plan may cost.
  double usd_max = std::numeric_limits<double>::infinity();
};

/// Topology and job as flat arrays for the inner loops. Units: seconds, bytes, US dollars.
class Problem {
 public:
  /// Topology and job must outlive this. `admitted`: by device, whether it may be used; empty: all.
  Problem(const Topology& topology, const Job& job, const std::vector<char>& admitted = {},
          const Goal& goal = {}, const PlanRules& rules = {});

  const Topology& topology() const { return topology_; }
  const Job& job() const { return job_; }
  const Goal& goal() const { return goal_; }
  const PlanRules& rules() const { return rules_; }
  /// Admitted devices that have a speed for the job's precision, fastest first (equal ones in file
  /// order).
  const std::vector<int>& usable() const { return usable_; }

  double seconds_per_flop(int device) const { return seconds_per_flop_[index(device)]; }
  double overhead(int device) const { return overhead_[index(device)]; }
  double memory(int device) const { return memory_[index(device)]; }  // without the reserve
  double update_seconds_per_parameter(int device) const { return update_[index(device)]; }
  double usd_per_second(int device) const { return usd_per_second_[index(device)]; }
  double egress_usd_per_byte(int site) const {
    return topology_.sites[index(site)].egress_usd_per_byte;
  }
  /// Of the fastest pair of usable devices.
  double fastest_rate() const { return fastest_rate_; }
  int node(int device) const { return node_[index(device)]; }
  int site(int device) const { return site_[index(device)]; }
  /// As Topology::latency and Topology::rate, for two different devices.
  double latency(int from, int to) const {
    return node(from) == node(to) ? inside_latency_[index(node(from))]
                                  : site_latency(site(from), site(to));
  }
  double rate(int from, int to) const {
    if (node(from) == node(to)) return inside_rate_[index(node(from))];
    return std::min({site_rate(site(from), site(to)), nic(node(from)), nic(node(to))});
  }
  /// Between nodes of two sites (or of one), uplink and downlink included, NICs not.
  double site_latency(int from, int to) const { return site_latency_[index(from * sites_ + to)]; }
  double site_rate(int from, int to) const { return site_rate_[index(from * sites_ + to)]; }
  double nic(int node) const { return nic_[index(node)]; }
  double inside_rate(int node) const { return inside_rate_[index(node)]; }
  /// Whether a node has several usable devices, so that stages can share its links.
  bool is_shared(int node) const { return shared_[index(node)] != 0; }
  /// Whether exchanging the two devices changes nothing: same node and kind.
  bool same(int a, int b) const {
    return node_[index(a)] == node_[index(b)] && kind_[index(a)] == kind_[index(b)];
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  const Topology& topology_;
  const Job& job_;
  Goal goal_;
  PlanRules rules_;
  std::vector<int> usable_;
  double fastest_rate_ = 0;
  std::vector<double> seconds_per_flop_, overhead_, memory_, update_, usd_per_second_;
  std::vector<int> node_, site_, kind_;
  int sites_ = 0;
  std::vector<double> site_latency_, site_rate_;            // sites x sites
  std::vector<double> nic_, inside_rate_, inside_latency_;  // by node
  std::vector<char> shared_;                                // by node
};

/// A branch of the search.
struct Grid {
  int stages = 1;       // P
  int pipelines = 1;    // D
  int micro_batch = 1;  // sequences

  bool operator==(const Grid&) const = default;
};

inline Grid grid_of(const Plan& plan) {
  return {plan.stages(), plan.pipelines(), plan.micro_batch};
}

}  // namespace longhaul
