// What every plan of a search must keep to: what another trainer can express, and devices that a
// person has pinned to a stage, because the data lies there or a licence binds it.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "planner/expressible.h"

namespace longhaul {

/// The device is used, and at this stage.
struct Pin {
  static constexpr int kLast = -1;
  int device = 0;
  int stage = 0;  // or kLast

  int stage_of(int stages) const { return stage == kLast ? stages - 1 : stage; }
};

struct PlanRules {
  Expressible expressible = {};
  std::vector<Pin> pins = {};
  /// Ring and hierarchical all-reduces as well, which the executor does not run yet.
  bool any_all_reduce = false;
};

/// Pins from `oregon-1/0=0` or `oregon-1/0=last`. `admitted`: by device; `stages`: of every plan,
/// 0: any. Errors (kInvalid): no such text, a device that the cluster does not have (with a guess)
/// or that is excluded, a stage that `stages` does not have, a device at two stages.
Result<std::vector<Pin>> parse_pins(const std::vector<std::string>& texts, const Topology& topology,
                                    const std::vector<char>& admitted, int stages);

/// " with oregon-1/0 at stage 0", for messages; empty without pins.
std::string text_of(const std::vector<Pin>& pins, const Topology& topology);

/// Whether the grid has such plans; it must have every pinned stage, with room for all devices that
/// are pinned to it.
bool allows(const PlanRules& rules, const Grid& grid, const Job& job);

/// Whether the plan keeps to them.
bool keeps(const PlanRules& rules, const Plan& plan, const Job& job);

}  // namespace longhaul
