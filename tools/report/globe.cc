#include "tools/report/globe.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "tools/report/assets.h"

namespace longhaul {
namespace {

constexpr double kRadians = std::numbers::pi / 180;
constexpr double kHeightMin = 360, kHeightMax = 600;
constexpr int kParts = 24;

/// The same direction in -180 .. 180.
double turned(double degrees) {
  return degrees - 360 * std::round(degrees / 360);
}

/// The longitude at which to cut the world open, and how many degrees to the east the places reach.
struct Cut {
  double first = 0;  // longitude of the first place east of the cut
  double span = 0;
};

Cut best_cut(std::span<const Coordinates> places, std::span<const std::pair<int, int>> links) {
  std::vector<double> longitudes;
  for (const Coordinates& place : places) longitudes.push_back(place.longitude);
  std::ranges::sort(longitudes);
  Cut best;
  std::pair<int, double> best_score = {0, -1};  // links across the cut, width of the gap
  for (std::size_t i = 0; i < longitudes.size(); ++i) {
    const bool is_last = i + 1 == longitudes.size();
    const double next = is_last ? longitudes.front() + 360 : longitudes[i + 1];
    const double gap = next - longitudes[i];
    const double middle = longitudes[i] + gap / 2;
    int across = 0;
    for (const auto& [a, b] : links) {
      const double from = places[static_cast<std::size_t>(a)].longitude;
      const double way = turned(places[static_cast<std::size_t>(b)].longitude - from);
      const double to_middle = turned(middle - from);
      across += way > 0 ? to_middle > 0 && to_middle < way : to_middle < 0 && to_middle > way;
    }
    // A narrow gap is no place for a cut: neighbours would end up at opposite edges.
    constexpr double kNarrow = 40;
    if (gap < kNarrow) across += static_cast<int>(links.size()) + 1;
    const bool is_better = best_score.second < 0 || across < best_score.first ||
                           (across == best_score.first && gap > best_score.second);
    if (!is_better) continue;
    best_score = {across, gap};
    best = {turned(next), 360 - gap};
  }
  return best;
}

/// Points of the arc in degrees from its beginning; `stretch`: of latitude against longitude.
std::vector<Coordinates> arc(const Coordinates& from, const Coordinates& to, double stretch) {
  constexpr double kBend = 0.1, kBendMax = 15;  // of the middle; of the length, and in degrees
  const double east = turned(to.longitude - from.longitude);
  const double north = (to.latitude - from.latitude) * stretch;
  const double length = std::hypot(east, north);
  const double bend = length > 0 ? std::min(kBend * length, kBendMax) / length : 0;
  // To the left of an eastward way is north; in the south the pole is on the other side.
  const bool is_left = (from.latitude + to.latitude >= 0) == (east >= 0);
  const double side = is_left ? bend : -bend;
  std::vector<Coordinates> points;
  for (int i = 0; i <= kParts; ++i) {
    const double part = static_cast<double>(i) / kParts;
    const double height = 4 * part * (1 - part) * side;
    points.push_back({from.latitude + (part * north + height * east) / stretch,
                      from.longitude + part * east - height * north});
  }
  return points;
}

}  // namespace

Globe::Globe(std::span<const Coordinates> places, std::span<const std::pair<int, int>> links,
             double width)
    : width_(width) {
  const Cut cut = best_cut(places, links);
  double south = 90;
  double north = -90;
  const auto include = [&](const Coordinates& place) {
    south = std::min(south, place.latitude);
    north = std::max(north, place.latitude);
  };
  for (const Coordinates& place : places) include(place);
  const double middle = (south + north) / 2;
  stretch_ = 1 / std::max(0.6, std::cos(middle * kRadians));
  for (const auto& [a, b] : links) {
    for (const Coordinates& point :
         arc(places[static_cast<std::size_t>(a)], places[static_cast<std::size_t>(b)], stretch_))
      include(point);
  }
  // Room for labels at the edges; then as much more as brings the map into shape.
  double wide = std::min(360.0, cut.span + 2 * std::max(6.0, 0.05 * cut.span));
  double tall = north - south + 2 * std::max(4.0, 0.08 * (north - south));
  const double height_per_width = tall * stretch_ / wide;
  if (height_per_width * width < kHeightMin) tall = kHeightMin * wide / (width * stretch_);
  if (height_per_width * width > kHeightMax) {
    wide = std::min(360.0, tall * stretch_ * width / kHeightMax);
  }
  per_degree_ = width / wide;
  height_ = tall * per_degree_ * stretch_;
  left_ = cut.first - (wide - cut.span) / 2;
  top_ = std::clamp((north + south) / 2 + tall / 2, std::min(90.0, tall - 90), 90.0);
}

double Globe::from_left(double longitude) const {
  const double degrees = std::fmod(longitude - left_, 360);
  return degrees < 0 ? degrees + 360 : degrees;
}

Point Globe::at(const Coordinates& place) const {
  return {x(from_left(place.longitude)), y(place.latitude)};
}

std::vector<std::vector<Point>> Globe::way(const Coordinates& from, const Coordinates& to) const {
  const std::vector<Coordinates> points = arc(from, to, stretch_);
  const double start = from_left(from.longitude) - from.longitude;
  // Where it ends when it goes on beyond the edge, and where its end really is.
  const double beyond = start + points.back().longitude - from_left(to.longitude);
  std::vector<double> shifts = {0};
  if (std::abs(beyond) > 1) shifts.push_back(-beyond);
  std::vector<std::vector<Point>> lines;
  for (const double shift : shifts) {
    std::vector<Point>& line = lines.emplace_back();
    for (const Coordinates& point : points)
      line.push_back({x(start + point.longitude + shift), y(point.latitude)});
  }
  return lines;
}

std::string Globe::land() const {
  std::string d;
  std::string_view rest = coastlines();
  while (!rest.empty()) {
    const std::string_view row = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), row.size() + 1));
    if (row.empty() || row.front() == '#') continue;
    std::vector<Coordinates> ring;
    const char* at = row.data();
    const char* const end = at + row.size();
    while (at < end) {
      Coordinates& point = ring.emplace_back();
      at = std::from_chars(at, end, point.longitude).ptr + 1;
      at = std::from_chars(at, end, point.latitude).ptr + 1;
      point = {point.latitude / 10, point.longitude / 10};
    }
    const auto [west, east] = std::ranges::minmax(ring, {}, &Coordinates::longitude);
    for (double shift = -720; shift <= 720; shift += 360) {
      const double first = west.longitude - left_ + shift;
      const double last = east.longitude - left_ + shift;
      if (last < 0 || x(first) > width_) continue;
      for (std::size_t i = 0; i < ring.size(); ++i) {
        d += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L',
                         x(ring[i].longitude - left_ + shift), y(ring[i].latitude));
      }
      d += 'Z';
    }
  }
  return d;
}

}  // namespace longhaul
