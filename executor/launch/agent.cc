#include "executor/launch/agent.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

namespace longhaul {
namespace {

constexpr Seconds kRedialMax{1.0};

}  // namespace

Agent::Agent(Transport& transport, EventLoop& loop, ProcessHost& processes, AgentConfig config,
             AgentHooks hooks)
    : transport_(transport),
      loop_(loop),
      processes_(processes),
      config_(std::move(config)),
      hooks_(std::move(hooks)),
      give_up_at_(loop_.now() + config_.deadline) {
  timer_ = loop_.after(config_.deadline, [this] {
    remember(failed(fmt::format("the coordinator at {} has not let this agent in within {} s",
                                config_.coordinator, config_.deadline.value()))
                 .error());
    coordinator_is_lost_ = true;
    end_if_done();
  });
  dial();
}

Agent::~Agent() {
  loop_.cancel(timer_);
  signal_all(SIGKILL);
}

// ---- joining

void Agent::dial() {
  if (has_ended_) return;
  const Seconds left = give_up_at_ - loop_.now();
  if (left <= Seconds(0)) return;  // the timer is due
  transport_.dial(config_.coordinator, left, [this, weak = std::weak_ptr(alive_)](auto connection) {
    if (weak.expired() || has_ended_) return;
    if (connection) return dialled(std::move(*connection));
    if (loop_.now() + backoff_ >= give_up_at_) {
      return coordinator_lost(connection.error());
    }
    if (std::exchange(trouble_, connection.error().message) != connection.error().message) {
      say(fmt::format("{}; trying again for up to {:.0f} s", trouble_,
                      (give_up_at_ - loop_.now()).value()));
    }
    loop_.after(backoff_, [this, weak] {
      if (!weak.expired()) dial();
    });
    backoff_ = std::min(backoff_ * 2, kRedialMax);
  });
}

void Agent::dialled(std::unique_ptr<Connection> connection) {
  coordinator_ = std::make_unique<ControlLink>(
      loop_, std::move(connection), 0, config_.limits.control,
      ControlLinkHooks{
          [this](LaunchMessage message) { received(std::move(message)); },
          [this](const Error& why) { coordinator_lost(why); },
      });
  coordinator_->send(Join{config_.token, config_.node, config_.public_key, config_.host});
}

void Agent::received(LaunchMessage message) {
  if (has_ended_) return;
  if (auto* welcome = std::get_if<Welcome>(&message); welcome != nullptr && !is_welcome_) {
    return welcomed(std::move(*welcome));
  }
  if (auto* addresses = std::get_if<PeerAddresses>(&message); addresses != nullptr && is_welcome_) {
    return addresses_known(std::move(*addresses));
  }
  if (const auto* order = std::get_if<Terminate>(&message)) {
    return terminate("the coordinator ended it: " + order->reason);
  }
  coordinator_lost(failed("it sent what is not expected now").error());
}

void Agent::welcomed(Welcome welcome) {
  is_welcome_ = true;
  loop_.cancel(timer_);
  coordinator_->watch();
  say(fmt::format("joined {} as node {} with {} workers", config_.coordinator, welcome.node,
                  welcome.ranks.size()));
  std::string host = config_.host;
  if (host.empty()) {
    const std::string local = coordinator_->local();
    host = local.substr(0, std::min(local.rfind(':'), local.size()));
  }
  for (const int rank : welcome.ranks) workers_.emplace_back().rank = rank;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Result<ProcessId> process = spawn(i, welcome, host);
    if (process) {
      workers_[i].process = *process;
      continue;
    }
    for (std::size_t j = i; j < workers_.size(); ++j) workers_[j].has_ended = true;
    coordinator_->send(AgentFailed{process.error().message});
    is_ending_ = true;
    remember(process.error());
    return signal_all(SIGKILL);
  }
}

Result<ProcessId> Agent::spawn(std::size_t place, const Welcome& welcome, const std::string& host) {
  if (host.empty()) {
    return invalid("it is not known where other nodes reach this one", "name a host");
  }
  WorkerStart start;
  start.rank = workers_[place].rank;
  start.job = welcome.job;
  start.node = welcome.node;
  start.host = host;
  start.folder = config_.folder;
  start.spec = welcome.spec;
  if (!welcome.certificate.empty()) {
    start.authority = welcome.authority;
    start.certificate = welcome.certificate;
    start.key = config_.private_key;
  }
  ProcessOptions options;
  options.program = config_.program;
  options.arguments = config_.arguments;
  options.log = fmt::format("{}/worker-{}.log", config_.folder, start.rank);
  options.line = [this, place, weak = std::weak_ptr(alive_)](const std::string& line) {
    if (!weak.expired()) worker_said(workers_[place], line);
  };
  options.exited = [this, place, weak = std::weak_ptr(alive_)](const ProcessExit& exit) {
    if (!weak.expired()) worker_exited(workers_[place], exit);
  };
  LH_ASSIGN(const ProcessId process, processes_.spawn(std::move(options)));
  processes_.write_line(process, launch_text(start));
  return process;
}

// ---- running

void Agent::worker_said(Worker& worker, const std::string& line) {
  const std::string address = address_in_line(line);
  if (address.empty() || !worker.address.empty()) {
    return say(fmt::format("rank {} says: {}", worker.rank, line));
  }
  worker.address = address;
  coordinator_->send(Listening{worker.rank, address});
}

void Agent::addresses_known(PeerAddresses addresses) {
  if (addresses.addresses.empty()) return coordinator_lost(failed("it sent no addresses").error());
  // Where this agent has found the coordinator, its workers find it too.
  addresses.addresses[0] = config_.coordinator;
  const std::string line = launch_text(addresses);
  for (const Worker& worker : workers_) {
    if (!worker.has_ended) processes_.write_line(worker.process, line);
  }
}

void Agent::worker_exited(Worker& worker, const ProcessExit& exit) {
  worker.has_ended = true;
  const WorkerExited report{worker.rank, exit.status, exit.signal,
                            exit.last_log_line.substr(0, kReasonBytesMax)};
  say(report.text());
  if (!report.is_clean()) remember(failed(report.text()).error());
  coordinator_->send(report);
  end_if_done();
}

// ---- what ends

void Agent::terminate(const std::string& reason) {
  if (is_over()) return;
  remember(failed(reason).error());
  if (std::exchange(is_ending_, true)) return;
  if (!is_welcome_) {
    coordinator_is_lost_ = true;
    return end_if_done();
  }
  signal_all(SIGTERM);
  timer_ = loop_.after(config_.limits.grace, [this] { signal_all(SIGKILL); });
}

void Agent::coordinator_lost(const Error& why) {
  coordinator_is_lost_ = true;
  if (!is_over()) {
    const char* what = is_welcome_ ? "is lost, and the workers are killed" : "has not let us in";
    remember(
        within(fmt::format("the coordinator at {} {}", config_.coordinator, what), why).error());
    signal_all(SIGKILL);
  }
  end_if_done();
}

void Agent::signal_all(int signal) {
  for (const Worker& worker : workers_) {
    if (!worker.has_ended && worker.process != 0) processes_.signal(worker.process, signal);
  }
}

bool Agent::is_over() const {
  return is_welcome_ && std::ranges::all_of(workers_, &Worker::has_ended);
}

void Agent::remember(Error why) {
  if (ending_) ending_ = std::unexpected(std::move(why));
}

void Agent::end_if_done() {
  if (has_ended_ || !coordinator_is_lost_ || !std::ranges::all_of(workers_, &Worker::has_ended)) {
    return;
  }
  has_ended_ = true;
  loop_.cancel(timer_);
  loop_.post([this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) std::exchange(hooks_.ended, nullptr)(std::move(ending_));
  });
}

void Agent::say(const std::string& text) {
  if (hooks_.progress) hooks_.progress(text);
}

}  // namespace longhaul
