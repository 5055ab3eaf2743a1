// Tier T0: lower bounds on the step time of every plan of a grid, whatever its placement, layers,
// schedule and shares. None is above a simulated step (T3).
//
// The sharp one merges the sites one after another, the nearest first, into a tree of regions. A
// plan's devices lie in a smallest region, on both sides of the cut between its two halves, and so
// does one of these hold:
//   - every stage's replicas stand on both sides: every exchange of gradients crosses the cut;
//   - every pipeline crosses the cut, with each of its micro-batches, there and back;
//   - some stages' replicas stand on both sides and the others' all on one: those exchanges cross,
//     and so do the pipelines that have a device on the other side.
// For each region and each of these it asks whether a step of T seconds is possible, of a
// relaxation: with whole layers and whole micro-batches, on devices that may be anywhere in the
// region. The least T of all regions that cannot be refuted is the bound. See bounds_grid.h.
//
// Exchanges are sharded, with any shares, or rings; hierarchical ones where the problem's rules
// allow any.
//
// A Bounds is made once for a Problem, which must outlive it; any thread may use it.
#pragma once

#include <string>
#include <vector>

#include "planner/problem.h"

namespace longhaul {

/// A lower bound and the name of what binds.
struct Bound {
  double seconds = 0;
  std::string name;
};

class Bounds {
 public:
  explicit Bounds(const Problem& problem);

  /// The highest of all.
  Bound lower(const Grid& grid) const;
  /// All of them by name.
  std::vector<Bound> all(const Grid& grid) const;
  /// The cheapest of them to find: all work at the joint speed of the fastest devices.
  Bound compute(const Grid& grid) const;
  /// A bound of each of many grids: the highest where they are few. Of more, the highest only of
  /// those that the least of all depends on (and of no more than a few hundred), else the cheapest
  /// to find.
  std::vector<Bound> of_each(const std::vector<Grid>& grids, int threads) const;
  /// No plan of the grid costs less a step: its devices are paid for at least as long as the bound.
  double least_usd(const Grid& grid, const Bound& bound) const;

 private:
  friend class GridBounds;

  /// Devices that differ in nothing but their place.
  struct Kind {
    double seconds_per_flop = 0;
    double overhead = 0;
    double memory = 0;
  };
  /// What separates the nearest two devices of those meant. Each figure is the least of its own.
  struct Distance {
    double round_trip_per_byte;  // seconds to send a byte there and one back
    double slower_per_byte;      // seconds a byte in the slower direction
    double faster_per_byte;      // and in the faster
    double latency;              // one way
    double round_trip_latency;
    static Distance endless();
    void shorten(const Distance& other);
  };
  struct Region {
    int halves[2] = {-1, -1};  // regions; -1: a site
    std::vector<int> devices;  // of this kind or a faster one
    int most_in_site = 0;
    int most_on_node = 0;
    double nic = 0;           // the fastest
    double near_latency = 0;  // from a site to itself or another, the least
    Distance across;          // between the halves; of a site: between two of its devices
    Distance anywhere;        // between two devices
    /// Pipelines that can cross the cut with a slower direction of at most this, ascending.
    struct Crossing {
      double slower_per_byte;
      int pipelines;
    };
    std::vector<Crossing> crossings;
    /// Sites of one half, alike in the round trip to the nearest site of the other.
    struct Zone {
      int half;
      double round_trip_per_byte;
    };
    std::vector<Zone> zones;
    /// Devices of each kind and zone in each region inside this one: [region][zone * kinds + kind].
    std::vector<std::vector<int>> in_zones;
    std::vector<int> sites;

    bool is_site() const { return halves[0] < 0; }
    int size() const { return devices.back(); }
  };

  void add_sites();
  void merge_sites();
  void measure_cut(int r, const std::vector<std::vector<int>>& members,
                   const std::vector<Distance>& distances);
  std::string name_of(const std::vector<int>& sites) const;

  const Problem& problem_;
  std::vector<Kind> kinds_;      // fastest first
  std::vector<Region> regions_;  // halves before the region they make; the last is everything
  double compute_ = 0;           // seconds of a step in the best grid, were there no network
  double update_ = 0;            // seconds a parameter, the least
  double overhead_ = 0;          // the least
  std::vector<double> speed_;    // of the n fastest devices together, FLOP/s
  std::vector<double> price_;    // of the n cheapest, US dollars a second
};

/// Of one grid alone; where there are many, make a Bounds.
Bound lower_bound(const Problem& problem, const Grid& grid);
/// All of them by name; lower_bound is the highest.
std::vector<Bound> lower_bounds(const Problem& problem, const Grid& grid);

}  // namespace longhaul
