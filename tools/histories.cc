#include "tools/histories.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/history_budget.h"
#include "core/quantity.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

/// Boundaries between the same sites that are alike.
struct Row {
  int site = 0;
  int other = 0;
  BoundaryHistory boundary;
  int count = 0;
};

std::vector<Row> rows_of(const Plan& plan, const Topology& topology, const Job& job) {
  std::vector<Row> rows;
  for (int d = 0; d < plan.pipelines(); ++d) {
    const auto boundaries = boundary_histories(plan, topology, job, d);
    for (int i = 0; i + 1 < plan.stages(); ++i) {
      const BoundaryHistory& boundary = boundaries[static_cast<std::size_t>(i)];
      if (boundary.samples == 0) continue;
      const int site = topology.site_of(plan.device(d, i));
      const int other = topology.site_of(plan.device(d, i + 1));
      const auto found = std::ranges::find_if(rows, [&](const Row& row) {
        return row.site == site && row.other == other && row.boundary == boundary;
      });
      if (found != rows.end()) {
        ++found->count;
      } else {
        rows.push_back({site, other, boundary, 1});
      }
    }
  }
  return rows;
}

const std::string& site_name(const Topology& topology, int site) {
  return topology.sites[static_cast<std::size_t>(site)].name;
}

bool knows_samples(const Job& job) {
  return job.history && job.history->samples > 0;
}

std::int64_t least_in_memory(const BoundaryHistory& boundary) {
  return std::min(boundary.in_memory[0], boundary.in_memory[1]);
}
std::int64_t most_in_memory(const BoundaryHistory& boundary) {
  return std::max(boundary.in_memory[0], boundary.in_memory[1]);
}

}  // namespace

std::string histories_text(const Plan& plan, const Topology& topology, const Job& job) {
  const std::vector<Row> rows = rows_of(plan, topology, job);
  if (rows.empty()) return "";
  const Bytes each = history_bytes(job.model);
  std::vector<std::vector<std::string>> table = {
      {"boundary", "count", "samples", "kept", "memory", "disk"}};
  for (const Row& row : rows) {
    const BoundaryHistory& boundary = row.boundary;
    const auto size = [&](std::int64_t count) {
      return format_size(static_cast<double>(count) * each);
    };
    table.push_back(
        {fmt::format("{} - {}", site_name(topology, row.site), site_name(topology, row.other)),
         fmt::format("{}", row.count),
         knows_samples(job) ? fmt::format("{}", boundary.samples) : "?",
         fmt::format("{}{}", knows_samples(job) ? "" : "up to ", boundary.capacity),
         size(most_in_memory(boundary)), size(boundary.capacity - least_in_memory(boundary))});
  }
  return fmt::format("histories at each end of a boundary, {} a sample{}\n", format_size(each),
                     knows_samples(job) ? ""
                                        : " (`samples` in the job's `compression.history` would "
                                          "say how many are needed)") +
         aligned(table);
}

std::string histories_json(const Plan& plan, const Topology& topology, const Job& job) {
  auto out = nlohmann::ordered_json::array();
  const double each = history_bytes(job.model).value();
  for (const Row& row : rows_of(plan, topology, job)) {
    const BoundaryHistory& boundary = row.boundary;
    nlohmann::ordered_json entry = {
        {"between", {site_name(topology, row.site), site_name(topology, row.other)}},
        {"boundaries", row.count}};
    if (knows_samples(job)) entry["samples"] = boundary.samples;
    entry["kept"] = boundary.capacity;
    entry["bytes_memory"] = static_cast<double>(most_in_memory(boundary)) * each;
    entry["bytes_disk"] = static_cast<double>(boundary.capacity - least_in_memory(boundary)) * each;
    out.push_back(std::move(entry));
  }
  return out.dump();
}

std::vector<std::string> history_lines(const RunSpec& spec) {
  HistoryUse most;
  double least_kept = 1;
  for (int d = 0; d < spec.plan.pipelines(); ++d) {
    const auto boundaries = histories_of(spec, d);
    for (const BoundaryHistory& boundary : boundaries) {
      if (boundary.samples == 0) continue;
      least_kept = std::min(least_kept, static_cast<double>(boundary.capacity) /
                                            static_cast<double>(boundary.samples));
    }
    for (int i = 0; i < spec.plan.stages(); ++i) {
      const HistoryUse use = history_use(spec.job.model, boundaries, i);
      if (use.memory + use.disk > most.memory + most.disk) most = use;
    }
  }
  std::vector<std::string> lines;
  if (most.memory + most.disk > Bytes(0)) {
    lines.push_back(fmt::format("histories: {} of memory and {} of disk at the fullest worker",
                                format_size(most.memory), format_size(most.disk)));
  }
  if (least_kept < 1) {
    lines.push_back(
        fmt::format("note: histories have room for {:.0f} % of the samples; the others "
                    "travel as on a first visit",
                    100 * least_kept));
  }
  const std::int64_t samples = spec.train.sequences();
  if (!lines.empty() && knows_samples(spec.job) && spec.job.history->samples != samples) {
    lines.push_back(
        fmt::format("note: the data has {} samples, and the plan was made for the {} of "
                    "the job's `compression.history`",
                    samples, spec.job.history->samples));
  }
  return lines;
}

std::string first_epoch_text(const Job& job, Seconds step) {
  return fmt::format("first epoch: step {}, its samples have no history yet and travel as {}\n",
                     format_duration(step),
                     name_of(job.history.value_or(HistorySettings{}).first_visit));
}

}  // namespace longhaul
