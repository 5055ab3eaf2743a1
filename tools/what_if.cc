#include "tools/what_if.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/quantity.h"
#include "netsim/csv_text.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

std::string place_text(const Topology& topology, const CriticalPart& part) {
  const auto site = [&](int s) { return topology.sites[static_cast<std::size_t>(s)].name; };
  const auto device = [&](std::string_view what) {
    return fmt::format("{} of {} in {}", what, topology.kind_of(part.from).name,
                       site(topology.site_of(part.from)));
  };
  const auto link = [&](std::string_view what) {
    return part.from == part.to ? fmt::format("{} inside {}", what, site(part.from))
                                : fmt::format("{} {} -> {}", what, site(part.from), site(part.to));
  };
  switch (part.kind) {
    case CriticalKind::kCompute:
      return device("compute");
    case CriticalKind::kUpdate:
      return device("update");
    case CriticalKind::kBandwidth:
      return link("bandwidth");
    case CriticalKind::kLatency:
      return link("latency");
  }
  return "";
}

using Group = std::pair<std::string, double>;  // name, seconds

std::vector<Group> groups_of(const Topology& topology, const StepResult& step) {
  std::vector<Group> groups;
  for (const CriticalPart& part : step.critical) {
    const std::string name = place_text(topology, part);
    const auto known = std::ranges::find(groups, name, &Group::first);
    if (known == groups.end()) {
      groups.emplace_back(name, part.time.value());
    } else {
      known->second += part.time.value();
    }
  }
  if (!groups.empty() || step.tasklets.empty()) return groups;
  groups = {{"compute", 0}, {"transfer", 0}, {"waiting for other stages", 0},
            {"reduce", 0},  {"commit", 0},   {"update", 0}};
  const auto tasklets = static_cast<double>(step.tasklets.size());
  for (const TaskletTimes& times : step.tasklets) {
    const std::array parts = {times.compute, times.transfer, times.bubble,
                              times.reduce,  times.commit,   times.update};
    for (std::size_t i = 0; i < parts.size(); ++i) groups[i].second += parts[i].value() / tasklets;
  }
  return groups;
}

/// Why a row has no step, as one line.
std::string joined(const std::vector<std::string>& notes) {
  return fmt::format("{}", fmt::join(notes, "; "));
}

}  // namespace

std::string binding_text(const Topology& topology, const StepResult& step) {
  const std::vector<Group> groups = groups_of(topology, step);
  if (groups.empty() || step.step <= Seconds(0)) return "";
  const auto largest = std::ranges::max_element(groups, {}, &Group::second);
  return fmt::format("{}, {:.0f} % of the step", largest->first,
                     100 * largest->second / step.step.value());
}

std::string what_if_text(const WhatIfTable& table) {
  std::vector<std::vector<std::string>> cells = {
      {"change", "step", "vs as it is", "tokens/s", "USD/1e9 tokens", "binding"}};
  const double base = table.rows.empty() ? 0 : table.rows.front().step.value();
  for (const WhatIfRow& row : table.rows) {
    if (!row.problem.empty()) {
      cells.push_back({row.change, "none", "", "", "", row.problem});
      continue;
    }
    const bool is_first = &row == &table.rows.front();
    cells.push_back({row.change, format_duration(row.step),
                     is_first ? "" : fmt::format("{:+.1f} %", 100 * (row.step.value() / base - 1)),
                     fmt::format("{:.0f}", row.tokens_per_s),
                     row.usd_per_billion_tokens ? fmt::format("{:.2f}", *row.usd_per_billion_tokens)
                                                : "no prices",
                     row.binding});
  }
  // The last column is text: to the left.
  std::size_t widest = 0;
  for (const auto& row : cells) widest = std::max(widest, row.back().size());
  for (auto& row : cells) row.back().resize(widest, ' ');
  std::string out = aligned(cells);

  // A note of many rows is said once.
  std::vector<std::pair<std::string, std::vector<const WhatIfRow*>>> notes;
  for (const WhatIfRow& row : table.rows) {
    for (const std::string& note : row.notes) {
      auto known = std::ranges::find(notes, note, [](const auto& entry) { return entry.first; });
      if (known == notes.end()) {
        notes.push_back({note, {}});
        known = notes.end() - 1;
      }
      known->second.push_back(&row);
    }
  }
  if (!notes.empty()) out += "\n";
  for (const auto& [note, rows] : notes) {
    // With one changed row it is clear whose note it is.
    const std::string whose =
        table.rows.size() <= 2 ? ""
        : rows.size() == 1
            ? fmt::format(" [{}]", rows.front()->change)
            : fmt::format(" [{}, and {} more]", rows.front()->change, rows.size() - 1);
    out += fmt::format("note: {}{}\n", note, whose);
  }
  return out;
}

std::string what_if_json(const WhatIfTable& table) {
  using Json = nlohmann::ordered_json;
  Json out = {{"version", 1},
              {"axis", table.axis},
              {"unit", table.unit},
              {"log", table.is_log},
              {"rows", Json::array()}};
  for (const WhatIfRow& row : table.rows) {
    Json entry = {{"change", row.change}};
    if (row.x) entry["x"] = *row.x;
    if (!row.problem.empty()) {
      entry["problem"] = row.problem;
    } else {
      entry["step_s"] = row.step.value();
      entry["tokens_per_s"] = row.tokens_per_s;
      entry["usd_per_billion_tokens"] = nullptr;
      if (row.usd_per_billion_tokens) entry["usd_per_billion_tokens"] = *row.usd_per_billion_tokens;
      entry["binding"] = row.binding;
      entry["replanned"] = row.replanned;
    }
    if (!row.notes.empty()) entry["notes"] = row.notes;
    out["rows"].push_back(std::move(entry));
  }
  // Names of files and of a command line may be no UTF-8.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string what_if_csv(const WhatIfTable& table) {
  std::string out =
      "change,x,unit,step_s,tokens_per_s,usd_per_billion_tokens,binding,replanned,problem,notes\n";
  for (const WhatIfRow& row : table.rows) {
    const bool has_step = row.problem.empty();
    const std::vector<std::string> fields = {
        csv_field(row.change),
        row.x ? format_exact(*row.x) : "",
        row.x ? csv_field(table.unit) : "",
        has_step ? format_exact(row.step.value()) : "",
        has_step ? format_exact(row.tokens_per_s) : "",
        has_step && row.usd_per_billion_tokens ? format_exact(*row.usd_per_billion_tokens) : "",
        csv_field(row.binding),
        has_step ? (row.replanned ? "true" : "false") : "",
        csv_field(row.problem),
        csv_field(joined(row.notes))};
    out += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return out;
}

}  // namespace longhaul
