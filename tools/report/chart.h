// Axes, ticks and lines for the charts of a report. Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/svg.h"

namespace longhaul {

struct Point {
  double x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

/// A unit of time in which numbers up to `longest` seconds read well.
struct TimeUnit {
  double seconds = 1;
  std::string_view name = "s";
};
TimeUnit time_unit(double longest);

/// Multiples of 1, 2 or 5 times a power of ten in [least, most]; at most `count` of them.
std::vector<double> linear_ticks(double least, double most, int count);
/// 1, 2 and 5 times powers of ten in [least, most], or only powers where those are too many.
std::vector<double> log_ticks(double least, double most, int count);
/// "0.25", "1500", "12k", "3.4M", "1e-07".
std::string short_number(double value);

/// At most 4 points for each of `columns` equal parts of x: first, least, most and last, so that no
/// peak is lost. `points` ascend in x.
std::vector<Point> decimated(std::span<const Point> points, std::size_t columns);

struct Axis {
  std::string title;
  double least = 0;
  double most = 1;
  bool is_log = false;
};
/// An axis that holds all values with some room, from 0 where `from_zero`.
Axis axis_for(std::string title, std::span<const double> values, bool from_zero, bool is_log);

/// The frame of a chart that fills its picture but for the margins.
class Chart {
 public:
  static constexpr double kLeft = 58, kRight = 18, kTop = 30, kBottom = 42;

  /// Draws grid, numbers and titles; leaves `below` free under them.
  Chart(Svg& svg, Axis x, Axis y, double below = 0);

  double x(double value) const;
  double y(double value) const;
  double left() const { return kLeft; }
  double right() const { return svg_.width() - kRight; }
  double top() const { return kTop; }
  double bottom() const { return svg_.height() - below_ - kBottom; }
  /// The path through all points.
  std::string line(std::span<const Point> points) const;

 private:
  const Svg& svg_;
  Axis x_, y_;
  double below_;
};

/// A legend entry and where it goes.
struct LegendItem {
  std::string_view style;
  std::string text;
  bool is_hatched = false;
};
/// Small squares with their words, in rows that fit; answers the height.
double draw_legend(Svg& svg, double x, double y, double width, std::span<const LegendItem> items);

}  // namespace longhaul
