// The planner's cost model: tier T0 (lower bounds) and tier T1 (closed form) of the step time.
// T2 is planner/pipeline_time.h, T3 is netsim/step_simulation.h, the judge.
//
// T1 of a placement, in microseconds of work: pipelines by fill and period with the in-flight depth
// that memory allows, micro-batches shared out so that all pipelines end together, links that
// several pipelines cross charged for all of them, one sharded all-reduce a stage after its last
// backward, the tied embedding's exchange after those of first and last stage, then the commit's
// round trip and the update. See docs/architecture.md for what T1 leaves to T3.
//
// A Problem is read-only once made. An Evaluator keeps scratch space and belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/model_math.h"
#include "core/plan.h"
#include "core/topology.h"
#include "planner/pipeline_time.h"

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
          const Goal& goal = {});

  const Topology& topology() const { return topology_; }
  const Job& job() const { return job_; }
  const Goal& goal() const { return goal_; }
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
};

/// A point of the search inside a branch.
struct Candidate {
  std::vector<int> cells;   // device of [pipeline * P + stage]
  std::vector<int> layers;  // of each stage
};

/// Lower bound (T0) on the step time of every plan of a grid, and the name of what binds.
struct Bound {
  double seconds = 0;
  std::string name;
};
Bound lower_bound(const Problem& problem, const Grid& grid);
/// All of them by name; lower_bound is the highest.
std::vector<Bound> lower_bounds(const Problem& problem, const Grid& grid);
/// No plan of the grid costs less a step: its devices are paid for at least as long as the bound.
double least_usd(const Problem& problem, const Grid& grid, const Bound& bound);

/// T1 and what it is made of: seconds = fill + steady + exchange + commit + update.
struct ClosedForm {
  double seconds = 0;
  double usd = 0;       // of the step: devices, and bytes that leave a site
  int pipeline = 0;     // the one with the longest period, whose fill and period these are:
  double fill = 0;      // its first micro-batch, through all stages and back
  double period = 0;    // and each further one
  double steady = 0;    // from the fill to the last backward; all pipelines end together
  double exchange = 0;  // gradients, as far as they end after the last backward
  double commit = 0;
  double update = 0;
};

class Evaluator {
 public:
  Evaluator(const Problem& problem, const Grid& grid);

  /// The value that the goal makes small: T1 in seconds, or its price of a step in US dollars. A
  /// candidate above goal.usd_max is worth kOverPrice or more, growing with its price; one that
  /// does not fit its memory kOverflow or more, growing with the overflow, so that a search can
  /// find its way back.
  double evaluate(const Candidate& candidate);
  static constexpr double kOverPrice = 1e12;  // times price / the most that is allowed
  static constexpr double kOverflow = 1e18;   // times (1 + missing bytes)
  /// Of the candidate evaluated last, where it fits its memory.
  const ClosedForm& closed_form() const { return closed_form_; }
  /// Stage and hop times of a pipeline of the candidate evaluated last.
  std::span<const StageTime> stage_times(int pipeline) const {
    return std::span(stage_times_)
        .subspan(cell(pipeline, 0), static_cast<std::size_t>(grid_.stages));
  }
  std::span<const HopTime> hop_times(int pipeline) const {
    const auto hops = static_cast<std::size_t>(grid_.stages - 1);
    return std::span(hop_times_).subspan(static_cast<std::size_t>(pipeline) * hops, hops);
  }

  /// The complete plan of a candidate: in-flight depths, whole micro-batches, coordinator.
  Plan finish(const Candidate& candidate);

  /// Layers that even out the stages for the devices given (greedy min-max: each layer goes to the
  /// stage that stays shortest; optimal for identical layers), within memory as far as possible.
  std::vector<int> split_layers(const std::vector<int>& cells) const;

  const Grid& grid() const { return grid_; }
  const Problem& problem() const { return problem_; }

 private:
  struct StageCost {
    double forward_flops = 0;
    double backward_flops = 0;   // recompute included
    double fixed_bytes = 0;      // all memory but the micro-batches in flight
    double in_flight_bytes = 0;  // a micro-batch in flight
    double parameters = 0;
    double reduced_parameters = 0;
  };

  const StageCost& cost(int stage, int layers) const;
  double boundary_bytes_between(int device, int other) const {
    return problem_.site(device) == problem_.site(other) ? boundary_inside_ : boundary_between_;
  }
  std::size_t cell(int pipeline, int stage) const {
    return static_cast<std::size_t>(pipeline * grid_.stages + stage);
  }
  /// Stage and hop times of every pipeline, and loads of shared links.
  void fill_times(const Candidate& candidate);
  /// In-flight depths under memory; returns the overflow in bytes (0: it fits).
  double choose_in_flight(const Candidate& candidate);
  void count_transfers(const Candidate& candidate);
  /// Least period that shared links allow a pipeline.
  double shared_period(const Candidate& candidate, int pipeline) const;
  /// Seconds of the sharded all-reduce of `elements` among members_ alone; adds its loads. Works
  /// on counts of members by node and site, since a shard is as large whoever owns it.
  double reduce_time(double elements);
  void count_members();
  double reduce_load_time() const;
  double price(const Candidate& candidate, double seconds) const;
  double commit_time(const Candidate& candidate, int* coordinator) const;
  void clear_loads();

  // Traffic counters: one for each NIC direction, site uplink and downlink, and link.
  void add_load(std::size_t slot, double amount);
  std::size_t uplink_slot(int site) const;
  std::size_t downlink_slot(int site) const;
  std::size_t node_link_slot(int from_node, int to_node) const;
  std::size_t site_link_slot(int from_site, int to_site) const;
  template <class Visit>
  void visit_slots(int from_device, int to_device, Visit&& visit) const;

  const Problem& problem_;
  Grid grid_;
  double batches_ = 0;            // micro-batches of the step
  double boundary_inside_ = 0;    // bytes of a boundary tensor on the wire, inside a site
  double boundary_between_ = 0;   // and between sites, where the codec acts
  std::vector<StageCost> costs_;  // [kind of stage * (L + 1) + layers]
  std::vector<StageTime> stage_times_;
  std::vector<HopTime> hop_times_;  // D x (P - 1)
  std::vector<int> in_flight_;
  std::vector<double> fills_, periods_, ends_;
  std::vector<double> loads_;         // by slot
  std::vector<double> capacities_;    // by slot, bytes/s
  std::vector<std::size_t> touched_;  // slots with a load
  ClosedForm closed_form_;
  double exchange_usd_ = 0;   // egress of all exchanges of the candidate at hand
  std::vector<int> members_;  // of the group at hand, and its counts:
  std::vector<int> nodes_here_, sites_here_;
  std::vector<double> on_node_, on_site_, most_on_node_, nodes_on_site_;
};

/// Shares `total` micro-batches among pipelines with time fill + (n - 1) x period, at least one
/// each, so that the last ends as early as possible (greedy by least next end; optimal).
std::vector<int> share_micro_batches(const std::vector<double>& fills,
                                     const std::vector<double>& periods, int total);

}  // namespace longhaul
