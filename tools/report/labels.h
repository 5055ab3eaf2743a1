// Places for labels, so that none lies on another, on a mark, or beyond the edge.
#pragma once

#include <vector>

#include "tools/report/chart.h"

namespace longhaul {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  bool overlaps(const Box& other) const {
    return x < other.x + other.width && other.x < x + width && y < other.y + other.height &&
           other.y < y + height;
  }
};

class LabelPlacer {
 public:
  explicit LabelPlacer(const Box& frame) : frame_(frame) {}

  /// Nothing may be placed here.
  void block(const Box& box) { taken_.push_back(box); }
  /// Better not here: part of a line.
  void avoid(const Point& point) { points_.push_back(point); }

  /// The best box of this size beside `mark`, at `distance` or farther; it is taken then. Without
  /// a width where there is no room.
  Box place(const Point& mark, double width, double height, double distance);

 private:
  Box frame_;
  std::vector<Box> taken_;
  std::vector<Point> points_;
};

}  // namespace longhaul
