// `longhaul plan`: finds a plan for a job on a cluster, and compares it with other policies.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/file.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/quantity.h"
#include "netsim/cluster_file.h"
#include "planner/policies.h"
#include "planner/search.h"
#include "tools/command.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

constexpr int kRandomPlans = 20;

struct Options {
  std::string cluster;
  std::string trace;
  std::string devices;
  std::string job;
  std::string policy = "search";
  std::string output = "plan.yaml";
  bool baselines = false;
  bool json = false;
  std::uint64_t seed = 1;
  int threads = 0;
  double effort = 1;
  std::string time_limit;
  GridLimits limits;
};

/// A policy's plan, as it is compared and written.
struct Outcome {
  std::string policy;
  JudgedPlan judged;
  Bound bound;
  std::int64_t evaluations = 0;
};

/// The cluster file to use: the one given, or one written next to the plan from --trace.
Result<std::string> cluster_file(const Options& options) {
  if (!options.cluster.empty()) return options.cluster;
  LH_ASSIGN(const Trace trace, load_trace(options.trace));
  const std::string path =
      std::filesystem::path(options.output).replace_extension(".cluster.yaml").string();
  LH_ASSIGN(const std::string text,
            cluster_text(trace, path_from(path, options.trace), options.devices));
  LH_TRY(write_file(path, text));
  fmt::print(stderr, "cluster file written: {}\n", path);
  return path;
}

Result<Outcome> run_search(const Topology& topology, const Job& job, const Options& options,
                           Seconds limit) {
  ProgressLine progress;
  SearchOptions search;
  search.seed = options.seed;
  search.threads = options.threads;
  search.effort = options.effort;
  search.limits = options.limits;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  search.should_stop = [&] { return elapsed() > limit.value(); };
  search.interrupted = [] { return InterruptFlag::signal() != 0; };
  search.on_round = [&](const SearchProgress& at) {
    const std::string best = std::isfinite(at.best_s) ? format_duration(Seconds(at.best_s))
                                                      : "nothing that fits the memory";
    progress.show(fmt::format(
        "round {} of {}: best {} ({} x {}, micro-batch {}), bound {}, {} evaluations, {:.1f} s",
        at.round, at.rounds, best, at.grid.stages, at.grid.pipelines, at.grid.micro_batch,
        format_duration(Seconds(at.bound_s)), at.evaluations, elapsed()));
  };
  progress.show("searching: bounds and structured placements of every grid");
  LH_ASSIGN(SearchResult found, search_plan(topology, job, search));
  return Outcome{"search", std::move(found.best), found.bound, found.evaluations};
}

Result<Outcome> run_policy(const std::string& policy, const Topology& topology, const Job& job,
                           const Options& options, Seconds limit) {
  if (policy == "search") return run_search(topology, job, options, limit);
  const PolicyOptions policy_options{options.seed, options.threads, options.limits};
  if (policy == "rank-order") {
    LH_ASSIGN(JudgedPlan judged, rank_order_plan(topology, job, policy_options));
    return Outcome{policy, std::move(judged), {}, 0};
  }
  if (policy == "dtfm") {
    LH_ASSIGN(DtfmPlan found, dtfm_plan(topology, job, policy_options));
    return Outcome{policy, std::move(found.judged), {}, 0};
  }
  LH_ASSIGN(const JudgedPlan ranked, rank_order_plan(topology, job, policy_options));
  LH_ASSIGN(std::vector<JudgedPlan> random,
            random_plans(topology, job, policy_options, ranked.plan, 1));
  return Outcome{policy, std::move(random.front()), {}, 0};
}

/// The other policies' simulated steps, for the comparison.
struct Baseline {
  std::string name;
  double step_s = 0;
  std::string grid;
  std::string missing;  // why there is none
};

std::string grid_text(const Plan& plan) {
  return fmt::format("{} x {}, micro-batch {}, {}", plan.stages(), plan.pipelines(),
                     plan.micro_batch, name_of(plan.family));
}

std::vector<Baseline> run_baselines(const Topology& topology, const Job& job,
                                    const Options& options) {
  const PolicyOptions policy_options{options.seed, options.threads, options.limits};
  std::vector<Baseline> baselines;
  ProgressLine progress;
  const auto add = [&](const std::string& name, const Result<JudgedPlan>& judged) {
    if (judged) {
      baselines.push_back({name, judged->step.step.value(), grid_text(judged->plan), ""});
    } else {
      baselines.push_back({name, 0, "", judged.error().message});
    }
  };
  progress.show("baseline: rank-order");
  const Result<JudgedPlan> ranked = rank_order_plan(topology, job, policy_options);
  add("rank-order", ranked);
  progress.show("baseline: dtfm");
  const Result<DtfmPlan> dtfm = dtfm_plan(topology, job, policy_options);
  add("dtfm", dtfm ? Result<JudgedPlan>(dtfm->judged) : std::unexpected(dtfm.error()));
  progress.show("baseline: random");
  const Result<std::vector<JudgedPlan>> random =
      ranked ? random_plans(topology, job, policy_options, ranked->plan, kRandomPlans)
             : std::unexpected(ranked.error());
  if (!random) {
    baselines.push_back({"random", 0, "", random.error().message});
    return baselines;
  }
  std::vector<double> steps;
  for (const JudgedPlan& judged : *random) steps.push_back(judged.step.step.value());
  std::sort(steps.begin(), steps.end());
  const double median = (steps[(steps.size() - 1) / 2] + steps[steps.size() / 2]) / 2;
  const std::string grid = grid_text(random->front().plan);
  baselines.push_back({fmt::format("random, median of {}", kRandomPlans), median, grid, ""});
  baselines.push_back({fmt::format("random, best of {}", kRandomPlans), steps.front(), grid, ""});
  return baselines;
}

std::string baseline_table(const Outcome& ours, const std::vector<Baseline>& baselines) {
  const double step = ours.judged.step.step.value();
  std::vector<std::vector<std::string>> rows = {{"policy", "step", "ours / its", "grid"}};
  rows.push_back(
      {ours.policy, format_duration(ours.judged.step.step), "1.000", grid_text(ours.judged.plan)});
  for (const Baseline& baseline : baselines) {
    if (!baseline.missing.empty()) {
      rows.push_back({baseline.name, "none", "", baseline.missing});
      continue;
    }
    rows.push_back({baseline.name, format_duration(Seconds(baseline.step_s)),
                    fmt::format("{:.3f}", step / baseline.step_s), baseline.grid});
  }
  return "simulated step of each policy\n" + aligned(rows);
}

std::string json_text(const Outcome& outcome, const Topology& topology, const Job& job,
                      const std::vector<Baseline>& baselines, const std::string& path) {
  const Plan& plan = outcome.judged.plan;
  const double step = outcome.judged.step.step.value();
  nlohmann::ordered_json out;
  out["version"] = 1;
  out["policy"] = outcome.policy;
  out["plan_file"] = path;
  out["step_s"] = step;
  out["tokens_per_s"] = job.tokens_per_step() / step;
  out["usd_per_step"] = outcome.judged.step.usd;
  if (!outcome.bound.name.empty()) {
    out["lower_bound_s"] = outcome.bound.seconds;
    out["binding"] = outcome.bound.name;
    out["gap"] = step / outcome.bound.seconds - 1;
    out["closed_form_s"] = outcome.judged.closed_form_s;
    out["evaluations"] = outcome.evaluations;
  }
  out["stages"] = plan.stages();
  out["pipelines"] = plan.pipelines();
  out["micro_batch"] = plan.micro_batch;
  out["micro_batches"] = plan.micro_batches;
  out["layers"] = plan.layers;
  out["in_flight"] = plan.in_flight;
  for (const std::vector<int>& row : plan.devices) {
    nlohmann::ordered_json names;
    for (const int device : row)
      names.push_back(topology.devices[static_cast<std::size_t>(device)].name);
    out["devices"].push_back(std::move(names));
  }
  for (const Baseline& baseline : baselines) {
    nlohmann::ordered_json entry = {{"policy", baseline.name}};
    if (baseline.missing.empty()) {
      entry["step_s"] = baseline.step_s;
      entry["ratio"] = step / baseline.step_s;
    } else {
      entry["missing"] = baseline.missing;
    }
    out["baselines"].push_back(std::move(entry));
  }
  return out.dump(2) + "\n";
}

Result<void> make_plan(const Options& options) {
  Seconds limit = Seconds::infinity();
  if (!options.time_limit.empty()) {
    Result<Seconds> parsed = parse_duration(options.time_limit);
    if (!parsed) return within("--time-limit", std::move(parsed).error());
    limit = *parsed;
  }
  LH_ASSIGN(const std::string cluster, cluster_file(options));
  LH_ASSIGN(const Topology topology, load_cluster(cluster));
  LH_ASSIGN(const Job job, load_job(options.job));
  for (const std::string& assumption : topology.assumptions)
    fmt::print(stderr, "assumed: {}\n", assumption);

  // Whether the plan can be written is known before the search, not after it.
  LH_TRY(check_writable(options.output));
  const InterruptFlag interrupt;
  LH_ASSIGN(const Outcome outcome, run_policy(options.policy, topology, job, options, limit));
  const Plan& plan = outcome.judged.plan;
  const StepResult& step = outcome.judged.step;

  PlanFile file;
  file.plan = plan;
  file.cluster_path = path_from(options.output, cluster);
  file.job_path = path_from(options.output, options.job);
  file.policy = outcome.policy;
  file.seed = options.seed;
  file.predicted = {step.step.value(), job.tokens_per_step() / step.step.value(),
                    outcome.bound.seconds, outcome.bound.name};
  LH_TRY(write_file(options.output, plan_text(file, topology, job)));

  std::vector<Baseline> baselines;
  if (options.baselines && InterruptFlag::signal() == 0)
    baselines = run_baselines(topology, job, options);
  if (options.json) {
    fmt::print("{}", json_text(outcome, topology, job, baselines, options.output));
    return {};
  }
  fmt::print("{}\n", headline(topology, job));
  fmt::print("{}\n", plan_table(plan, topology));
  fmt::print("{}", summary(job, step));
  if (!outcome.bound.name.empty()) {
    fmt::print("bound {}: no plan can be faster ({}); gap {:.1f} %\n",
               format_duration(Seconds(outcome.bound.seconds)), outcome.bound.name,
               100 * (step.step.value() / outcome.bound.seconds - 1));
  }
  if (!baselines.empty()) fmt::print("\n{}", baseline_table(outcome, baselines));
  fmt::print("\nplan {}\n", options.output);
  return {};
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("plan", "assign a job's stages and replicas to a cluster's devices");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  CLI::Option* cluster = command->add_option("--cluster", options->cluster, "cluster file (YAML)");
  CLI::Option* trace =
      command->add_option("--trace", options->trace, "network trace (CSV), with --devices");
  CLI::Option* devices =
      command->add_option("--devices", options->devices, "such as oregon:8xv100,london:4xa100");
  trace->needs(devices)->excludes(cluster);
  devices->needs(trace);
  command->add_option("--job", options->job, "job file (YAML)")->required();
  command->add_option("-o,--output", options->output, "plan file to write")->capture_default_str();
  command->add_option("--policy", options->policy, "who plans")
      ->check(CLI::IsMember({"search", "random", "rank-order", "dtfm"}))
      ->capture_default_str();
  command->add_flag("--baselines", options->baselines,
                    "also simulate rank order, DT-FM's plan and random plans");
  command->add_option("--stages", options->limits.stages, "fix the number of stages")
      ->check(CLI::PositiveNumber);
  command->add_option("--pipelines", options->limits.pipelines, "fix the number of pipelines")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--micro-batch", options->limits.micro_batch,
                   "fix the sequences of a micro-batch")
      ->check(CLI::PositiveNumber);
  // Plan files hold whole numbers of 63 bits; CLI11 takes -1 for the largest of 64.
  command->add_option("--seed", options->seed, "of every random choice")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{std::numeric_limits<std::int64_t>::max()}))
      ->capture_default_str();
  options->threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  command->add_option("--threads", options->threads, "change the time, never the plan")
      ->check(CLI::Range(1, 1024));
  command->add_option("--effort", options->effort, "multiplies the search's evaluations")
      ->check(CLI::Range(0.01, 1000.0))
      ->check(not_a_number)
      ->capture_default_str();
  command->add_option("--time-limit", options->time_limit,
                      "stop after the round that passes it, such as 30s");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &exit_status] {
    if (options->cluster.empty() && options->trace.empty()) {
      exit_status = report_error(
          invalid("plan needs a cluster",
                  "--cluster FILE, or --trace FILE with --devices oregon:8xv100,london:4xa100")
              .error());
      return;
    }
    if (const Result<void> done = make_plan(*options); !done)
      exit_status = report_error(done.error());
    if (InterruptFlag::signal() != 0) exit_status = 128 + InterruptFlag::signal();
  });
}

}  // namespace longhaul
