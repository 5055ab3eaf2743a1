// Suite `planner`: our plan against the other policies on the shipped clusters, and how long the
// search takes.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "core/median.h"
#include "netsim/cluster_file.h"
#include "planner/baselines.h"
#include "planner/search.h"
#include "tools/bench.h"

namespace longhaul {
namespace {

constexpr int kRandomPlans = 20;
constexpr double kRankOrderTarget = 0.75;  // our simulated step over rank order's

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<std::vector<BenchFigure>> compare_policies(const std::string& name, int threads) {
  LH_ASSIGN(const Topology topology,
            load_cluster(std::string(LONGHAUL_SOURCE_DIR "/configs/clusters/") + name + ".yaml"));
  LH_ASSIGN(const Job job, load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/gpt3-xl.yaml"));
  const auto start = std::chrono::steady_clock::now();
  LH_ASSIGN(const SearchResult found, search_plan(topology, job, {.threads = threads}));
  const double search_s = seconds_since(start);
  const double step_s = found.best.step.step.value();

  const PolicyOptions options{.seed = 1, .threads = threads};
  LH_ASSIGN(const JudgedPlan ranked, rank_order_plan(topology, job, options));
  LH_ASSIGN(const std::vector<JudgedPlan> random,
            random_plans(topology, job, options, ranked.plan, kRandomPlans));
  std::vector<double> steps;
  for (const JudgedPlan& judged : random) steps.push_back(judged.step.step.value());

  const std::string command = "tools/bench planner";
  std::vector<BenchFigure> figures;
  const auto ratio = [&](const std::string& peer, double peer_s, double target) {
    figures.push_back({name + " ours / " + peer, step_s / peer_s, "ratio", target, "lower",
                       step_s / peer_s <= target, fmt::format("{} {:.4g} s", peer, peer_s),
                       command});
  };
  for (const std::string_view peer : baseline_names()) {
    if (peer == "random") continue;  // below, many of them
    LH_ASSIGN(const JudgedPlan judged, baseline_plan(peer, topology, job, options));
    ratio(std::string(peer), judged.step.step.value(), peer == "rank-order" ? kRankOrderTarget : 1);
  }
  ratio("best random", *std::min_element(steps.begin(), steps.end()), 1);
  ratio("median random", median(steps), 1);
  const double tier_ratio = step_s / found.best.closed_form_s;
  figures.push_back({name + " T3 / T1", tier_ratio, "ratio", 1.1, "lower", tier_ratio <= 1.1,
                     "the closed form", command});
  figures.push_back({name + " gap to bound", step_s / found.bound.seconds - 1, "ratio", 2, "lower",
                     step_s / found.bound.seconds - 1 <= 2, found.bound.name, command});
  figures.push_back({name + " search", search_s, "s", 30, "lower", search_s <= 30,
                     fmt::format("{} evaluations", found.evaluations), command});
  return figures;
}

int report_all(const std::string& suite,
               const std::vector<Result<std::vector<BenchFigure>>>& parts) {
  std::vector<BenchFigure> figures;
  for (const auto& part : parts) {
    if (!part) {
      fmt::print(stderr, "{}\n", part.error().text());
      return 2;
    }
    figures.insert(figures.end(), part->begin(), part->end());
  }
  return report(suite, figures);
}

}  // namespace

int bench_planner(bool quick, int threads) {
  std::vector<Result<std::vector<BenchFigure>>> parts = {compare_policies("eight-cities", threads)};
  if (!quick) parts.push_back(compare_policies("ten-cities", threads));
  return report_all("planner", parts);
}

}  // namespace longhaul
