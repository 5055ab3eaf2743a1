// Time, memory and quality of the search on clusters of up to 10,000 devices.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "core/job.h"
#include "planner/search.h"
#include "tools/bench.h"
#include "tools/random_cluster.h"

namespace longhaul {
namespace {

struct Size {
  int devices;
  int sites;
  double most_s;  // that the search may take; 0: no target
};
constexpr Size kSizes[] = {{64, 4, 0},     {128, 5, 0},   {256, 8, 0},      {640, 5, 2},
                           {1024, 16, 10}, {4096, 50, 0}, {10000, 100, 120}};
constexpr std::uint64_t kSeed = 1;

struct Searched {
  double step_s = 0;
  double seconds = 0;
};

Result<Searched> search(const Topology& topology, const Job& job, std::uint64_t seed, double effort,
                        int threads) {
  const auto start = std::chrono::steady_clock::now();
  LH_ASSIGN(const SearchResult found,
            search_plan(topology, job, {.seed = seed, .threads = threads, .effort = effort}));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return Searched{found.best.step.step.value(), taken.count()};
}

Result<std::vector<BenchFigure>> measure(bool quick, int seeds, int threads) {
  const std::string command =
      fmt::format("tools/bench scale --threads {}{}", threads, seeds > 3 ? " --full" : "");
  LH_ASSIGN(const Job job, load_job("configs/jobs/gpt3-xl.yaml"));
  std::vector<BenchFigure> figures;
  for (const Size& size : kSizes) {
    if (quick && size.devices > 1024) continue;
    const Topology topology = city_cluster({size.sites, size.devices}, kSeed);
    std::vector<Searched> runs;
    const int repeats = size.devices > 1024 ? 1 : 3;
    for (int run = 0; run < repeats; ++run) {
      LH_ASSIGN(const Searched searched, search(topology, job, kSeed, 1, threads));
      runs.push_back(searched);
    }
    std::ranges::sort(runs, {}, &Searched::seconds);
    const Searched& median = runs[runs.size() / 2];
    fmt::print(stderr,
               "{} devices in {} sites: step {:.4g} s, found in {:.2f} s; peak {:.2f} GiB\n",
               size.devices, size.sites, median.step_s, median.seconds, peak_gibibytes());
    const double most = size.most_s > 0 ? size.most_s : median.seconds;
    figures.push_back({fmt::format("search, {} devices in {} sites", size.devices, size.sites),
                       median.seconds, "s", most, "lower", median.seconds <= most, "", command});
    if (quick || (size.devices != 640 && size.devices != 1024)) continue;
    double best = median.step_s;
    for (int seed = 1; seed <= seeds; ++seed) {
      constexpr double kTenTimes = 10;
      LH_ASSIGN(const Searched longer,
                search(topology, job, static_cast<std::uint64_t>(seed), kTenTimes, threads));
      best = std::min(best, longer.step_s);
    }
    const double ratio = median.step_s / best;
    figures.push_back({fmt::format("{} devices: step / best of {} seeds at ten times the effort",
                                   size.devices, seeds),
                       ratio, "", 1.02, "lower", ratio <= 1.02, "", command});
  }
  constexpr double kMost = 2;
  figures.push_back({"peak memory", peak_gibibytes(), "GiB", kMost, "lower",
                     peak_gibibytes() <= kMost, "", command});
  return figures;
}

int run(bool quick, int seeds, int threads) {
  const Result<std::vector<BenchFigure>> figures = measure(quick, seeds, threads);
  if (figures) return report("scale", *figures);
  fmt::print(stderr, "error: {}\n", figures.error().text());
  return 2;
}

}  // namespace

int bench_scale(bool quick, int threads) {
  return run(quick, 3, threads);
}

int bench_scale_full(int threads) {
  return run(false, 20, threads);
}

}  // namespace longhaul
