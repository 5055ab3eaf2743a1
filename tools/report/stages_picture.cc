// Where the step goes: a bar a stage, and what a run measured.

#include <fmt/core.h>

#include <algorithm>

#include "core/quantity.h"
#include "tools/report/bars.h"
#include "tools/report/picture.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr double kWidth = 440;
constexpr int kStagesMax = 20;

BarRow row_of(std::string label, const TaskletTimes& times) {
  const double whole =
      (times.compute + times.transfer + times.bubble + times.reduce + times.commit + times.update)
          .value();
  return {.label = std::move(label),
          .parts = {{"compute", times.compute.value(), false, "compute"},
                    {"transfer", times.transfer.value(), false, "waits for a transfer"},
                    {"", times.bubble.value(), true, "bubble"},
                    {"reduce", times.reduce.value(), false, "exchange of gradients"},
                    {"commit", times.commit.value(), false, "waits for the commit"},
                    {"update", times.update.value(), false, "update"}},
          .whole = whole,
          .figure = format_duration(Seconds(whole)),
          .outline = 0};
}

TaskletTimes mean_of(const Planned& planned, const StepResult& step, int first, int last) {
  const auto [sum, count] = sum_of_tasklets(planned.plan, step, first, last);
  return {sum.compute / count, sum.transfer / count, sum.bubble / count,
          sum.reduce / count,  sum.commit / count,   sum.update / count};
}

}  // namespace

Picture stages_picture(const Planned& planned, const StepResult& step, const RunData* run) {
  Picture picture{.id = "stages",
                  .heading = "Where the step goes",
                  .svg = "",
                  .caption = "Each stage's time, its pipelines averaged.",
                  .is_wide = false};
  const int stages = std::min(planned.plan.stages(), kStagesMax);
  std::vector<BarRow> rows;
  for (int i = 0; i < stages; ++i)
    rows.push_back(row_of(fmt::format("stage {}", i), mean_of(planned, step, i, i)));
  if (stages < planned.plan.stages())
    picture.caption += fmt::format(" The first {} of {} stages.", stages, planned.plan.stages());
  const bool has_measured = run != nullptr && run->parts;
  if (planned.plan.stages() > 1 || has_measured) {
    rows.push_back(row_of(has_measured ? "predicted" : "all",
                          mean_of(planned, step, 0, planned.plan.stages() - 1)));
  }
  double longest = step.step.value();
  if (has_measured) {
    const MeasuredParts& parts = *run->parts;
    rows.push_back({.label = "measured",
                    .parts = {{"compute", parts.compute, false, "compute"},
                              {"", parts.wait, true, "waits for tensors"},
                              {"reduce", parts.reduce, false, "exchange of gradients"},
                              {"commit", parts.commit, false, "waits for the commit"},
                              {"update", parts.update, false, "update"}},
                    .whole = parts.total(),
                    .figure = format_duration(Seconds(parts.total())),
                    .outline = 0});
    longest = std::max(longest, parts.total());
    picture.caption +=
        " A run does not tell a bubble from a transfer: its hatched part is both together.";
  }
  const double height = 8 + kBarRow * static_cast<double>(rows.size()) + 46;
  Svg svg("stages", kWidth, height, picture.heading, picture.caption);
  svg.define_hatch();
  const double end = draw_bars(svg, rows, longest, {.labels = 104, .figures = 72, .top = 8});
  const LegendItem items[] = {{"compute", "compute"},
                              {"transfer", "waits for a transfer"},
                              {"", "bubble", true},
                              {"reduce", "exchange of gradients"},
                              {"commit", "waits for the commit"},
                              {"update", "update"}};
  draw_legend(svg, 4, end + 8, kWidth - 8, items);
  picture.svg = std::move(svg).finish();
  return picture;
}

}  // namespace longhaul
