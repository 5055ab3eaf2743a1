// A run over its steps: loss, tokens a second, time of a step.

#include <fmt/core.h>

#include <algorithm>

#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 440, kHeight = 300;
constexpr std::size_t kColumns = 400;

}  // namespace

std::vector<SeriesChart> run_charts(const RunData& run) {
  std::vector<SeriesChart> charts;
  SeriesChart& loss = charts.emplace_back();
  loss = {.id = "loss", .heading = "Loss", .unit = "nats a token", .lines = {}, .levels = {}};
  loss.lines.push_back({"training", run.loss, false});
  if (!run.validation.empty()) loss.lines.push_back({"validation", run.validation, true});
  if (run.result.bigram_loss) loss.levels.push_back({"a bigram model", *run.result.bigram_loss});
  charts.push_back({.id = "speed",
                    .heading = "Tokens a second",
                    .unit = "tokens/s",
                    .lines = {{"measured", run.tokens_per_s, false}},
                    .levels = {},
                    .from_zero = true});
  SeriesChart& time = charts.emplace_back();
  time = {.id = "time",
          .heading = "Time of a step",
          .unit = "s",
          .lines = {},
          .levels = {},
          .from_zero = true};
  time.lines.push_back({"measured", run.step_s, false});
  if (run.result.step_predicted_s)
    time.levels.push_back({"predicted", *run.result.step_predicted_s});
  std::erase_if(charts, [](const SeriesChart& chart) { return chart.lines[0].points.empty(); });
  return charts;
}

Picture series_picture(const SeriesChart& series) {
  Picture picture{
      .id = series.id, .heading = series.heading, .svg = "", .caption = "", .is_wide = false};
  std::vector<double> xs;
  std::vector<double> ys;
  for (const SeriesLine& line : series.lines) {
    for (const Point& point : line.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  for (const SeriesLevel& level : series.levels) ys.push_back(level.value);
  Axis steps = {"step", 0, 1, false};
  if (!xs.empty()) {
    const auto [least, most] = std::ranges::minmax(xs);
    steps = {"step", least, most > least ? most : least + 1, false};
  }
  Svg svg(series.id, kWidth, kHeight, series.heading,
          fmt::format("{} over the steps of the run", series.heading));
  const Chart chart(svg, steps, axis_for(series.unit, ys, series.from_zero, false));
  std::vector<std::string> styles;
  for (std::size_t i = 0; i < series.lines.size(); ++i) styles.push_back(fmt::format("line{}", i));
  std::vector<std::string> keys;
  for (const std::string& style : styles) keys.push_back("key " + style);
  std::vector<LegendItem> items;
  for (std::size_t i = 0; i < series.lines.size(); ++i) {
    const SeriesLine& line = series.lines[i];
    svg.path(chart.line(decimated(line.points, kColumns)), "line " + styles[i]);
    for (const Point& point : line.points) {
      if (line.has_marks) svg.circle(chart.x(point.x), chart.y(point.y), 3.2, "dot " + styles[i]);
    }
    items.push_back({keys[i], line.name});
  }
  for (const SeriesLevel& level : series.levels) {
    svg.line(chart.left(), chart.y(level.value), chart.right(), chart.y(level.value), "level");
    svg.text(chart.left() + 6, chart.y(level.value) - 5,
             fmt::format("{}: {:.4g}", level.name, level.value), "halo small");
  }
  if (items.size() > 1) draw_legend(svg, chart.right() - 190, 6, 200, items);
  picture.svg = std::move(svg).finish();
  return picture;
}

}  // namespace longhaul
