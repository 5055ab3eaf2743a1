// What `launch` works out before it starts anything: the description of the run, from plan, data
// and, for a resumed run, the checkpoints of its folder; and how it is emulated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/topology.h"
#include "executor/data/dataset.h"
#include "executor/emulation/emulated_network.h"
#include "executor/run/run_spec.h"
#include "executor/storage/storage.h"
#include "netsim/step_simulation.h"

namespace longhaul {

struct LaunchPlan {
  Topology topology;
  PlanFile file;
  std::string job_path;
  std::string job_text;
  Job job;
  Dataset dataset;
  std::string data_folder;  // absolute
  StepResult predicted;     // of one step, with timeline
};
/// Reads a plan file and all that it names, and simulates it. Errors: those of the files, a job or
/// a plan that cannot be run, data that is not there.
Result<LaunchPlan> load_launch_plan(Storage& storage, const std::string& plan_path);

struct SpecOptions {
  std::string folder;                  // of the run
  bool resume = false;                 // go on from its newest checkpoint
  std::optional<std::uint64_t> steps;  // at most, counted from the run's first
  bool adapts_codecs = false;          // RunSpec's
  bool is_on_one_machine = false;      // there is no path between cities that needs streams
};
struct PreparedRun {
  RunSpec spec;
  std::vector<Error> refused;  // newer checkpoints that could not be used
};
/// The run's description. `id` is a new run's identity; a resumed one keeps its own.
Result<PreparedRun> prepare_run(Storage& storage, const LaunchPlan& plan, std::uint64_t id,
                                const SpecOptions& options);

/// The streams that the links between the workers' sites take, of both directions the more, and the
/// rates that somebody has measured or given.
std::vector<StreamCount> streams_between_sites(const Topology& topology, const RunSpec& spec);

/// Ranks of a plan on their topology; the coordinator is in the plan's coordinator site.
Result<EmulatedNetwork> emulated_network(const LaunchPlan& plan);
/// The devices' tables, by cell.
std::vector<EmulationSpec::Device> emulated_devices(const LaunchPlan& plan);

struct Dilation {
  double factor = 1;
  double real_step_s = 0;  // CPU seconds of one step's tensor work on this machine
  std::string reason;
};
/// How much slower than emulated time the wall must run so that the real work fits: it fills at
/// most a third of the cores, and no piece of it takes longer than half of its table's time. From a
/// timed micro-batch on this machine, which takes a second or two.
Result<Dilation> choose_dilation(const LaunchPlan& plan, int cores);

}  // namespace longhaul
