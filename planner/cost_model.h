// The planner's cost model: tier T1 (closed form) of the step time. T0 is planner/bounds.h, T2
// planner/pipeline_time.h, T3 netsim/step_simulation.h, the judge.
//
// T1 of a placement, in microseconds of work: pipelines by fill and period with the in-flight depth
// that memory allows, micro-batches shared out so that all pipelines end together, links that
// several pipelines cross charged for all of them, one sharded all-reduce a stage after its last
// backward, the tied embedding's exchange after those of first and last stage, then the commit's
// round trip and the update. See docs/architecture.md for what T1 leaves to T3.
//
// An Evaluator keeps scratch space and belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/gradient_exchange.h"
#include "core/job.h"
#include "core/model_math.h"
#include "core/plan.h"
#include "core/topology.h"
#include "planner/pipeline_time.h"
#include "planner/problem.h"

namespace longhaul {

/// A point of the search inside a branch.
struct Candidate {
  std::vector<int> cells;   // device of [pipeline * P + stage]
  std::vector<int> layers;  // of each stage
};

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
  /// find its way back. One that lacks a pinned device at its stage is worth kUnpinned or more.
  /// Shares and depths are as the problem's rules ask; layers are the candidate's own.
  double evaluate(const Candidate& candidate);
  static constexpr double kOverPrice = 1e12;  // times price / the most that is allowed
  static constexpr double kOverflow = 1e18;   // times (1 + missing bytes)
  static constexpr double kUnpinned = 1e36;   // times pins that are broken
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

  /// The complete plan of a candidate that keeps the rules: in-flight depths, whole micro-batches,
  /// coordinator.
  Plan finish(const Candidate& candidate);

  /// Layers that even out the stages for the devices given (greedy min-max: each layer goes to the
  /// stage that stays shortest; optimal for identical layers), within memory as far as possible.
  std::vector<int> split_layers(const std::vector<int>& cells) const;

  /// A boundary tensor from one device to another and its gradient back, alone.
  double hop_seconds(int from, int to) const {
    const BoundaryBytes bytes = boundary_bytes_between(from, to);
    return bytes.forward / problem_.rate(from, to) + problem_.latency(from, to) +
           bytes.backward / problem_.rate(to, from) + problem_.latency(to, from);
  }

  const Grid& grid() const { return grid_; }
  const Problem& problem() const { return problem_; }
  /// The problem's pins with the grid's own number of the last stage.
  std::span<const Pin> pins() const { return pins_; }

 private:
  struct StageCost {
    double forward_flops = 0;
    double backward_flops = 0;   // recompute included
    double fixed_bytes = 0;      // all memory but the micro-batches in flight
    double in_flight_bytes = 0;  // a micro-batch in flight
    double feedback_bytes = 0;   // of its own exchange, where that is between sites
    double parameters = 0;
    GradientElements gradient = {};  // of its own exchange
  };

  const StageCost& cost(int stage, int layers) const;
  /// On the wire, of a micro-batch's activations and of their gradients.
  struct BoundaryBytes {
    double forward = 0;
    double backward = 0;
  };
  BoundaryBytes boundary_bytes_between(int device, int other) const {
    if (problem_.site(device) == problem_.site(other)) return {boundary_inside_, boundary_inside_};
    return {forward_between_, backward_between_};
  }
  std::size_t cell(int pipeline, int stage) const {
    return static_cast<std::size_t>(pipeline * grid_.stages + stage);
  }
  /// With the schedule that is_gpipe_ says.
  double evaluate_schedule(const Candidate& candidate);
  int broken_pins(const Candidate& candidate) const;
  /// Stage and hop times of every pipeline, and loads of shared links.
  void fill_times(const Candidate& candidate);
  /// In-flight depths under memory; returns the overflow in bytes (0: it fits).
  double feedback_of_stage(const Candidate& candidate, const StageCost& stage_cost,
                           int stage) const;
  double choose_in_flight(const Candidate& candidate);
  void count_transfers(const Candidate& candidate);
  /// Least period that shared links allow a pipeline.
  double shared_period(const Candidate& candidate, int pipeline);
  /// Seconds of the sharded all-reduce of `elements` among members_ alone; adds its loads. Works
  /// on counts of members by node and site, since a shard is as large whoever owns it.
  double reduce_time(const GradientElements& elements);
  void count_members();
  void count_node_links(const Candidate& candidate);
  /// The most that any of these slots is loaded with, in seconds.
  double load_time(std::span<const std::size_t> slots) const;
  double price(const Candidate& candidate, double seconds) const;
  double commit_time(const Candidate& candidate, int* coordinator) const;
  void clear_loads();

  // Traffic counters: one for each NIC direction, site uplink and downlink, and link.
  void add_load(std::size_t slot, double amount);
  std::size_t uplink_slot(int site) const;
  std::size_t downlink_slot(int site) const;
  /// Whether a link between two nodes can be what limits several devices' traffic: where both nodes
  /// have several, and NICs are not slower still.
  bool is_link_shared(int from_node, int to_node) const;
  /// Made at its first use: of all pairs of nodes a plan uses few.
  std::size_t node_link_slot(int from_node, int to_node);
  std::size_t site_link_slot(int from_site, int to_site) const;
  template <class Visit>
  void visit_slots(int from_device, int to_device, Visit&& visit);

  const Problem& problem_;
  Grid grid_;
  double batches_ = 0;          // micro-batches of the step
  double boundary_inside_ = 0;  // bytes of a boundary tensor on the wire, inside a site
  double forward_between_ = 0;  // and between sites, where the codecs act
  double backward_between_ = 0;
  double tied_feedback_bytes_ = 0;  // where the tied exchange is between sites
  std::vector<StageCost> costs_;    // [kind of stage * (L + 1) + layers]
  std::vector<StageTime> stage_times_;
  std::vector<HopTime> hop_times_;  // D x (P - 1)
  std::vector<int> in_flight_;
  bool is_deep_ = false;   // enough to hide every round trip
  bool is_gpipe_ = false;  // the trainer's GPipe, where the rules know it
  std::vector<Pin> pins_;
  std::vector<double> fills_, periods_, ends_;
  std::vector<double> alone_;         // by stage: its exchange, were it the only one
  std::vector<double> loads_;         // by slot
  std::vector<double> capacities_;    // by slot, bytes/s
  std::vector<std::size_t> touched_;  // slots with a load
  std::unordered_map<std::uint64_t, std::size_t> node_links_;
  std::vector<std::size_t> group_slots_;  // that the stages' exchanges load, one after the other,
  std::vector<std::size_t> group_begin_;  // from here on each
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
