#include "planner/pins.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "core/config_cursor.h"
#include "planner/problem.h"

namespace longhaul {
namespace {

std::string stage_text(int stage) {
  return stage == Pin::kLast ? "the last stage" : fmt::format("stage {}", stage);
}

/// `7` or `last`; nothing for another text.
std::optional<int> parse_stage(std::string_view text) {
  if (text == "last") return Pin::kLast;
  int stage = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), stage);
  if (error != std::errc() || end != text.data() + text.size() || stage < 0) return std::nullopt;
  return stage;
}

}  // namespace

Result<std::vector<Pin>> parse_pins(const std::vector<std::string>& texts, const Topology& topology,
                                    const std::vector<char>& admitted, int stages) {
  std::vector<Pin> pins;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    const std::optional<int> stage =
        equals == std::string::npos ? std::nullopt : parse_stage(text.substr(equals + 1));
    if (!stage) {
      return invalid(fmt::format("`{}` pins no device to a stage", text),
                     "DEVICE=STAGE, such as oregon-1/0=0 or oregon-1/0=last");
    }
    const std::string name = text.substr(0, equals);
    const int device = topology.find_device(name);
    if (device < 0) {
      std::vector<std::string> names;
      for (const Device& each : topology.devices) names.push_back(each.name);
      return invalid(fmt::format("cluster `{}` has no device `{}` to pin", topology.name, name),
                     did_you_mean(name, names));
    }
    if (admitted[static_cast<std::size_t>(device)] == 0) {
      return invalid(fmt::format("device `{}` is excluded and pinned", name),
                     "leave out one of the two");
    }
    if (stages > 0 && *stage >= stages) {
      return invalid(
          fmt::format("`{}` is pinned to stage {}, and plans have {} stages", name, *stage, stages),
          fmt::format("stages count from 0; the last is {}, or `last`", stages - 1));
    }
    const auto other = std::find_if(pins.begin(), pins.end(), [&](const Pin& pin) {
      const bool differ = stages > 0 ? pin.stage_of(stages) != Pin{device, *stage}.stage_of(stages)
                                     : pin.stage != *stage;
      const bool may_agree = stages == 0 && (pin.stage == Pin::kLast || *stage == Pin::kLast);
      return pin.device == device && differ && !may_agree;
    });
    if (other != pins.end()) {
      return invalid(fmt::format("`{}` is pinned to {} and to {}", name, stage_text(other->stage),
                                 stage_text(*stage)),
                     "a device runs one stage");
    }
    pins.push_back({device, *stage});
  }
  return pins;
}

std::string text_of(const std::vector<Pin>& pins, const Topology& topology) {
  std::string text;
  for (const Pin& pin : pins) {
    text += fmt::format("{}{} at {}", text.empty() ? " with " : ", ",
                        topology.devices[static_cast<std::size_t>(pin.device)].name,
                        stage_text(pin.stage));
  }
  return text;
}

bool allows(const PlanRules& rules, const Grid& grid, const Job& job) {
  std::map<int, int> stage_of;  // by device
  std::map<int, std::set<int>> devices_at;
  for (const Pin& pin : rules.pins) {
    const int stage = pin.stage_of(grid.stages);
    if (stage >= grid.stages || stage_of.try_emplace(pin.device, stage).first->second != stage) {
      return false;
    }
    devices_at[stage].insert(pin.device);
    if (devices_at[stage].size() > static_cast<std::size_t>(grid.pipelines)) return false;
  }
  return allows(rules.expressible, grid, job);
}

bool keeps(const PlanRules& rules, const Plan& plan, const Job& job) {
  for (const Pin& pin : rules.pins) {
    const int stage = pin.stage_of(plan.stages());
    const bool is_there =
        stage < plan.stages() && std::ranges::any_of(
                                     plan.devices,
                                     [&](const std::vector<int>& row) {
                                       return row[static_cast<std::size_t>(stage)] == pin.device;
                                     });
    if (!is_there) return false;
  }
  const bool is_sharded = std::ranges::all_of(plan.reductions, [](const Reduction& reduction) {
    return reduction.shape == ReduceShape::kSharded;
  });
  return (is_sharded || rules.any_all_reduce) && is_expressible(rules.expressible, plan, job);
}

}  // namespace longhaul
