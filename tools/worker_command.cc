// `longhaul worker`: one tasklet's process. An agent starts it and tells it by stdin what to do;
// nobody types it.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "executor/data/dataset.h"
#include "executor/emulation/emulated_compute_queue.h"
#include "executor/emulation/emulated_transport.h"
#include "executor/launch/supervised.h"
#include "executor/run/device_times.h"
#include "executor/run/worker.h"
#include "executor/storage/real_storage.h"
#include "executor/transport/asio_transport.h"
#include "executor/transport/transport_mesh.h"
#include "kernels/cpu/cpu_compute_queue.h"
#include "kernels/cpu/isa.h"
#include "kernels/parallel.h"
#include "tools/command.h"

namespace longhaul {
namespace {

/// How long a worker that is done waits for the coordinator to let go of it, so that its last words
/// arrive.
constexpr Seconds kFarewell{10};
constexpr Seconds kMeshDeadline{120};
constexpr Seconds kForever{1e8};
/// Of one operation, unless somebody asks for more: beyond, its parts become too small.
constexpr int kThreadsMax = 64;

class WorkerProcess {
 public:
  /// `threads` of an operation; 0: this machine's cores, shared among its workers.
  explicit WorkerProcess(int threads)
      : threads_(threads),
        storage_(std::make_unique<RealStorage>()),
        supervised_({[this](WorkerStart start) { begin(std::move(start)); },
                     [this](PeerAddresses peers) { connect(std::move(peers)); },
                     [](const Error& why) {
                       // Nobody looks after this process any more; what was not committed is void.
                       fmt::print(stderr, "{}\n", why.message);
                       std::fflush(nullptr);
                       _exit(1);
                     }}) {}

  int run() {
    lines_.emplace(
        runtime_.loop(), STDIN_FILENO, [this](const std::string& line) { supervised_.line(line); },
        [this] { supervised_.end_of_lines(); });
    // The runtime ends when nothing is left to wait for, and does not know of the lines' thread.
    runtime_.loop().after(kForever, [] {});
    runtime_.run();
    // What still runs uses the worker. Workers before meshes, meshes before queues and transports.
    if (queue_) queue_->close();
    worker_ = nullptr;
    mesh_ = nullptr;
    queue_ = nullptr;
    if (listener_) listener_->close();
    listener_ = nullptr;
    transport_ = nullptr;
    lines_.reset();
    return status_;
  }

 private:
  void begin(WorkerStart start) {
    start_ = std::move(start);
    if (Result<void> ready = listen(); !ready) fail(ready.error());
  }

  Result<void> listen() {
    LH_ASSIGN(spec_, parse_run_spec(start_.spec));
    if (start_.rank < 1 || start_.rank > spec_.cells()) {
      return invalid(fmt::format("rank {} is no worker of this run", start_.rank));
    }
    fmt::print(stderr, "rank {}: stage {} of pipeline {} on {}\n", start_.rank,
               spec_.stage_of(cell()), spec_.pipeline_of(cell()), spec_.place_of_cell(cell()).name);
    if (spec_.job.precision == Precision::kBf16 && !has_fast_bf16()) {
      fmt::print(stderr, "rank {}: {}\n", start_.rank, kSlowBf16);
    }
    LH_TRY(open_data());
    std::unique_ptr<Transport> transport;
    if (start_.authority.empty()) {
      transport = runtime_.make_transport();
    } else {
      LH_ASSIGN(
          transport,
          runtime_.make_transport(
              {.who = TlsIdentity{start_.job, start_.authority, start_.certificate, start_.key},
               .limits = {},
               .on_refused = [](const Error& why) { fmt::print(stderr, "{}\n", why.message); }}));
    }
    const auto post = [this](std::move_only_function<void()> task) {
      runtime_.loop().post(std::move(task));
    };
    if (spec_.emulation) {
      LH_ASSIGN(page_, SharedPage::open(spec_.emulation->page));
      transport = make_emulated_transport(std::move(transport), runtime_.loop(), *page_);
      queue_ = make_emulated_compute_queue(
          post, device_times(spec_, cell(), spec_.emulation->devices[index_of_cell()]), *page_);
    } else {
      set_operation_threads(threads());
      queue_ = make_cpu_compute_queue(post);
    }
    transport_ = std::move(transport);
    LH_ASSIGN(listener_, MeshListener::open(*transport_, runtime_.loop(), start_.host + ":0"));
    fmt::print("{}\n", listening_line(listener_->address()));
    std::fflush(stdout);
    return {};
  }

  int threads() const {
    if (threads_ > 0) return threads_;
    const auto here = std::ranges::count(spec_.ranks, start_.node, &RankPlace::node);
    // `launch --local` runs the workers of all nodes on one that the plan does not name.
    const auto workers = here > 0 ? static_cast<int>(here) : spec_.cells();
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    return std::clamp(cores / workers, 1, kThreadsMax);
  }

  /// Sequences come from this node's disk where it has the run's data, else from the coordinator.
  Result<void> open_data() {
    const int stage = spec_.stage_of(cell());
    if (stage != 0 && stage != spec_.plan.stages() - 1) return {};
    const auto dataset = load_dataset(*storage_, spec_.data_folder);
    if (!dataset || dataset->train.fingerprint != spec_.train.fingerprint) return {};
    LH_ASSIGN(train_,
              open_local_sequences(*storage_, shard_paths(spec_.data_folder, dataset->train),
                                   dataset->vocabulary, spec_.train.context));
    if (!spec_.validation || dataset->validation.fingerprint != spec_.validation->fingerprint) {
      return {};
    }
    LH_ASSIGN(validation_,
              open_local_sequences(*storage_, shard_paths(spec_.data_folder, dataset->validation),
                                   dataset->vocabulary, spec_.validation->context));
    return {};
  }

  void connect(PeerAddresses peers) {
    if (peers.addresses.size() != spec_.ranks.size()) {
      return fail(failed(fmt::format("{} addresses, and the run has {} ranks",
                                     peers.addresses.size(), spec_.ranks.size()))
                      .error());
    }
    MeshConfig config;
    config.addresses = std::move(peers.addresses);
    config.identities = std::move(peers.identities);
    config.rank = start_.rank;
    config.job = spec_.id;
    config.term = spec_.term;
    config.deadline = kMeshDeadline;
    config.streams = streams_of(spec_, start_.rank);
    config.rates = link_rates_of(spec_, start_.rank);
    connect_mesh(*transport_, runtime_.loop(), listener_, std::move(config),
                 [this](Result<std::unique_ptr<TransportMesh>> mesh) {
                   if (!mesh) return fail(mesh.error());
                   mesh_ = std::move(*mesh);
                   if (Result<void> started = start_work(); !started) fail(started.error());
                 });
  }

  Result<void> start_work() {
    WorkerContext context;
    context.spec = &spec_;
    context.cell = cell();
    context.loop = &runtime_.loop();
    context.mesh = mesh_.get();
    context.queue = queue_.get();
    context.storage = storage_.get();
    context.folder = start_.folder;
    context.train = train_.get();
    context.validation = validation_.get();
    context.origin_ns = static_cast<std::uint64_t>(
        monotonic_nanoseconds() - static_cast<std::int64_t>(runtime_.loop().now().value() * 1e9));
    context.ended = [this](const WorkerEnding& ending) { ended(ending); };
    LH_ASSIGN(worker_, Worker::create(context));
    worker_->start();
    return {};
  }

  void ended(const WorkerEnding& ending) {
    fmt::print(stderr, "rank {}: {} steps; {}\n", start_.rank, ending.committed, ending.reason);
    status_ = ending.clean ? 0 : 1;
    mesh_->on_lost([this](int peer, const Error&) {
      if (peer == kCoordinatorRank) runtime_.stop();
    });
    runtime_.loop().after(kFarewell, [this] { runtime_.stop(); });
    if (!ending.clean) runtime_.loop().after(Seconds(1), [this] { runtime_.stop(); });
  }

  void fail(const Error& why) {
    fmt::print(stderr, "{}\n", why.text());
    status_ = 1;
    runtime_.stop();
  }

  int cell() const { return start_.rank - 1; }
  std::size_t index_of_cell() const { return static_cast<std::size_t>(cell()); }

  int threads_;
  AsioRuntime runtime_;
  std::unique_ptr<Storage> storage_;
  Supervised supervised_;
  std::optional<LineReader> lines_;
  WorkerStart start_;
  RunSpec spec_;
  std::unique_ptr<SequenceSource> train_, validation_;
  std::unique_ptr<SharedPage> page_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<MeshListener> listener_;  // owners: see MeshListener::open
  std::unique_ptr<ComputeQueue> queue_;
  std::unique_ptr<TransportMesh> mesh_;
  std::unique_ptr<Worker> worker_;
  int status_ = 0;
};

}  // namespace

void add_worker_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("worker", "a device's process; `longhaul agent` starts it");
  command->group("");                             // not shown
  const auto threads = std::make_shared<int>(0);  // owned by the callback below
  command->add_option("--threads", *threads)->check(CLI::Range(1, 1024));
  command->callback([threads, &exit_status] {
    die_with_parent();
    raise_open_files_limit();
    // A key pressed at a terminal is for `launch`, which stops the run in order.
    std::signal(SIGINT, SIG_IGN);
    exit_status = WorkerProcess(*threads).run();
  });
}

}  // namespace longhaul
