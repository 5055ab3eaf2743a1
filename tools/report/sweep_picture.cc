// A step's time over what was changed.

#include <fmt/core.h>

#include <algorithm>

#include "core/quantity.h"
#include "tools/report/bars.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 440, kHeight = 320, kLegendRow = 18;
constexpr std::size_t kShapes = 6;

/// A mark of about 10 pixels around a point; each binding resource has its own.
std::string mark(std::size_t shape, const Point& p) {
  const std::string x = coordinate(p.x);
  const std::string y = coordinate(p.y);
  switch (shape % kShapes) {
    case 0:  // disc
      return fmt::format("M{} {}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", coordinate(p.x - 4.5), y);
    case 1:  // square
      return fmt::format("M{} {}h8v8h-8z", coordinate(p.x - 4), coordinate(p.y - 4));
    case 2:  // triangle
      return fmt::format("M{} {}l5 9h-10z", x, coordinate(p.y - 5.5));
    case 3:  // diamond
      return fmt::format("M{} {}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", x, coordinate(p.y - 5.5));
    case 4:  // triangle upside down
      return fmt::format("M{} {}l5 -9h-10z", x, coordinate(p.y + 5.5));
    default:  // cross
      return fmt::format("M{} {}h3v3h3v3h-3v3h-3v-3h-3v-3h3z", coordinate(p.x - 1.5),
                         coordinate(p.y - 4.5));
  }
}

/// The binding resources in the order in which they are met.
std::vector<std::string> bindings_of(const WhatIfTable& table) {
  std::vector<std::string> names;
  for (const WhatIfRow& row : table.rows) {
    if (row.problem.empty() && !row.binding.empty() &&
        std::ranges::find(names, row.binding) == names.end())
      names.push_back(row.binding);
  }
  return names;
}

std::string problems_of(const WhatIfTable& table) {
  std::string text;
  for (const WhatIfRow& row : table.rows) {
    if (!row.problem.empty()) text += fmt::format(" {}: {}.", row.change, row.problem);
  }
  return text;
}

/// Changes of several kinds: a bar each.
void draw_changes(Picture& picture, const WhatIfTable& table, std::string_view id) {
  std::vector<BarRow> rows;
  double longest = 0;
  double as_it_is = 0;  // what shares are of: the first step there is
  for (const WhatIfRow& row : table.rows) {
    longest = std::max(longest, row.step.value());
    if (as_it_is == 0) as_it_is = row.step.value();
  }
  for (const WhatIfRow& row : table.rows) {
    const bool is_good = row.problem.empty();
    BarRow& bar = rows.emplace_back();
    bar.label = row.change;
    bar.figure = is_good ? format_duration(row.step) : "no step";
    bar.whole = as_it_is;
    if (is_good) bar.parts = {{"compute", row.step.value(), false, row.binding}};
  }
  Svg svg(id, kWidth, 12 + kBarRow * static_cast<double>(rows.size()), picture.heading,
          picture.caption);
  draw_bars(svg, rows, longest > 0 ? longest : 1, {.labels = 170, .figures = 66, .top = 8});
  picture.svg = std::move(svg).finish();
}

class SweepDrawing {
 public:
  SweepDrawing(const WhatIfTable& table, std::string_view id)
      : table_(table), id_(id), bindings_(bindings_of(table)) {
    for (const WhatIfRow& row : table.rows) {
      if (!row.problem.empty()) {
        if (row.x) xs_.push_back(*row.x);
        continue;
      }
      if (row.x) {
        xs_.push_back(*row.x);
        points_.push_back({*row.x, row.step.value()});
      } else if (!as_it_is_) {
        as_it_is_ = row.step.value();
      }
      steps_.push_back(row.step.value());
    }
    std::ranges::stable_sort(points_, {}, &Point::x);
    is_log_ = table.is_log && std::ranges::all_of(xs_, [](double x) { return x > 0; });
  }

  void draw(Picture& picture) {
    const double legend = kLegendRow * static_cast<double>(bindings_.size() + has_replanned());
    const TimeUnit unit = time_unit(steps_.empty() ? 1 : *std::ranges::max_element(steps_));
    for (double& step : steps_) step /= unit.seconds;
    for (Point& point : points_) point.y /= unit.seconds;
    Svg svg(id_, kWidth, kHeight + legend, picture.heading, picture.caption);
    const std::string title = table_.axis + (table_.unit.empty() ? "" : ", " + table_.unit);
    Chart chart(svg, axis_for(title, xs_, false, is_log_),
                axis_for(fmt::format("step, {}", unit.name), steps_, true, false), legend);
    if (as_it_is_) {
      const double y = chart.y(*as_it_is_ / unit.seconds);
      svg.line(chart.left(), y, chart.right(), y, "level");
      svg.text(chart.right(), y - 5, "as it is", "halo small", Anchor::kEnd);
    }
    svg.path(chart.line(points_), "line line0");
    for (const WhatIfRow& row : table_.rows) {
      if (!row.x) continue;
      const double x = chart.x(*row.x);
      if (!row.problem.empty()) {
        svg.text(x, chart.bottom() - 5, "×", "problem", Anchor::kMiddle);
        continue;
      }
      const auto found = std::ranges::find(bindings_, row.binding);
      svg.path(mark(static_cast<std::size_t>(found - bindings_.begin()),
                    {x, chart.y(row.step.value() / unit.seconds)}),
               row.replanned ? "mark hollow" : "mark",
               fmt::format("{}: {}, {}", row.change, format_duration(row.step), row.binding));
    }
    double y = kHeight + 6;
    for (std::size_t b = 0; b < bindings_.size(); ++b, y += kLegendRow) {
      svg.path(mark(b, {12, y}), "mark");
      svg.text(24, y + 4, "binds: " + bindings_[b], "small");
    }
    if (has_replanned()) {
      svg.path(mark(0, {12, y}), "mark hollow");
      svg.text(24, y + 4, "hollow: another plan is made for this point", "small");
    }
    picture.svg = std::move(svg).finish();
  }

 private:
  bool has_replanned() const {
    return std::ranges::any_of(table_.rows, [](const WhatIfRow& row) { return row.replanned; });
  }

  const WhatIfTable& table_;
  const std::string id_;
  const std::vector<std::string> bindings_;
  std::vector<double> xs_, steps_;
  std::vector<Point> points_;
  std::optional<double> as_it_is_;
  bool is_log_ = false;
};

}  // namespace

Picture sweep_picture(const WhatIfTable& table, std::string_view id) {
  Picture picture{
      .id = std::string(id), .heading = "What if", .svg = "", .caption = "", .is_wide = false};
  const bool has_axis =
      std::ranges::any_of(table.rows, [](const auto& row) { return row.x.has_value(); });
  if (has_axis) {
    picture.heading = fmt::format("What if: {}", table.axis);
    picture.caption = "The step's time; the shape of a mark says what binds there.";
  }
  picture.caption += problems_of(table);
  if (has_axis) {
    SweepDrawing(table, id).draw(picture);
  } else {
    draw_changes(picture, table, id);
  }
  return picture;
}

}  // namespace longhaul
