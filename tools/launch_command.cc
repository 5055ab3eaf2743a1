// `longhaul launch`: carries a plan out. This process is the run's coordinator; workers are started
// by agents, on this machine or on the plan's nodes.

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "core/file.h"
#include "core/plan_choices.h"
#include "executor/emulation/emulated_transport.h"
#include "executor/launch/rendezvous.h"
#include "executor/launch/uv_process_host.h"
#include "executor/metrics/http_server.h"
#include "executor/run/run_coordinator.h"
#include "executor/storage/real_storage.h"
#include "executor/transport/address.h"
#include "executor/transport/asio_transport.h"
#include "kernels/cpu/cpu_compute_queue.h"
#include "tools/command.h"
#include "tools/histories.h"
#include "tools/join_file.h"
#include "tools/launch_model.h"
#include "tools/launch_setup.h"
#include "tools/run_folder.h"
#include "tools/run_logs.h"
#include "tools/run_metrics.h"
#include "tools/run_report.h"
#include "tools/tables.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr Seconds kLook = milliseconds(100);
/// For reports of how workers have ended to come in after a failure, before the rest is ended.
constexpr Seconds kLastWords{0.5};
/// For agents to leave after the run has ended.
constexpr Seconds kFarewell{20};

struct Options {
  std::string plan;
  std::string name;
  std::string runs = "runs";
  std::string resume;  // a run's folder
  std::string from;    // a model's; empty: what the job says
  bool emulate = false;
  bool local = false;
  bool insecure = false;
  std::string listen;
  double wait_s = 600;
  std::uint64_t steps = 0;
  int cores = 0;
  int threads = 0;      // of each worker; 0: as it finds right
  std::string metrics;  // where they are served; empty: nowhere
  bool adapt_codecs = false;
};

std::string random_text() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// The address to dial for one that may stand for all of this machine's.
std::string dialled_address(const std::string& address) {
  const std::string host = host_of_address(address);
  if (host != "0.0.0.0" && host != "::") return address;
  return "THIS_MACHINE" + address.substr(address.rfind(':'));
}

/// `PORT` alone is one of this machine's own.
std::string metrics_address(const std::string& text) {
  const bool is_port = text.find_first_not_of("0123456789") == std::string::npos;
  return is_port ? "127.0.0.1:" + text : text;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The memory that the workers of an emulation share. It has a name for an instant only, so that
/// none stays behind however this process ends: workers open it as this process's descriptor.
struct SharedMemory {
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (descriptor >= 0) close(descriptor);
  }

  Result<void> create(const EmulatedNetwork& network, double dilation, int permits) {
    // Memory, not a disk: the write-back of a disk would stall who writes there.
    const fs::path folder =
        fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    const std::string name = folder / fmt::format("longhaul-{}-{}.page", getpid(), random_text());
    Result<std::unique_ptr<SharedPage>> made = SharedPage::create(name, network, dilation, permits);
    descriptor = open(name.c_str(), O_RDWR | O_CLOEXEC);
    unlink(name.c_str());
    if (!made) return std::unexpected(std::move(made).error());
    if (descriptor < 0) return failed(fmt::format("cannot open {} again", name));
    page = *std::move(made);
    path = fmt::format("/proc/{}/fd/{}", getpid(), descriptor);
    return {};
  }

  std::unique_ptr<SharedPage> page;  // null: none was made
  int descriptor = -1;
  std::string path;
};

class LaunchProcess {
 public:
  LaunchProcess(Options options, std::unique_ptr<Storage> storage)
      : options_(std::move(options)), storage_(std::move(storage)) {}

  Result<int> run() {
    const Result<int> status = work();
    // What uses the transport goes before it.
    coordinator_ = nullptr;
    mesh_ = nullptr;
    rendezvous_ = nullptr;
    processes_ = nullptr;
    queue_ = nullptr;
    if (listener_) listener_->close();
    listener_ = nullptr;
    metrics_server_ = nullptr;
    transport_ = nullptr;
    return status;
  }

 private:
  Result<int> work() {
    LH_TRY(prepare());
    LH_TRY(prepare_emulation());
    LH_TRY(open_transport());
    LH_TRY(write_inputs());
    LH_TRY(import_weights());
    LH_TRY(start());
    runtime_.run();
    return finish();
  }

  // ---- before anything starts

  Result<void> prepare() {
    if (options_.listen.empty() && !is_here()) {
      return invalid("where do the plan's nodes reach this machine?",
                     "give --listen HOST:PORT; or --emulate or --local to run all workers here");
    }
    LH_TRY(serve_metrics());
    say(fmt::format("reading {} and what it names", options_.plan));
    Result<LaunchPlan> plan = load_launch_plan(*storage_, options_.plan);
    if (!plan) {
      // Also a file that cannot be read: nothing has run yet.
      if (plan.error().code == ErrorCode::kFailed) plan.error().code = ErrorCode::kInvalid;
      return std::unexpected(std::move(plan).error());
    }
    plan_ = *std::move(plan);
    const bool is_resumed = !options_.resume.empty();
    if (is_resumed) {
      LH_ASSIGN(run_folder_, RunFolder::open(*storage_, options_.resume));
      say(fmt::format("checking the checkpoints in {}", options_.resume));
    } else {
      LH_ASSIGN(run_folder_,
                RunFolder::choose(*storage_, options_.runs, options_.name, plan_.job.name));
    }
    folder_ = run_folder_.path();
    SpecOptions spec_options;
    spec_options.folder = folder_;
    spec_options.resume = is_resumed;
    spec_options.is_on_one_machine = is_here();
    if (options_.steps > 0) spec_options.steps = options_.steps;
    spec_options.adapts_codecs = options_.adapt_codecs;
    LH_ASSIGN(PreparedRun prepared, prepare_run(*storage_, plan_, run_folder_.id(), spec_options));
    for (const Error& refused : prepared.refused) say("not used: " + refused.text());
    spec_ = std::move(prepared.spec);
    if (!is_resumed) {
      LH_ASSIGN(source_, open_first_model(*storage_, plan_, options_.from));
      if (source_) {
        for (const std::string& note : source_->notes) say("note: " + note);
      }
    }
    LH_TRY(open_data());
    RunMetrics::Options about = {
        fs::path(folder_).filename(), unix_start_, runtime_.loop().now(), {}};
    for (const Site& site : plan_.topology.sites) about.sites.push_back(site.name);
    metrics_.emplace(spec_, std::move(about));
    say(fmt::format("run {}: {} x {} workers (pipelines x stages), steps {} to {}", folder_,
                    spec_.plan.pipelines(), spec_.plan.stages(), spec_.first_step + 1,
                    spec_.last_step));
    for (const auto& [name, text] : shown_choices(plan_.file.plan, plan_.topology, plan_.job)) {
      say(fmt::format("{}: {}", name, text));
    }
    for (const std::string& line : history_lines(spec_)) say(line);
    return {};
  }

  /// The port is taken first of all, the page is there when the loop runs.
  Result<void> serve_metrics() {
    if (options_.metrics.empty()) return {};
    const std::string address = metrics_address(options_.metrics);
    auto server =
        HttpServer::listen(runtime_, address, "/metrics", [this](std::string_view accept) {
          const MetricFormat format = metric_format_for(accept);
          return HttpPage{std::string(content_type_of(format)), metrics_->text(format)};
        });
    if (!server) {
      const bool is_wrong = server.error().code == ErrorCode::kInvalid;
      server.error().hint = is_wrong ? "--metrics 9400, or --metrics HOST:9400"
                                     : "give --metrics another port, or 0 for any that is free";
      return within("--metrics", std::move(server).error());
    }
    metrics_server_ = *std::move(server);
    say(fmt::format("metrics: http://{}/metrics", metrics_server_->address()));
    if (!is_loopback_address(address)) {
      say("warning: the metrics are open to all who can reach this address");
    }
    return {};
  }

  /// What the workers resume from, where the run begins with somebody's weights.
  Result<void> import_weights() {
    if (!options_.resume.empty()) return {};
    LH_TRY(keep_companions(*storage_, source_, spec_.data_folder, folder_));
    if (!source_) return {};
    say(fmt::format("copying the weights of {}", source_->path));
    LH_ASSIGN(spec_.resume, import_first_model(*storage_, *source_, spec_, folder_));
    source_.reset();
    return {};
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
    const int cores = std::max(
        options_.cores > 0 ? options_.cores : static_cast<int>(std::thread::hardware_concurrency()),
        1);
    say("timing a micro-batch on this machine");
    LH_ASSIGN(const EmulatedNetwork network, emulated_network(plan_));
    LH_ASSIGN(const Dilation dilation, choose_dilation(plan_, cores));
    LH_TRY(memory_.create(network, dilation.factor, cores));
    EmulationSpec emulation;
    emulation.page = memory_.path;
    emulation.dilation = dilation.factor;
    emulation.devices = emulated_devices(plan_);
    spec_.emulation = std::move(emulation);
    say(fmt::format("emulated: {} devices on {} cores at dilation {:.2f} ({}; {:.2f} CPU s a step)",
                    spec_.cells(), cores, dilation.factor, dilation.reason, dilation.real_step_s));
    return {};
  }

  Result<void> write_inputs() {
    LH_TRY(run_folder_.make(*storage_, spec_.job.name, spec_.data_folder, plan_.dataset.tokenizer));
    const std::string suffix = spec_.term == 1 ? "" : fmt::format("-term-{}", spec_.term);
    const std::string plan_path = folder_ + "/plan" + suffix + ".yaml";
    const std::string job_path = folder_ + "/job" + suffix + ".yaml";
    LH_TRY(write_file(*storage_, job_path, spec_.job_text));
    PlanFile copy = plan_.file;
    copy.job_path = path_from(plan_path, plan_.job_path);
    copy.cluster_path = path_from(plan_path, resolve_from(options_.plan, plan_.file.cluster_path));
    LH_TRY(write_file(*storage_, plan_path, plan_text(copy, plan_.topology, plan_.job)));
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
    LH_ASSIGN(RunLogs logs, RunLogs::open(*storage_, {.folder = folder_,
                                                      .host = host.data(),
                                                      .term = spec_.term,
                                                      .first_step = spec_.first_step,
                                                      .unix_start = unix_start_,
                                                      .now = runtime_.loop().now()}));
    logs_.emplace(std::move(logs));
    return {};
  }

  // ---- the processes

  bool is_here() const { return options_.emulate || options_.local; }

  Result<void> open_transport() {
    const std::string address = options_.listen.empty() ? "127.0.0.1:0" : options_.listen;
    const bool is_secure = !is_loopback_address(address) && !options_.insecure;
    if (!is_loopback_address(address) && options_.insecure) {
      say("warning: --insecure: whoever can read or change the traffic between the nodes can read "
          "or change the model and the data");
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
                                         .on_refused = [this](const Error& why) {
                                           say("turned away: " + why.message);
                                         }}));
      authority_.emplace(std::move(authority));
    } else {
      transport = runtime_.make_transport();
    }
    if (memory_.page) {
      transport = make_emulated_transport(std::move(transport), runtime_.loop(), *memory_.page);
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
      if (!is_terminating_) exits_.emplace(exit.rank, exit.text());
      if (coordinator_ && !exit.is_clean() && !ending_) {
        coordinator_->worker_exited(exit.rank - 1, exit.text());
      }
    };
    hooks.agent_lost = [this](const std::string& node, const Error& why) {
      if (is_terminating_ || (ending_ && ending_->ending.clean())) return;
      say(why.message);
      // Its workers go with it, and are only heard of by others: this is the first cause.
      for (const RendezvousNode& lost : nodes()) {
        if (lost.name != node) continue;
        for (const int rank : lost.ranks) {
          if (coordinator_) coordinator_->worker_exited(rank - 1, why.message);
        }
      }
    };
    hooks.all_left = [this] {
      have_all_left_ = true;
      if (ending_ || error_) runtime_.stop();
    };
    LH_ASSIGN(rendezvous_, Rendezvous::start(*transport_, runtime_.loop(), listener_,
                                             std::move(config), std::move(hooks)));
    if (is_here()) {
      LH_TRY(start_agents());
    } else {
      say(
          fmt::format("waiting up to {} s for {} nodes; copy {} to each of them and run there:\n"
                      "  longhaul agent --join {} --token-file join.json --node NODE\n"
                      "nodes: {}",
                      options_.wait_s, nodes().size(), join_path,
                      dialled_address(listener_->address()), node_names()));
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
    agent.arguments = {"agent",
                       "--join",
                       listener_->address(),
                       "--token-file",
                       folder_ + "/join.json",
                       "--node",
                       "local",
                       "--folder",
                       folder_,
                       "--parent",
                       fmt::format("{}", getpid())};
    if (options_.threads > 0) {
      agent.arguments.insert(agent.arguments.end(),
                             {"--threads", fmt::format("{}", options_.threads)});
    }
    agent.log = folder_ + "/agent.log";
    agent.exited = [this](const ProcessExit& exit) {
      if (ending_ || coordinator_) return;  // the rendezvous tells
      rendezvous_->terminate(fmt::format("the agent here has ended: {}", exit.last_log_line));
    };
    LH_TRY(processes_->spawn(std::move(agent)));
    return {};
  }

  void show_rendezvous(const RendezvousProgress& at) {
    metrics_->set_connected(at.listening);
    if (!at.trouble.empty()) return say("turned away: " + at.trouble);
    if (at.missing.empty()) {
      progress_->show(fmt::format("{} of {} workers are ready", at.listening, at.workers));
    } else {
      progress_->show(
          fmt::format("joined: {}; missing: {}",
                      at.joined.empty() ? "nobody" : fmt::format("{}", fmt::join(at.joined, ", ")),
                      fmt::join(at.missing, ", ")));
    }
  }

  // ---- the run

  void joined(Result<std::unique_ptr<TransportMesh>> mesh) {
    if (!mesh) return give_up(mesh.error());
    mesh_ = std::move(*mesh);
    metrics_->set_connected(spec_.cells());
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
      if (memory_.page && entry.step == spec_.first_step) before_steps_ = memory_.page->counters();
      if (entry.decision == Decision::kSkip) {
        say(fmt::format("step {} is skipped: its gradient is not finite", entry.step));
      }
      show_progress();
    };
    context.hooks.validated = [this](std::uint64_t step, double loss) {
      report_->validated(step, loss, runtime_.loop().now());
      progress_->show(fmt::format("step {}  validation loss {:.4f}", step, loss));
      tell_records();
    };
    context.hooks.kept = [this](const CheckpointManifest& manifest) {
      report_->kept(manifest.id, runtime_.loop().now());
      tell_records();
    };
    context.hooks.measured = [this](int cell, const Measured& measured) {
      report_->measured(cell, measured);
      tell_records();
    };
    context.hooks.histories = [this](int cell, const HistoryVisits& visits) {
      report_->histories(cell, visits);
    };
    context.hooks.recoded = [this](int cell, const Recoded& recoded) {
      say(report_->recoded(cell, recoded, runtime_.loop().now()));
      tell_records();
    };
    context.hooks.times = [this](int cell, const Times& times) { report_->times(cell, times); };
    context.hooks.ended = [this](const RunEnding& ending) { ended(ending); };
    Result<std::unique_ptr<RunCoordinator>> coordinator = RunCoordinator::create(context);
    if (!coordinator) return give_up(coordinator.error());
    coordinator_ = std::move(*coordinator);
    coordinator_->start();
  }

  void show_progress() {
    if (report_->should_print(runtime_.loop().now())) progress_->show(report_->progress_line());
  }

  /// A log that cannot be written does not stop a run that could.
  void tell_records() {
    for (const RunRecord& record : report_->take_records()) {
      metrics_->record(record);
      if (const auto written = logs_->write(record); !written) say(written.error().text());
    }
  }

  void ended(const RunEnding& ending) {
    ending_ = ending;
    metrics_->set_connected(0);
    report_->ended();
    tell_records();
    // At once: to end what hangs may take a while.
    if (!ending.ending.clean()) say(ending.ending.text());
    // Workers end when the coordinator lets go of them.
    runtime_.loop().post([this] {
      coordinator_ = nullptr;
      mesh_ = nullptr;
    });
    if (!ending.ending.clean()) {
      // How the culprit has ended is heard of a little later than that its connections have.
      runtime_.loop().after(kLastWords, [this] {
        is_terminating_ = true;
        rendezvous_->terminate("the run has failed");
      });
    }
    leave_soon();
  }

  void give_up(const Error& why) {
    error_ = why;
    rendezvous_->terminate(why.message);
    leave_soon();
  }

  /// When all agents have left, or have had the time to.
  void leave_soon() {
    if (have_all_left_) return runtime_.stop();
    runtime_.loop().after(kFarewell, [this] { runtime_.stop(); });
  }

  /// A signal ends the run in order; the second one ends this process at once.
  void look() {
    if (InterruptFlag::signal() != 0 && !is_told_to_stop_) {
      is_told_to_stop_ = true;
      if (coordinator_) {
        progress_->show("stopping after the step at hand, with a checkpoint");
        coordinator_->request_stop();
      } else if (!error_) {
        rendezvous_->terminate("interrupted");
      }
    }
    if (!ending_) runtime_.loop().after(kLook, [this] { look(); });
  }

  // ---- after it

  Result<int> finish() {
    const int signal = InterruptFlag::signal();
    if (!ending_) {
      if (signal != 0) {
        say("interrupted before the run began");
        return 128 + signal;
      }
      if (error_) return std::unexpected(*error_);
      return failed("the run ended before it began");
    }
    std::optional<double> late;
    if (memory_.page) late = memory_.page->counters().since(before_steps_).late_fraction();
    const Ending& ending = ending_->ending;
    progress_.reset();  // takes its line away
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
    std::fflush(stdout);

    bool has_failed = false;
    const auto tell = [&has_failed](const Error& error) {
      fmt::print(stderr, "{}\n", error.text());
      has_failed = true;
    };
    if (ending.clean() && ending.committed == spec_.last_step && ending_->checkpoint) {
      const auto written = write_finished_model(*storage_, folder_, *ending_->checkpoint);
      if (written) {
        fmt::print("model       {}\n", *written);
      } else {
        tell(written.error());
      }
    }
    fmt::print("timeline    {}/timeline.json\nrun         {}\n", folder_, folder_);
    std::fflush(stdout);
    if (ending_->checkpoint_error) tell(*ending_->checkpoint_error);
    const auto timeline = write_file(*storage_, folder_ + "/timeline.json", report_->timeline());
    if (!timeline) tell(timeline.error());
    const auto result =
        write_file(*storage_, folder_ + "/result.json", result_text(report_->result(late)));
    if (!result) tell(result.error());

    if (!ending.clean()) {
      tell_failure(ending);
      return 1;
    }
    if (signal != 0 && ending.committed < spec_.last_step) {
      fmt::print(stderr, "{}\n", ending.reason);
      if (ending_->checkpoint) fmt::print(stderr, "go on with: {}\n", resume_command());
      return 128 + signal;
    }
    return has_failed ? 1 : 0;
  }

  /// The first cause was said when it came; here is what became of that worker, and where it was.
  void tell_failure(const Ending& ending) const {
    fmt::print(stderr, "the run has failed after {} steps\n", ending.committed);
    const int rank = ending.cause->rank;
    if (rank <= 0) return;
    const RankPlace& place = spec_.ranks[static_cast<std::size_t>(rank)];
    const auto exit = exits_.find(rank);
    if (exit != exits_.end()) fmt::print(stderr, "{}\n", exit->second);
    fmt::print(stderr, "rank {} is device {} of node {} in {}; ", rank, place.name, place.node,
               plan_.topology.sites[static_cast<std::size_t>(place.site)].name);
    if (is_here()) {
      fmt::print(stderr, "its log is {}/worker-{}.log\n", folder_, rank);
    } else {
      fmt::print(stderr, "its log is worker-{}.log in the folder of that node's agent\n", rank);
    }
  }

  std::string resume_command() const {
    std::string command = fmt::format("longhaul launch {} --resume {}", options_.plan, folder_);
    if (options_.local) command += " --local";
    if (options_.emulate) command += " --emulate";
    if (options_.cores > 0) command += fmt::format(" --cores {}", options_.cores);
    if (!options_.listen.empty()) command += " --listen " + options_.listen;
    if (options_.insecure) command += " --insecure";
    if (options_.steps > 0) command += fmt::format(" --steps {}", options_.steps);
    if (!options_.metrics.empty()) command += " --metrics " + options_.metrics;
    if (options_.threads > 0) command += fmt::format(" --threads {}", options_.threads);
    if (options_.adapt_codecs) command += " --adapt-codecs";
    return command;
  }

  /// A line that stays, unlike one of progress_.
  void say(const std::string& text) {
    fmt::print(stderr, "{}{}\n", isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "", text);
    std::fflush(stderr);
  }

  const Options options_;
  std::unique_ptr<Storage> storage_;
  LaunchPlan plan_;
  RunFolder run_folder_;
  std::string folder_;  // its path
  RunSpec spec_;
  std::optional<ModelSource> source_;  // of the first weights, until they are imported
  std::unique_ptr<SequenceSource> train_, validation_;
  SharedMemory memory_;
  /// When the first step was committed, from where on steps are timed: workers set themselves up
  /// before it, all at once.
  EmulationCounters before_steps_;
  AsioRuntime runtime_;
  const double unix_start_ = unix_seconds() - runtime_.loop().now().value();  // of the loop's clock
  std::optional<RunMetrics> metrics_;
  std::unique_ptr<HttpServer> metrics_server_;
  std::optional<RunLogs> logs_;
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
  std::optional<ProgressLine> progress_{std::in_place};
  bool is_told_to_stop_ = false;
  bool is_terminating_ = false;
  bool have_all_left_ = false;        // agents
  std::map<int, std::string> exits_;  // of workers, by rank
  std::optional<RunEnding> ending_;
  std::optional<Error> error_;
};

}  // namespace

void add_launch_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("launch", "train a plan's job on its devices");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("plan", options->plan, "plan file, from `longhaul plan`")->required();
  CLI::Option* name =
      command->add_option("--name", options->name, "of the run; its folder is RUNS/NAME");
  command->add_option("--runs", options->runs, "where runs' folders are")->capture_default_str();
  command
      ->add_option("--resume", options->resume,
                   "go on with the run in this folder, from its newest checkpoint; the plan may "
                   "be another one")
      ->excludes(name);
  command
      ->add_option(
          "--from", options->from,
          "begin with the weights of this model: a Hugging Face folder, a run, a "
          "checkpoint or a model file of llm.c; else those that the job names, or fresh ones")
      ->excludes("--resume");
  CLI::Option* emulate = command->add_flag(
      "--emulate", options->emulate,
      "run all workers on this machine, with the links and at the speed of the plan's devices");
  CLI::Option* local = command
                           ->add_flag("--local", options->local,
                                      "run all workers on this machine, as fast as it can")
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
      ->check(CLI::Range(1, 1024))
      ->needs(emulate);
  command
      ->add_option(
          "--threads", options->threads,
          "of each worker's arithmetic with --local; changes no result (default: the cores "
          "of this machine, shared among the workers)")
      ->check(CLI::Range(1, 1024))
      ->needs(local);
  command->add_flag("--adapt-codecs", options->adapt_codecs,
                    "boundary tensors whose codec the job leaves open (activations: auto) are "
                    "written in fewer or more bits, within its floor, when a link turns out slower "
                    "or faster; such a run depends on the clock");
  command->add_option("--metrics", options->metrics,
                      "[HOST:]PORT that serves /metrics to Prometheus; port 0 is any that is free");
  command->footer(
      "One of --emulate, --local and --listen says where the workers run. With --listen, start\n"
      "`longhaul agent` on each node of the plan; the traffic between them is encrypted.\n"
      "Ctrl-C stops the run after the step at hand, with a checkpoint; a second one at once.");
  command->callback([options, &exit_status] {
    const InterruptFlag interrupt;
    raise_open_files_limit();
    Result<int> status = LaunchProcess(*options, std::make_unique<RealStorage>()).run();
    exit_status = status ? *status : report_error(status.error());
  });
}

}  // namespace longhaul
