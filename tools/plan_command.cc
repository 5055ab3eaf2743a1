// `longhaul plan`: finds a plan for a job on a cluster, and compares it with other policies.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/file.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/quantity.h"
#include "netsim/cluster_file.h"
#include "planner/baselines.h"
#include "planner/trade_off.h"
#include "tools/command.h"
#include "tools/dtfm_command.h"
#include "tools/histories.h"
#include "tools/plan_explain.h"
#include "tools/plan_from.h"
#include "tools/plan_policies.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

/// The cluster file to use: the one given, or one written next to the plan from --trace.
Result<std::string> cluster_file(const PlanOptions& options) {
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

std::string json_text(const Outcome& outcome, const Topology& topology, const Job& job,
                      const std::vector<Baseline>& baselines, const Explanation* explanation,
                      const PlanOptions& options) {
  const Plan& plan = outcome.judged.plan;
  const double step = outcome.judged.step.step.value();
  using Json = nlohmann::ordered_json;
  Json out;
  out["version"] = 1;
  out["policy"] = outcome.policy;
  out["plan_file"] = options.output;
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
  if (outcome.from) out["from"] = Json::parse(warm_start_json(outcome, options, topology));
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
  if (explanation != nullptr) {
    if (!outcome.all.empty())
      out["alternatives"] = Json::parse(alternatives_json(outcome.others, job));
    out["explain"] = Json::parse(explanation_json(*explanation, topology, job));
    if (const Json histories = Json::parse(histories_json(plan, topology, job));
        !histories.empty()) {
      out["explain"]["histories"] = histories;
    }
  }
  if (!outcome.front.empty())
    out["pareto"] = Json::parse(pareto_json(outcome.front, topology, job));
  return out.dump(2) + "\n";
}

/// Whether the options about money can be answered.
Result<void> check_prices(const Topology& topology, const PlanOptions& options) {
  if (options.objective == "time" && options.max_cost == 0) return {};
  if (options.policy != "search") {
    return invalid(fmt::format("policy {} knows no prices", options.policy),
                   "--objective and --max-cost go with --policy search");
  }
  if (has_prices(topology, options.devices_used)) {
    for (const std::string& kind : kinds_without_price(topology, options.devices_used))
      fmt::print(stderr, "note: device kind {} has no price and counts as free\n", kind);
    return {};
  }
  const std::string message =
      fmt::format("cluster `{}` has no prices: every plan costs nothing", topology.name);
  const std::string hint = "give its device kinds a `price` (USD/h) or its sites an `egress` price";
  if (options.objective == "pareto" && options.max_cost == 0) {
    fmt::print(stderr, "note: {}; {}\n", message, hint);
    return {};
  }
  return invalid(message, hint);
}

/// Whether a plan for another trainer is made.
Result<void> check_target(const PlanOptions& options) {
  if (options.target.empty()) return {};
  if (options.policy != "search" || options.objective == "pareto") {
    return invalid("--for goes with --policy search and --objective time or cost",
                   "a plan of another kind can be tried with `longhaul plan export`");
  }
  return {};
}

/// Whether what only the search knows goes with the rest.
Result<void> check_search_options(const PlanOptions& options) {
  if (options.policy != "search" && (!options.pins.empty() || !options.from.empty())) {
    return invalid(fmt::format("policy {} knows no pins and no plan in use", options.policy),
                   "--pin and --from go with --policy search");
  }
  if (options.any_all_reduce && (options.policy != "search" || !options.target.empty())) {
    return invalid("--any-all-reduce is for plans of the search that longhaul simulates",
                   "leave out --for, and --policy unless it is search");
  }
  if (options.objective == "pareto" && !options.from.empty()) {
    return invalid("--from makes one plan, --objective pareto several",
                   "--objective time or cost, with --max-cost for a price between");
  }
  return {};
}

Result<void> make_plan(const PlanOptions& options) {
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

  LH_TRY(admitted_devices(topology, options.devices_used));
  LH_TRY(check_prices(topology, options));
  LH_TRY(check_target(options));
  LH_TRY(check_search_options(options));
  // Whether the plan can be written is known before the search, not after it.
  LH_TRY(check_writable(options.output));
  const InterruptFlag interrupt;
  LH_ASSIGN(const Outcome outcome, run_policy(topology, job, options, limit));
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
  Explanation explanation;
  if (options.explain) {
    LH_ASSIGN(explanation, explain_plan(topology, job, plan, options.devices_used,
                                        options.any_all_reduce, options.threads));
  }
  if (options.json) {
    fmt::print("{}", json_text(outcome, topology, job, baselines,
                               options.explain ? &explanation : nullptr, options));
    return {};
  }
  fmt::print("{}\n", headline(topology, job));
  fmt::print("{}\n", plan_table(plan, topology));
  fmt::print("{}", summary(job, step));
  if (!outcome.bound.name.empty() && options.objective != "cost") {
    fmt::print("bound {}: no plan can be faster ({}); gap {:.1f} %\n",
               format_duration(Seconds(outcome.bound.seconds)), outcome.bound.name,
               100 * (step.step.value() / outcome.bound.seconds - 1));
  }
  if (options.explain) {
    fmt::print("{}\n{}",
               alternatives_text(outcome.judged, outcome.others, job, goal_of(options, job)),
               explanation_text(explanation, topology, job));
    if (const std::string histories = histories_text(plan, topology, job); !histories.empty()) {
      fmt::print("\n{}", histories);
    }
  }
  if (outcome.from) fmt::print("\n{}", warm_start_text(outcome, options, topology));
  if (!outcome.front.empty()) fmt::print("\n{}", pareto_text(outcome.front, topology, job));
  if (!baselines.empty()) fmt::print("\n{}", baseline_table(outcome, baselines));
  fmt::print("\nplan {}\n", options.output);
  return {};
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names = {"search"};
  for (const std::string_view name : baseline_names()) names.emplace_back(name);
  return names;
}

/// The options that belong to --objective dtfm alone; it shares --stages, --seed, --threads,
/// --effort, --time-limit and --json.
void add_dtfm_options(CLI::App& command, PlanOptions& options) {
  command
      .add_option("--objective", options.objective,
                  "what to make small: a simulated step's time, its cost, both (a table; the "
                  "fastest is written), or DT-FM's cost of two raw matrices")
      ->check(CLI::IsMember({"time", "cost", "pareto", "dtfm"}))
      ->capture_default_str();
  const auto amount = CLI::Range(0.0, 1e9);
  command.add_option("--latency-ms", options.dtfm.latency_file, "dtfm: matrix of latencies (CSV)");
  command.add_option("--bandwidth-gbps", options.dtfm.bandwidth_file,
                     "dtfm: matrix of rates (CSV, Gbit/s)");
  command
      .add_option("--gradient-gb", options.dtfm.gradient_gb,
                  "dtfm: gradients of one stage, in 10^9 bytes")
      ->check(amount)
      ->check(not_a_number);
  command
      .add_option("--activation-gb", options.dtfm.activation_gb,
                  "dtfm: activations of a pipeline's step between two stages, in 10^9 bytes")
      ->check(amount)
      ->check(not_a_number);
}

Result<void> plan_by_dtfm(const PlanOptions& options) {
  if (!options.job.empty() || !options.cluster.empty() || !options.trace.empty()) {
    return invalid("--objective dtfm reads two matrices, no --job, --cluster or --trace",
                   "for a plan of a job by DT-FM's objective: --policy dtfm");
  }
  if (options.explain || options.max_cost > 0 || !options.target.empty() || !options.pins.empty() ||
      !options.from.empty() || options.any_all_reduce || !text_of(options.devices_used).empty()) {
    return invalid(
        "--objective dtfm knows no --explain, --max-cost, --for, --from, --pin, --exclude, "
        "--max-sites or --any-all-reduce",
        "they go with a plan of a job");
  }
  DtfmCommandOptions dtfm = options.dtfm;
  dtfm.stages = options.limits.stages;
  dtfm.seed = options.seed;
  dtfm.threads = options.threads;
  dtfm.effort = options.effort;
  dtfm.time_limit = options.time_limit;
  dtfm.json = options.json;
  return plan_dtfm(dtfm);
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("plan", "assign a job's stages and replicas to a cluster's devices");
  add_plan_export(*command, exit_status);
  add_plan_compare(*command, exit_status);
  const auto options = std::make_shared<PlanOptions>();  // owned by the callback below
  CLI::Option* cluster = command->add_option("--cluster", options->cluster, "cluster file (YAML)");
  CLI::Option* trace =
      command->add_option("--trace", options->trace, "network trace (CSV), with --devices");
  CLI::Option* devices =
      command->add_option("--devices", options->devices, "such as oregon:8xv100,london:4xa100");
  trace->needs(devices)->excludes(cluster);
  devices->needs(trace);
  add_dtfm_options(*command, *options);
  command->add_option("--job", options->job, "job file (YAML)");
  command->add_option("-o,--output", options->output, "plan file to write")->capture_default_str();
  command->add_option("--policy", options->policy, "who plans")
      ->check(CLI::IsMember(policy_names()))
      ->capture_default_str();
  command->add_flag("--baselines", options->baselines,
                    "also simulate what every other policy plans");
  command
      ->add_option("--for", options->target,
                   "make a plan that this trainer can run, see `plan export`")
      ->check(CLI::IsMember({"torchrun", "megatron", "torchtitan"}));
  command->add_option("--stages", options->limits.stages, "fix the number of stages")
      ->check(CLI::PositiveNumber);
  command->add_option("--pipelines", options->limits.pipelines, "fix the number of pipelines")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--micro-batch", options->limits.micro_batch,
                   "fix the sequences of a micro-batch")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--exclude", options->devices_used.excluded,
                   "leave out a site, node, device kind or device; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--max-sites", options->devices_used.sites_max, "sites that a plan may span")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--pin", options->pins,
                   "use a device, at a stage, such as oregon-1/0=0 or oregon-1/0=last; may be "
                   "repeated")
      ->allow_extra_args(false);
  CLI::Option* from = command->add_option(
      "--from", options->from, "the plan in use: says whether moving to another one pays");
  command->add_option("--horizon", options->horizon, "with --from: how long the new plan will run")
      ->needs(from)
      ->capture_default_str();
  command->add_flag("--any-all-reduce", options->any_all_reduce,
                    "let the search choose ring and hierarchical all-reduces, which `launch` does "
                    "not run yet");
  command->add_flag("!--no-seeds", options->seeds,
                    "look at no plans of the quick baselines, only at the search's own");
  command->add_option("--max-cost", options->max_cost, "most USD that a billion tokens may cost")
      ->check(CLI::PositiveNumber)
      ->check(not_a_number);
  command->add_flag("--explain", options->explain,
                    "also print bounds and estimates, memory, what better links would save, and "
                    "the best plans of other grids");
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
  command->callback([command, options, &exit_status] {
    if (!command->get_subcommands().empty()) return;
    if (options->objective == "dtfm") {
      if (const Result<void> done = plan_by_dtfm(*options); !done)
        exit_status = report_error(done.error());
      if (InterruptFlag::signal() != 0) exit_status = 128 + InterruptFlag::signal();
      return;
    }
    if (options->job.empty()) {
      exit_status = report_error(invalid("--job is required", "--job FILE").error());
      return;
    }
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
