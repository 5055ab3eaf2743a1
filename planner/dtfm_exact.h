// The cheapest path through stages, exactly: A* over what is used up and the last stage, guided by
// the costs to go of merged problems (Hart, Nilsson and Raphael, 1968).
//
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/dtfm_compositions.h"

namespace longhaul {

struct DtfmPathQuestion {
  int allowed = 0;      // only the first so many compositions may be stages
  double below_s = 0;   // only paths cheaper than this are of interest
  double work_max = 0;  // in the unit of DtfmPathSearch::work
};

struct DtfmPathAnswer {
  double least_s = 0;     // no path is cheaper than this, or than below_s where that is less
  std::vector<int> path;  // compositions of a path that costs least_s; empty if none was found
  bool complete = false;  // false: work_max came first
};

class DtfmPathSearch {
 public:
  /// `useful`: how many compositions are ever allowed. `dearest_hop_s`: no path of interest has a
  /// hop above it.
  DtfmPathSearch(DtfmCompositions& compositions, int useful, double dearest_hop_s);

  /// The costs to go must have been attached to the compositions and solved for stages that
  /// exchange no faster than the slowest allowed one.
  DtfmPathAnswer ask(const DtfmPathQuestion& question, const std::vector<DtfmCostToGo>& guides);
  /// Work done so far, in about nanoseconds, the same on every machine.
  double work() const { return work_; }

 private:
  struct Followers {
    std::vector<std::size_t> start;  // by price, into `composition`; with an end
    std::vector<int> composition;    // cheapest exchange first within a price
  };
  const Followers& followers(int composition);

  DtfmCompositions* compositions_;
  bool symmetric_ = true;             // hops cost the same in both directions
  int prices_max_;                    // how many of the prices a hop may have
  std::vector<Followers> followers_;  // by composition, worked out when first asked for
  std::vector<std::uint16_t> price_;  // scratch
  std::int64_t entries_ = 0;
  double work_ = 0;
};

}  // namespace longhaul
