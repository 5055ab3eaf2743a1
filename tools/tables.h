// Text that the commands print: the plan, where the step goes, the busiest links. Same input, same
// text; no wall-clock times.
#pragma once

#include <string>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"
#include "netsim/step_simulation.h"

namespace longhaul {

/// Two lines that say what is planned: the cluster and the job.
std::string headline(const Topology& topology, const Job& job);

/// One column a stage: layers, in-flight depth, devices by site and by kind, and those left idle.
std::string plan_table(const Plan& plan, const Topology& topology);

/// Step time, tokens per second and price, on one line.
std::string summary(const Job& job, const StepResult& step);

/// Times of the tasklets of stages first..last, added up.
struct TaskletSum {
  TaskletTimes sum;
  int count = 0;
};
TaskletSum sum_of_tasklets(const Plan& plan, const StepResult& step, int first, int last);

/// One row a stage: where its time goes, as percent of the step, averaged over its pipelines; with
/// a last row for all.
std::string step_table(const Plan& plan, const StepResult& step);

/// The links between sites that carry most, with bytes of a step and the share of the step that
/// they need at the full rate of one flow.
std::string traffic_table(const Topology& topology, const StepResult& step, std::size_t rows);

/// Rows of cells under a header, columns aligned: the first to the left, the others to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

/// "523", "5.2k", "1.3M".
std::string count_text(double value);
/// "45 s", "2 min 10 s", "3 h 5 min", "2 d 4 h".
std::string time_left_text(double seconds);

}  // namespace longhaul
