#include "tools/bench_runs.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/file.h"
#include "core/rng.h"
#include "executor/storage/real_storage.h"
#include "tools/before_others.h"
#include "tools/run_result.h"

namespace longhaul {
Result<BenchRuns> BenchRuns::prepare(const std::string& suite) {
  constexpr std::size_t kTextBytes = 1'000'000;
  const BenchRuns runs("build/bench/" + suite);
  std::error_code error;
  std::filesystem::remove_all(runs.folder_, error);
  if (error) return failed(fmt::format("{} cannot be removed: {}", runs.folder_, error.message()));
  Rng rng("benchmark text", 1);
  std::string text;
  while (text.size() < kTextBytes) {
    for (std::uint64_t left = 1 + rng.below(9); left > 0; --left) {
      text += static_cast<char>('a' + rng.below(26));
    }
    text += rng.chance(0.1) ? '\n' : ' ';
  }
  LH_ASSIGN(const std::string path, runs.write("text.txt", text));
  LH_TRY(runs.longhaul(fmt::format("data prepare {} -o {}/data", path, runs.folder_)));
  return runs;
}

Result<std::string> BenchRuns::write(const std::string& name, const std::string& text) const {
  LH_TRY(write_file(path(name), text));
  return path(name);
}

Result<std::string> BenchRuns::plan(const std::string& cluster, const std::string& job,
                                    const std::string& policy, const std::string& name,
                                    int threads) const {
  const std::string plan = path(name + ".yaml");
  LH_TRY(longhaul(fmt::format("plan --cluster {} --job {} --policy {} --threads {} -o {}", cluster,
                              job, policy, threads, plan)));
  return plan;
}

Result<EmulatedRun> BenchRuns::launch(const std::string& plan, const std::string& name,
                                      int steps) const {
  const std::string runs = path("runs");
  std::error_code error;
  std::filesystem::remove_all(runs + "/" + name, error);  // of a run that is repeated
  if (error) return failed(fmt::format("{}/{}: {}", runs, name, error.message()));
  LH_TRY(longhaul(
      fmt::format("launch {} --emulate --steps {} --runs {} --name {}", plan, steps, runs, name),
      true));
  RealStorage storage;
  const std::string path = fmt::format("{}/{}/result.json", runs, name);
  LH_ASSIGN(const std::string text, read_text(storage, path, 1 << 24));
  LH_ASSIGN(const RunResult result, parse_result(text, path));
  if (!result.step_predicted_s || !result.step_measured_s || !result.late_fraction) {
    return failed(path + " does not say how long a step took");
  }
  return EmulatedRun{*result.step_predicted_s, *result.step_measured_s, *result.late_fraction};
}

Result<EmulatedRun> BenchRuns::launch_in_time(const std::string& plan, const std::string& name,
                                              int steps) const {
  LH_ASSIGN(const EmulatedRun run, launch(plan, name, steps));
  if (run.counts()) return run;
  fmt::print("  {}: {:.1f} % late, repeated\n", name, 100 * run.late);
  LH_ASSIGN(const EmulatedRun again, launch(plan, name, steps));
  return again.late < run.late ? again : run;
}

Result<void> BenchRuns::longhaul(const std::string& arguments, bool is_first) const {
  const std::filesystem::path binary =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "longhaul";
  const std::string log = folder_ + "/log";
  const std::string command = fmt::format("'{}' {} >>{} 2>&1", binary.string(), arguments, log);
  const BeforeOthers before(is_first);
  if (const int status = std::system(command.c_str()); status != 0) {
    return failed(fmt::format("longhaul {}: wait status {}", arguments, status),
                  "what it printed is in " + log);
  }
  return {};
}

}  // namespace longhaul
