// Suite `fidelity`: how well the simulator predicts a run. demo-gpt on eight-servers is planned by
// the search and in rank order, each plan is carried out with links and devices emulated, and its
// measured step is held against the predicted one.
#include <fmt/core.h>

#include "executor/storage/real_storage.h"
#include "tools/bench.h"
#include "tools/bench_runs.h"

namespace longhaul {
namespace {

constexpr double kRatioMin = 0.90, kRatioMax = 1.10;  // of measured to predicted
constexpr double kRankOrderTarget = 0.75;             // our measured step over rank order's

/// The demo's job with the suite's data.
Result<std::string> write_job(const BenchRuns& runs) {
  RealStorage storage;
  const std::string demo_job = LONGHAUL_SOURCE_DIR "/configs/jobs/demo-gpt.yaml";
  LH_ASSIGN(std::string job, read_text(storage, demo_job, 1 << 20));
  const std::string demo_data = "../../build/demo/data";
  const std::size_t at = job.find(demo_data);
  if (at == std::string::npos) return failed(demo_job + " does not name the demo's data");
  return runs.write("job.yaml", job.replace(at, demo_data.size(), "data"));
}

void add_figures(const std::string& policy, const EmulatedRun& run,
                 std::vector<BenchFigure>& figures) {
  const std::string command = "tools/bench fidelity";
  const double ratio = run.measured_s / run.predicted_s;
  const std::string what =
      fmt::format("predicted {:.4g} s, measured {:.4g} s", run.predicted_s, run.measured_s);
  figures.push_back({policy + " measured / predicted, at most", ratio, "ratio", kRatioMax, "lower",
                     ratio <= kRatioMax, what, command});
  figures.push_back({policy + " measured / predicted, at least", ratio, "ratio", kRatioMin,
                     "higher", ratio >= kRatioMin, what, command});
  figures.push_back({policy + " late", run.late, "part", kLateMax, "lower", run.late <= kLateMax,
                     "of what was emulated", command});
}

Result<std::vector<BenchFigure>> measure(bool quick, int threads) {
  LH_ASSIGN(const BenchRuns runs, BenchRuns::prepare("fidelity"));
  LH_ASSIGN(const std::string job, write_job(runs));
  const auto run_policy = [&](const std::string& policy, int steps) -> Result<EmulatedRun> {
    LH_ASSIGN(const std::string plan,
              runs.plan(LONGHAUL_SOURCE_DIR "/configs/clusters/eight-servers.yaml", job, policy,
                        policy, threads));
    return runs.launch(plan, policy, steps);
  };
  std::vector<BenchFigure> figures;
  LH_ASSIGN(const EmulatedRun ours, run_policy("search", quick ? 12 : 25));
  add_figures("search", ours, figures);
  if (quick) return figures;
  LH_ASSIGN(const EmulatedRun ranked, run_policy("rank-order", 25));
  add_figures("rank-order", ranked, figures);
  const double ratio = ours.measured_s / ranked.measured_s;
  figures.push_back({"search / rank-order, measured", ratio, "ratio", kRankOrderTarget, "lower",
                     ratio <= kRankOrderTarget,
                     fmt::format("predicted {:.4g}", ours.predicted_s / ranked.predicted_s),
                     "tools/bench fidelity"});
  return figures;
}

}  // namespace

int bench_fidelity(bool quick, int threads) {
  const auto figures = measure(quick, threads);
  if (!figures) {
    fmt::print(stderr, "{}\n", figures.error().text());
    return 1;
  }
  return report("fidelity", *figures);
}

}  // namespace longhaul
