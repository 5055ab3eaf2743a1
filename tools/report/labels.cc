#include "tools/report/labels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhaul {

Box LabelPlacer::place(const Point& mark, double width, double height, double distance) {
  // Sides in the order in which they are preferred: dx, dy of the box's centre from the mark.
  constexpr Point kSides[] = {{1, 0}, {-1, 0}, {0, -1}, {0, 1}, {1, -1}, {-1, -1}, {1, 1}, {-1, 1}};
  constexpr double kFarther[] = {0, 10, 22, 38, 58, 84};
  Box best;
  double best_score = std::numeric_limits<double>::infinity();
  for (const double farther : kFarther) {
    for (std::size_t side = 0; side < std::size(kSides); ++side) {
      const Point& to = kSides[side];
      const double away = (distance + farther) * (to.x != 0 && to.y != 0 ? 0.7 : 1);
      const Box box = {mark.x + to.x * (away + width / 2) - width / 2,
                       mark.y + to.y * (away + height / 2) - height / 2, width, height};
      const bool is_inside = box.x >= frame_.x && box.y >= frame_.y &&
                             box.x + width <= frame_.x + frame_.width &&
                             box.y + height <= frame_.y + frame_.height;
      if (!is_inside || std::ranges::any_of(taken_, [&](const Box& b) { return b.overlaps(box); }))
        continue;
      const auto crossed = std::ranges::count_if(points_, [&](const Point& point) {
        return box.overlaps({point.x, point.y, 0.01, 0.01});
      });
      const double score =
          1.2 * farther + 0.5 * static_cast<double>(side) + 5 * static_cast<double>(crossed);
      if (score >= best_score) continue;
      best_score = score;
      best = box;
    }
  }
  if (best.width > 0) taken_.push_back(best);
  return best;
}

}  // namespace longhaul
