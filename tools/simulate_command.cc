// `longhaul simulate`: prices a plan by simulating one step.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/quantity.h"
#include "netsim/cluster_file.h"
#include "netsim/step_simulation.h"
#include "netsim/timeline.h"
#include "tools/command.h"
#include "tools/plan_choices.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

struct Options {
  std::string plan;
  std::string cluster;
  std::string job;
  std::string timeline;
  bool json = false;
};

nlohmann::ordered_json times_json(const TaskletTimes& times) {
  return {{"compute_s", times.compute.value()}, {"transfer_s", times.transfer.value()},
          {"bubble_s", times.bubble.value()},   {"reduce_s", times.reduce.value()},
          {"commit_s", times.commit.value()},   {"update_s", times.update.value()}};
}

std::string json_text(const Topology& topology, const Job& job, const Plan& plan,
                      const StepResult& step) {
  nlohmann::ordered_json out;
  out["version"] = 1;
  out["step_s"] = step.step.value();
  out["tokens_per_s"] = job.tokens_per_step() / step.step.value();
  out["usd_per_step"] = step.usd;
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

Result<void> simulate(const Options& options) {
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
  LH_TRY(check_memory(file.plan, topology, job));
  LH_ASSIGN(const StepResult step,
            simulate_step(topology, job, file.plan, {.timeline = !options.timeline.empty()}));
  if (!options.timeline.empty()) {
    LH_TRY(write_file(options.timeline, timeline_json(step, topology, file.plan)));
  }
  if (options.json) {
    fmt::print("{}", json_text(topology, job, file.plan, step));
    return {};
  }
  fmt::print("{}", headline(topology, job));
  fmt::print("plan {}: {} stages x {} pipelines\n", options.plan, file.plan.stages(),
             file.plan.pipelines());
  fmt::print("{}", choices_table(file.plan, topology, job));
  fmt::print("{}\n", summary(job, step));
  fmt::print("{}\n", step_table(file.plan, step));
  fmt::print("{}", traffic_table(topology, step, 8));
  if (!options.timeline.empty()) fmt::print("\ntimeline {}\n", options.timeline);
  return {};
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
  command->callback([options, &exit_status] {
    if (const Result<void> done = simulate(*options); !done)
      exit_status = report_error(done.error());
  });
}

}  // namespace longhaul
