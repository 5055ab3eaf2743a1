#include "tools/launch_setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "core/median.h"
#include "core/model_math.h"
#include "executor/control/journal.h"
#include "executor/data/token_shard.h"
#include "executor/run/file_transfer.h"
#include "netsim/cluster_file.h"
#include "netsim/network_paths.h"
#include "tools/command.h"

namespace longhaul {
namespace {

/// Share of the cores that the real work of an emulation may fill. At a half, whatever else runs on
/// the machine made a few percent of the work late.
constexpr double kBusyCores = 1.0 / 3;
constexpr std::uint64_t kJobBytesMax = std::uint64_t{1} << 20;

int device_of(const LaunchPlan& plan, int cell) {
  const Plan& grid = plan.file.plan;
  return grid.device(cell / grid.stages(), cell % grid.stages());
}

DataIdentity identity_of(const DatasetPart& part, const LaunchPlan& plan) {
  return {part.fingerprint, part.tokens, plan.dataset.vocabulary, plan.job.model.context};
}

Result<void> check_data(const LaunchPlan& plan) {
  const std::string where = plan.data_folder + "/" + std::string(kDatasetFile);
  if (plan.dataset.vocabulary > plan.job.model.vocabulary) {
    return invalid(fmt::format("{}: tokens of a vocabulary of {} do not fit the model's {}", where,
                               plan.dataset.vocabulary, plan.job.model.vocabulary),
                   "set the model's `vocabulary`, or prepare the data with another tokenizer");
  }
  if (identity_of(plan.dataset.train, plan).sequences() < 1) {
    return invalid(fmt::format("{}: {} tokens are no sequence of {}", where,
                               plan.dataset.train.tokens, plan.job.model.context));
  }
  return {};
}

/// Fills in where a resumed run begins.
Result<std::vector<Error>> resume(Storage& storage, const LaunchPlan& plan,
                                  const std::string& folder, RunSpec& spec) {
  const std::string root = checkpoints_root(folder);
  LH_ASSIGN(const CheckpointSearch found,
            find_newest_checkpoint(storage, root,
                                   [&](const CheckpointManifest& manifest, const std::string& at) {
                                     return verify_all_files(storage, at, manifest);
                                   }));
  if (!found.newest) {
    return failed(fmt::format("there is no checkpoint to resume from in {}", root),
                  "start the run without --resume, under another --name");
  }
  const CheckpointManifest& manifest = *found.newest;
  if (manifest.model != plan.job.model) {
    return invalid(fmt::format("the checkpoint {} is of another model than {}",
                               folder_name(manifest.id), plan.job_path));
  }
  if (manifest.data.batch != static_cast<std::uint64_t>(plan.job.global_batch) ||
      manifest.seed != plan.job.training->seed) {
    return invalid(
        fmt::format("the checkpoint {} was made with a batch of {} and seed {}, the job has {} and "
                    "{}: who sees which sequences would change",
                    folder_name(manifest.id), manifest.data.batch, manifest.seed,
                    plan.job.global_batch, plan.job.training->seed),
        "resume with the same batch and seed");
  }
  spec.first_step = manifest.id.step;
  spec.updates = manifest.updates;
  spec.resume = ResumePoint{manifest.id, manifest.contents()};
  // Terms only grow, also over runs that left no checkpoint.
  LH_ASSIGN(const std::vector<CheckpointId> ids, list_checkpoints(storage, root, false));
  std::uint64_t term = manifest.id.term;
  for (const CheckpointId& id : ids) term = std::max(term, id.term);
  LH_ASSIGN(const Journal journal, Journal::open(storage, folder + "/journal", spec.id));
  if (journal.last()) {
    term = std::max<std::uint64_t>(term, journal.last()->term);
    if (journal.last()->step + 1 == spec.first_step) spec.skips_before = journal.trailing_skips();
  }
  if (term >= kTermMax) return failed("the run was resumed too often");
  spec.term = static_cast<std::uint32_t>(term + 1);
  return found.refused;
}

/// Infinite where it is only supposed.
BytesPerSecond known_rate(const Link& link) {
  const bool is_supposed =
      link.rate_origin == Origin::kAssumed || link.rate_origin == Origin::kModelled;
  return is_supposed ? BytesPerSecond::infinity() : link.rate;
}

/// The CPU kernels keep a bf16 job's activations in fp32, which the job's own formula (for devices
/// that keep two bytes) promises too little for.
Result<void> check_kept_memory(const LaunchPlan& plan) {
  Job kept = plan.job;
  kept.precision = Precision::kFp32;
  Result<void> fits = check_memory(plan.file.plan, plan.topology, kept);
  if (fits || plan.job.precision == Precision::kFp32) return fits;
  Error error = std::move(fits).error();
  error.hint = fmt::format(
      "the CPU kernels keep in fp32 what they compute in {}; plan for devices "
      "of less memory, with `recompute: true` or a smaller micro-batch",
      name_of(plan.job.precision));
  return std::unexpected(std::move(error));
}

}  // namespace

Result<LaunchPlan> load_launch_plan(Storage& storage, const std::string& plan_path) {
  LaunchPlan plan;
  LH_ASSIGN(const PlanInputs inputs, load_plan_inputs(plan_path));
  LH_ASSIGN(plan.topology, load_cluster(resolve_from(plan_path, inputs.cluster_path)));
  plan.job_path = resolve_from(plan_path, inputs.job_path);
  LH_ASSIGN(plan.job_text, read_text(storage, plan.job_path, kJobBytesMax));
  LH_ASSIGN(plan.job, parse_job(plan.job_text, plan.job_path));
  LH_ASSIGN(plan.file, load_plan(plan_path, plan.topology, plan.job));
  Result<void> runnable = check_runnable(plan.job, plan.file.plan);
  if (!runnable) return within(plan.job_path, std::move(runnable).error());
  if (Result<void> shapes = check_shapes(plan.file.plan); !shapes) {
    return within(plan_path, std::move(shapes).error());
  }
  LH_TRY(check_kept_memory(plan));

  const std::string folder = resolve_from(plan.job_path, plan.job.training->data);
  plan.data_folder = std::filesystem::absolute(folder).lexically_normal().string();
  Result<Dataset> dataset = load_dataset(storage, plan.data_folder);
  if (!dataset) {
    Error error = std::move(dataset).error();
    if (error.hint.empty()) error.hint = "make it with `longhaul data prepare TEXT -o FOLDER`";
    return within("the job's data", std::move(error));
  }
  plan.dataset = *std::move(dataset);
  LH_TRY(check_data(plan));
  LH_ASSIGN(plan.predicted,
            simulate_step(plan.topology, plan.job, plan.file.plan, {.timeline = true}));
  return plan;
}

Result<PreparedRun> prepare_run(Storage& storage, const LaunchPlan& plan, std::uint64_t id,
                                const SpecOptions& options) {
  PreparedRun prepared;
  RunSpec& spec = prepared.spec;
  spec.id = id;
  LH_ASSIGN(spec.job_text, self_contained_text(plan.job_text, plan.job));
  spec.job = plan.job;
  spec.plan = plan.file.plan;
  const int site = plan.file.plan.coordinator_site;
  spec.ranks.push_back({"coordinator", "coordinator", site});
  for (int cell = 0; cell < spec.cells(); ++cell) {
    const Device& device = plan.topology.devices[static_cast<std::size_t>(device_of(plan, cell))];
    spec.ranks.push_back({device.name,
                          plan.topology.nodes[static_cast<std::size_t>(device.node)].name,
                          device.site});
  }
  if (options.adapts_codecs && !plan.job.activations_auto) {
    return invalid(fmt::format("{}: the job names the codec of its activations, so that "
                               "--adapt-codecs has nothing to choose from",
                               plan.job_path),
                   "leave it open with `compression: {activations: auto, floor: int4}`");
  }
  spec.adapts_codecs = options.adapts_codecs;
  if (!options.is_on_one_machine) spec.streams = streams_between_sites(plan.topology, spec);
  spec.data_folder = plan.data_folder;
  spec.train = identity_of(plan.dataset.train, plan);
  const DataIdentity validation = identity_of(plan.dataset.validation, plan);
  if (validation.sequences() > 0) spec.validation = validation;
  if (options.resume) {
    LH_ASSIGN(prepared.refused, resume(storage, plan, options.folder, spec));
  }
  const std::uint64_t steps = plan.job.training->steps;
  spec.last_step = options.steps ? std::min(*options.steps, steps) : steps;
  if (spec.first_step >= spec.last_step) {
    return invalid(fmt::format("the run has done {} of {} steps already: nothing is left to do",
                               spec.first_step, spec.last_step),
                   "raise the job's `steps`");
  }
  // Late enough that connections are warm.
  spec.timeline_step = std::min(spec.first_step + 5, spec.last_step - 1);
  return prepared;
}

std::vector<StreamCount> streams_between_sites(const Topology& topology, const RunSpec& spec) {
  std::set<int> sites;
  for (int cell = 0; cell < spec.cells(); ++cell) sites.insert(spec.place_of_cell(cell).site);
  std::vector<StreamCount> counts;
  for (const int site : sites) {
    for (const int other : sites) {
      if (other <= site) continue;
      const Link& there = topology.link(site, other);
      const Link& back = topology.link(other, site);
      const StreamCount count{site, other, std::max(there.streams, back.streams), known_rate(there),
                              known_rate(back)};
      if (count.streams > 1 || std::min(count.rate, count.rate_back).finite()) {
        counts.push_back(count);
      }
    }
  }
  return counts;
}

// ---- emulation

Result<EmulatedNetwork> emulated_network(const LaunchPlan& plan) {
  const Topology& topology = plan.topology;
  const int cells = plan.file.plan.stages() * plan.file.plan.pipelines();
  EmulatedNetwork network;
  network.ranks = cells + 1;
  network.wire_factor = topology.tcp.wire_factor;
  network.paths.resize(static_cast<std::size_t>(network.ranks * network.ranks));

  FlowNetwork flows;
  NetworkPaths paths(topology, flows);
  for (int from = 0; from < cells; ++from) {
    for (int to = 0; to < cells; ++to) {
      if (from == to) continue;
      const NetworkPath& path = paths.path(device_of(plan, from), device_of(plan, to));
      EmulatedPath& emulated = network.path(from + 1, to + 1);
      emulated.latency = path.latency;
      emulated.rate_cap = path.cap;
      emulated.resources.assign(path.resources.begin(), path.resources.end());
    }
  }
  network.capacities = flows.capacities();

  // The simulation gives control messages a latency and no bandwidth; so does the emulation.
  const int site = plan.file.plan.coordinator_site;
  for (int cell = 0; cell < cells; ++cell) {
    const int other = topology.site_of(device_of(plan, cell));
    const auto set = [&](int from_rank, int to_rank, int from_site, int to_site) {
      EmulatedPath& path = network.path(from_rank, to_rank);
      path.latency = topology.link(from_site, to_site).latency;
      path.rate_cap = topology.link(from_site, to_site).rate;
    };
    set(kCoordinatorRank, cell + 1, site, other);
    set(cell + 1, kCoordinatorRank, other, site);
  }
  return network;
}

std::vector<EmulationSpec::Device> emulated_devices(const LaunchPlan& plan) {
  const Plan& grid = plan.file.plan;
  const std::vector<StageShape> shapes = stage_shapes(grid.layers);
  std::vector<EmulationSpec::Device> devices;
  for (int cell = 0; cell < grid.stages() * grid.pipelines(); ++cell) {
    const DeviceKind& kind = plan.topology.kind_of(device_of(plan, cell));
    const StageShape& shape = shapes[static_cast<std::size_t>(cell % grid.stages())];
    const StageWork work = stage_work(plan.job.model, shape, grid.micro_batch);
    const Precision precision = plan.job.precision;
    devices.push_back({compute_time(kind, precision, work.forward).value(),
                       compute_time(kind, precision, work.recompute).value(),
                       compute_time(kind, precision, work.backward).value(),
                       update_time(kind, stage_parameters(plan.job.model, shape)).value(),
                       compute_time(kind, precision, work.backward_input).value(),
                       compute_time(kind, precision, work.backward_weight).value()});
  }
  return devices;
}

Result<Dilation> choose_dilation(const LaunchPlan& plan, int cores) {
  const ModelShape& model = plan.job.model;
  const Plan& grid = plan.file.plan;
  LH_ASSIGN(ModelStage stage, ModelStage::create(model, {0, model.layers, true, true}));
  stage.initialise_weights(1);
  StageBatch batch(stage, grid.micro_batch);
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  // The median: a machine that does other things, too, is that much slower.
  std::vector<double> forwards, backwards;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 101 && (i < 5 || elapsed(begin) < 1); ++i) {
    const Clock::time_point start = Clock::now();
    stage.forward(batch);
    forwards.push_back(elapsed(start));
    const Clock::time_point middle = Clock::now();
    stage.backward(batch, 1);
    backwards.push_back(elapsed(middle));
  }
  const double forward_s = median(forwards);
  const double backward_s = median(backwards);
  const int micro_batches =
      std::accumulate(grid.micro_batches.begin(), grid.micro_batches.end(), 0);
  Dilation dilation;
  dilation.real_step_s =
      micro_batches * (forward_s + backward_s + (recomputes(grid, plan.job) ? forward_s : 0));
  const double busy = dilation.real_step_s / (plan.predicted.step.value() * cores * kBusyCores);

  // A stage's real work is its share of the model's.
  const double model_forward = stage_work(model, {model.layers, true, true}, 1).forward.value();
  double piece = 0;
  const std::vector<StageShape> shapes = stage_shapes(grid.layers);
  const auto devices = emulated_devices(plan);
  for (std::size_t cell = 0; cell < devices.size(); ++cell) {
    const StageShape& shape = shapes[cell % shapes.size()];
    const double share = stage_work(model, shape, 1).forward.value() / model_forward;
    piece = std::max({piece, 2 * forward_s * share / devices[cell].forward_s,
                      2 * backward_s * share / devices[cell].backward_s});
  }
  const double needed = std::max({1.0, busy, piece});
  dilation.factor = std::ceil(needed * 20 - 1e-9) / 20;  // steps of 0.05
  dilation.reason = needed == 1.0    ? "the real work fits"
                    : needed == busy ? "the real work fills a third of the cores"
                                     : "a stage's real work takes half of its device's time";
  return dilation;
}

}  // namespace longhaul
