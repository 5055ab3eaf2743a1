// `longhaul simulate`: prices a plan by simulating one step, as it is and as it might be.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "core/config_cursor.h"
#include "core/file.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/quantity.h"
#include "netsim/cluster_file.h"
#include "netsim/step_simulation.h"
#include "netsim/timeline.h"
#include "tools/command.h"
#include "tools/histories.h"
#include "tools/plan_choices.h"
#include "tools/run_forecast.h"
#include "tools/tables.h"
#include "tools/what_if.h"
#include "tools/what_if_run.h"

namespace longhaul {
namespace {

struct Options {
  std::string plan;
  std::string cluster;
  std::string job;
  std::string timeline;
  bool json = false;
  std::string csv;         // file, or `-`; empty: none
  std::string links_like;  // a site
  std::string conditions;  // file; empty: nothing unusual
  RunLength run;
  WhatIfRequest what_if;
};

constexpr std::string_view kWhatIf = R"(What if: an edit is a sentence, such as
  link tokyo->oregon bandwidth *2    A->B, A<->B, A->*, *->B or * for all between sites; bandwidth,
                                     latency, rtt (both directions, each half of it), loss, jitter,
                                     scope node|site_pair, streams
  inside london latency 100us        the network inside a site: the same properties
  site oregon uplink 5Gbit/s         uplink, downlink, egress
  node oregon-1 nic unlimited        nic; node * is every one
  device v100 speed +20%             a kind, a device such as oregon-1/0 or *; speed, memory, price,
                                     failures, kind
  tcp window 16MiB                   window, streams, congestion bbr|cubic, wire_factor
  job batch.global 2048              any key of the job file
  percentile 95                      of the trace that the cluster names
  remove site london                 site, node, device or link
  add site mumbai:8xa100             or add node oregon:4xt4
A value stands with its unit, or is changed: *2, /4, +5ms, -5ms, +10%, -10%.
A sweep has values in the place of one: 50Mbit/s..5Gbit/s log 12, *0.5..*2 log 5, 5..95 lin 10,
1,2,4,8; or `remove site *`.

  longhaul simulate plan.yaml --set 'link * bandwidth *2' --set 'job compression.activations int8'
  longhaul simulate plan.yaml --remove site london --replan
  longhaul simulate plan.yaml --scenario 'fast: link * bandwidth 10Gbit/s' --scenario 'near: link * latency /2'
  longhaul simulate plan.yaml --sweep 'link * bandwidth 50Mbit/s..5Gbit/s log 12' --csv sweep.csv)";

nlohmann::ordered_json times_json(const TaskletTimes& times) {
  return {{"compute_s", times.compute.value()}, {"transfer_s", times.transfer.value()},
          {"bubble_s", times.bubble.value()},   {"reduce_s", times.reduce.value()},
          {"commit_s", times.commit.value()},   {"update_s", times.update.value()}};
}

/// `first`: the step of first visits, where a codec asks for them.
std::string json_text(const Topology& topology, const Job& job, const Plan& plan,
                      const StepResult& step, const std::optional<Seconds>& first) {
  nlohmann::ordered_json out;
  out["version"] = 1;
  out["step_s"] = step.step.value();
  out["tokens_per_s"] = job.tokens_per_step() / step.step.value();
  out["usd_per_step"] = step.usd;
  if (first) {
    out["first_epoch_step_s"] = first->value();
    out["histories"] = nlohmann::ordered_json::parse(histories_json(plan, topology, job));
  }
  out.update(nlohmann::ordered_json::parse(choices_json(plan, topology, job)));
  for (std::size_t c = 0; c < step.tasklets.size(); ++c) {
    const int pipeline = static_cast<int>(c) / plan.stages();
    const int stage = static_cast<int>(c) % plan.stages();
    nlohmann::ordered_json tasklet = times_json(step.tasklets[c]);
    tasklet["pipeline"] = pipeline;
    tasklet["stage"] = stage;
    tasklet["device"] =
        topology.devices[static_cast<std::size_t>(plan.device(pipeline, stage))].name;
    out["tasklets"].push_back(std::move(tasklet));
  }
  out["links"] = nlohmann::ordered_json::array();
  for (const LinkTraffic& traffic : step.traffic) {
    out["links"].push_back(
        {{"from", topology.sites[static_cast<std::size_t>(traffic.from_site)].name},
         {"to", topology.sites[static_cast<std::size_t>(traffic.to_site)].name},
         {"bytes_raw", traffic.raw.value()},
         {"bytes_wire", traffic.wire.value()}});
  }
  return out.dump(2) + "\n";
}

/// Points out an input that is not what the plan was made from; 0: the plan does not say.
void note_change(const std::string& path, std::uint64_t planned, std::uint64_t now) {
  if (planned == 0 || planned == now) return;
  fmt::print(
      stderr,
      "note: {} has changed since the plan was written; its predictions may no longer hold\n",
      path);
}

/// Whether the options go together.
Result<void> check_options(const Options& options) {
  const bool asks = !options.what_if.is_empty();
  if (!asks && (options.what_if.replan || !options.csv.empty() || !options.links_like.empty())) {
    return invalid("--replan, --csv and --links-like go with a change",
                   "--set, --remove, --add, --scenario or --sweep");
  }
  if (asks && !options.timeline.empty()) {
    return invalid("--timeline shows one step, and changes make several", "leave one of them out");
  }
  if (options.run.is_said() && (asks || !options.timeline.empty())) {
    return invalid(
        "--steps, --days and --tokens make a run, which is neither a table nor a timeline",
        "leave one of them out; --conditions alone goes with both");
  }
  if (options.json && options.csv == "-") {
    return invalid("--json and --csv - both write to the standard output", "give --csv a file");
  }
  return {};
}

/// The table of all changes; its exit status.
Result<int> answer_what_if(const Options& options, WhatIfBase base, const Plan& plan) {
  base.links_like = options.links_like;
  base.conditions_path = options.conditions;
  LH_ASSIGN(ConfigFile text, ConfigFile::load(base.job_path));
  base.job_text = text.text();
  // Whether the table can be written is known before it is made, not after.
  if (!options.csv.empty() && options.csv != "-") LH_TRY(check_writable(options.csv));
  const InterruptFlag interrupt;
  WhatIfTable table;
  {
    ProgressLine line;
    const WhatIfHooks hooks{.interrupted = [] { return InterruptFlag::signal() != 0; },
                            .progress = [&](const std::string& text_now) { line.show(text_now); }};
    LH_ASSIGN(table, what_if(base, plan, options.what_if, hooks));
  }
  if (!options.csv.empty() && options.csv != "-")
    LH_TRY(write_file(options.csv, what_if_csv(table)));
  if (options.json) {
    fmt::print("{}", what_if_json(table));
  } else if (options.csv == "-") {
    fmt::print("{}", what_if_csv(table));
  } else {
    fmt::print("{}", headline(base.topology, base.job));
    fmt::print("plan {}: {} stages x {} pipelines\n\n", options.plan, plan.stages(),
               plan.pipelines());
    fmt::print("{}", what_if_text(table));
    if (!options.csv.empty()) fmt::print("\ntable {}\n", options.csv);
  }
  if (InterruptFlag::signal() != 0) return 128 + InterruptFlag::signal();
  // The first row is the plan as it is. With nothing else to show, the answer is no.
  const bool has_answer = std::any_of(
      table.rows.begin() + 1, table.rows.end(),
      [](const WhatIfRow& row) { return row.problem.empty() && row.change != kPlannedAnew; });
  return has_answer ? 0 : static_cast<int>(ErrorCode::kInfeasible);
}

/// Many steps; the exit status.
Result<int> forecast(const Options& options, const Topology& topology, const Job& job,
                     const Plan& plan, Conditions conditions) {
  LH_ASSIGN(const RunLimits limits, limits_of(options.run, job));
  std::string assumed;
  complete_checkpoints(conditions, job, plan, assumed);
  if (!assumed.empty()) fmt::print(stderr, "assumed: {}\n", assumed);
  const InterruptFlag interrupt;
  RunForecast run;
  {
    ProgressLine line;
    const RunWatch watch{
        .should_stop = [] { return InterruptFlag::signal() != 0; },
        .on_progress = [&](const RunForecast& now) { line.show(forecast_progress(now, limits)); }};
    LH_ASSIGN(run, simulate_run(topology, job, plan, conditions, limits, watch));
  }
  if (options.json) {
    fmt::print("{}", forecast_json(run));
  } else {
    fmt::print("{}plan {}: {} stages x {} pipelines\n", headline(topology, job), options.plan,
               plan.stages(), plan.pipelines());
    if (!options.conditions.empty()) fmt::print("conditions {}\n", options.conditions);
    fmt::print("\n{}", forecast_text(run));
  }
  return run.interrupted ? 128 + InterruptFlag::signal() : 0;
}

Result<int> simulate(const Options& options) {
  LH_TRY(check_options(options));
  LH_ASSIGN(const PlanInputs inputs, load_plan_inputs(options.plan));
  const std::string cluster =
      options.cluster.empty() ? resolve_from(options.plan, inputs.cluster_path) : options.cluster;
  const std::string job_path =
      options.job.empty() ? resolve_from(options.plan, inputs.job_path) : options.job;
  LH_ASSIGN(const Topology topology, load_cluster(cluster));
  LH_ASSIGN(const Job job, load_job(job_path));
  LH_ASSIGN(const PlanFile file, load_plan(options.plan, topology, job));
  note_change(cluster, file.cluster_hash, topology.hash);
  note_change(job_path, file.job_hash, job.hash);
  if (!options.what_if.is_empty()) {
    return answer_what_if(options, {topology, job, cluster, job_path, "", ""}, file.plan);
  }
  LH_TRY(check_memory(file.plan, topology, job));
  Conditions conditions;
  if (!options.conditions.empty()) {
    LH_ASSIGN(conditions, load_conditions(options.conditions, topology));
  }
  if (options.run.is_said()) return forecast(options, topology, job, file.plan, conditions);
  LH_ASSIGN(const StepResult step,
            simulate_step(topology, job, file.plan,
                          {.timeline = !options.timeline.empty(), .conditions = &conditions}));
  if (!options.timeline.empty()) {
    LH_TRY(write_file(options.timeline, timeline_json(step, topology, file.plan)));
  }
  std::optional<Seconds> first;
  if (asks_visit(topology, job, file.plan)) {
    LH_ASSIGN(const StepResult of_first,
              simulate_step(topology, job, file.plan,
                            {.conditions = &conditions, .visit = Visit::kFirst}));
    first = of_first.step;
  }
  if (options.json) {
    fmt::print("{}", json_text(topology, job, file.plan, step, first));
    return 0;
  }
  fmt::print("{}", headline(topology, job));
  fmt::print("plan {}: {} stages x {} pipelines\n", options.plan, file.plan.stages(),
             file.plan.pipelines());
  fmt::print("{}", choices_table(file.plan, topology, job));
  fmt::print("{}", summary(job, step));
  if (first) {
    fmt::print("{}\n{}", first_epoch_text(job, *first), histories_text(file.plan, topology, job));
  }
  fmt::print("\n{}\n", step_table(file.plan, step));
  fmt::print("{}", traffic_table(topology, step, 8));
  if (!options.timeline.empty()) fmt::print("\ntimeline {}\n", options.timeline);
  return 0;
}

void add_what_if_options(CLI::App& command, Options& options) {
  WhatIfRequest& what_if = options.what_if;
  const auto repeatable = [&](const std::string& name, std::vector<std::string>& values,
                              const std::string& text) {
    command.add_option(name, values, text)->allow_extra_args(false)->group("What if");
  };
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return command.add_option(name, value, text)->group("What if");
  };
  repeatable("--set", what_if.sets,
             "an edit of cluster or job; may be repeated, all together make one row");
  repeatable("--remove", what_if.removed,
             "in that row: site, node, device or link NAME; may be repeated");
  repeatable("--add", what_if.added,
             "in that row: site NAME:8xa100 or node SITE:8xa100; may be repeated");
  repeatable("--scenario", what_if.scenarios, "another row: 'NAME: edit; edit'; may be repeated");
  repeatable("--sweep", what_if.sweeps,
             "a row for each point of an edit with several values, on top of --set; two make all "
             "combinations");
  add("--links-like", options.links_like,
      "links of an added site that no trace knows: those of this site");
  command
      .add_flag("--replan", what_if.replan,
                "search a plan for each row, as `plan` does, in place of keeping the old one")
      ->group("What if");
  add("--seed", what_if.seed, "of the search")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{std::numeric_limits<std::int64_t>::max()}))
      ->capture_default_str();
  add("--effort", what_if.effort, "multiplies the search's evaluations")
      ->check(CLI::Range(0.01, 1000.0))
      ->check(not_a_number)
      ->capture_default_str();
  what_if.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  add("--threads", what_if.threads, "change the time, never the table")->check(CLI::Range(1, 1024));
  add("--csv", options.csv, "write the table (CSV); -: to the standard output");
  command.footer(std::string(kWhatIf));
}

}  // namespace

void add_simulate_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("simulate", "simulate one step of a plan and say where it goes");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("plan", options->plan, "plan file (YAML)")->required();
  command->add_option("--cluster", options->cluster, "cluster file in place of the plan's");
  command->add_option("--job", options->job, "job file in place of the plan's");
  command->add_option("--timeline", options->timeline,
                      "write a timeline for ui.perfetto.dev (JSON)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->add_option("--conditions", options->conditions,
                      "what is unusual meanwhile: networks that change, jitter, slow devices, "
                      "failures (YAML)");
  command->add_option("--steps", options->run.steps, "simulate a run of so many steps")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000'000}))
      ->group("Runs");
  command->add_option("--days", options->run.days, "a run of so many days")
      ->check(CLI::Range(1e-6, 36500.0))
      ->check(not_a_number)
      ->group("Runs");
  command->add_option("--tokens", options->run.tokens, "a run of so many tokens, such as 10B")
      ->group("Runs");
  add_what_if_options(*command, *options);
  command->callback([options, &exit_status] {
    const Result<int> done = simulate(*options);
    exit_status = done ? *done : report_error(done.error());
  });
}

std::vector<std::string> with_joined_words(std::vector<std::string> arguments) {
  const auto is_noun = [](const std::string& word) {
    return word == "site" || word == "node" || word == "device" || word == "link";
  };
  for (std::size_t i = 0; i + 2 < arguments.size(); ++i) {
    if ((arguments[i] != "--remove" && arguments[i] != "--add") || !is_noun(arguments[i + 1]))
      continue;
    arguments[i + 1] += ' ' + arguments[i + 2];
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 2);
  }
  return arguments;
}

}  // namespace longhaul
