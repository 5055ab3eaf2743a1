// Suite `fidelity`: how well the simulator predicts a run. demo-gpt on eight-servers is planned by
// the search and in rank order, each plan is carried out by the `longhaul` beside this program with
// links and devices emulated, and its measured step is held against the predicted one.
//
// Runs use the whole machine, and another program's work shows in the figures: late completions say
// how much. What is trained on is a made-up text, since times do not depend on it.
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/file.h"
#include "core/rng.h"
#include "executor/storage/real_storage.h"
#include "tools/bench.h"
#include "tools/run_result.h"

namespace longhaul {
namespace {

constexpr std::size_t kTextBytes = 1'000'000;
constexpr double kRatioMin = 0.90, kRatioMax = 1.10;  // of measured to predicted
constexpr double kLateMax = 0.01;                     // beyond it a run's timings do not count
constexpr double kRankOrderTarget = 0.75;             // our measured step over rank order's

const std::string kFolder = "build/bench";  // below the current directory, as the report
const std::string kJob = kFolder + "/fidelity-job.yaml";
const std::string kRuns = kFolder + "/fidelity-runs";
const std::string kLog = kFolder + "/fidelity.log";

/// Runs `longhaul` with these arguments; what it prints goes to the log, progress to the terminal.
Result<void> run_longhaul(const std::string& arguments) {
  const std::filesystem::path binary =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "longhaul";
  fmt::print(stderr, "longhaul {}\n", arguments);
  const std::string command = fmt::format("'{}' {} >>{}", binary.string(), arguments, kLog);
  if (const int status = std::system(command.c_str()); status != 0) {
    return failed(fmt::format("longhaul {}: wait status {}", arguments, status),
                  "what it printed is in " + kLog);
  }
  return {};
}

/// The demo's job with data of its own, whatever else has been prepared here.
Result<void> prepare() {
  for (const std::string& old : {kFolder + "/fidelity-data", kRuns}) {
    std::error_code error;
    std::filesystem::remove_all(old, error);
    if (error) return failed(fmt::format("{} cannot be removed: {}", old, error.message()));
  }
  LH_TRY(write_file(kLog, ""));
  Rng rng("fidelity text", 1);
  std::string text;
  while (text.size() < kTextBytes) {
    for (std::uint64_t left = 1 + rng.below(9); left > 0; --left) {
      text += static_cast<char>('a' + rng.below(26));
    }
    text += rng.chance(0.1) ? '\n' : ' ';
  }
  LH_TRY(write_file(kFolder + "/fidelity-text.txt", text));
  LH_TRY(run_longhaul(
      fmt::format("data prepare {0}/fidelity-text.txt -o {0}/fidelity-data", kFolder)));

  RealStorage storage;
  const std::string demo_job = LONGHAUL_SOURCE_DIR "/configs/jobs/demo-gpt.yaml";
  LH_ASSIGN(std::string job, read_text(storage, demo_job, 1 << 20));
  const std::string demo_data = "../../build/demo/data";
  const std::size_t at = job.find(demo_data);
  if (at == std::string::npos) return failed(demo_job + " does not name the demo's data");
  return write_file(kJob, job.replace(at, demo_data.size(), "fidelity-data"));
}

/// A run of the policy's plan, with all three numbers.
struct Outcome {
  double predicted_s = 0;
  double measured_s = 0;
  double late = 0;
};
Result<Outcome> run_policy(const std::string& policy, int steps, int threads) {
  const std::string plan = fmt::format("{}/fidelity-{}.yaml", kFolder, policy);
  LH_TRY(run_longhaul(fmt::format(
      "plan --cluster {}/configs/clusters/eight-servers.yaml --job {} --policy {} --threads {} "
      "-o {}",
      LONGHAUL_SOURCE_DIR, kJob, policy, threads, plan)));
  LH_TRY(run_longhaul(fmt::format("launch {} --emulate --steps {} --runs {} --name {}", plan, steps,
                                  kRuns, policy)));
  RealStorage storage;
  const std::string path = fmt::format("{}/{}/result.json", kRuns, policy);
  LH_ASSIGN(const std::string text, read_text(storage, path, 1 << 24));
  LH_ASSIGN(const RunResult result, parse_result(text, path));
  if (!result.step_predicted_s || !result.step_measured_s || !result.late_fraction) {
    return failed(path + " does not say how long a step took");
  }
  return Outcome{*result.step_predicted_s, *result.step_measured_s, *result.late_fraction};
}

void add_figures(const std::string& policy, const Outcome& run, std::vector<BenchFigure>& figures) {
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
  LH_TRY(prepare());
  std::vector<BenchFigure> figures;
  LH_ASSIGN(const Outcome ours, run_policy("search", quick ? 12 : 25, threads));
  add_figures("search", ours, figures);
  if (quick) return figures;
  LH_ASSIGN(const Outcome ranked, run_policy("rank-order", 25, threads));
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
