// `longhaul agent`: a node of a run. Joins the coordinator and looks after this node's workers.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "executor/launch/agent.h"
#include "executor/launch/supervised.h"
#include "executor/launch/uv_process_host.h"
#include "executor/storage/real_storage.h"
#include "executor/transport/asio_transport.h"
#include "tools/command.h"
#include "tools/join_file.h"

namespace longhaul {
namespace {

constexpr Seconds kGrace{2};

struct Options {
  std::string coordinator;
  std::string token_file;
  std::string node;
  std::string host;
  std::string folder = ".";
  double wait_s = 600;
  int parent = 0;   // process id
  int threads = 0;  // of each worker; 0: as it finds right
};

Result<int> run_agent(const Options& options) {
  if (options.parent != 0) {
    die_with_parent();
    if (getppid() != options.parent) return failed("the launch that started this agent has ended");
  }
  LH_ASSIGN(const JoinFile join, read_join_file(options.token_file));
  RealStorage storage;
  LH_TRY(make_folders(storage, options.folder));
  const InterruptFlag interrupt;

  AsioRuntime runtime;
  std::unique_ptr<Transport> transport;
  AgentConfig config;
  if (join.fingerprint.empty()) {
    transport = runtime.make_transport();
  } else {
    LH_ASSIGN(transport, runtime.make_transport(
                             {.who = TlsJoiner{join.fingerprint}, .limits = {}, .on_refused = {}}));
    LH_ASSIGN(const KeyPair key, make_key());
    config.public_key = key.public_pem;
    config.private_key = key.private_pem;
  }
  config.coordinator = options.coordinator;
  config.token = join.token;
  config.node = options.node;
  config.host = options.host;
  config.program = std::filesystem::read_symlink("/proc/self/exe").string();
  config.arguments = {"worker"};
  if (options.threads > 0) {
    config.arguments.insert(config.arguments.end(),
                            {"--threads", fmt::format("{}", options.threads)});
  }
  config.folder = std::filesystem::absolute(options.folder).lexically_normal().string();
  config.deadline = Seconds(options.wait_s);
  // A worker has nothing to put in order: what does not end when it is told so hangs.
  config.limits.grace = kGrace;

  const auto processes = make_uv_process_host(runtime.loop());
  std::optional<Result<void>> ending;
  AgentHooks hooks;
  hooks.progress = [](const std::string& text) { fmt::print(stderr, "agent: {}\n", text); };
  hooks.ended = [&](Result<void> end) {
    ending = std::move(end);
    runtime.stop();
  };
  auto agent = std::make_unique<Agent>(*transport, runtime.loop(), *processes, std::move(config),
                                       std::move(hooks));
  // A signal is seen within a tenth of a second; the second one ends this process at once.
  bool is_told = false;
  std::function<void()> look = [&] {
    if (InterruptFlag::signal() != 0 && !is_told) {
      is_told = true;
      agent->terminate("the agent was interrupted");
    }
    runtime.loop().after(milliseconds(100), [&] { look(); });
  };
  look();
  runtime.run();
  agent = nullptr;
  if (InterruptFlag::signal() != 0) return 128 + InterruptFlag::signal();
  if (ending && !*ending) return std::unexpected(ending->error());
  return 0;
}

}  // namespace

void add_agent_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand(
      "agent", "join a run that `longhaul launch` has started, as one of its nodes");
  const auto options = std::make_shared<Options>();  // owned by the callback below
  command->add_option("--join", options->coordinator, "the coordinator's address, HOST:PORT")
      ->required();
  command
      ->add_option("--token-file", options->token_file,
                   "the join file that `launch` has written; copy it here by a safe way")
      ->required();
  command->add_option("--node", options->node, "which node of the plan this is; else a free one");
  command->add_option("--host", options->host,
                      "this node's address as other nodes reach it; else the one that reaches the "
                      "coordinator");
  command->add_option("--folder", options->folder, "for checkpoints and logs of this node")
      ->capture_default_str();
  command->add_option("--wait", options->wait_s, "seconds to wait for the coordinator")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--threads", options->threads,
                   "of each worker's arithmetic; changes no result (default: this machine's cores, "
                   "shared among its workers)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--parent", options->parent)->group("");  // `launch` says it of its own agent
  command->callback([options, &exit_status] {
    const Result<int> status = run_agent(*options);
    exit_status = status ? *status : report_error(status.error());
  });
}

}  // namespace longhaul
