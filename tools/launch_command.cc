// `longhaul launch`: carries a plan out. This process is the run's coordinator; workers are started
// by agents, on this machine or on the plan's nodes.

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "core/file.h"
#include "executor/emulation/emulated_transport.h"
#include "executor/launch/rendezvous.h"
#include "executor/launch/uv_process_host.h"
#include "executor/run/run_coordinator.h"
#include "executor/storage/real_storage.h"
#include "executor/transport/asio_transport.h"
#include "kernels/cpu/cpu_compute_queue.h"
#include "tools/command.h"
#include "tools/join_file.h"
#include "tools/launch_setup.h"
#include "tools/run_report.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr Seconds kLook = milliseconds(100);
/// For agents to leave after the run has ended.
constexpr Seconds kFarewell{20};

struct Options {
  std::string plan;
  std::string name;
  std::string runs = "runs";
  std::string resume;  // a run's folder
  bool emulate = false;
  bool local = false;
  bool insecure = false;
  std::string listen;
  double wait_s = 600;
  std::uint64_t steps = 0;
  int cores = 0;
};

/// The run folder's own facts, in run.json: what a resumed run keeps.
struct RunFacts {
  std::uint64_t id = 0;
};

Result<RunFacts> read_facts(Storage& storage, const std::string& folder) {
  const std::string path = folder + "/run.json";
  LH_ASSIGN(const std::string text, read_text(storage, path, 1 << 20));
  try {
    const auto json = nlohmann::json::parse(text);
    return RunFacts{json.at("id").get<std::uint64_t>()};
  } catch (const nlohmann::json::exception&) {
    return invalid(path + ": no run's folder", "give the folder that `launch` printed");
  }
}

std::string random_text() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]");
}

/// A folder for the run that is not there yet, made; or that of the run to resume.
Result<std::string> run_folder(Storage& storage, const Options& options, const Job& job) {
  if (!options.resume.empty()) {
    LH_TRY(read_facts(storage, options.resume));
    return options.resume;
  }
  LH_TRY(make_folders(storage, options.runs));
  std::string folder = options.runs + "/" + options.name;
  if (options.name.empty()) {
    for (int n = 1; n < 100000; ++n) {
      folder = fmt::format("{}/{}-{}", options.runs, job.name, n);
      LH_ASSIGN(const EntryKind kind, storage.kind(folder));
      if (kind == EntryKind::kAbsent) break;
    }
  }
  LH_ASSIGN(const EntryKind kind, storage.kind(folder));
  if (kind != EntryKind::kAbsent) {
    return failed(fmt::format("{} is there already", folder),
                  fmt::format("choose another --name, or go on with --resume {}", folder));
  }
  LH_TRY(make_folders(storage, folder));
  return folder;
}

class LaunchProcess {
 public:
  LaunchProcess(Options options, std::unique_ptr<Storage> storage)
      : options_(std::move(options)), storage_(std::move(storage)) {}

  Result<int> run() {
    LH_TRY(prepare());
    LH_TRY(open_transport());
    LH_TRY(start());
    runtime_.run();
    const Result<int> status = finish();
    // What uses the transport goes before it.
    coordinator_ = nullptr;
    mesh_ = nullptr;
    rendezvous_ = nullptr;
    processes_ = nullptr;
    queue_ = nullptr;
    if (listener_) listener_->close();
    listener_ = nullptr;
    transport_ = nullptr;
    if (page_) LH_TRY(storage_->remove(spec_.emulation->page));
    return status;
  }

 private:
  // ---- before anything starts

  Result<void> prepare() {
    LH_ASSIGN(plan_, load_launch_plan(*storage_, options_.plan));
    LH_ASSIGN(folder_, run_folder(*storage_, options_, plan_.job));
    RunFacts facts;
    if (options_.resume.empty()) {
      std::random_device random;
      facts.id = (std::uint64_t{random()} << 32) | random();
    } else {
      LH_ASSIGN(facts, read_facts(*storage_, folder_));
    }
    SpecOptions spec_options;
    spec_options.folder = folder_;
    spec_options.resume = !options_.resume.empty();
    if (options_.steps > 0) spec_options.steps = options_.steps;
    LH_ASSIGN(PreparedRun prepared, prepare_run(*storage_, plan_, facts.id, spec_options));
    for (const Error& refused : prepared.refused) {
      fmt::print(stderr, "not used: {}\n", refused.text());
    }
    spec_ = std::move(prepared.spec);
    LH_TRY(open_data());
    LH_TRY(prepare_emulation());
    return write_inputs(facts);
  }

  Result<void> open_data() {
    LH_ASSIGN(train_,
              open_local_sequences(*storage_, shard_paths(plan_.data_folder, plan_.dataset.train),
                                   plan_.dataset.vocabulary, spec_.train.context));
    if (train_->identity() != spec_.train) {
      return invalid(
          fmt::format("{}: the shards are not what {} says", plan_.data_folder, kDatasetFile));
    }
    if (!spec_.validation) return {};
    LH_ASSIGN(validation_, open_local_sequences(
                               *storage_, shard_paths(plan_.data_folder, plan_.dataset.validation),
                               plan_.dataset.vocabulary, spec_.train.context));
    return {};
  }

  Result<void> prepare_emulation() {
    if (!options_.emulate) return {};
    const int cores =
        options_.cores > 0 ? options_.cores : static_cast<int>(std::thread::hardware_concurrency());
    LH_ASSIGN(const EmulatedNetwork network, emulated_network(plan_));
    LH_ASSIGN(const Dilation dilation, choose_dilation(plan_, std::max(cores, 1)));
    EmulationSpec emulation;
    // Memory, not a disk: the write-back of a disk would stall who writes there.
    const std::string shared = fs::is_directory("/dev/shm") ? "/dev/shm" : folder_;
    emulation.page =
        fs::absolute(fmt::format("{}/longhaul-{:016x}-{}.page", shared, spec_.id, getpid()))
            .string();
    emulation.dilation = dilation.factor;
    emulation.devices = emulated_devices(plan_);
    LH_ASSIGN(page_,
              SharedPage::create(emulation.page, network, dilation.factor, std::max(cores, 1)));
    spec_.emulation = std::move(emulation);
    // Control frames are delayed like all others, by links that can be slow and far.
    fmt::print(stderr,
               "emulated: {} devices on {} cores at dilation {:.2f} ({}; {:.2f} CPU s a step)\n",
               spec_.cells(), cores, dilation.factor, dilation.reason, dilation.real_step_s);
    return {};
  }

  Result<void> write_inputs(const RunFacts& facts) {
    const std::string suffix = spec_.term == 1 ? "" : fmt::format("-term-{}", spec_.term);
    const std::string plan_path = folder_ + "/plan" + suffix + ".yaml";
    const std::string job_path = folder_ + "/job" + suffix + ".yaml";
    LH_TRY(write_file(*storage_, job_path, plan_.job_text));
    PlanFile copy = plan_.file;
    copy.job_path = path_from(plan_path, plan_.job_path);
    copy.cluster_path = path_from(plan_path, resolve_from(options_.plan, plan_.file.cluster_path));
    LH_TRY(write_file(*storage_, plan_path, plan_text(copy, plan_.topology, plan_.job)));
    const nlohmann::ordered_json json = {{"schema", "longhaul/run-folder/1"},
                                         {"id", facts.id},
                                         {"job", spec_.job.name},
                                         {"data", spec_.data_folder},
                                         {"tokenizer", plan_.dataset.tokenizer}};
    LH_TRY(write_file(*storage_, folder_ + "/run.json", json.dump(2) + "\n"));
    LH_ASSIGN(metrics_, storage_->extend(folder_ + "/metrics.jsonl"));
    return {};
  }

  // ---- the processes

  bool is_here() const { return options_.emulate || options_.local; }

  Result<void> open_transport() {
    std::string address = options_.listen;
    if (address.empty() && is_here()) address = "127.0.0.1:0";
    if (address.empty()) {
      return invalid("where do the plan's nodes reach this machine?",
                     "give --listen HOST:PORT; or --emulate or --local to run all workers here");
    }
    const bool is_secure = !is_loopback(address) && !options_.insecure;
    if (!is_loopback(address) && options_.insecure) {
      fmt::print(stderr,
                 "warning: --insecure: whoever can read or change the traffic between the "
                 "nodes can read or change the model and the data\n");
    }
    std::unique_ptr<Transport> transport;
    if (is_secure) {
      LH_ASSIGN(JobAuthority authority, JobAuthority::create(spec_.id));
      LH_ASSIGN(const KeyPair key, make_key());
      LH_ASSIGN(const std::string certificate, authority.issue(key.public_pem, "coordinator"));
      LH_ASSIGN(transport,
                runtime_.make_transport({.who = TlsIdentity{spec_.id, authority.certificate_pem(),
                                                            certificate, key.private_pem},
                                         .limits = {},
                                         .on_refused = [](const Error& why) {
                                           fmt::print(stderr, "turned away: {}\n", why.message);
                                         }}));
      authority_.emplace(std::move(authority));
    } else {
      transport = runtime_.make_transport();
    }
    if (page_) {
      transport = make_emulated_transport(std::move(transport), runtime_.loop(), *page_);
    }
    transport_ = std::move(transport);
    LH_ASSIGN(listener_, MeshListener::open(*transport_, runtime_.loop(), address));
    return {};
  }

  Result<void> start() {
    queue_ = make_cpu_compute_queue(
        [this](std::move_only_function<void()> task) { runtime_.loop().post(std::move(task)); });
    join_.token = random_text();
    if (authority_) join_.fingerprint = authority_->fingerprint();
    const std::string join_path = folder_ + "/join.json";
    LH_TRY(storage_->remove(join_path));  // a resumed run's old one lets nobody in
    LH_TRY(write_join_file(join_path, join_));

    RendezvousConfig config;
    config.job = spec_.id;
    config.term = spec_.term;
    config.token = join_.token;
    config.nodes = nodes();
    config.spec = run_spec_text(spec_);
    if (authority_) config.coordinator_identity = "coordinator";
    config.deadline = Seconds(options_.wait_s);
    RendezvousHooks hooks;
    if (authority_) {
      hooks.certify = [this](const std::string& key, const std::string& node) -> Result<Certified> {
        LH_ASSIGN(std::string certificate, authority_->issue(key, node));
        return Certified{std::move(certificate), authority_->certificate_pem()};
      };
    }
    hooks.progress = [this](const RendezvousProgress& at) { show_rendezvous(at); };
    hooks.ready = [this](Result<std::unique_ptr<TransportMesh>> mesh) { joined(std::move(mesh)); };
    hooks.exited = [this](const WorkerExited& exit) {
      if (!coordinator_ || exit.is_clean() || ending_) return;
      coordinator_->worker_exited(exit.rank - 1, exit.text());
    };
    hooks.agent_lost = [this](const std::string& node, const Error& why) {
      if (ending_) return;
      fmt::print(stderr, "the agent of node {} is lost: {}\n", node, why.message);
    };
    hooks.all_left = [this] { runtime_.stop(); };
    LH_ASSIGN(rendezvous_, Rendezvous::start(*transport_, runtime_.loop(), listener_,
                                             std::move(config), std::move(hooks)));
    if (is_here()) {
      LH_TRY(start_agents());
    } else {
      fmt::print(stderr,
                 "waiting for {} nodes; copy {} to each of them and run there:\n"
                 "  longhaul agent --join {} --token-file join.json --node NODE\n"
                 "nodes: {}\n",
                 nodes().size(), join_path, listener_->address(), node_names());
    }
    look();
    return {};
  }

  /// One node for all, where all workers are here; else those of the plan.
  std::vector<RendezvousNode> nodes() const {
    std::vector<RendezvousNode> nodes;
    for (int rank = 1; rank <= spec_.cells(); ++rank) {
      const std::string name =
          is_here() ? "local" : spec_.ranks[static_cast<std::size_t>(rank)].node;
      const auto at = std::ranges::find(nodes, name, &RendezvousNode::name);
      if (at == nodes.end()) {
        nodes.push_back({name, {rank}});
      } else {
        at->ranks.push_back(rank);
      }
    }
    return nodes;
  }

  std::string node_names() const {
    std::vector<std::string> names;
    for (const RendezvousNode& node : nodes()) names.push_back(node.name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  Result<void> start_agents() {
    processes_ = make_uv_process_host(runtime_.loop());
    ProcessOptions agent;
    agent.program = fs::read_symlink("/proc/self/exe").string();
    agent.arguments = {
        "agent",  "--join", listener_->address(), "--token-file", folder_ + "/join.json",
        "--node", "local",  "--folder",           folder_};
    agent.log = folder_ + "/agent.log";
    agent.exited = [this](const ProcessExit& exit) {
      if (ending_ || coordinator_) return;  // the rendezvous tells
      rendezvous_->terminate(fmt::format("the agent here has ended: {}", exit.last_log_line));
    };
    LH_TRY(processes_->spawn(std::move(agent)));
    return {};
  }

  void show_rendezvous(const RendezvousProgress& at) {
    if (!at.trouble.empty()) fmt::print(stderr, "turned away: {}\n", at.trouble);
    if (at.missing.empty()) {
      progress_.show(fmt::format("{} of {} workers are ready", at.listening, at.workers));
    } else {
      progress_.show(
          fmt::format("joined: {}; missing: {}",
                      at.joined.empty() ? "nobody" : fmt::format("{}", fmt::join(at.joined, ", ")),
                      fmt::join(at.missing, ", ")));
    }
  }

  // ---- the run

  void joined(Result<std::unique_ptr<TransportMesh>> mesh) {
    if (!mesh) return give_up(mesh.error());
    mesh_ = std::move(*mesh);
    report_.emplace(RunReportInputs{spec_, plan_.topology, plan_.file.plan, plan_.predicted,
                                    plan_.dataset.bigram_loss, isatty(STDERR_FILENO) == 1,
                                    runtime_.loop().now()});
    RunCoordinatorContext context;
    context.spec = &spec_;
    context.loop = &runtime_.loop();
    context.mesh = mesh_.get();
    context.queue = queue_.get();
    context.storage = storage_.get();
    context.folder = folder_;
    context.train = train_.get();
    context.validation = validation_.get();
    context.hooks.committed = [this](const JournalEntry& entry) {
      report_->committed(entry, runtime_.loop().now());
      if (entry.decision == Decision::kSkip) {
        fmt::print(stderr, "step {} is skipped: its gradient is not finite\n", entry.step);
      }
      show_progress();
    };
    context.hooks.validated = [this](std::uint64_t step, double loss) {
      report_->validated(step, loss);
      progress_.show(fmt::format("step {}  validation loss {:.4f}", step, loss));
      write_metrics();
    };
    context.hooks.kept = [this](const CheckpointManifest& manifest) {
      report_->kept(manifest.id);
      write_metrics();
    };
    context.hooks.measured = [this](int cell, const Measured& measured) {
      report_->measured(cell, measured);
      write_metrics();
    };
    context.hooks.times = [this](int cell, const Times& times) { report_->times(cell, times); };
    context.hooks.ended = [this](const RunEnding& ending) { ended(ending); };
    Result<std::unique_ptr<RunCoordinator>> coordinator = RunCoordinator::create(context);
    if (!coordinator) return give_up(coordinator.error());
    coordinator_ = std::move(*coordinator);
    coordinator_->start();
  }

  void show_progress() {
    if (report_->should_print(runtime_.loop().now())) progress_.show(report_->progress_line());
  }

  /// A log that cannot be written does not stop a run that could.
  void write_metrics() {
    const std::string lines = report_->take_metrics();
    if (lines.empty() || !metrics_) return;
    if (const auto written = metrics_->append(std::as_bytes(std::span(lines))); !written) {
      fmt::print(stderr, "{}\n", written.error().text());
      metrics_ = nullptr;
    }
  }

  void ended(const RunEnding& ending) {
    ending_ = ending;
    report_->ended();
    write_metrics();
    // Workers end when the coordinator lets go of them.
    runtime_.loop().post([this] {
      coordinator_ = nullptr;
      mesh_ = nullptr;
    });
    if (!ending.ending.clean()) rendezvous_->terminate("the run has failed");
    runtime_.loop().after(kFarewell, [this] { runtime_.stop(); });
  }

  void give_up(const Error& why) {
    error_ = why;
    rendezvous_->terminate(why.message);
    runtime_.loop().after(kFarewell, [this] { runtime_.stop(); });
  }

  /// A signal ends the run in order; the second one ends this process at once.
  void look() {
    if (InterruptFlag::signal() != 0 && !is_told_to_stop_) {
      is_told_to_stop_ = true;
      if (coordinator_) {
        progress_.show("stopping after the step at hand, with a checkpoint");
        coordinator_->request_stop();
      } else if (!error_) {
        rendezvous_->terminate("interrupted");
      }
    }
    if (!ending_) runtime_.loop().after(kLook, [this] { look(); });
  }

  // ---- after it

  Result<int> finish() {
    if (!ending_) {
      if (InterruptFlag::signal() != 0) return 128 + InterruptFlag::signal();
      if (error_) return std::unexpected(*error_);
      return failed("the run ended before it began");
    }
    std::optional<double> late;
    if (page_) late = page_->counters().late_fraction();
    LH_TRY(write_file(*storage_, folder_ + "/timeline.json", report_->timeline()));
    LH_TRY(write_file(*storage_, folder_ + "/result.json", result_text(report_->result(late))));
    const Ending& ending = ending_->ending;
    fmt::print("{}\n", report_->final_table(late));
    if (late && *late > 0.01) {
      fmt::print(
          "the timings of this run do not count: {:.1f} % of what was emulated came late; "
          "run it on a machine that does nothing else\n",
          100 * *late);
    }
    if (ending_->checkpoint) {
      fmt::print("checkpoint  {}/{}\n", checkpoints_root(folder_),
                 folder_name(*ending_->checkpoint));
    }
    fmt::print("timeline    {}/timeline.json\nrun         {}\n", folder_, folder_);
    if (ending_->checkpoint_error) {
      fmt::print(stderr, "{}\n", ending_->checkpoint_error->text());
    }
    if (!ending.clean()) {
      fmt::print(stderr, "{}\nlogs of the workers: {}/worker-RANK.log\n", ending.text(), folder_);
      return 1;
    }
    if (InterruptFlag::signal() != 0 && ending.committed < spec_.last_step) {
      fmt::print(stderr, "{}; go on with: longhaul launch {} --resume {}\n", ending.reason,
                 options_.plan, folder_);
      return 128 + InterruptFlag::signal();
    }
    return ending_->checkpoint_error ? 1 : 0;
  }

  const Options options_;
  std::unique_ptr<Storage> storage_;
  LaunchPlan plan_;
  std::string folder_;
  RunSpec spec_;
  std::unique_ptr<SequenceSource> train_, validation_;
  std::unique_ptr<SharedPage> page_;
  std::unique_ptr<WritableFile> metrics_;
  AsioRuntime runtime_;
  std::optional<JobAuthority> authority_;
  JoinFile join_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<MeshListener> listener_;  // owners: see MeshListener::open
  std::unique_ptr<ComputeQueue> queue_;
  std::unique_ptr<ProcessHost> processes_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<TransportMesh> mesh_;
  std::unique_ptr<RunCoordinator> coordinator_;
  std::optional<RunReport> report_;
  ProgressLine progress_;
  bool is_told_to_stop_ = false;
  std::optional<RunEnding> ending_;
  std::optional<Error> error_;
};

}  // namespace

void add_launch_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("launch", "train a plan's job on its devices");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("plan", options->plan, "plan file, from `longhaul plan`")->required();
  command->add_option("--name", options->name, "of the run; its folder is RUNS/NAME");
  command->add_option("--runs", options->runs, "where runs' folders are")->capture_default_str();
  command->add_option("--resume", options->resume,
                      "go on with the run in this folder, from its newest checkpoint");
  CLI::Option* emulate = command->add_flag(
      "--emulate", options->emulate,
      "run all workers on this machine, with the links and at the speed of the plan's devices");
  command->add_flag("--local", options->local, "run all workers on this machine, as fast as it can")
      ->excludes(emulate);
  command->add_option("--listen", options->listen,
                      "HOST:PORT of this machine, as the plan's nodes reach it");
  command->add_flag("--insecure", options->insecure, "no TLS between the nodes");
  command->add_option("--wait", options->wait_s, "seconds to wait for the nodes")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "end after so many steps in all")
      ->check(CLI::PositiveNumber);
  command->add_option("--cores", options->cores, "of this machine to use with --emulate; else all")
      ->check(CLI::Range(1, 1024));
  command->callback([options, &exit_status] {
    const InterruptFlag interrupt;
    Result<int> status = LaunchProcess(*options, std::make_unique<RealStorage>()).run();
    exit_status = status ? *status : report_error(status.error());
  });
}

}  // namespace longhaul
