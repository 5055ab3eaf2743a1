// Suite `order`: whether runs confirm the order that the simulator gives plans. On ten small random
// clusters a tiny GPT is planned by our search and by the best baseline there; both
// plans are carried out with links and devices emulated, and their steps are compared.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/median.h"
#include "netsim/cluster_file.h"
#include "planner/baselines.h"
#include "planner/search.h"
#include "tools/bench.h"
#include "tools/bench_runs.h"
#include "tools/random_cluster.h"

namespace longhaul {
namespace {

constexpr int kClusters = 10;
constexpr int kSteps = 8;
constexpr double kErrorMax = 0.10;  // of a measured step to its simulated one

// demo-gpt for a few steps.
constexpr const char* kJob = R"(schema: longhaul/job/1
name: order-gpt
model: {family: gpt2, layers: 8, width: 128, heads: 4, context: 64, vocabulary: 256}
batch: {global: 64, micro_batch: auto}
precision: fp32
compression: {activations: bf16, gradients: bf16}
training: {data: data, steps: 100, validation: {sequences: 32}}
)";

struct Pair {
  std::string cluster;
  std::string baseline;  // by name
  EmulatedRun ours;
  EmulatedRun other;
  double gain_simulated() const { return other.predicted_s / ours.predicted_s; }
  double gain_measured() const { return other.measured_s / ours.measured_s; }
  bool is_same_order() const { return (gain_simulated() >= 1) == (gain_measured() >= 1); }
  bool counts() const { return ours.counts() && other.counts(); }
  double error() const {
    return std::max(std::abs(ours.measured_s / ours.predicted_s - 1),
                    std::abs(other.measured_s / other.predicted_s - 1));
  }
};

/// The baseline whose plan simulates fastest. Where it found ours, or one as fast, there is no
/// order to confirm, and the next counts.
Result<std::string> best_baseline(const Topology& topology, const Job& job, int threads) {
  constexpr double kTie = 0.02;
  LH_ASSIGN(const SearchResult ours, search_plan(topology, job, {.seed = 1, .threads = threads}));
  std::string best;
  double least = 0;
  for (const std::string_view name : baseline_names()) {
    const Result<JudgedPlan> found =
        baseline_plan(name, topology, job, {.seed = 1, .threads = threads});
    if (!found) continue;
    const double step = found->step.step.value();
    if (std::abs(step / ours.best.step.step.value() - 1) < kTie) continue;
    if (!best.empty() && step >= least) continue;
    best = name;
    least = step;
  }
  if (best.empty()) return infeasible("no baseline has another plan for " + topology.name);
  return best;
}

Result<Pair> compare(const BenchRuns& runs, const std::string& job_path, std::uint64_t seed,
                     int threads) {
  const std::string name = fmt::format("small-{}", seed);
  LH_ASSIGN(const std::string cluster, runs.write(name + ".yaml", small_cluster_text(seed)));
  LH_ASSIGN(const Topology topology, load_cluster(cluster));
  LH_ASSIGN(const Job job, load_job(job_path));
  Pair pair;
  pair.cluster = name;
  LH_ASSIGN(pair.baseline, best_baseline(topology, job, threads));
  LH_ASSIGN(const std::string ours,
            runs.plan(cluster, job_path, "search", name + "-ours", threads));
  LH_ASSIGN(const std::string other,
            runs.plan(cluster, job_path, pair.baseline, name + "-baseline", threads));
  LH_ASSIGN(pair.ours, runs.launch_in_time(ours, name + "-ours", kSteps));
  LH_ASSIGN(pair.other, runs.launch_in_time(other, name + "-baseline", kSteps));
  fmt::print(
      "{:<10}{:>2} devices of {} kinds in {} sites{:>11}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}{:>9.3f}"
      "{:>9.3f}{:>7.2f} %  {}{}\n",
      name, topology.device_count(), topology.kinds.size(), topology.site_count(), pair.baseline,
      pair.ours.predicted_s, pair.ours.measured_s, pair.other.predicted_s, pair.other.measured_s,
      pair.gain_simulated(), pair.gain_measured(), 100 * std::max(pair.ours.late, pair.other.late),
      pair.is_same_order() ? "same order" : "OTHER ORDER", pair.counts() ? "" : ", does not count");
  std::fflush(stdout);
  return pair;
}

Result<std::vector<BenchFigure>> measure(int clusters, int threads, const std::string& command) {
  LH_ASSIGN(const BenchRuns runs, BenchRuns::prepare("order"));
  LH_ASSIGN(const std::string job, runs.write("job.yaml", kJob));
  fmt::print("{:<34}{:>17}{:>18}{:>18}{:>18}\n{:>51}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "",
             "best baseline", "ours, s", "its, s", "its / ours", "", "simul.", "measur.", "simul.",
             "measur.", "simul.", "measur.");
  int same = 0;
  int late = 0;
  std::string late_names = "none";
  double worst = 0;
  std::string worst_name;
  std::vector<double> gains;
  for (int seed = 1; seed <= clusters; ++seed) {
    LH_ASSIGN(const Pair pair, compare(runs, job, static_cast<std::uint64_t>(seed), threads));
    if (!pair.counts()) late_names = late++ == 0 ? pair.cluster : late_names + ", " + pair.cluster;
    same += pair.is_same_order() ? 1 : 0;
    gains.push_back(pair.gain_measured());
    if (pair.error() <= worst) continue;
    worst = pair.error();
    worst_name = pair.cluster;
  }
  const double gain = median(gains);
  return std::vector<BenchFigure>{
      {"clusters with the simulated order", static_cast<double>(same), "",
       static_cast<double>(clusters), "higher", same == clusters, fmt::format("of {}", clusters),
       command},
      {"worst |measured / simulated - 1|", worst, "ratio", kErrorMax, "lower", worst <= kErrorMax,
       worst_name, command},
      {"median best baseline / ours, measured", gain, "ratio", 1, "higher", gain >= 1, "", command},
      {"clusters with a late run, which does not count", static_cast<double>(late), "", 0, "lower",
       late == 0, late_names, command}};
}

}  // namespace

int bench_order(bool quick, int threads) {
  const auto figures = measure(quick ? 2 : kClusters, threads,
                               quick ? "tools/bench order --quick" : "tools/bench order");
  if (!figures) {
    fmt::print(stderr, "{}\n", figures.error().text());
    return 1;
  }
  return report("order", *figures);
}

}  // namespace longhaul
