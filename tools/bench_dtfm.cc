#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "planner/dtfm_instance_file.h"
#include "planner/dtfm_solve.h"
#include "tools/bench.h"

namespace longhaul {
namespace {

const std::string kGolden = LONGHAUL_SOURCE_DIR "/tests/golden/dtfm";

struct Case {
  const char* name;
  bool published;
  double seconds_max;  // to the best known cost, on one core
  double gap_max;      // of the cost over the lower bound; 0: proven optimal
};
constexpr Case kCases[] = {
    {"case0_datacenter", true, 1, 0},
    {"case1_spot", true, 1, 0},
    {"case2_multidc", true, 1, 0},
    {"case3_regional", true, 1, 0},
    {"case4_worldwide", true, 1, 0},
    {"hardA_worldwide8_uneven", false, 10, 0},
    {"case4_worldwide_N128_way8", false, 5, 0.02},
    {"case4_worldwide_N256_way8", false, 5, 0.16},
    {"case4_worldwide_N512_way8", false, 5, 0.37},
};

struct Run {
  double cost = 0;
  double seconds = 0;
  double seconds_to_best = 0;
  std::int64_t evaluations = 0;
  double bound = 0;
  double gap = 0;
  std::string binding;
};

Run run_search(const DtfmInstance& instance, std::uint64_t seed, int threads) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Run run;
  double best = 0;
  DtfmSolveOptions options;
  options.search.seed = seed;
  options.search.threads = threads;
  options.search.on_round = [&](const DtfmProgress& progress) {
    if (progress.round > 1 && progress.best_total_s >= best) return;
    best = progress.best_total_s;
    run.seconds_to_best = elapsed();
  };
  const DtfmSolution found = dtfm_solve(instance, options);
  run.seconds = elapsed();
  run.bound = found.lower_bound_s;
  run.gap = found.gap();
  run.binding = found.binding;
  run.cost = found.cost.total_s;
  run.evaluations = found.evaluations;
  return run;
}

}  // namespace

int bench_dtfm(bool quick, int threads) {
  const nlohmann::json known =
      nlohmann::json::parse(std::ifstream(kGolden + "/best.json"), nullptr, false);
  if (!known.is_object()) {
    fmt::print(stderr, "error: {}/best.json is no JSON object\n", kGolden);
    return 2;
  }
  const std::string command =
      fmt::format("longhaul-bench dtfm{} --threads {}", quick ? " --quick" : "", threads);
  const std::string peer = "DT-FM cda948f and our annealer, tests/golden/dtfm/best.json";
  std::vector<BenchFigure> figures;
  fmt::print("{:<28}{:>5}{:>16}{:>16}{:>10}{:>14}{:>8}  {:<13}{:>7}{:>10}{:>13}\n", "instance",
             "seed", "cost, s", "best known, s", "ratio", "bound, s", "gap", "holds it", "s",
             "s to best", "evaluations");
  for (const Case& item : kCases) {
    if (quick && !item.published) continue;
    const auto instance = load_dtfm_instance(kGolden, item.name);
    if (!instance) {
      fmt::print(stderr, "{}\n", instance.error().text());
      return 2;
    }
    const double target = known.value(item.name, 0.0);
    double worst_cost = 0;
    double worst_gap = 0;
    std::vector<double> seconds;
    const std::uint64_t seeds = quick ? 1 : 5;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const Run run = run_search(*instance, seed, threads);
      fmt::print(
          "{:<28}{:>5}{:>16.9f}{:>16.9f}{:>10.6f}{:>14.6f}{:>6.2f} %  "
          "{:<13}{:>7.2f}{:>10.2f}{:>13}\n",
          item.name, seed, run.cost, target, run.cost / target, run.bound, 100 * run.gap,
          run.binding, run.seconds, run.seconds_to_best, run.evaluations);
      worst_cost = std::max(worst_cost, run.cost);
      worst_gap = std::max(worst_gap, run.gap);
      seconds.push_back(run.seconds_to_best);
    }
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2];
    const std::string name = item.name;
    figures.push_back({name + " cost", worst_cost, "s", target, "lower",
                       worst_cost <= target * (1 + 1e-12), peer, command});
    figures.push_back({name + " gap to the bound", 100 * worst_gap, "%", 100 * item.gap_max,
                       "lower", worst_gap <= item.gap_max, "own target", command});
    figures.push_back({name + " time to best", median, "s", item.seconds_max, "lower",
                       median <= item.seconds_max, "own target", command});
  }
  fmt::print("\n");
  const Result<std::vector<BenchFigure>> steps = dtfm_steps(quick, threads, command);
  if (!steps) {
    fmt::print(stderr, "{}\n", steps.error().text());
    return 2;
  }
  figures.insert(figures.end(), steps->begin(), steps->end());
  return report("dtfm", figures);
}

}  // namespace longhaul
