// Part of the world on a flat map: which part shows some places well, where places lie on it, and
// ways between them.
//
// Longitudes and latitudes are drawn as they are (equirectangular), latitudes stretched so that the
// middle of the map has its true shape. The map is cut where nobody lives, so that it may begin in
// Asia and end in Europe with the Pacific in between.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/topology.h"
#include "tools/report/chart.h"

namespace longhaul {

class Globe {
 public:
  /// A map `width` wide of all `places` (at least one). `links` are pairs of places; the cut is
  /// where the fewest of them would have to cross it, and among those in the widest gap.
  Globe(std::span<const Coordinates> places, std::span<const std::pair<int, int>> links,
        double width);

  double width() const { return width_; }
  double height() const { return height_; }
  Point at(const Coordinates& place) const;
  /// An arc between two places, the shorter way round, as lines on the map; it is bent towards the
  /// pole, as great circles are, but never far: those lie so close to the pole that a flat map
  /// tears them apart. A way across the map's cut is drawn twice: it leaves at one edge and comes
  /// back at the other. Points may lie outside of the map.
  std::vector<std::vector<Point>> way(const Coordinates& from, const Coordinates& to) const;
  /// The land, as the path of an SVG.
  std::string land() const;

 private:
  double x(double longitude_from_left) const { return longitude_from_left * per_degree_; }
  double y(double latitude) const { return (top_ - latitude) * per_degree_ * stretch_; }
  /// Degrees east of the left edge, 0 to 360.
  double from_left(double longitude) const;

  double width_;
  double height_ = 0;
  double left_ = 0;        // longitude of the left edge
  double top_ = 0;         // latitude of the upper edge
  double per_degree_ = 1;  // of longitude
  double stretch_ = 1;     // of latitude against longitude
};

}  // namespace longhaul
