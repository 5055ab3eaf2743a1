// Suite `simgrid`: our flow network against SimGrid, on the same platforms and flows in the same
// model. Processor time of the simulation proper on both sides, alternating, medians.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/median.h"
#include "tools/bench.h"
#include "tools/simgrid_flows.h"

namespace longhaul {
namespace {

constexpr const char* kCommand = "tools/bench simgrid";
constexpr double kDifferenceMax = 1e-6;
constexpr double kRatioMin = 5;

// Each number of hosts once with few flows at once and once with links that are full for long.
struct Load {
  SceneSize size;
  bool is_heavy = false;
};
constexpr Load kLoads[] = {
    {{64, 8, 64'000, 7'000}, false},   {{64, 8, 64'000, 3'900}, true},
    {{256, 16, 16'000, 500}, false},   {{256, 16, 16'000, 300}, true},
    {{1'024, 32, 10'000, 200}, false}, {{1'024, 32, 10'000, 50}, true},
};

/// Equal ends on random platforms.
Result<BenchFigure> equality(bool quick) {
  const int platforms = quick ? 10 : 50;
  double worst = 0;
  std::string version;
  for (int seed = 1; seed <= platforms; ++seed) {
    const FlowScene scene = small_random_scene(static_cast<std::uint64_t>(seed));
    LH_ASSIGN(const SimgridRun theirs, run_flows_in_simgrid(scene, {}));
    if (seed == 1) {
      for (const std::string& option : theirs.options) fmt::print(stderr, "SimGrid: {}\n", option);
    }
    const FlowRun ours = run_flows(scene);
    worst = std::max(worst, worst_relative_difference(scene, ours, theirs));
    version = theirs.version;
  }
  return BenchFigure{fmt::format("worst difference of a flow's time, {} platforms", platforms),
                     worst,
                     "",
                     kDifferenceMax,
                     "lower",
                     worst <= kDifferenceMax,
                     "SimGrid " + version,
                     kCommand};
}

/// Flows a second: ours, SimGrid's as it is by default and with the update that suits such loads
/// better, and ours by the faster of these.
Result<void> add_speed(const Load& load, bool quick, std::vector<BenchFigure>& figures) {
  const int repeats = quick ? 3 : 5;
  const FlowScene scene = random_scene(load.size, 1);
  std::vector<double> ours_s, lazy_s, full_s;
  double at_once = 0;
  double worst = 0;
  std::string peer;
  for (int i = 0; i < repeats; ++i) {
    const FlowRun ours = run_flows(scene);
    LH_ASSIGN(const SimgridRun lazy, run_flows_in_simgrid(scene, {.updates_all = false}));
    LH_ASSIGN(const SimgridRun full, run_flows_in_simgrid(scene, {.updates_all = true}));
    ours_s.push_back(ours.processor_s);
    lazy_s.push_back(lazy.processor_s);
    full_s.push_back(full.processor_s);
    at_once = mean_flows_at_once(scene, ours);
    worst = std::max(worst, worst_relative_difference(scene, ours, lazy));
    peer = "SimGrid " + lazy.version;
  }
  const double flows = load.size.flows;
  const std::string name =
      fmt::format("{} hosts, {} at once", load.size.hosts, std::lround(at_once));
  const auto add = [&](const std::string& what, double value, double target, const char* better,
                       const char* unit) {
    const bool holds = better[0] == 'h' ? value >= target : value <= target;
    figures.push_back({name + ": " + what, value, unit, target, better, holds, peer, kCommand});
  };
  const double ours = flows / median(ours_s);
  const double lazy = flows / median(lazy_s);
  const double full = flows / median(full_s);
  fmt::print(stderr, "{}, {} flows: {:.0f} flows/s; {} {:.0f}, with optim:Full {:.0f}\n", name,
             load.size.flows, ours, peer, lazy, full);
  add("ours", ours, ours, "higher", "1/s");
  add("SimGrid, default", lazy, lazy, "higher", "1/s");
  add("SimGrid, optim:Full", full, full, "higher", "1/s");
  add("ours / the faster", ours / std::max(lazy, full), kRatioMin, "higher", "");
  add("worst difference", worst, kDifferenceMax, "lower", "");
  return {};
}

Result<std::vector<BenchFigure>> measure(bool quick) {
  std::vector<BenchFigure> figures;
  LH_ASSIGN(const BenchFigure equal, equality(quick));
  figures.push_back(equal);
  for (const Load& load : kLoads) {
    if (quick && load.is_heavy) continue;
    LH_TRY(add_speed(load, quick, figures));
  }
  return figures;
}

}  // namespace

int bench_simgrid(bool quick, int /*threads*/) {
  // It says itself why it could not.
  if (std::system("tools/simgrid >&2") != 0) return 1;
  const Result<std::vector<BenchFigure>> figures = measure(quick);
  if (figures) return report("simgrid", *figures);
  fmt::print(stderr, "error: {}\n", figures.error().text());
  return 1;
}

}  // namespace longhaul
