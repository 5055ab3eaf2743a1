#include "tools/dtfm_command.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/quantity.h"
#include "planner/dtfm_instance_file.h"
#include "planner/dtfm_solve.h"
#include "tools/command.h"

namespace longhaul {
namespace {

Result<DtfmInstance> instance_of(const DtfmCommandOptions& options) {
  if (options.latency_file.empty() || options.bandwidth_file.empty()) {
    return invalid("--objective dtfm needs two matrices",
                   "--latency-ms L.csv --bandwidth-gbps B.csv, a line and a column a device");
  }
  if (options.stages < 1) {
    return invalid("--objective dtfm needs a number of stages", "such as --stages 8");
  }
  if (options.gradient_gb < 0 || options.activation_gb < 0) {
    return invalid("--objective dtfm needs the amounts of data",
                   "--gradient-gb and --activation-gb, such as 0.65 and 0.4712");
  }
  LH_ASSIGN(DtfmInstance instance,
            load_dtfm_matrices(options.latency_file, options.bandwidth_file));
  if (instance.devices % options.stages != 0) {
    return invalid(fmt::format("{} devices cannot be divided into {} equal stages",
                               instance.devices, options.stages),
                   "choose --stages so that it divides the number of devices");
  }
  instance.stages = options.stages;
  instance.replicas = instance.devices / options.stages;
  instance.gradient_gb = options.gradient_gb;
  instance.activation_gb = options.activation_gb;
  LH_TRY(check_dtfm_instance(instance));
  return instance;
}

std::string json_text(const DtfmSolution& solution, double seconds) {
  nlohmann::ordered_json out;
  out["version"] = 1;
  out["objective"] = "dtfm";
  out["cost_s"] = solution.cost.total_s;
  out["data_parallel_s"] = solution.cost.data_parallel_s;
  out["pipeline_s"] = solution.cost.pipeline_s;
  out["lower_bound_s"] = solution.lower_bound_s;
  out["gap"] = solution.gap();
  out["binding"] = solution.binding;
  out["seconds"] = seconds;
  out["evaluations"] = solution.evaluations;
  out["stages"] = solution.partition;
  return out.dump() + "\n";
}

std::string table_text(const DtfmInstance& instance, const DtfmSolution& solution) {
  std::string text = fmt::format(
      "{} devices in {} stages of {}, by DT-FM's objective\n"
      "cost {:.4f} s: data-parallel {:.4f} s, pipeline {:.4f} s\n",
      instance.devices, instance.stages, instance.replicas, solution.cost.total_s,
      solution.cost.data_parallel_s, solution.cost.pipeline_s);
  text += solution.exact()
              ? "proven: no placement costs less\n"
              : fmt::format("bound {:.4f} s: no placement can cost less ({}); gap {:.1f} %\n",
                            solution.lower_bound_s, solution.binding, 100 * solution.gap());
  text += "\ndevices of each stage, one a pipeline\n";
  for (std::size_t s = 0; s < solution.partition.size(); ++s) {
    text += fmt::format("  {:<3} {}\n", s, fmt::join(solution.partition[s], " "));
  }
  return text;
}

}  // namespace

Result<void> plan_dtfm(const DtfmCommandOptions& options) {
  Seconds limit = Seconds::infinity();
  if (!options.time_limit.empty()) {
    Result<Seconds> parsed = parse_duration(options.time_limit);
    if (!parsed) return within("--time-limit", std::move(parsed).error());
    limit = *parsed;
  }
  LH_ASSIGN(const DtfmInstance instance, instance_of(options));
  const InterruptFlag interrupt;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  DtfmSolution solution;
  {
    ProgressLine progress;
    DtfmSolveOptions solve;
    solve.search.seed = options.seed;
    solve.search.threads = options.threads;
    solve.search.rounds =
        std::max(1, static_cast<int>(solve.search.rounds * std::min(options.effort, 1e6)));
    solve.bound_work *= options.effort;
    solve.search.should_stop = [&] {
      return elapsed() > limit.value() || InterruptFlag::signal() != 0;
    };
    solve.search.on_round = [&](const DtfmProgress& at) {
      progress.show(fmt::format("round {}: best {:.4f} s, {} evaluations, {:.1f} s", at.round,
                                at.best_total_s, at.evaluations, elapsed()));
    };
    progress.show("searching: structured placements");
    solution = dtfm_solve(instance, solve);
  }
  fmt::print("{}", options.json ? json_text(solution, elapsed()) : table_text(instance, solution));
  return {};
}

}  // namespace longhaul
