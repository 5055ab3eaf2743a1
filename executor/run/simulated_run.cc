#include "executor/run/simulated_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace longhaul {

SimulatedRun::SimulatedRun(const RunSpec& spec, SimulatedRunOptions options)
    : loop(options.seed, options.jitter),
      network(loop, options.seed),
      spec_(spec),
      options_(std::move(options)) {
  network.set_default_link(options_.link);
  const int ranks = spec_.cells() + 1;
  for (int rank = 0; rank < ranks; ++rank) addresses_.push_back(fmt::format("h{}:7000", rank));
  processes.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) make_process(rank);
}

SimulatedRun::~SimulatedRun() {
  for (Process& process : processes) {  // workers before meshes, meshes before queues
    process.worker = nullptr;
    process.coordinator = nullptr;
    process.mesh = nullptr;
  }
}

bool SimulatedRun::run_until_ended(Seconds most) {
  while (!all_ended() && loop.now() < most) {
    if (!loop.step()) return all_ended();
  }
  return all_ended();
}

bool SimulatedRun::all_ended() const {
  return ending && std::all_of(processes.begin() + 1, processes.end(), [](const Process& process) {
           return process.ending || process.killed;
         });
}

std::optional<Error> SimulatedRun::error() const {
  for (const Process& process : processes) {
    if (process.error) return process.error;
  }
  return std::nullopt;
}

void SimulatedRun::kill(int rank) {
  Process& victim = processes[static_cast<std::size_t>(rank)];
  victim.killed = true;
  network.kill(fmt::format("h{}", rank));
  victim.worker = nullptr;
  victim.coordinator = nullptr;
}

void SimulatedRun::make_process(int rank) {
  Process& process = processes[static_cast<std::size_t>(rank)];
  process.transport = network.make_transport(fmt::format("h{}", rank));
  VirtualClock clock;
  clock.now = [this] { return SimTime::from(loop.now()); };
  clock.at = [this](SimTime at, std::move_only_function<void()> task) {
    loop.after(std::max(Seconds(0), at.seconds() - loop.now()), std::move(task));
  };
  process.queue =
      make_simulated_compute_queue(clock, [this, rank](std::uint64_t tag, std::size_t bytes) {
        return options_.times(rank, tag, bytes);
      });
  MeshConfig config;
  config.addresses = addresses_;
  config.rank = rank;
  config.job = spec_.id;
  config.term = spec_.term;
  config.limits.early_bytes = options_.early_bytes;
  config.deadline = Seconds(20);
  connect_mesh(*process.transport, loop, std::move(config),
               [this, rank](Result<std::unique_ptr<TransportMesh>> mesh) {
                 Process& p = processes[static_cast<std::size_t>(rank)];
                 if (!mesh) {
                   p.error = std::move(mesh).error();
                   return;
                 }
                 p.mesh = std::move(*mesh);
                 if (!p.killed) begin(rank);
               });
}

void SimulatedRun::begin(int rank) {
  Process& process = processes[static_cast<std::size_t>(rank)];
  const Result<void> begun =
      rank == kCoordinatorRank ? begin_coordinator(process) : begin_worker(process, rank);
  if (!begun) process.error = begun.error();
}

Result<void> SimulatedRun::begin_coordinator(Process& process) {
  const SimulatedDisk disk = options_.disk(kCoordinatorRank);
  RunCoordinatorContext context;
  context.spec = &spec_;
  context.loop = &loop;
  context.mesh = process.mesh.get();
  context.queue = process.queue.get();
  context.storage = disk.storage;
  context.folder = disk.folder;
  context.train = options_.train;
  context.validation = options_.validation;
  context.hooks = options_.hooks;
  context.hooks.ended = [this](const RunEnding& end) {
    ending = end;
    if (options_.hooks.ended) options_.hooks.ended(end);
  };
  LH_ASSIGN(process.coordinator, RunCoordinator::create(context));
  process.coordinator->start();
  return {};
}

Result<void> SimulatedRun::begin_worker(Process& process, int rank) {
  const SimulatedDisk disk = options_.disk(rank);
  WorkerContext context;
  context.spec = &spec_;
  context.cell = rank - 1;
  context.loop = &loop;
  context.mesh = process.mesh.get();
  context.queue = process.queue.get();
  context.storage = disk.storage;
  context.folder = disk.folder;
  if (spec_.pipeline_of(context.cell) == spec_.plan.pipelines() - 1) {
    context.train = options_.train;
    context.validation = options_.validation;
  }
  if (make_format) context.make_format = [this, rank] { return make_format(rank - 1); };
  context.ended = [this, rank](const WorkerEnding& end) {
    processes[static_cast<std::size_t>(rank)].ending = end;
  };
  LH_ASSIGN(process.worker, Worker::create(context));
  process.worker->start();
  return {};
}

}  // namespace longhaul
