// Structured starting points of the search: sites chained by nearest latency, and the devices along
// the chain laid into a grid block by block, so that what lies together works together.
//
// A block is as large as a node: some stages of some pipelines. With wide blocks the replicas of a
// stage share a node and reduce inside it, with long ones neighbouring stages do. Where the first
// stage's device is of another speed than the last stage's, which has the head, a layout is also
// tried the other way round.
#pragma once

#include <vector>

#include "planner/placement_search.h"
#include "planner/problem.h"

namespace longhaul {

/// What the layouts of all grids of a problem have in common. Read-only once made.
class Layouts {
 public:
  explicit Layouts(const Problem& problem);

  /// How many layouts to look at: the plainest from four sites, or all from a dozen.
  enum class Breadth { kFew, kAll };
  /// Layouts of the evaluator's grid with their layers split evenly. Best first, at most `keep`,
  /// no two of one value.
  std::vector<Scored> candidates(Evaluator& evaluator, std::size_t keep, Breadth breadth) const;

 private:
  struct Block {
    int stages = 1;
    int pipelines = 1;
    bool operator==(const Block&) const = default;
  };

  /// By start: orders of all usable devices along the chain from there, one or two.
  std::vector<std::vector<std::vector<int>>> starts_;
  std::vector<int> rank_;  // by device: how many usable ones are faster
  std::vector<Block> blocks_;
};

}  // namespace longhaul
