// A node's side of a launch: joins the coordinator, starts a worker process for each rank that it
// is given, and stays until they have ended.
//
//   joining --Welcome--> running: workers print where they listen, and are told all addresses
//   running --Terminate--> ending: SIGTERM, and SIGKILL after LaunchLimits::grace
//   running, ending --the coordinator is lost--> ended, workers killed
//   running, ending --every worker has ended and the coordinator lets go--> ended
//
// A coordinator that does not answer yet is dialled again until the deadline; one that refuses
// (wrong token, node taken) ends the agent at once.
//
// Belongs to the thread of the event loop. It may be destroyed in its own hook; destroying it kills
// its workers, with the host.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/launch/control_link.h"
#include "executor/launch/launch_messages.h"
#include "executor/launch/process_host.h"
#include "executor/transport/transport.h"

namespace longhaul {

struct AgentConfig {
  std::string coordinator;  // its address
  std::string token;
  std::string node;  // empty: whichever is free
  /// Where workers listen, as others reach this node. Empty: this end of the connection to the
  /// coordinator, which others can only reach when the coordinator is not on this node.
  std::string host;
  std::string program;  // of a worker, and its arguments
  std::vector<std::string> arguments;
  std::string folder;      // of its workers' files, and `worker-RANK.log` for each
  std::string public_key;  // PEM; both empty without TLS
  std::string private_key;
  Seconds deadline{60};  // to be let in
  LaunchLimits limits;
};

struct AgentHooks {
  /// What happens, in a sentence, for a person. May be empty.
  std::function<void(const std::string& text)> progress;
  /// The last call: every worker has ended with status 0, or what went wrong first.
  std::function<void(Result<void> ending)> ended;
};

class Agent {
 public:
  Agent(Transport& transport, EventLoop& loop, ProcessHost& processes, AgentConfig config,
        AgentHooks hooks);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Ends it as the coordinator's order would, and then without it.
  void terminate(const std::string& reason);

 private:
  struct Worker {
    int rank = 0;
    ProcessId process = 0;
    std::string address;  // empty until it listens
    bool has_ended = false;
  };

  void dial();
  void dialled(std::unique_ptr<Connection> connection);
  void received(LaunchMessage message);
  void welcomed(Welcome welcome);
  Result<ProcessId> spawn(std::size_t place, const Welcome& welcome, const std::string& host);
  void worker_said(Worker& worker, const std::string& line);
  void worker_exited(Worker& worker, const ProcessExit& exit);
  void addresses_known(PeerAddresses addresses);
  void coordinator_lost(const Error& why);
  void signal_all(int signal);
  /// Its workers have ended; a coordinator lets go of such an agent.
  bool is_over() const;
  void remember(Error why);
  void end_if_done();
  void say(const std::string& text);

  Transport& transport_;
  EventLoop& loop_;
  ProcessHost& processes_;
  AgentConfig config_;
  AgentHooks hooks_;
  std::unique_ptr<ControlLink> coordinator_;
  bool coordinator_is_lost_ = false;
  bool is_welcome_ = false;
  bool is_ending_ = false;
  bool has_ended_ = false;
  std::vector<Worker> workers_;  // not resized once they run
  Result<void> ending_;          // the first error stays
  Seconds backoff_{0.05};
  std::string trouble_;  // of the last call that was not answered; said once
  Seconds give_up_at_;
  TimerId timer_ = kNoTimer;  // of joining, or of the grace
  // Owned here alone; posted tasks look whether it is still there.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace longhaul
