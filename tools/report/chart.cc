#include "tools/report/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhaul {
namespace {

double part_of(const Axis& axis, double value) {
  if (!axis.is_log) return (value - axis.least) / (axis.most - axis.least);
  return std::log(value / axis.least) / std::log(axis.most / axis.least);
}

}  // namespace

TimeUnit time_unit(double longest) {
  if (longest >= 2 * 86400.0) return {86400, "d"};
  if (longest >= 2 * 3600.0) return {3600, "h"};
  if (longest >= 180) return {60, "min"};
  if (longest >= 1) return {1, "s"};
  if (longest >= 1e-3) return {1e-3, "ms"};
  return {1e-6, "us"};
}

std::vector<double> linear_ticks(double least, double most, int count) {
  const double span = most - least;
  if (!(span > 0) || !std::isfinite(span) || count < 1) return {least};
  double step = std::pow(10, std::floor(std::log10(span / count)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (std::floor(most / step + 1e-9) - std::ceil(least / step - 1e-9) < count) break;
    step *= factor;
  }
  std::vector<double> ticks;
  for (double k = std::ceil(least / step - 1e-9); k <= most / step + 1e-9; k += 1)
    ticks.push_back(k * step + 0.0);  // no -0
  return ticks;
}

std::vector<double> log_ticks(double least, double most, int count) {
  for (const int each : {3, 1}) {
    std::vector<double> ticks;
    for (double decade = std::floor(std::log10(least)); decade <= std::log10(most); decade += 1) {
      for (int i = 0; i < each; ++i) {
        constexpr double kFactors[] = {1, 2, 5};
        const double value = kFactors[i] * std::pow(10, decade);
        if (value >= least * (1 - 1e-9) && value <= most * (1 + 1e-9)) ticks.push_back(value);
      }
    }
    if (each == 1 || static_cast<int>(ticks.size()) <= count) {
      return ticks.size() < 2 ? linear_ticks(least, most, count) : ticks;
    }
  }
  return {};
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e13 || (size > 0 && size < 1e-3)) return fmt::format("{:.3g}", value);
  constexpr std::pair<double, std::string_view> kSuffixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}};
  for (const auto& [factor, suffix] : kSuffixes) {
    if (size >= factor) return fmt::format("{:.4g}{}", value / factor, suffix);
  }
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::vector<Point> decimated(std::span<const Point> points, std::size_t columns) {
  if (points.size() <= 4 * columns) return {points.begin(), points.end()};
  const double first = points.front().x;
  const double span = points.back().x - first;
  const auto column_of = [&](const Point& point) {
    const double part = span > 0 ? (point.x - first) / span : 0;
    return std::min(columns - 1, static_cast<std::size_t>(part * static_cast<double>(columns)));
  };
  std::vector<Point> out;
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin + 1;
    std::size_t least = begin;
    std::size_t most = begin;
    for (; end < points.size() && column_of(points[end]) == column_of(points[begin]); ++end) {
      if (points[end].y < points[least].y) least = end;
      if (points[end].y > points[most].y) most = end;
    }
    std::size_t kept[] = {begin, least, most, end - 1};
    std::ranges::sort(kept);
    for (std::size_t i = 0; i < 4; ++i) {
      if (i == 0 || kept[i] != kept[i - 1]) out.push_back(points[kept[i]]);
    }
    begin = end;
  }
  return out;
}

Axis axis_for(std::string title, std::span<const double> values, bool from_zero, bool is_log) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const double value : values) {
    if (!std::isfinite(value) || (is_log && value <= 0)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (least > most) return {std::move(title), is_log ? 0.1 : 0, 1, is_log};
  if (is_log) {
    if (least == most) return {std::move(title), least / 2, most * 2, true};
    return {std::move(title), least, most, true};
  }
  if (from_zero && least >= 0) return {std::move(title), 0, most > 0 ? 1.08 * most : 1, false};
  const double room = most > least ? 0.06 * (most - least) : std::max(1e-9, 0.1 * std::abs(most));
  return {std::move(title), least - room, most + room, false};
}

Chart::Chart(Svg& svg, Axis x, Axis y, double below)
    : svg_(svg), x_(std::move(x)), y_(std::move(y)), below_(below) {
  constexpr int kTicksX = 6, kTicksY = 5;
  for (const double tick : y_.is_log ? log_ticks(y_.least, y_.most, kTicksY)
                                     : linear_ticks(y_.least, y_.most, kTicksY)) {
    svg.line(left(), this->y(tick), right(), this->y(tick), "grid");
    svg.text(left() - 6, this->y(tick) + 4, short_number(tick), "tick", Anchor::kEnd);
  }
  for (const double tick : x_.is_log ? log_ticks(x_.least, x_.most, kTicksX)
                                     : linear_ticks(x_.least, x_.most, kTicksX)) {
    svg.line(this->x(tick), bottom(), this->x(tick), bottom() + 4, "axis");
    svg.text(this->x(tick), bottom() + 17, short_number(tick), "tick", Anchor::kMiddle);
  }
  svg.line(left(), bottom(), right(), bottom(), "axis");
  svg.text(right(), bottom() + 36, x_.title, "axis-title", Anchor::kEnd);
  svg.text(4, 16, y_.title, "axis-title");
}

double Chart::x(double value) const {
  return left() + (right() - left()) * part_of(x_, value);
}

double Chart::y(double value) const {
  return bottom() - (bottom() - top()) * part_of(y_, value);
}

std::string Chart::line(std::span<const Point> points) const {
  std::string d;
  for (const Point& point : points) {
    d += fmt::format("{}{} {}", d.empty() ? 'M' : 'L', coordinate(x(point.x)),
                     coordinate(y(point.y)));
  }
  return d;
}

double draw_legend(Svg& svg, double x, double y, double width, std::span<const LegendItem> items) {
  constexpr double kSquare = 11, kRow = 18, kSize = 12;
  double at = x;
  double top = y;
  for (const LegendItem& item : items) {
    const double wide = kSquare + 5 + text_width(item.text, kSize) + 16;
    if (at > x && at + wide > x + width) {
      at = x;
      top += kRow;
    }
    if (item.is_hatched) {
      svg.hatched(at, top, kSquare, kSquare);
    } else {
      svg.rect(at, top, kSquare, kSquare, item.style);
    }
    svg.text(at + kSquare + 5, top + kSquare - 1, item.text, "small");
    at += wide;
  }
  return top + kRow - y;
}

}  // namespace longhaul
