// What every tasklet does in the step, as rows of bars.
//
// A step may have a hundred thousand slices. Rows with few show each; rows with many are cut into
// columns, and a column shows the share of its time that each kind of work takes, from the top
// down. Either way the picture's size is bounded.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/quantity.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 1100, kLabels = 158, kRightMargin = 12;
constexpr double kTop = 34, kHeading = 24, kLane = 16, kSend = 3, kRowGap = 5, kMeasuredLane = 12;
constexpr int kRowsMax = 24, kStagesMax = 96;
constexpr std::size_t kSlicesMax = 300;      // of a row that shows each
constexpr std::size_t kColumnsMax = 16'000;  // of all rows that do not
constexpr std::size_t kNumbersMax = 500;
constexpr int kLevels = 8;  // heights of a share

/// Kinds of work, in the order in which they are stacked and explained.
enum Kind { kForward, kBackward, kWeight, kRecompute, kReduce, kUpdate, kKinds };
constexpr std::array<std::string_view, kKinds> kStyles = {"forward",   "backward", "weight",
                                                          "recompute", "reduce",   "update"};
constexpr std::array<std::string_view, kKinds> kNames = {
    "forward", "backward", "gradient of the weights", "recompute", "exchange of gradients",
    "update"};

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Of work on the device itself.
Kind kind_of(Op op) {
  switch (op) {
    case Op::kForward:
      return kForward;
    case Op::kBackwardWeight:
      return kWeight;
    case Op::kRecompute:
      return kRecompute;
    case Op::kReduce:
    case Op::kTiedReduce:
      return kReduce;
    case Op::kUpdate:
      return kUpdate;
    default:
      return kBackward;
  }
}

/// One tasklet's slices.
struct Row {
  std::vector<const TimelineSlice*> work;   // by start
  std::vector<const TimelineSlice*> sends;  // by start
  double last_backward = 0;                 // its end, s
};

std::vector<Row> rows_of(std::span<const TimelineSlice> slices, std::size_t cells) {
  std::vector<Row> rows(cells);
  for (const TimelineSlice& slice : slices) {
    if (slice.cell < 0 || at(slice.cell) >= cells) continue;
    Row& row = rows[at(slice.cell)];
    (slice.peer >= 0 ? row.sends : row.work).push_back(&slice);
    const bool is_backward = slice.op == Op::kBackward || slice.op == Op::kBackwardWeight;
    if (is_backward) row.last_backward = std::max(row.last_backward, slice.end.seconds().value());
  }
  const auto start = [](const TimelineSlice* slice) { return slice->start; };
  for (Row& row : rows) {
    std::ranges::stable_sort(row.work, {}, start);
    std::ranges::stable_sort(row.sends, {}, start);
  }
  return rows;
}

/// A bar as part of a path.
std::string bar(double x, double y, double width, double height) {
  return fmt::format("M{} {}h{}v{}h-{}z", coordinate(x), coordinate(y), coordinate(width),
                     coordinate(height), coordinate(width));
}

class GanttDrawing {
 public:
  GanttDrawing(const Planned& planned, const StepResult& step,
               std::span<const TimelineSlice> measured)
      : planned_(planned),
        step_(step),
        rows_(rows_of(step.timeline, step.tasklets.size())),
        measured_(rows_of(measured, step.tasklets.size())),
        has_measured_(!measured.empty()) {
    longest_ = step.step.value();
    for (const TimelineSlice& slice : measured) {
      measured_end_ = std::max(measured_end_, slice.end.seconds().value());
      has_kind_[slice.peer < 0 ? kind_of(slice.op) : kForward] = true;
    }
    for (const TimelineSlice& slice : step.timeline) {
      if (slice.peer < 0) has_kind_[kind_of(slice.op)] = true;
    }
    longest_ = std::max(longest_, measured_end_);
    choose_pipelines();
  }

  Picture draw() && {
    Picture picture{.id = "gantt",
                    .heading = "The step, device by device",
                    .svg = "",
                    .caption = caption(),
                    .is_wide = true};
    const double height =
        kTop + static_cast<double>(pipelines_.size()) * (kHeading + stages_ * row_height()) + 54;
    Svg svg("gantt", kWidth, height, "What every device does in a step", picture.caption);
    svg.define_hatch();
    double y = kTop;
    for (const int pipeline : pipelines_) {
      svg.text(4, y + 15, heading_of(pipeline), "heading");
      y += kHeading;
      for (int stage = 0; stage < stages_; ++stage) {
        draw_row(svg, pipeline, stage, y);
        y += row_height();
      }
    }
    draw_axis(svg, y);
    draw_keys(svg, y + 12);
    picture.svg = std::move(svg).finish();
    return picture;
  }

 private:
  void choose_pipelines() {
    const int all = planned_.plan.pipelines();
    stages_ = std::min(planned_.plan.stages(), kStagesMax);
    const int shown = std::clamp(kRowsMax / stages_, 1, all);
    const auto end_of = [&](int pipeline) {
      double end = 0;
      for (int i = 0; i < planned_.plan.stages(); ++i)
        end = std::max(end, rows_[at(pipeline * planned_.plan.stages() + i)].last_backward);
      return end;
    };
    pipelines_.resize(at(all));
    std::iota(pipelines_.begin(), pipelines_.end(), 0);
    std::ranges::stable_sort(pipelines_, std::greater(), end_of);
    pipelines_.resize(at(shown));
    std::ranges::sort(pipelines_);
    columns_ = std::clamp<std::size_t>(
        kColumnsMax / (at(shown * stages_) * (has_measured_ ? 2u : 1u)), 100, 470);
  }

  double row_height() const {
    return kLane + 2 * kSend + 1 + kRowGap + (has_measured_ ? kMeasuredLane + 2 : 0);
  }
  double x(double seconds) const {
    return kLabels + (kWidth - kLabels - kRightMargin) * seconds / longest_;
  }
  double start_x(const TimelineSlice& slice) const { return x(slice.start.seconds().value()); }
  double end_x(const TimelineSlice& slice) const { return x(slice.end.seconds().value()); }

  const Device& device_of(int pipeline, int stage) const {
    return planned_.topology.devices[at(planned_.plan.device(pipeline, stage))];
  }

  std::string heading_of(int pipeline) const {
    const int n = planned_.plan.micro_batches[at(pipeline)];
    return fmt::format("pipeline {}: {} micro-batch{}", pipeline, n, n == 1 ? "" : "es");
  }

  std::string hint_of(int pipeline, int stage) const {
    const TaskletTimes& times = step_.tasklets[at(pipeline * planned_.plan.stages() + stage)];
    const auto percent = [&](Seconds part) { return 100 * (part / step_.step); };
    return fmt::format(
        "stage {} on {} in {}: compute {:.1f} %, transfer {:.1f} %, bubble {:.1f} %, exchange "
        "{:.1f} %, commit {:.1f} %, update {:.1f} %",
        stage, device_of(pipeline, stage).name,
        planned_.topology.sites[at(device_of(pipeline, stage).site)].name, percent(times.compute),
        percent(times.transfer), percent(times.bubble), percent(times.reduce),
        percent(times.commit), percent(times.update));
  }

  void draw_row(Svg& svg, int pipeline, int stage, double y) {
    const std::size_t cell = at(pipeline * planned_.plan.stages() + stage);
    svg.begin_group("", hint_of(pipeline, stage));
    svg.text(10, y + 12, fmt::format("{}", stage), "small");
    svg.text(30, y + 12, shortened(device_of(pipeline, stage).name, 12, kLabels - 38), "small");
    draw_lane(svg, rows_[cell], step_.step.value(), y, kLane, true);
    draw_sends(svg, rows_[cell], y + kLane + 1);
    if (has_measured_) {
      const double below = y + kLane + 2 * kSend + 3;
      svg.text(kLabels - 8, below + 10, "measured", "faint", Anchor::kEnd);
      draw_lane(svg, measured_[cell], measured_end_, below, kMeasuredLane, false);
    }
    svg.end_group();
  }

  void draw_lane(Svg& svg, const Row& row, double end, double y, double height, bool has_numbers) {
    if (row.work.empty()) return;
    svg.hatched(x(0), y, x(row.last_backward) - x(0), height);
    svg.rect(x(row.last_backward), y, x(end) - x(row.last_backward), height, "lane-wait");
    if (row.work.size() > kSlicesMax) return draw_shares(svg, row, y, height);
    std::array<std::string, kKinds> paths;
    for (const TimelineSlice* slice : row.work) {
      const double width = std::max(0.3, end_x(*slice) - start_x(*slice));
      paths[kind_of(slice->op)] += bar(start_x(*slice), y, width, height);
    }
    for (int kind = 0; kind < kKinds; ++kind)
      svg.path(paths[at(kind)], fmt::format("bar {}", kStyles[at(kind)]));
    if (has_numbers) draw_numbers(svg, row, y + height - 4.5);
  }

  /// Of micro-batches, into the bars that have room for the longest of them.
  void draw_numbers(Svg& svg, const Row& row, double y) {
    int last = 0;
    for (const TimelineSlice* slice : row.work) last = std::max(last, slice->micro_batch);
    const double wide = text_width(fmt::format("{}", last), 9) + 3;
    for (const TimelineSlice* slice : row.work) {
      const bool has_room = end_x(*slice) - start_x(*slice) > wide;
      if (slice->micro_batch < 0 || !has_room || ++numbers_ > kNumbersMax) continue;
      svg.text((start_x(*slice) + end_x(*slice)) / 2, y, fmt::format("{}", slice->micro_batch),
               "number", Anchor::kMiddle);
    }
  }

  /// Equal columns that follow one another are one bar.
  void draw_shares(Svg& svg, const Row& row, double y, double height) const {
    const double column = longest_ / static_cast<double>(columns_);
    std::vector<std::array<double, kKinds>> shares(columns_ + 1);
    for (const TimelineSlice* slice : row.work) {
      const double from = slice->start.seconds().value() / column;
      const double to = slice->end.seconds().value() / column;
      for (auto c = static_cast<std::size_t>(from); c < columns_ && static_cast<double>(c) < to;
           ++c) {
        const auto left = static_cast<double>(c);
        shares[c][kind_of(slice->op)] += std::min(to, left + 1) - std::max(from, left);
      }
    }
    std::array<std::string, kKinds> paths;
    std::array<int, kKinds + 1> levels{};  // upper ends, in eighths; where the bar begins
    std::size_t begin = 0;
    for (std::size_t c = 0; c <= columns_; ++c) {
      std::array<int, kKinds + 1> now{};
      double sum = 0;
      for (int kind = 0; kind < kKinds; ++kind) {
        sum += shares[c][at(kind)];
        now[at(kind) + 1] = static_cast<int>(std::lround(kLevels * std::min(1.0, sum)));
      }
      if (c < columns_ && now == levels) continue;
      for (int kind = 0; kind < kKinds && c > begin; ++kind) {
        const int from = levels[at(kind)];
        const int to = levels[at(kind) + 1];
        if (from == to) continue;
        const double left = x(static_cast<double>(begin) * column);
        paths[at(kind)] +=
            bar(left, y + height * from / kLevels, x(static_cast<double>(c) * column) - left,
                height * (to - from) / kLevels);
      }
      levels = now;
      begin = c;
    }
    for (int kind = 0; kind < kKinds; ++kind)
      svg.path(paths[at(kind)], std::string(kStyles[at(kind)]));
  }

  /// Thin bars: activations above, gradients and messages of exchanges below. What is nearer than
  /// half a pixel is joined.
  void draw_sends(Svg& svg, const Row& row, double y) const {
    for (const auto& [style, lower] : {std::pair<std::string_view, bool>{"send-forward", false},
                                       {"send-backward", true},
                                       {"send-reduce", true}}) {
      std::string d;
      double begin = 0;
      double end = -1;
      const auto flush = [&] {
        if (end > begin)
          d += bar(begin, y + (lower ? kSend : 0), std::max(0.4, end - begin), kSend - 0.4);
      };
      for (const TimelineSlice* slice : row.sends) {
        const std::string_view its = slice->op == Op::kSendActivation ? "send-forward"
                                     : slice->op == Op::kSendGradient ? "send-backward"
                                                                      : "send-reduce";
        if (its != style) continue;
        if (start_x(*slice) > end + 0.5) {
          flush();
          begin = start_x(*slice);
          end = begin;
        }
        end = std::max(end, end_x(*slice));
      }
      flush();
      svg.path(d, style);
    }
  }

  void draw_axis(Svg& svg, double bottom) const {
    const TimeUnit unit = time_unit(longest_);
    for (const double tick : linear_ticks(0, longest_ / unit.seconds, 9)) {
      const double to = x(tick * unit.seconds);
      svg.line(to, kTop - 8, to, bottom, "time-grid");
      svg.text(to, kTop - 13, fmt::format("{} {}", short_number(tick), unit.name), "tick",
               Anchor::kMiddle);
    }
    if (!has_measured_) return;
    svg.line(x(step_.step.value()), kTop - 6, x(step_.step.value()), bottom, "time-end");
  }

  void draw_keys(Svg& svg, double y) const {
    std::vector<LegendItem> items;
    for (int kind = 0; kind < kKinds; ++kind) {
      if (has_kind_[at(kind)]) items.push_back({kStyles[at(kind)], std::string(kNames[at(kind)])});
    }
    items.push_back({"", "bubble: idle, its input is not there", true});
    items.push_back({"lane-wait", "waits for the commit"});
    items.push_back({"send-forward", "sends activations"});
    items.push_back({"send-backward", "sends gradients"});
    draw_legend(svg, kLabels, y, kWidth - kLabels, items);
  }

  std::string caption() const {
    const Plan& plan = planned_.plan;
    std::string text =
        fmt::format("One row a tasklet: its stage and its device. The step takes {}.",
                    format_duration(step_.step));
    if (has_measured_) {
      text += fmt::format(
          " Below each predicted row what a run measured in one step, which took {}; the dashed "
          "line is the end of the predicted one.",
          format_duration(Seconds(measured_end_)));
    }
    const bool has_shares =
        std::ranges::any_of(rows_, [](const Row& row) { return row.work.size() > kSlicesMax; });
    if (has_shares)
      text += " Where bars would be too thin, heights show the share of the time of each kind.";
    if (at(plan.pipelines()) > pipelines_.size()) {
      text += fmt::format(" Shown are the {} pipelines of {} that end last.", pipelines_.size(),
                          plan.pipelines());
    }
    if (plan.stages() > stages_)
      text += fmt::format(" Shown are the first {} of {} stages.", stages_, plan.stages());
    return text;
  }

  const Planned planned_;
  const StepResult& step_;
  const std::vector<Row> rows_;
  const std::vector<Row> measured_;
  const bool has_measured_;
  double longest_ = 0;
  double measured_end_ = 0;
  std::array<bool, kKinds> has_kind_{};
  std::vector<int> pipelines_;
  int stages_ = 0;
  std::size_t columns_ = 0;
  std::size_t numbers_ = 0;
};

}  // namespace

Picture gantt_picture(const Planned& planned, const StepResult& step,
                      std::span<const TimelineSlice> measured) {
  return GanttDrawing(planned, step, measured).draw();
}

}  // namespace longhaul
