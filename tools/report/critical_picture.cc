// What the end of the step waited for.

#include <fmt/core.h>

#include <algorithm>

#include "core/quantity.h"
#include "tools/report/bars.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 440;
constexpr std::size_t kPartsMax = 8;

BarRow row_of(const CriticalPart& part, const Topology& topology, Seconds step) {
  const auto site = [&](int s) { return topology.sites[static_cast<std::size_t>(s)].name; };
  const bool is_link = part.kind == CriticalKind::kBandwidth || part.kind == CriticalKind::kLatency;
  const std::string where = is_link ? fmt::format("{} → {}", site(part.from), site(part.to))
                                    : topology.devices[static_cast<std::size_t>(part.from)].name;
  std::string_view style;
  std::string_view what;
  switch (part.kind) {
    case CriticalKind::kCompute:
      style = "compute";
      what = "computes";
      break;
    case CriticalKind::kUpdate:
      style = "update";
      what = "updates";
      break;
    case CriticalKind::kBandwidth:
      style = "transfer";
      what = "sends";
      break;
    case CriticalKind::kLatency:
      style = "commit";
      what = "latency";
      break;
  }
  return {.label = fmt::format("{}: {}", where, what),
          .parts = {{style, part.time.value(), false, std::string(what)}},
          .whole = step.value(),
          .figure = format_duration(part.time),
          .outline = 0};
}

}  // namespace

Picture critical_picture(const Planned& planned, const StepResult& step) {
  if (step.critical.empty()) return {};
  const std::size_t shown = std::min(step.critical.size(), kPartsMax);
  Picture picture{.id = "critical",
                  .heading = "What the step waits for",
                  .svg = "",
                  .caption =
                      "The longest parts of the critical path: a step is as long as their "
                      "sum, and no shorter before one of them is.",
                  .is_wide = false};
  std::vector<BarRow> rows;
  Seconds sum;
  for (std::size_t i = 0; i < shown; ++i) {
    rows.push_back(row_of(step.critical[i], planned.topology, step.step));
    sum += step.critical[i].time;
  }
  if (shown < step.critical.size()) {
    rows.push_back({.label = fmt::format("{} more", step.critical.size() - shown),
                    .parts = {{"rest", (step.step - sum).value(), false, "all others"}},
                    .whole = step.step.value(),
                    .figure = format_duration(step.step - sum),
                    .outline = 0});
  }
  double longest = 0;
  for (const BarRow& row : rows) longest = std::max(longest, row.parts.front().value);
  Svg svg("critical", kWidth, 12 + kBarRow * static_cast<double>(rows.size()), picture.heading,
          picture.caption);
  draw_bars(svg, rows, longest, {.labels = 180, .figures = 66, .top = 8});
  picture.svg = std::move(svg).finish();
  return picture;
}

}  // namespace longhaul
