// Suite `netsim`: speed of the engines that simulate a step, alone and on large clusters.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/median.h"
#include "core/schedule.h"
#include "netsim/step_simulation.h"
#include "planner/pipeline_time.h"
#include "planner/search.h"
#include "tools/bench.h"
#include "tools/random_cluster.h"

namespace longhaul {
namespace {

constexpr const char* kCommand = "tools/bench netsim";
constexpr int kRepetitions = 5;

/// Median over several runs.
double seconds_of(const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(times);
}

/// The engine of tier T2 on one pipeline: forwards, backwards and messages of 8 stages and 32
/// micro-batches, evaluated again and again as a search does.
BenchFigure stage_operations() {
  constexpr int kStages = 8;
  constexpr int kMicroBatches = 32;
  constexpr int kEvaluations = 2000;
  std::vector<StageTime> stages;
  std::vector<HopTime> hops;
  std::vector<int> in_flight;
  for (int i = 0; i < kStages; ++i) {
    stages.push_back({1 + 0.01 * i, 2 + 0.02 * i});
    if (i > 0) hops.push_back({0.2, 0.05 * i, 0.3, 0.04 * i});
    in_flight.push_back(2 * (kStages - i));
  }
  double sum = 0;
  const double time = seconds_of([&] {
    for (int i = 0; i < kEvaluations; ++i) {
      stages[0].forward += 1e-6;
      sum += pipeline_recursion(stages, hops, in_flight, kMicroBatches).front();
    }
  });
  constexpr double kOperations = kMicroBatches * (2.0 * kStages + 2 * (kStages - 1));
  const double rate = kEvaluations * kOperations / time;
  return {"stage operations (T2)",
          rate,
          "1/s",
          1e7,
          "higher",
          rate >= 1e7,
          fmt::format("{:.4g} evaluations/s of {} x {}; checksum {:.6g}", kEvaluations / time,
                      kStages, kMicroBatches, sum),
          kCommand};
}

struct Size {
  const char* name;
  int devices;
  int sites;
  int stages;         // 0: the grid and the placement that the search finds
  int micro_batches;  // of each pipeline
  double most_s;
};

/// All devices in the order of their names, as many pipelines as there is room for.
Plan plan_in_order(const Size& size) {
  constexpr int kLayers = 24;  // of gpt3-xl
  Plan plan;
  for (int i = 0; i < size.stages; ++i) {  // as evenly as the layers allow
    plan.layers.push_back(kLayers * (i + 1) / size.stages - kLayers * i / size.stages);
  }
  for (int d = 0; d < size.devices / size.stages; ++d) {
    plan.devices.emplace_back();
    for (int i = 0; i < size.stages; ++i) plan.devices.back().push_back(d * size.stages + i);
  }
  plan.micro_batches.assign(plan.devices.size(), size.micro_batches);
  plan.in_flight = default_in_flight(plan.family, size.stages, size.micro_batches);
  return plan;
}

Result<BenchFigure> time_step(const Size& size) {
  const Topology topology = city_cluster({size.sites, size.devices}, 1);
  LH_ASSIGN(Job job, load_job(LONGHAUL_SOURCE_DIR "/configs/jobs/gpt3-xl.yaml"));
  Plan plan;
  if (size.stages > 0) {
    plan = plan_in_order(size);
    job.global_batch = static_cast<std::int64_t>(plan.pipelines()) * size.micro_batches;
  } else {
    LH_ASSIGN(SearchResult found, search_plan(topology, job, {.seed = 1, .effort = 0.3}));
    plan = std::move(found.best.plan);
  }
  StepResult step;
  Result<void> done;
  const auto simulate = [&] {
    Result<StepResult> result = simulate_step(topology, job, plan);
    if (!result) {
      done = std::unexpected(result.error());
    } else {
      step = std::move(*result);
    }
  };
  double time = 0;
  if (size.most_s < 1) {
    time = seconds_of(simulate);
  } else {
    const auto start = std::chrono::steady_clock::now();
    simulate();
    time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  LH_TRY(done);
  std::size_t instructions = 0;
  for (const TaskletSchedule& tasklet : make_schedule(plan, job).tasklets) {
    instructions += tasklet.instructions.size();
  }
  return BenchFigure{
      size.name,
      time,
      "s",
      size.most_s,
      "lower",
      time <= size.most_s,
      fmt::format("{} x {} in {} sites: {} instructions, {} flows, {:.2f} M/s", plan.stages(),
                  plan.pipelines(), size.sites, instructions, step.flows,
                  static_cast<double>(instructions + step.flows) / time / 1e6),
      kCommand};
}

Result<std::vector<BenchFigure>> measure(bool quick) {
  std::vector<BenchFigure> figures = {stage_operations()};
  const Size sizes[] = {
      {"step of 64 devices x 64 micro-batches", 64, 8, 8, 64, 0.05},
      {"step of 1,024 devices, 16 x 64", 1024, 64, 16, 8, 5},
      {"step of 1,024 devices, 8 x 128", 1024, 64, 8, 8, 5},
      {"step of the plan found for 10,000 devices", 10000, 100, 0, 0, 60},
  };
  for (const Size& size : sizes) {
    if (quick && size.devices > 1024) continue;
    LH_ASSIGN(const BenchFigure figure, time_step(size));
    figures.push_back(figure);
  }
  const double peak = peak_gibibytes();
  figures.push_back({"peak memory of the suite", peak, "GiB", 4, "lower", peak <= 4,
                     quick ? "1,024 devices" : "10,000 devices", kCommand});
  return figures;
}

}  // namespace

int bench_netsim(bool quick, int) {
  const auto figures = measure(quick);
  if (!figures) {
    fmt::print(stderr, "{}\n", figures.error().text());
    return 1;
  }
  return report("netsim", *figures);
}

}  // namespace longhaul
