// The second half of suite `dtfm`: simulated steps (T3) on the published cases beside what the
// paper claims, and where DT-FM's objective puts placements in the order that the simulation does.
//
// The setting is the paper's: GPT-3 XL's width with 24, 32 and 40 layers, sequences of 2048, fp16,
// recomputed activations, gradients of two bytes an element between sites. Each policy is compared
// twice: in the grid that suits it best, and in the paper's own, 8 stages x 8 pipelines with
// micro-batches of one sequence.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/median.h"
#include "core/rng.h"
#include "netsim/cluster_file.h"
#include "planner/baselines.h"
#include "planner/cost_model.h"
#include "planner/search.h"
#include "tools/bench.h"
#include "tools/rank_correlation.h"

namespace longhaul {
namespace {

constexpr const char* kClusters[] = {"dtfm-1-datacenter", "dtfm-2-spot", "dtfm-3-multi-datacenter",
                                     "dtfm-4-regional", "dtfm-5-worldwide"};
const std::string kDatacenter = kClusters[0];
const std::string kWorldwide = kClusters[4];
constexpr GridLimits kPaperGrid = {.stages = 8, .pipelines = 8, .micro_batch = 1};

// So that all of it ends within ten minutes on two cores.
constexpr double kEffort = 0.25;
constexpr int kRandomPlans = 5;

// What the paper claims [Yuan et al., NeurIPS 2022, sections 4 and 4.1].
constexpr double kPaperOverMegatron = 4.8;
constexpr double kPaperOverRandom = 2.7;
constexpr double kPaperSlowdownLeast = 1.7;  // world-wide against Megatron in the data centre
constexpr double kPaperSlowdownMost = 3.5;

Job paper_job(int layers, int batch, Codec gradients) {
  Result<Job> job = parse_job(
      fmt::format("schema: longhaul/job/1\nname: gpt3-xl\nmodel: {{family: gpt2, layers: {}, "
                  "width: 2048, heads: 16, context: 2048, vocabulary: 50257}}\nbatch: {{global: "
                  "{}, micro_batch: auto}}\nprecision: fp16\nrecompute: true\ncompression: "
                  "{{gradients: {}}}\n",
                  layers, batch, name_of(gradients)),
      "the paper's job");
  LH_CHECK(job.has_value(), "the text above is a good file");
  return std::move(*job);
}

Result<Topology> shipped_cluster(const std::string& name) {
  return load_cluster(LONGHAUL_SOURCE_DIR "/configs/clusters/" + name + ".yaml");
}

// ---- steps

/// Simulated steps of the policies on one cluster with one job.
struct Steps {
  double ours_s = 0;
  double dtfm_s = 0;
  double megatron_s = 0;
  double random_s = 0;  // median
  double random_best_s = 0;
  std::string grids;  // of ours, DT-FM and Megatron
};

std::string grid_text(const Plan& plan) {
  const char* family = plan.family == ScheduleFamily::kGpipe    ? "G"
                       : plan.family == ScheduleFamily::kGreedy ? "z"
                                                                : "F";
  return fmt::format("{}x{}x{}{}", plan.stages(), plan.pipelines(), plan.micro_batch, family);
}

/// Megatron-LM's order of ranks in the grid that simulates fastest: of those that its users' search
/// would run on the fastest devices, and of all that use every device. The closed form by which the
/// first are picked takes a ring for the exchange, where many links of their own carry it at once.
Result<JudgedPlan> megatron_plan(const Topology& topology, const Job& job,
                                 const PolicyOptions& options) {
  LH_ASSIGN(JudgedPlan searched, baseline_plan("megatron", topology, job, options));
  Result<JudgedPlan> ranked = rank_order_plan(topology, job, options);
  if (ranked && ranked->step.step < searched.step.step) return ranked;
  return searched;
}

Result<Steps> steps_of(const Topology& topology, const Job& job, const GridLimits& limits,
                       int threads) {
  const PolicyOptions options{.seed = 1, .threads = threads, .limits = limits};
  LH_ASSIGN(const SearchResult ours,
            search_plan(topology, job,
                        {.seed = 1, .threads = threads, .effort = kEffort, .limits = limits}));
  LH_ASSIGN(const DtfmPlan dtfm, dtfm_plan(topology, job, options));
  LH_ASSIGN(const JudgedPlan megatron, megatron_plan(topology, job, options));
  LH_ASSIGN(const std::vector<JudgedPlan> random,
            random_plans(topology, job, options, megatron.plan, kRandomPlans));
  std::vector<double> seconds;
  for (const JudgedPlan& plan : random) seconds.push_back(plan.step.step.value());
  return Steps{ours.best.step.step.value(),
               dtfm.judged.step.step.value(),
               megatron.step.step.value(),
               median(seconds),
               std::ranges::min(seconds),
               fmt::format("{} {} {}", grid_text(ours.best.plan), grid_text(dtfm.judged.plan),
                           grid_text(megatron.plan))};
}

struct Row {
  std::string cluster;
  int layers = 0;
  int batch = 0;
  Steps steps;
};

void print_row(const Row& row, double seconds) {
  const Steps& s = row.steps;
  fmt::print(
      "{:<24}{:>3}{:>6}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}  {:<32}"
      "{:>6.1f}\n",
      row.cluster, row.layers, row.batch, s.ours_s, s.dtfm_s, s.megatron_s, s.random_s,
      s.random_best_s, s.dtfm_s / s.ours_s, s.megatron_s / s.ours_s, s.random_s / s.ours_s, s.grids,
      seconds);
  std::fflush(stdout);
}

std::vector<BenchFigure> figures_of(const std::vector<Row>& rows, const std::string& which,
                                    const std::string& command) {
  std::vector<BenchFigure> figures;
  const auto add = [&](const std::string& name, double value, double target, bool higher,
                       const std::string& peer) {
    figures.push_back({which + name, value, "ratio", target, higher ? "higher" : "lower",
                       higher ? value >= target : value <= target, peer, command});
  };
  // Over a selection of rows.
  const auto least_and_most = [](const std::vector<Row>& of, auto ratio) {
    std::vector<double> values;
    for (const Row& row : of) values.push_back(ratio(row));
    return std::ranges::minmax(values);
  };
  const auto dtfm = [](const Row& row) { return row.steps.dtfm_s / row.steps.ours_s; };
  const auto megatron = [](const Row& row) { return row.steps.megatron_s / row.steps.ours_s; };
  const auto random = [](const Row& row) { return row.steps.random_s / row.steps.ours_s; };
  const auto best = [](const Row& row) { return row.steps.random_best_s / row.steps.ours_s; };
  const std::string count = fmt::format("of {}", rows.size());
  add("DT-FM / ours, least " + count, least_and_most(rows, dtfm).min, 1, true, "DT-FM's plan");
  add("Megatron / ours, least " + count, least_and_most(rows, megatron).min, 1, true,
      "Megatron's best grid");
  add("best random / ours, least " + count, least_and_most(rows, best).min, 1, true,
      fmt::format("{} random plans", kRandomPlans));

  std::vector<Row> worldwide;
  std::ranges::copy_if(rows, std::back_inserter(worldwide),
                       [](const Row& row) { return row.cluster == kWorldwide; });
  const auto slowdown = [&](const Row& row) {
    const auto near = std::ranges::find_if(rows, [&](const Row& other) {
      return other.cluster == kDatacenter && other.layers == row.layers && other.batch == row.batch;
    });
    LH_CHECK(near != rows.end(), "the data centre has every job");
    return row.steps.ours_s / near->steps.megatron_s;
  };
  const auto over_megatron = least_and_most(worldwide, megatron);
  const auto over_random = least_and_most(worldwide, random);
  const auto slower = least_and_most(worldwide, slowdown);
  const std::string paper = "Yuan et al., NeurIPS 2022: ";
  add("world-wide, Megatron / ours, most", over_megatron.max, kPaperOverMegatron, true,
      fmt::format("{}4.8; least here {:.2f}", paper, over_megatron.min));
  add("world-wide, median random / ours, most", over_random.max, kPaperOverRandom, true,
      fmt::format("{}2.7; least here {:.2f}", paper, over_random.min));
  add("ours world-wide / Megatron in the data centre, most", slower.max, kPaperSlowdownMost, false,
      paper + "1.7 to 3.5");
  add("ours world-wide / Megatron in the data centre, least", slower.min, kPaperSlowdownLeast,
      false, paper + "1.7 to 3.5");
  return figures;
}

/// All cases in the grid that suits each policy best, or in the paper's.
Result<std::vector<BenchFigure>> compare_steps(bool quick, bool in_paper_grid, int threads,
                                               const std::string& command) {
  using Clock = std::chrono::steady_clock;
  const std::vector<int> layer_counts = quick ? std::vector{24} : std::vector{24, 32, 40};
  const std::vector<int> batches = quick ? std::vector{1024} : std::vector{1024, 2048, 4096};
  fmt::print(
      "steps, s, {} (stages x pipelines x micro-batch; F 1f1b, G gpipe, z greedy)\n"
      "{:<24}{:>3}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  {:<32}{:>6}\n",
      in_paper_grid ? "all in the paper's grid" : "each in its best grid", "cluster", "L", "batch",
      "ours", "DT-FM", "Megatr.", "random", "best", "DT-FM/", "Megatr./", "random/",
      "grids of ours, DT-FM, Megatron", "s");
  std::vector<Row> rows;
  for (const std::string name : kClusters) {
    if (quick && name != kDatacenter && name != kWorldwide) continue;
    LH_ASSIGN(const Topology topology, shipped_cluster(name));
    for (const int layers : layer_counts) {
      for (const int batch : batches) {
        const auto start = Clock::now();
        LH_ASSIGN(Steps steps, steps_of(topology, paper_job(layers, batch, Codec::kBf16),
                                        in_paper_grid ? kPaperGrid : GridLimits{}, threads));
        rows.push_back({name, layers, batch, std::move(steps)});
        print_row(rows.back(), std::chrono::duration<double>(Clock::now() - start).count());
      }
    }
  }
  fmt::print("\n");
  return figures_of(rows, in_paper_grid ? "paper's grid: " : "", command);
}

/// What the world-wide steps owe to every pair of GPUs having a link of its own, and to latencies
/// read one way: the same with a network card for each GPU, and with half the latency.
Result<void> vary_network(int threads) {
  LH_ASSIGN(const Topology published, shipped_cluster(kWorldwide));
  const Job job = paper_job(24, 1024, Codec::kBf16);
  const auto with_cards = [&](double gbit_per_s) {
    Topology topology = published;
    for (Node& node : topology.nodes) node.nic = BytesPerSecond(gbit_per_s * 1e9 / 8);
    return topology;
  };
  Topology nearer = published;
  for (Link& link : nearer.links) link.latency = link.latency / 2;
  fmt::print(
      "{} with other networks, 24 layers, batch 1024, steps in s\n{:<44}{:>9}{:>9}{:>9}{:>9}\n",
      kWorldwide, "", "ours", "DT-FM", "Megatr.", "random");
  for (const bool in_paper_grid : {true, false}) {
    for (const auto& [what, topology] :
         {std::pair<std::string, Topology>{"as published", published},
          {"half the latency", nearer},
          {"network cards of 10 Gbit/s", with_cards(10)},
          {"network cards of 2 Gbit/s", with_cards(2)}}) {
      LH_ASSIGN(const Steps steps,
                steps_of(topology, job, in_paper_grid ? kPaperGrid : GridLimits{}, threads));
      fmt::print("{:<44}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}  {}\n",
                 what + (in_paper_grid ? ", paper's grid" : ", best grid"), steps.ours_s,
                 steps.dtfm_s, steps.megatron_s, steps.random_s, steps.grids);
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
  return {};
}

// ---- ranking

using Layout = std::vector<std::vector<int>>;  // [pipeline][stage]

DtfmPartition partition_of(const Layout& layout) {
  DtfmPartition partition(layout.front().size());
  for (const std::vector<int>& row : layout) {
    for (std::size_t i = 0; i < row.size(); ++i) partition[i].push_back(row[i]);
  }
  return partition;
}

/// The devices of each stage, with the order of stages and the pipelines that DT-FM gives them.
Layout arranged(const DtfmInstance& instance, const Layout& layout) {
  const DtfmPartition partition = partition_of(layout);
  const DtfmCost cost = evaluate_dtfm(instance, partition);
  Layout out(layout.size());
  for (const std::vector<int>& group : arrange_dtfm(instance, partition, cost.path)) {
    for (std::size_t d = 0; d < group.size(); ++d) out[d].push_back(group[d]);
  }
  return out;
}

/// Grid and devices of the paper: 64 in 8 x 8.
struct Ranking {
  const Topology& topology;
  std::vector<int> devices;

  explicit Ranking(const Topology& of)
      : topology(of), devices(static_cast<std::size_t>(of.device_count())) {
    std::iota(devices.begin(), devices.end(), 0);
  }

  DtfmInstance instance(const Job& job) const {
    return dtfm_instance(topology, job, devices, kPaperGrid.stages);
  }

  /// Device n of the list is stage n mod 8 of pipeline n / 8: pipelines within a city.
  Layout in_order() const {
    Layout layout;
    for (std::size_t at = 0; at < devices.size(); at += static_cast<std::size_t>(kPaperGrid.stages))
      layout.emplace_back(devices.begin() + static_cast<std::ptrdiff_t>(at),
                          devices.begin() + static_cast<std::ptrdiff_t>(at) + kPaperGrid.stages);
    return layout;
  }
  /// Device n of the list is stage n / 8 of pipeline n mod 8: stages within a city.
  Layout stages_together() const {
    Layout layout(static_cast<std::size_t>(kPaperGrid.pipelines));
    for (std::size_t n = 0; n < devices.size(); ++n)
      layout[n % layout.size()].push_back(devices[n]);
    return layout;
  }

  /// Step with equal layers and shares; GPipe or 1F1B, what is faster.
  Result<std::vector<double>> simulate(const Job& job, const std::vector<Layout>& layouts,
                                       int threads) const {
    std::vector<Plan> plans;
    for (const Layout& layout : layouts) {
      for (const ScheduleFamily family :
           {ScheduleFamily::kGpipe, ScheduleFamily::kOneForwardOneBackward}) {
        Plan plan;
        plan.layers.assign(static_cast<std::size_t>(kPaperGrid.stages),
                           job.model.layers / kPaperGrid.stages);
        plan.devices = layout;
        const int share = static_cast<int>(job.global_batch) / kPaperGrid.pipelines;
        plan.micro_batches.assign(static_cast<std::size_t>(kPaperGrid.pipelines), share);
        plan.family = family;
        plan.in_flight = default_in_flight(family, kPaperGrid.stages, share);
        LH_TRY(check_memory(plan, topology, job));
        plans.push_back(std::move(plan));
      }
    }
    LH_ASSIGN(const std::vector<JudgedPlan> judged,
              judge(topology, job, std::move(plans), threads));
    std::vector<double> seconds;
    for (std::size_t i = 0; i < judged.size(); i += 2) {
      seconds.push_back(std::min(judged[i].step.step.value(), judged[i + 1].step.step.value()));
    }
    return seconds;
  }
};

/// Random placements; those of rank order, of in-order pipelines, of DT-FM and of ours at a batch
/// of 1024; and these four with some pairs of devices exchanged. A random placement alone is far
/// from all good ones, and what matters is the order among those.
Result<std::vector<Layout>> placements(const Ranking& ranking, const DtfmInstance& instance,
                                       const Job& job, int threads) {
  constexpr int kRandomPlacements = 12;
  constexpr int kExchanges[] = {0, 1, 2, 4, 8, 16};
  LH_ASSIGN(const DtfmPlan dtfm, dtfm_plan(ranking.topology, job,
                                           {.seed = 1, .threads = threads, .limits = kPaperGrid}));
  LH_ASSIGN(const SearchResult ours,
            search_plan(ranking.topology, job,
                        {.seed = 1, .threads = threads, .effort = kEffort, .limits = kPaperGrid}));
  std::vector<Layout> layouts;
  Rng rng("dtfm placements", 1);
  for (int i = 0; i < kRandomPlacements; ++i) {
    Ranking shuffled = ranking;
    rng.shuffle(std::span(shuffled.devices));
    layouts.push_back(arranged(instance, shuffled.in_order()));
  }
  for (const Layout& base : {ranking.stages_together(), ranking.in_order(),
                             dtfm.judged.plan.devices, ours.best.plan.devices}) {
    for (const int exchanges : kExchanges) {
      Layout layout = base;
      for (int e = 0; e < exchanges; ++e) {
        std::vector<int>& one = layout[rng.index(layout.size())];
        std::vector<int>& other = layout[rng.index(layout.size())];
        const std::size_t i = rng.index(one.size());
        const std::size_t j = rng.index(other.size());
        std::swap(one[i], other[j]);
      }
      layouts.push_back(arranged(instance, layout));
    }
  }
  return layouts;
}

Result<std::vector<BenchFigure>> rank_placements(const std::string& name, bool quick, int threads,
                                                 const std::string& command) {
  LH_ASSIGN(const Topology topology, shipped_cluster(name));
  const Ranking ranking(topology);
  const Job usual = paper_job(24, 1024, Codec::kNone);
  LH_ASSIGN(const std::vector<Layout> layouts,
            placements(ranking, ranking.instance(usual), usual, threads));
  fmt::print(
      "{}: {} placements in the paper's grid, Kendall's tau with their simulated steps\n"
      "{:>6}{:>12}{:>18}{:>18}{:>20}{:>26}\n",
      name, layouts.size(), "batch", "gradients", "DT-FM's cost", "our closed form", "fastest, s",
      "that DT-FM calls best, s");
  std::vector<BenchFigure> figures;
  std::vector<double> taus;
  std::vector<double> taus_dtfm;
  double lost = 1;  // most that the placement DT-FM calls best is slower than the fastest
  for (const int batch : quick ? std::vector{1024} : std::vector{256, 512, 1024, 2048, 4096}) {
    for (const Codec codec : {Codec::kNone, Codec::kBf16}) {
      const Job job = paper_job(24, batch, codec);
      const DtfmInstance instance = ranking.instance(job);
      const Problem problem(topology, job);
      Evaluator evaluator(problem,
                          {kPaperGrid.stages, kPaperGrid.pipelines, kPaperGrid.micro_batch});
      LH_ASSIGN(const std::vector<double> steps, ranking.simulate(job, layouts, threads));
      std::vector<double> dtfm;
      std::vector<double> closed_form;
      std::vector<Plan> finished;
      for (const Layout& layout : layouts) {
        dtfm.push_back(evaluate_dtfm_in_order(instance, partition_of(layout)).total_s);
        Candidate candidate;
        for (const std::vector<int>& row : layout)
          candidate.cells.insert(candidate.cells.end(), row.begin(), row.end());
        candidate.layers.assign(static_cast<std::size_t>(kPaperGrid.stages),
                                job.model.layers / kPaperGrid.stages);
        closed_form.push_back(evaluator.evaluate(candidate));
        finished.push_back(evaluator.finish(candidate));
      }
      const double tau_dtfm = kendall_tau(dtfm, steps);
      // Ours is asked about the plans that it finishes, DT-FM's about the schedules that its
      // runtime has.
      LH_ASSIGN(const std::vector<JudgedPlan> judged,
                judge(topology, job, std::move(finished), threads));
      std::vector<double> finished_steps;
      for (const JudgedPlan& plan : judged) finished_steps.push_back(plan.step.step.value());
      const double tau = kendall_tau(closed_form, finished_steps);
      const double fastest = std::ranges::min(steps);
      const double chosen =
          steps[static_cast<std::size_t>(std::ranges::min_element(dtfm) - dtfm.begin())];
      fmt::print("{:>6}{:>12}{:>18.3f}{:>18.3f}{:>20.2f}{:>26.2f}\n", batch, name_of(codec),
                 tau_dtfm, tau, fastest, chosen);
      std::fflush(stdout);
      taus.push_back(tau);
      taus_dtfm.push_back(tau_dtfm);
      lost = std::max(lost, chosen / fastest);
    }
  }
  fmt::print("\n");
  const double ours = median(taus);
  const double theirs = median(taus_dtfm);
  figures.push_back(
      {name + " tau of our closed form, median", ours, "", theirs, "higher", ours >= theirs,
       fmt::format("DT-FM's cost; its best is up to {:.2f} x the fastest", lost), command});
  return figures;
}

/// The least batch from which pipelines within a city are faster than stages within one: by
/// simulation, and by DT-FM's cost with gradients of four and of two bytes.
Result<void> find_crossover(const std::string& name, int threads) {
  constexpr int kStep = 64;
  constexpr int kMost = 2048;
  LH_ASSIGN(const Topology topology, shipped_cluster(name));
  const Ranking ranking(topology);
  const auto from = [&](int batch) {
    return batch > kMost ? fmt::format("never up to {}", kMost) : fmt::format("from {}", batch);
  };
  fmt::print("{}: pipelines within a city beat stages within one, sequences of a batch\n", name);
  for (const Codec codec : {Codec::kNone, Codec::kBf16}) {
    int by_step = kMost + kStep;
    int by_cost = kMost + kStep;
    std::string at_512;
    for (int batch = kMost; batch >= kStep; batch -= kStep) {
      const Job job = paper_job(24, batch, codec);
      DtfmInstance instance = ranking.instance(job);
      if (codec == Codec::kBf16) instance.gradient_gb /= 2;
      const std::vector<Layout> both = {arranged(instance, ranking.in_order()),
                                        arranged(instance, ranking.stages_together())};
      LH_ASSIGN(const std::vector<double> steps, ranking.simulate(job, both, threads));
      const double pipelines = evaluate_dtfm_in_order(instance, partition_of(both[0])).total_s;
      const double stages = evaluate_dtfm_in_order(instance, partition_of(both[1])).total_s;
      // Downwards: the last that holds is the least without a gap.
      if (steps[0] < steps[1] && by_step == batch + kStep) by_step = batch;
      if (pipelines < stages && by_cost == batch + kStep) by_cost = batch;
      if (batch == 512) {
        at_512 = fmt::format("at 512 steps {:.2f} and {:.2f} s, costs {:.2f} and {:.2f} s",
                             steps[0], steps[1], pipelines, stages);
      }
    }
    fmt::print("  gradients {:<5} simulated {}, by DT-FM's cost {}; {}\n", name_of(codec),
               from(by_step), from(by_cost), at_512);
  }
  fmt::print("\n");
  return {};
}

}  // namespace

Result<std::vector<BenchFigure>> dtfm_steps(bool quick, int threads, const std::string& command) {
  std::vector<BenchFigure> figures;
  const auto take = [&](std::vector<BenchFigure> more) {
    figures.insert(figures.end(), more.begin(), more.end());
  };
  for (const bool in_paper_grid : {true, false}) {
    LH_ASSIGN(std::vector<BenchFigure> more, compare_steps(quick, in_paper_grid, threads, command));
    take(std::move(more));
  }
  if (!quick) LH_TRY(vary_network(threads));
  for (const char* name : {"dtfm-4-regional", "dtfm-5-worldwide"}) {
    if (quick && name != kWorldwide) continue;
    LH_ASSIGN(std::vector<BenchFigure> more, rank_placements(name, quick, threads, command));
    take(std::move(more));
    LH_TRY(find_crossover(name, threads));
  }
  return figures;
}

}  // namespace longhaul
