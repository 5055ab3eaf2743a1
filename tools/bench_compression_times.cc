// The second half of suite `compression`: steps of GPT-2 XL on V100s, made small
// (compression_world.h), carried out in virtual time and held against the simulator.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "core/file.h"
#include "executor/data/prepare.h"
#include "executor/run/device_times.h"
#include "executor/run/simulated_run.h"
#include "executor/storage/real_storage.h"
#include "executor/storage/sim_storage.h"
#include "netsim/cluster_file.h"
#include "netsim/device_file.h"
#include "netsim/shipped.h"
#include "tools/bench_compression.h"
#include "tools/bench_runs.h"
#include "tools/compression_world.h"
#include "tools/launch_setup.h"
#include "tools/side_by_side.h"

namespace longhaul {
namespace {

constexpr int kEpochs = 6;  // of one step here
// AQ-SGD's headlines (Wang et al., NeurIPS 2022), at 100 Mbit/s against fp32.
constexpr double kFasterMin = 4.3, kFasterWithGradientsMin = 4.9;
constexpr double kOfBoundMin = 0.85;
constexpr double kSlowerMax = 1.18;  // 100 Mbit/s compressed over 10 Gbit/s as it is
constexpr double kWallMax = 0.08;    // of |measured / predicted - 1|
constexpr int kWallSteps = 5;
/// The first sees every sample for the first time; of the last only the beginning is looked at.
constexpr int kSteps = 4;

constexpr const char* kPlain = "activations: none, gradients: none";
constexpr const char* kBf16 = "activations: bf16, gradients: bf16";
constexpr const char* kAq =
    "activations: aq-int3, activation_gradients: int6, "
    "gradients: none, history: {first: int8}";
constexpr const char* kAqInt4 =
    "activations: aq-int3, activation_gradients: "
    "int6, gradients: int4, history: {first: int8}";

std::vector<CompressionWorld> worlds() {
  const auto eager = [](CompressionWorld world) {
    world.name += "-eager";
    world.family = ScheduleFamily::kOneForwardOneBackward;
    return world;
  };
  const CompressionWorld fp32 = {.name = "fp32", .compression = kPlain};
  const CompressionWorld aq = {.name = "aq", .compression = kAq};
  const CompressionWorld fast = {.name = "fast", .compression = kPlain, .link_mbit_per_s = 10'000};
  return {fp32,
          {.name = "bf16", .compression = kBf16},
          aq,
          fast,
          eager(fp32),
          eager(aq),
          eager(fast),
          {.name = "fp32-pair", .compression = kPlain, .pipelines = 2},
          {.name = "bf16-pair", .compression = kBf16, .pipelines = 2},
          {.name = "aq-pair", .compression = kAqInt4, .pipelines = 2},
          {.name = "fast-pair", .compression = kPlain, .link_mbit_per_s = 10'000, .pipelines = 2}};
}

struct WorldTimes {
  double first_s = 0;  // a step of first visits
  double later_s = 0;
  StepResult predicted;  // of a later one
  StepResult predicted_first;
  std::string binding;  // what the predicted step waits for most

  double epochs(double share) const { return first_s + (share * kEpochs - 1) * later_s; }
  double of_bound() const {
    return std::min(predicted.step.value() / later_s, predicted_first.step.value() / first_s);
  }
};

Result<void> write_devices(const std::string& folder, const DeviceKind& v100) {
  for (int stage = 0; stage < kXlStages; ++stage) {
    LH_TRY(
        write_file(fmt::format("{}/stage-{}.yaml", folder, stage), small_device_text(v100, stage)));
  }
  return {};
}

class Worlds {
 public:
  /// Removes what an earlier run left.
  static Result<Worlds> prepare(const std::string& folder) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    LH_ASSIGN(const DeviceKind v100, load_device_kind(shipped_configs() + "/devices/v100.yaml"));
    LH_TRY(write_devices(folder, v100));
    RealStorage storage;
    for (const int sequences : {32, 64}) {
      const SmallText made = small_text(sequences);
      const std::string data = fmt::format("{}/data-{}", folder, sequences);
      LH_TRY(write_file(data + ".txt", made.text));
      PrepareOptions options;
      options.inputs.paths = {data + ".txt"};
      options.folder = data;
      options.validation = made.validation;
      LH_TRY(prepare_dataset(storage, options, *make_byte_tokenizer(),
                             [](const PrepareProgress&) { return true; }));
    }
    return Worlds(folder);
  }

  /// Writes a world's files; answers the plan's path. 1F1B gets the depths that suit it best.
  Result<std::string> write(const CompressionWorld& world, int steps) const {
    const std::string head = folder_ + "/" + world.name;
    const std::string cluster = small_cluster_text(world);
    const std::string job = small_job_text(world, steps);
    LH_TRY(write_file(head + "-cluster.yaml", cluster));
    LH_TRY(write_file(head + "-job.yaml", job));
    LH_ASSIGN(const Topology topology, parse_cluster(cluster, world.name, folder_));
    LH_ASSIGN(const Job read, parse_job(job, head + "-job.yaml"));
    PlanFile file;
    LH_ASSIGN(file.plan, planned(world, topology, read));
    file.cluster_path = world.name + "-cluster.yaml";
    file.job_path = world.name + "-job.yaml";
    file.cluster_hash = topology.hash;
    file.job_hash = read.hash;
    file.policy = "by hand";
    LH_TRY(write_file(head + ".yaml", plan_text(file, topology, read)));
    return head + ".yaml";
  }

 private:
  static Result<Plan> planned(const CompressionWorld& world, const Topology& topology,
                              const Job& job) {
    Plan best = small_plan(world);
    if (world.family == ScheduleFamily::kGpipe) return best;
    LH_ASSIGN(const StepResult first, simulate_step(topology, job, best));
    Seconds least = first.step;
    for (int times = 3; times <= 8; ++times) {  // halves of 1F1B's own depths
      CompressionWorld deeper = world;
      for (int stage = 0; stage < kXlStages; ++stage) {
        const int depth = (times * (kXlStages - stage) + 1) / 2;
        deeper.in_flight.push_back(std::min(world.micro_batches, depth));
      }
      Plan plan = small_plan(deeper);
      LH_ASSIGN(const StepResult step, simulate_step(topology, job, plan));
      if (step.step >= least) continue;
      least = step.step;
      best = std::move(plan);
    }
    return best;
  }

  explicit Worlds(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

std::string binding_of(const StepResult& step, const Topology& topology) {
  if (step.critical.empty()) return "";
  const CriticalPart& most = step.critical.front();
  const std::string share = fmt::format("{:.0f} %", 100 * (most.time / step.step));
  switch (most.kind) {
    case CriticalKind::kCompute:
      return fmt::format("{} compute of {}", share,
                         topology.devices[static_cast<std::size_t>(most.from)].name);
    case CriticalKind::kUpdate:
      return fmt::format("{} update", share);
    default:
      return fmt::format("{} link {} to {}", share,
                         topology.sites[static_cast<std::size_t>(most.from)].name,
                         topology.sites[static_cast<std::size_t>(most.to)].name);
  }
}

/// The network of the plan, as the simulated transport has it: payload at what headers leave.
void set_links(SimNetwork& network, const LaunchPlan& plan, int cells) {
  const Topology& topology = plan.topology;
  network.set_default_link({topology.link(0, 1).latency, BytesPerSecond::infinity()});
  for (int from = 0; from < cells; ++from) {
    for (int to = 0; to < cells; ++to) {
      if (from == to) continue;  // device n is cell n
      const BytesPerSecond rate = topology.rate(from, to) / topology.tcp.wire_factor;
      network.set_link(fmt::format("h{}", from + 1), fmt::format("h{}", to + 1),
                       {topology.latency(from, to), rate});
    }
  }
}

/// Carries a plan out in virtual time.
Result<WorldTimes> carry_out(const std::string& plan_path) {
  RealStorage storage;
  LH_ASSIGN(const LaunchPlan plan, load_launch_plan(storage, plan_path));
  SpecOptions once;
  once.is_on_one_machine = true;
  LH_ASSIGN(PreparedRun prepared, prepare_run(storage, plan, 7, once));
  RunSpec& spec = prepared.spec;
  spec.validation = std::nullopt;
  LH_ASSIGN(const auto train,
            open_local_sequences(storage, shard_paths(plan.data_folder, plan.dataset.train),
                                 plan.dataset.vocabulary, spec.train.context));
  std::vector<SimStorage> disks(static_cast<std::size_t>(spec.cells()) + 1);
  for (SimStorage& disk : disks) disk.put("run/made", "");
  std::vector<WorkTimes> tables;
  const auto devices = emulated_devices(plan);
  for (int cell = 0; cell < spec.cells(); ++cell) {
    tables.push_back(device_times(spec, cell, devices[static_cast<std::size_t>(cell)]));
  }
  std::map<std::uint64_t, double> begins;  // of the first stage's work, by step

  SimulatedRunOptions options;
  options.disk = [&](int rank) { return SimulatedDisk{&disks[static_cast<std::size_t>(rank)]}; };
  options.times = [&](int rank, std::uint64_t tag, std::size_t bytes) {
    return rank == kCoordinatorRank ? Seconds(0)
                                    : tables[static_cast<std::size_t>(rank - 1)](tag, bytes);
  };
  options.train = train.get();
  options.hooks.measured = [&](int cell, const Measured& measured) {
    if (cell == 0) begins[measured.step] = measured.start;
  };
  SimulatedRun run(spec, std::move(options));
  set_links(run.network, plan, spec.cells());
  if (!run.run_until_ended(Seconds(1e6))) {
    if (const auto error = run.error()) return std::unexpected(*error);
    return failed("the run does not end");
  }
  if (!run.ending->ending.clean()) return failed(run.ending->ending.text());
  if (begins.size() != kSteps) return failed("a step was not measured");

  WorldTimes times;
  times.first_s = begins.at(1) - begins.at(0);
  times.later_s = (begins.at(kSteps - 1) - begins.at(1)) / (kSteps - 2);
  times.predicted = plan.predicted;
  LH_ASSIGN(times.predicted_first,
            simulate_step(plan.topology, plan.job, plan.file.plan, {.visit = Visit::kFirst}));
  times.binding = binding_of(plan.predicted, plan.topology);
  return times;
}

void print_worlds(const std::vector<CompressionWorld>& all, const std::vector<WorldTimes>& times) {
  fmt::print("{:<14}{:>12}{:>3}{:>11}{:>11}{:>11}{:>11}{:>9}  {}\n", "steps", "link", "D", "first",
             "simulated", "later", "simulated", "ratio", "most of it");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const WorldTimes& found = times[i];
    fmt::print(
        "{:<14}{:>5.0f} Mbit/s{:>3}{:>9.2f} s{:>9.2f} s{:>9.2f} "
        "s{:>9.2f} s{:>9.3f}  {}\n",
        all[i].name, all[i].link_mbit_per_s, all[i].pipelines, found.first_s,
        found.predicted_first.step.value(), found.later_s, found.predicted.step.value(),
        found.of_bound(), found.binding);
  }
}

/// Six epochs of fp32 over AQ fw3bw6 if a V100 reached another share of its peak: by the simulator,
/// which carried-out steps agree with. The shipped table's 60 % is an estimate.
Result<void> print_efficiencies(const std::string& folder, const CompressionWorld& fp32,
                                const CompressionWorld& aq) {
  LH_ASSIGN(DeviceKind v100, load_device_kind(shipped_configs() + "/devices/v100.yaml"));
  FlopsPerSecond& rate = v100.rate[static_cast<std::size_t>(Precision::kFp32)];
  const FlopsPerSecond peak(15.7e12);
  std::string line;
  for (const double share : {0.3, 0.4, 0.5, 0.6, 0.8}) {
    rate = peak * share;
    const std::string at = fmt::format("{}/share-{}", folder, share);
    LH_TRY(write_devices(at, v100));
    const auto epochs = [&](const CompressionWorld& world) -> Result<double> {
      LH_ASSIGN(const Topology topology, parse_cluster(small_cluster_text(world), world.name, at));
      LH_ASSIGN(const Job job, parse_job(small_job_text(world, kSteps), world.name));
      LH_ASSIGN(const StepResult first,
                simulate_step(topology, job, small_plan(world), {.visit = Visit::kFirst}));
      LH_ASSIGN(const StepResult later, simulate_step(topology, job, small_plan(world)));
      return first.step.value() + (kEpochs - 1) * later.step.value();
    };
    LH_ASSIGN(const double slow, epochs(fp32));
    LH_ASSIGN(const double fast, epochs(aq));
    line += fmt::format("  {:.0f} %: {:.2f}", 100 * share, slow / fast);
  }
  fmt::print("simulated fp32 / AQ, six epochs, by what a V100 reaches of its peak:{}\n", line);
  return {};
}

/// One launch with processes, TCP on this machine and emulated links and devices.
Result<BenchFigure> wall_clock(const Worlds& files, const CompressionWorld& world,
                               const std::string& command) {
  LH_ASSIGN(const std::string plan, files.write(world, kWallSteps));
  LH_ASSIGN(const BenchRuns runs, BenchRuns::prepare("compression-emulated"));
  LH_ASSIGN(const EmulatedRun run, runs.launch_in_time(plan, world.name, kWallSteps));
  const double off = std::abs(run.measured_s / run.predicted_s - 1);
  return BenchFigure{"emulated, AQ at 100 Mbit/s: |measured / predicted - 1|",
                     off,
                     "ratio",
                     kWallMax,
                     "lower",
                     off <= kWallMax && run.counts(),
                     fmt::format("predicted {:.4g} s, measured {:.4g} s, {:.2f} % late",
                                 run.predicted_s, run.measured_s, 100 * run.late),
                     command};
}

}  // namespace

Result<std::vector<BenchFigure>> compression_times(const SameLosses& losses, bool has_wall_clock,
                                                   int threads, const std::string& command) {
  const std::string folder = "build/bench/compression-times";
  LH_ASSIGN(const Worlds files, Worlds::prepare(folder));
  const std::vector<CompressionWorld> all = worlds();
  std::vector<WorldTimes> times(all.size());
  LH_TRY(side_by_side(all.size(), threads, [&](std::size_t i) -> Result<void> {
    LH_ASSIGN(const std::string plan, files.write(all[i], kSteps));
    auto found = carry_out(plan);
    if (!found) return within(all[i].name, std::move(found).error());
    times[i] = *std::move(found);
    fmt::print(stderr, "  {}: a step of {:.2f} s\n", all[i].name, times[i].later_s);
    return {};
  }));
  print_worlds(all, times);
  LH_TRY(print_efficiencies(folder, all[0], all[2]));

  const auto of = [&](const std::string& name) -> const WorldTimes& {
    return times[static_cast<std::size_t>(std::ranges::find(all, name, &CompressionWorld::name) -
                                          all.begin())];
  };
  const auto faster = [&](const std::string& base, const std::string& name, const SameLoss& loss) {
    return of(base).epochs(loss.base) / of(name).epochs(loss.setting);
  };
  const auto as_well = [](double bf16, double eager) {
    return fmt::format("against bf16 {:.2f}{}", bf16,
                       eager > 0 ? fmt::format("; both in 1F1B {:.2f}", eager) : "");
  };
  const double plain = faster("fp32", "aq", losses.aq);
  const double paired = faster("fp32-pair", "aq-pair", losses.aq_gradients);
  const auto sooner = [](const WorldTimes& a, const WorldTimes& b) -> const WorldTimes& {
    return a.later_s < b.later_s ? a : b;
  };
  const WorldTimes& compressed = sooner(of("aq"), of("aq-eager"));
  const double slower = compressed.later_s / sooner(of("fast"), of("fast-eager")).later_s;
  const auto worst = std::ranges::min_element(times, {}, &WorldTimes::of_bound);
  std::vector<BenchFigure> figures = {
      {"AQ fw3bw6 over fp32 at 100 Mbit/s, time to a loss", plain, "x", kFasterMin, "higher",
       plain >= kFasterMin,
       as_well(faster("bf16", "aq", losses.aq), faster("fp32-eager", "aq-eager", losses.aq)),
       command},
      {"the same, two pipelines, gradients in int4", paired, "x", kFasterWithGradientsMin, "higher",
       paired >= kFasterWithGradientsMin,
       as_well(faster("bf16-pair", "aq-pair", losses.aq_gradients), 0), command},
      {"least simulated / carried out step", worst->of_bound(), "ratio", kOfBoundMin, "higher",
       worst->of_bound() >= kOfBoundMin, all[static_cast<std::size_t>(worst - times.begin())].name,
       command},
      {"step: AQ at 100 Mbit/s over fp32 at 10 Gbit/s", slower, "ratio", kSlowerMax, "lower",
       slower <= kSlowerMax,
       fmt::format("each in its sooner schedule, {}; in GPipe {:.2f}, {}", compressed.binding,
                   of("aq").later_s / of("fast").later_s, of("aq").binding),
       command}};
  if (has_wall_clock) {
    LH_ASSIGN(BenchFigure wall, wall_clock(files, all[2], command));
    figures.push_back(std::move(wall));
  }
  return figures;
}

}  // namespace longhaul
