// What devices hold at their peak, against their size.

#include <fmt/core.h>

#include <algorithm>

#include "core/model_math.h"
#include "core/quantity.h"
#include "tools/report/bars.h"
#include "tools/report/picture.h"

namespace longhaul {
namespace {

constexpr double kWidth = 440;
constexpr std::size_t kRowsMax = 16;

/// Devices of one stage and kind that need the same.
struct Group {
  int stage = 0;
  int kind = 0;
  int devices = 0;
  MemoryUse use;
  Bytes size;
};

std::vector<Group> groups_of(const Planned& planned) {
  const Plan& plan = planned.plan;
  const std::vector<MemoryUse> uses = memory_of(plan, planned.topology, planned.job);
  std::vector<Group> groups;
  for (int d = 0; d < plan.pipelines(); ++d) {
    for (int i = 0; i < plan.stages(); ++i) {
      const MemoryUse& use = uses[static_cast<std::size_t>(d * plan.stages() + i)];
      const int device = plan.device(d, i);
      const int kind = planned.topology.devices[static_cast<std::size_t>(device)].kind;
      const auto same = std::ranges::find_if(groups, [&](const Group& group) {
        return group.stage == i && group.kind == kind && group.use.total() == use.total();
      });
      if (same != groups.end()) {
        ++same->devices;
      } else {
        groups.push_back({i, kind, 1, use, planned.topology.kind_of(device).memory});
      }
    }
  }
  std::ranges::stable_sort(groups, std::greater(),
                           [](const Group& group) { return group.use.total() / group.size; });
  return groups;
}

}  // namespace

Picture memory_picture(const Planned& planned) {
  const std::vector<Group> groups = groups_of(planned);
  const std::size_t shown = std::min(groups.size(), kRowsMax);
  Picture picture{.id = "memory",
                  .heading = "Memory of the devices",
                  .svg = "",
                  .caption =
                      "At the peak of a step, in the frame of what a device has; the fullest "
                      "first.",
                  .is_wide = false};
  if (shown < groups.size())
    picture.caption += fmt::format(" {} of {} kinds of tasklets.", shown, groups.size());
  std::vector<BarRow> rows;
  double longest = 0;
  bool has_histories = false;
  for (std::size_t g = 0; g < shown; ++g) {
    const Group& group = groups[g];
    const MemoryUse& use = group.use;
    rows.push_back(
        {.label = fmt::format("stage {}, {}{}", group.stage,
                              group.devices > 1 ? fmt::format("{} ", group.devices) : "",
                              planned.topology.kinds[static_cast<std::size_t>(group.kind)].name),
         .parts = {{"states", use.states.value(), false, "weights and optimiser"},
                   {"activations", use.activations.value(), false, "activations"},
                   {"workspace", use.workspace.value(), false, "workspace"},
                   {"buffers", use.buffers.value(), false, "buffers of the network"},
                   {"reserved", use.reserved.value(), false, "runtime"}},
         .whole = group.size.value(),
         .figure = fmt::format("{:.0f} % of {}", 100 * (use.total() / group.size),
                               format_size(group.size)),
         .outline = group.size.value()});
    if (use.history > Bytes(0)) {
      has_histories = true;
      rows.back().parts.push_back(
          {"histories", use.history.value(), false, "histories of samples"});
    }
    longest = std::max({longest, group.size.value(), use.total().value()});
  }
  Svg svg("memory", kWidth, 8 + kBarRow * static_cast<double>(rows.size()) + 46, picture.heading,
          picture.caption);
  const double end = draw_bars(svg, rows, longest, {.labels = 146, .figures = 104, .top = 8});
  std::vector<LegendItem> items = {{"states", "weights, gradients, optimiser"},
                                   {"activations", "activations"},
                                   {"workspace", "workspace"},
                                   {"buffers", "buffers of the network"},
                                   {"reserved", "runtime"}};
  if (has_histories) items.push_back({"histories", "histories of samples"});
  draw_legend(svg, 4, end + 8, kWidth - 8, items);
  picture.svg = std::move(svg).finish();
  return picture;
}

}  // namespace longhaul
