// One grid's sharp bound of T0; only bounds.cc includes this.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/bounds.h"

namespace longhaul {

/// Can a step of the grid take T seconds? Of a window W = T - commit - update, all that a device
/// does must fit: for stage i of pipeline d, of l layers and with n_d micro-batches,
///   first input there + n_d x (time of a micro-batch on l layers) + exchange of the stage <= W.
/// That holds for every schedule, with a whole or a split backward. Devices differ by kind alone,
/// so it turns into the most layers l that a device of a kind can take in a pipeline of n
/// micro-batches; and of pipelines with n or more, N are possible only if the devices number
/// N, 2 N, ..., P N by speed take all layers together (Hall: kinds are nested, what a slow one can
/// take a fast one can). That gives the most micro-batches of the first, second, ... pipeline, and
/// a step of T is refuted when all D together make too few.
class GridBounds {
 public:
  GridBounds(const Bounds& bounds, const Grid& grid);
  Bound lower();
  /// With no regard to the network between regions.
  double compute();

 private:
  using Region = Bounds::Region;
  using Distance = Bounds::Distance;
  enum Part { kFirst, kMiddle, kLast, kParts };
  /// Seconds of a stage's exchange, the tied embedding's included: of a layer and besides.
  struct Exchange {
    double layer = 0;
    std::array<double, kParts> rest = {};
    bool operator==(const Exchange& other) const = default;
  };
  /// `count` pipelines of `micro_batches` each.
  struct Run {
    int micro_batches;
    int count;
  };
  using Runs = std::vector<Run>;  // most micro-batches first
  /// The most layers of a class of devices, by part; then of the parts where their stage crosses.
  struct Class {
    std::array<int, 2 * kParts> layers;
    int number;  // zone * kinds + kind
  };
  /// What is assumed of a plan whose devices lie in a region, on both sides of its cut.
  struct Assumption {
    int region = 0;
    enum {
      kNothing,    // not even that
      kExchanges,  // every stage has replicas on both sides. A device waits for a shard that goes
                   // to the other side and back after its own last backward: from its site at least
                   // to the nearest one there (its zone)
      kPipelines,  // no stage has: all pipelines cross
      kBoth        // c stages have, the others are all on `half`. The other side's devices are in
                   // those c alone: at least 1/c of them in as many pipelines, which all cross
    } crosses = kNothing;
    int half = 0;
    int crossing_min = 0;  // c
    int crossing_max = 0;
  };
  /// Seconds an element (or a byte) and besides.
  struct Cost {
    double each = std::numeric_limits<double>::infinity();
    double besides = std::numeric_limits<double>::infinity();
    void lessen(const Cost& other) {
      each = std::min(each, other.each);
      besides = std::min(besides, other.besides);
    }
  };

  const Region& region(int r) const { return bounds_.regions_[static_cast<std::size_t>(r)]; }
  int devices() const { return grid_.stages * grid_.pipelines; }
  void measure_boundaries();
  void measure_stages();
  void measure_exchanges();
  /// `here`: of the members, as many at most stand on the side of the one that waits.
  Cost exchange_cost(const Region& where, const Distance& distance, bool inside, int members,
                     int here) const;
  static double most_hierarchical_messages(const Region& where, int members);
  Exchange exchange(const Cost& reduce, const Cost& tied) const;
  double commit(const Assumption& assumption) const;
  double compute_alone(int r) const;

  bool enough(const Runs& runs, std::int64_t micro_batches) const;
  bool possible(const Assumption& assumption, double seconds);
  template <class Attempt>
  void attempt_cuts(int r, double from, Attempt&& attempt);
  double least(const Assumption& assumption, double from, double enough);
  void prepare(double window, std::vector<Exchange> exchanges, int zoned = -1);
  int most_layers(int kind, Part part, double micro_batches, const Exchange& exchange) const;
  void fill(int kind, int micro_batches, const Exchange& exchange, int* layers) const {
    for (const Part part : {kFirst, kMiddle, kLast}) {
      layers[part] = most_layers(kind, part, micro_batches, exchange);
    }
  }
  enum Order { kByMiddle, kByCrossing };  // of classes, most layers first
  const Class* classes_for(int micro_batches, Order order);
  bool pipelines_hold(int r, int pipelines, int micro_batches, Order order);
  bool pipelines_hold(int r, int pipelines, int micro_batches) {
    return pipelines_hold(r, pipelines, micro_batches, kByMiddle) &&
           (crossing_stages_ == 0 || pipelines_hold(r, pipelines, micro_batches, kByCrossing));
  }
  void runs_of_devices(int r, Runs& runs);
  void runs_of(int r, Runs& runs, int depth = 0);
  void add_crossings(int r, Runs& runs) const;
  /// There and back across the cut, beyond the nearest hop, which `path_` has.
  double crossing_latency(int r) const {
    const Region& all = region(static_cast<int>(bounds_.regions_.size()) - 1);
    return region(r).across.round_trip_latency - all.anywhere.round_trip_latency;
  }
  static void lower_to(Runs limits, Runs& runs);

  const Bounds& bounds_;
  const Problem& problem_;
  const Job& job_;
  Grid grid_;
  int batches_ = 0;
  std::size_t kinds_ = 0;
  // By kind.
  std::vector<double> layer_seconds_;                     // forward, recompute and backward
  std::vector<std::array<double, kParts>> rest_seconds_;  // overhead, and the head's
  std::vector<std::array<int, kParts>> fitting_layers_;
  std::vector<std::vector<double>> slot_seconds_;  // first stage, by layers; see measure_stages
  double inside_bytes_ = 0;                        // see measure_boundaries
  double fewest_bytes_ = 0;
  double path_ = 0;  // a micro-batch through all stages and back, and a layer's weight gradient
  std::array<double, kParts> first_input_ = {};  // seconds; of the last stage without its layers
  double first_input_layer_ = 0;                 // less for each layer of the last stage
  std::vector<Cost> reduce_, tied_;              // by region: where a group has to stand anyhow
  // Of the window at hand.
  double window_ = 0;
  std::vector<Exchange> exchanges_;  // by zone
  std::vector<Exchange> crossing_;   // by zone, where a stage crosses
  int crossing_stages_ = 0;
  int zoned_ = -1;              // the region whose zones these are; -1: one zone
  std::vector<int> known_for_;  // by micro-batches: the window's number
  std::vector<Class> classes_;  // [order][micro-batches][class]
  std::size_t class_count_ = 0;
  int windows_ = 0;
};

}  // namespace longhaul
