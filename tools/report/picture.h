// The pictures of a report, one .cc each. Pure functions of what was planned, simulated and
// measured: same input, same bytes; any thread.
//
// Colours are classes: the page's style sheet (page.cc) gives each its colour in light and dark.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"
#include "netsim/step_simulation.h"
#include "planner/explanation.h"
#include "tools/report/run_data.h"
#include "tools/what_if.h"

namespace longhaul {

struct Picture {
  std::string id;  // unique in a page
  std::string heading;
  std::string svg;       // empty: there is nothing to draw, and the caption says why
  std::string caption;   // plain text
  bool is_wide = false;  // needs the whole width of a page; others stand side by side
};

/// What is planned, on what.
struct Planned {
  const Topology& topology;
  const Job& job;
  const Plan& plan;
};

/// Sites and links on the world, or in a circle where too few have coordinates.
Picture map_picture(const Planned& planned, const StepResult& step, const Explanation& explanation);

/// What every tasklet does in the step; with slices of a measured step, those below.
Picture gantt_picture(const Planned& planned, const StepResult& step,
                      std::span<const TimelineSlice> measured);

/// How full links and finite uplinks and downlinks are over the step, the busiest first.
Picture links_picture(const Planned& planned, const StepResult& step);

/// Where each stage's time goes, its pipelines averaged; with a run, what all devices measured.
Picture stages_picture(const Planned& planned, const StepResult& step, const RunData* run);

/// What the end of the step waited for; without a heading where the simulation does not say.
Picture critical_picture(const Planned& planned, const StepResult& step);

/// What each device holds at its peak, against its size.
Picture memory_picture(const Planned& planned);

/// A plan that was simulated: its time against its price.
struct PricedPlan {
  double step_s = 0;
  double usd_per_billion_tokens = 0;
  std::string grid;  // "4 x 2"
  bool is_in_front = false;
  bool is_knee = false;
};
Picture pareto_picture(std::span<const PricedPlan> plans, const PricedPlan& own);

/// A table of what-ifs; `id` makes it one of several.
Picture sweep_picture(const WhatIfTable& table, std::string_view id);

/// One value of a run over its steps.
struct SeriesLine {
  std::string name;
  std::vector<Point> points;  // step, value
  bool has_marks = false;     // few points, each is shown
};
struct SeriesLevel {
  std::string name;
  double value = 0;
};
struct SeriesChart {
  std::string id;
  std::string heading;
  std::string unit;
  std::vector<SeriesLine> lines;
  std::vector<SeriesLevel> levels;  // straight lines across
  bool from_zero = false;
};
/// Loss, tokens a second, and the time of a step.
std::vector<SeriesChart> run_charts(const RunData& run);
Picture series_picture(const SeriesChart& chart);

}  // namespace longhaul
