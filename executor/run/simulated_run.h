// A whole run in one thread and in virtual time: coordinator and workers with real tensors, frames
// and files, each process on a host of its own (`h0` the coordinator's, `h1` that of cell 0, ...)
// with a disk of its own. For tests, which put faults into it, and for benchmarks, which want the
// executor's results without its machines.
//
// Belongs to one thread; several may run in threads of their own, if each has its own sources.
// Nothing in it reads a clock: the same options give the same bytes at the same virtual times.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/run/run_coordinator.h"
#include "executor/run/worker.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/transport/sim_transport.h"
#include "executor/transport/transport_mesh.h"
#include "kernels/cpu/simulated_compute_queue.h"

namespace longhaul {

/// Where a process has its part of the run folder, which is there.
struct SimulatedDisk {
  Storage* storage = nullptr;
  std::string folder = "run";
};

struct SimulatedRunOptions {
  std::uint64_t seed = 1;  // of the simulated world
  double jitter = 0;       // of timers, see SimEventLoop
  std::size_t early_bytes = MeshLimits{}.early_bytes;
  SimLink link = {milliseconds(2), BytesPerSecond(50e6)};  // between all hosts, unless set later
  /// What a rank's device takes for work with this tag; `bytes` is 0 except for copies.
  std::function<Seconds(int rank, std::uint64_t tag, std::size_t bytes)> times =
      [](int, std::uint64_t tag, std::size_t) {
        return tag == kCodecTag ? Seconds(0) : milliseconds(3);
      };
  std::function<SimulatedDisk(int rank)> disk;  // asked once for each rank; required
  /// The coordinator and the last pipeline's workers have these; the others ask for them.
  SequenceSource* train = nullptr;
  SequenceSource* validation = nullptr;  // may be null
  RunHooks hooks;                        // of the coordinator
};

class SimulatedRun {
 public:
  struct Process {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<ComputeQueue> queue;
    std::unique_ptr<TransportMesh> mesh;
    std::unique_ptr<Worker> worker;
    std::unique_ptr<RunCoordinator> coordinator;
    std::optional<WorkerEnding> ending;
    std::optional<Error> error;  // why its mesh was not made, or its worker or coordinator not
    bool killed = false;
  };

  /// The spec, sources and disks outlive the run.
  SimulatedRun(const RunSpec& spec, SimulatedRunOptions options);
  ~SimulatedRun();
  SimulatedRun(const SimulatedRun&) = delete;
  SimulatedRun& operator=(const SimulatedRun&) = delete;

  /// Until every process has ended; false when the virtual time is over first, or nothing happens
  /// any more.
  bool run_until_ended(Seconds most = Seconds(1e5));
  bool all_ended() const;
  /// The first error of a process that could not begin.
  std::optional<Error> error() const;

  void kill(int rank);

  SimEventLoop loop;
  SimNetwork network;
  std::vector<Process> processes;   // by rank
  std::optional<RunEnding> ending;  // of the coordinator
  /// Set before the run: of a cell's boundary tensors; empty for the plan's.
  std::function<std::unique_ptr<BoundaryFormat>(int cell)> make_format;

 private:
  void make_process(int rank);
  void begin(int rank);
  Result<void> begin_coordinator(Process& process);
  Result<void> begin_worker(Process& process, int rank);

  const RunSpec& spec_;
  const SimulatedRunOptions options_;
  std::vector<std::string> addresses_;
};

}  // namespace longhaul
