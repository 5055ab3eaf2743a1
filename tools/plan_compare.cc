#include "tools/plan_compare.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/plan_choices.h"
#include "core/quantity.h"
#include "netsim/cluster_file.h"
#include "tools/command.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr std::size_t kNamesShown = 6;  // of the devices that came or went, a stage

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::vector<std::string>> device_names(const LoadedPlan& loaded) {
  std::vector<std::vector<std::string>> names;
  for (const std::vector<int>& pipeline : loaded.file.plan.devices) {
    names.emplace_back();
    for (const int device : pipeline) {
      names.back().push_back(loaded.topology.devices[static_cast<std::size_t>(device)].name);
    }
  }
  return names;
}

std::set<std::string> devices_of_stage(const std::vector<std::vector<std::string>>& names,
                                       std::size_t stage) {
  std::set<std::string> out;
  for (const std::vector<std::string>& pipeline : names) {
    if (stage < pipeline.size()) out.insert(pipeline[stage]);
  }
  return out;
}

/// Those of `from` that `other` lacks.
std::string missing_text(const std::set<std::string>& from, const std::set<std::string>& other) {
  std::vector<std::string> missing;
  std::ranges::set_difference(from, other, std::back_inserter(missing));
  if (missing.empty()) return "-";
  const std::size_t all = missing.size();
  missing.resize(std::min(all, kNamesShown));
  return fmt::format("{}{}", fmt::join(missing, ", "),
                     all > kNamesShown ? fmt::format(" and {} more", all - kNamesShown) : "");
}

/// The devices that each stage lost and got; empty where no stage did.
std::string moved_table(const std::vector<std::vector<std::string>>& before,
                        const std::vector<std::vector<std::string>>& after) {
  Rows rows = {{"devices of stage", "left", "came"}};
  const std::size_t stages = std::max(before.front().size(), after.front().size());
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::set<std::string> old_devices = devices_of_stage(before, stage);
    const std::set<std::string> new_devices = devices_of_stage(after, stage);
    if (old_devices == new_devices) continue;
    rows.push_back({fmt::format("{}", stage), missing_text(old_devices, new_devices),
                    missing_text(new_devices, old_devices)});
  }
  return rows.size() == 1 ? "" : aligned(rows);
}

const std::string& coordinator_of(const LoadedPlan& loaded) {
  return loaded.topology.sites[static_cast<std::size_t>(loaded.file.plan.coordinator_site)].name;
}

/// Choices beside grid and schedule by name: of both plans, empty where one has none.
std::map<std::string, std::pair<std::string, std::string>> choices_of(const LoadedPlan& before,
                                                                      const LoadedPlan& after) {
  std::map<std::string, std::pair<std::string, std::string>> choices;
  for (const auto& [name, text] : shown_choices(before.file.plan, before.topology, before.job)) {
    choices[name].first = text;
  }
  for (const auto& [name, text] : shown_choices(after.file.plan, after.topology, after.job)) {
    choices[name].second = text;
  }
  return choices;
}

std::string list_text(const std::vector<int>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

}  // namespace

Result<LoadedPlan> load_plan_with_inputs(const std::string& path) {
  LoadedPlan loaded;
  loaded.path = path;
  LH_ASSIGN(const PlanInputs inputs, load_plan_inputs(path));
  LH_ASSIGN(loaded.topology, load_cluster(resolve_from(path, inputs.cluster_path)));
  LH_ASSIGN(loaded.job, load_job(resolve_from(path, inputs.job_path)));
  LH_ASSIGN(loaded.file, load_plan(path, loaded.topology, loaded.job));
  return loaded;
}

PlanComparison compare_plans(const LoadedPlan& before, const LoadedPlan& after) {
  const Plan& a = before.file.plan;
  const Plan& b = after.file.plan;
  const auto names_before = device_names(before);
  const auto names_after = device_names(after);

  Rows rows = {{"", before.path, after.path}};
  const auto add = [&rows](const char* name, const std::string& left, const std::string& right) {
    if (left != right) rows.push_back({name, left, right});
  };
  const auto grid = [](const Plan& plan) {
    return fmt::format("{} stages x {} pipelines", plan.stages(), plan.pipelines());
  };
  add("grid", grid(a), grid(b));
  add("layers", list_text(a.layers), list_text(b.layers));
  add("micro-batch", fmt::format("{}", a.micro_batch), fmt::format("{}", b.micro_batch));
  add("micro-batches", list_text(a.micro_batches), list_text(b.micro_batches));
  add("schedule", std::string(name_of(a.family)), std::string(name_of(b.family)));
  add("in flight", list_text(a.in_flight), list_text(b.in_flight));
  if (a.orders.size() == b.orders.size()) {
    std::vector<int> differ;
    for (std::size_t i = 0; i < a.orders.size(); ++i) {
      if (a.orders[i] != b.orders[i]) differ.push_back(static_cast<int>(i));
    }
    if (!differ.empty()) add("orders", "", "differ at stages " + list_text(differ));
  }
  add("coordinator", coordinator_of(before), coordinator_of(after));
  for (const auto& [name, texts] : choices_of(before, after)) {
    const auto& [left, right] = texts;
    add(name.c_str(), left.empty() ? "-" : left, right.empty() ? "-" : right);
  }
  const std::string moved = moved_table(names_before, names_after);
  const bool has_same_devices = names_before == names_after;

  PlanComparison out;
  out.same = rows.size() == 1 && has_same_devices;
  if (out.same) out.text = fmt::format("the same plan: {}\n", grid(a));
  // Step times are no part of the plan, yet what people ask for next.
  const auto step = [](const LoadedPlan& loaded) {
    const double seconds = loaded.file.predicted.step_s;
    return seconds > 0 ? format_duration(Seconds(seconds)) : std::string("not predicted");
  };
  rows.push_back({"predicted step", step(before), step(after)});
  out.text += aligned(rows);
  if (!has_same_devices) {
    out.text +=
        moved.empty() ? "\nevery stage has the same devices, in other pipelines\n" : "\n" + moved;
  }
  const auto note = [&out](const char* what, std::uint64_t left, std::uint64_t right) {
    if (left != right) out.text += fmt::format("note: the plans are for another {}\n", what);
  };
  note("cluster, or another state of it", before.topology.hash, after.topology.hash);
  note("job, or another state of it", before.job.hash, after.job.hash);
  return out;
}

}  // namespace longhaul
