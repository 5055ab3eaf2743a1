// Suite `clusters`: our search against every baseline on clusters that nobody tuned it on, and on
// the shipped ones. A row a cluster, then what is worst, what is usual, and who comes nearest.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/median.h"
#include "core/quantity.h"
#include "netsim/cluster_file.h"
#include "planner/baselines.h"
#include "planner/search.h"
#include "tools/bench.h"
#include "tools/random_cluster.h"

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

// Rows that a full run has done; a run that was interrupted goes on after them.
constexpr const char* kDonePath = "build/bench/clusters-done.jsonl";
constexpr double kWorstTarget = 1.005;  // ours / best baseline
constexpr double kUsualTarget = 1.25;   // best baseline / ours, where kinds are mixed

struct Instance {
  std::string name;
  Topology topology;
  Job job;
};

Instance random_instance(std::uint64_t seed) {
  constexpr int kFewest = 8;
  constexpr int kMost = 40;
  // Small and large ones in turn.
  const int devices_max = kFewest + static_cast<int>(seed * 7 % (kMost - kFewest + 1));
  Topology topology = random_cluster(seed, devices_max);
  Job job = random_job(seed, topology);
  return {fmt::format("random {}", seed), std::move(topology), std::move(job)};
}

Result<Instance> shipped_instance(const std::string& cluster, const std::string& job) {
  const std::string configs = LONGHAUL_SOURCE_DIR "/configs/";
  LH_ASSIGN(Topology topology, load_cluster(configs + "clusters/" + cluster + ".yaml"));
  LH_ASSIGN(Job of, load_job(configs + "jobs/" + job + ".yaml"));
  return Instance{cluster, std::move(topology), std::move(of)};
}

std::string plan_summary(const Plan& plan, const Topology& topology) {
  std::set<int> sites;
  for (const std::vector<int>& row : plan.devices) {
    for (const int device : row) sites.insert(topology.site_of(device));
  }
  const auto [fewest, most] = std::ranges::minmax(plan.micro_batches);
  return fmt::format("{} x {} in {} sites, {} to {} micro-batches of {}, {}, layers [{}], K [{}]",
                     plan.stages(), plan.pipelines(), sites.size(), fewest, most, plan.micro_batch,
                     name_of(plan.family), fmt::join(plan.layers, ","),
                     fmt::join(plan.in_flight, ","));
}

/// What is known of an instance; a JSON object, so that a full run can keep it.
Json compare(const Instance& instance, int threads) {
  const auto& [name, topology, job] = instance;
  std::set<std::string> kinds;
  for (int d = 0; d < topology.device_count(); ++d) kinds.insert(topology.kind_of(d).name);
  Json row = {{"name", name},
              {"sites", topology.site_count()},
              {"devices", topology.device_count()},
              {"kinds", kinds},
              {"job", job.name}};
  const Result<SearchResult> ours = search_plan(topology, job, {.seed = 1, .threads = threads});
  if (ours) {
    row["ours_s"] = ours->best.step.step.value();
    row["ours_closed_form_s"] = ours->best.closed_form_s;
    row["ours"] = plan_summary(ours->best.plan, topology);
  } else {
    row["why_none"] = ours.error().message;
  }
  double best = 0;
  for (const std::string_view baseline : baseline_names()) {
    const Result<JudgedPlan> found =
        baseline_plan(baseline, topology, job, {.seed = 1, .threads = threads});
    if (!found) continue;
    const double step = found->step.step.value();
    row["steps"][std::string(baseline)] = step;
    if (best > 0 && step >= best) continue;
    best = step;
    row["best"] = baseline;
    row["best_s"] = step;
    row["best_plan"] = plan_summary(found->plan, topology);
  }
  return row;
}

void print_row(const Json& row) {
  const std::string head =
      fmt::format("{:<22} {:>2} sites {:>3} devices of {} kinds, {:<9}",
                  row["name"].get<std::string>(), row["sites"].get<int>(),
                  row["devices"].get<int>(), row["kinds"].size(), row["job"].get<std::string>());
  const auto seconds = [](const Json& of) { return format_duration(Seconds(of.get<double>())); };
  if (!row.contains("ours_s") || !row.contains("best_s")) {
    fmt::print("{}  ours {}, best baseline {}\n", head,
               row.contains("ours_s") ? seconds(row["ours_s"]) : "none",
               row.contains("best_s") ? seconds(row["best_s"]) : "none");
    return;
  }
  const double ratio = row["best_s"].get<double>() / row["ours_s"].get<double>();
  fmt::print("{}  ours {:>9}  best {:<10} {:>9}  ratio {:.3f}\n", head, seconds(row["ours_s"]),
             row["best"].get<std::string>(), seconds(row["best_s"]), ratio);
  if (ratio >= 1) return;
  fmt::print("  ours (closed form {}): {}\n  {}: {}\n", seconds(row["ours_closed_form_s"]),
             row["ours"].get<std::string>(), row["best"].get<std::string>(),
             row["best_plan"].get<std::string>());
}

std::vector<BenchFigure> figures_of(const std::vector<Json>& rows, const std::string& group,
                                    const std::string& command) {
  std::map<std::string, int> best_of;
  std::vector<double> mixed;
  double worst = 0;
  std::string worst_name = "none";
  int missed = 0;  // where a baseline has a plan and we have none
  for (const Json& row : rows) {
    if (!row.contains("best_s")) continue;
    ++best_of[row["best"].get<std::string>()];
    if (!row.contains("ours_s")) {
      ++missed;
      continue;
    }
    const double ratio = row["ours_s"].get<double>() / row["best_s"].get<double>();
    if (row["kinds"].size() > 1) mixed.push_back(1 / ratio);
    if (ratio <= worst) continue;
    worst = ratio;
    worst_name = row["name"].get<std::string>();
  }
  std::vector<std::string> counts;
  for (const auto& [name, count] : best_of) counts.push_back(fmt::format("{} {}", name, count));
  std::vector<BenchFigure> figures;
  figures.push_back({group + " worst ours / best baseline", worst, "ratio", kWorstTarget, "lower",
                     worst <= kWorstTarget, worst_name, command});
  if (!mixed.empty()) {
    const double usual = median(mixed);
    figures.push_back({group + " median best baseline / ours, mixed", usual, "ratio", kUsualTarget,
                       "higher", usual >= kUsualTarget,
                       fmt::format("best of them: {}", fmt::join(counts, ", ")), command});
  }
  figures.push_back({group + " found by a baseline alone", static_cast<double>(missed), "", 0,
                     "lower", missed == 0, "", command});
  return figures;
}

std::map<std::string, Json> rows_done() {
  std::map<std::string, Json> rows;
  std::ifstream stream(kDonePath);
  for (std::string line; std::getline(stream, line);) {
    Json row = Json::parse(line, nullptr, false);
    if (row.is_object()) rows.emplace(row["name"].get<std::string>(), std::move(row));
  }
  return rows;
}

int run(int clusters, bool shipped, bool resumes, int threads, const std::string& command) {
  const std::map<std::string, Json> done = resumes ? rows_done() : std::map<std::string, Json>{};
  const auto row_of = [&](const Instance& instance) {
    const auto found = done.find(instance.name);
    Json row = found != done.end() ? found->second : compare(instance, threads);
    print_row(row);
    std::fflush(stdout);
    if (resumes && found == done.end()) {
      std::filesystem::create_directories("build/bench");
      std::ofstream(kDonePath, std::ios::app) << row.dump() << '\n';
    }
    return row;
  };
  std::vector<Json> random;
  for (int seed = 1; seed <= clusters; ++seed)
    random.push_back(row_of(random_instance(static_cast<std::uint64_t>(seed))));
  std::vector<BenchFigure> figures = figures_of(random, "random clusters", command);
  if (shipped) {
    std::vector<Json> rows;
    for (const auto& [cluster, job] :
         std::vector<std::pair<std::string, std::string>>{{"eight-servers", "demo-gpt"},
                                                          {"eight-cities", "gpt3-xl"},
                                                          {"ten-cities", "gpt3-xl"},
                                                          {"dtfm-1-datacenter", "gpt3-xl"},
                                                          {"dtfm-2-spot", "gpt3-xl"},
                                                          {"dtfm-3-multi-datacenter", "gpt3-xl"},
                                                          {"dtfm-4-regional", "gpt3-xl"},
                                                          {"dtfm-5-worldwide", "gpt3-xl"}}) {
      const Result<Instance> instance = shipped_instance(cluster, job);
      if (!instance) {
        fmt::print(stderr, "{}\n", instance.error().text());
        return 2;
      }
      rows.push_back(row_of(*instance));
    }
    const std::vector<BenchFigure> more = figures_of(rows, "shipped clusters", command);
    figures.insert(figures.end(), more.begin(), more.end());
  }
  if (resumes) std::filesystem::remove(kDonePath);
  return report("clusters", figures);
}

}  // namespace

int bench_clusters(bool quick, int threads) {
  if (quick) return run(5, false, false, threads, "tools/bench clusters --quick");
  return run(20, true, false, threads, "tools/bench clusters");
}

int bench_clusters_full(int threads) {
  return run(200, true, true, threads, "tools/bench clusters --full");
}

}  // namespace longhaul
