// The coordinator's side of a launch: lets agents in, gives each its node and its ranks, and joins
// everybody's mesh (rank 0 is the coordinator itself) once all workers listen. Stays with the
// agents until their workers have ended.
//
//   joining --every rank listens--> connecting --the mesh stands--> standing
//   joining, connecting --anything that fails--> failed: agents are told to end their workers
//
// Who is refused (a wrong token, a node that is unknown or taken) is told why, and changes nothing
// for the others. The token lets agents in until all nodes have joined.
//
// Belongs to the thread of the event loop. `ready` is called once. The rendezvous must outlive the
// making of the mesh and be destroyed before the transport; it may be destroyed in its own hooks.
// Destroying it closes the agents' connections, and they kill their workers then.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/launch/control_link.h"
#include "executor/transport/transport_mesh.h"

namespace longhaul {

struct RendezvousNode {
  std::string name;
  std::vector<int> ranks;  // of its workers: 1 and above; each rank belongs to one node
};

struct RendezvousConfig {
  std::uint64_t job = 0;
  std::uint32_t term = 0;  // of the mesh
  std::string token;
  std::vector<RendezvousNode> nodes;
  std::string spec;
  std::string coordinator_identity;  // in the coordinator's certificate; for TLS only
  Seconds deadline{60};              // from the start until the mesh stands
  MeshLimits mesh;
  LaunchLimits limits;
};

struct Certified {
  std::string certificate;
  std::string authority;
};

/// How far it has come, for a person.
struct RendezvousProgress {
  std::vector<std::string> joined;   // nodes
  std::vector<std::string> missing;  // nodes
  int listening = 0;                 // workers
  int workers = 0;
  std::string trouble;  // somebody was refused just now, and why
};

struct RendezvousHooks {
  /// Signs a node's public key (PEM; empty where the agent has none). Empty hook: no TLS.
  std::function<Result<Certified>(const std::string& public_key, const std::string& node)> certify;
  std::function<void(const RendezvousProgress& progress)> progress;  // may be empty
  OnMesh ready;
  /// A worker has ended after the mesh stood.
  std::function<void(const WorkerExited& exit)> exited;
  /// A node's agent was lost after the mesh stood, and with it its workers.
  std::function<void(const std::string& node, const Error& why)> agent_lost;
  /// No agent is left. Called once, after `ready`.
  std::function<void()> all_left;
};

class Rendezvous {
 public:
  /// Takes the joins and the greetings that come to the listener. The config comes from a plan that
  /// was checked; what cannot be sent is an error.
  static Result<std::unique_ptr<Rendezvous>> start(Transport& transport, EventLoop& loop,
                                                   std::shared_ptr<MeshListener> listener,
                                                   RendezvousConfig config, RendezvousHooks hooks);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Has all workers ended: SIGTERM, and SIGKILL after LaunchLimits::grace. Before the mesh stands,
  /// that is how `ready` is told of it.
  void terminate(const std::string& reason);

 private:
  enum class State { kJoining, kConnecting, kStanding, kFailed };
  struct Node {
    RendezvousNode plan;
    std::unique_ptr<ControlLink> agent;  // null before it joins and after it has left
    std::string joined_from;             // empty: it has not
    std::vector<std::string> addresses;  // of its ranks; empty until they listen
    std::size_t ended = 0;               // workers
    bool has_joined() const { return !joined_from.empty(); }
  };

  Rendezvous(Transport& transport, EventLoop& loop, std::shared_ptr<MeshListener> listener,
             RendezvousConfig config, RendezvousHooks hooks);
  void joins(std::unique_ptr<Connection> connection, const std::string& text);
  /// The node that such a join is given, or why it gets none.
  Result<Node*> admit(const Join& join);
  void welcome(Node& node, const Join& join, std::unique_ptr<Connection> connection);
  void received(Node& node, const LaunchMessage& message);
  void listens(Node& node, const Listening& listening);
  void worker_exited(Node& node, const WorkerExited& exit);
  void agent_closed(Node& node, const Error& why);
  void leave(Node& node);
  void tell_if_all_left();
  void connect();
  void connected(Result<std::unique_ptr<TransportMesh>> mesh);
  void out_of_time();
  void fail(Error error);
  void order_end(const std::string& reason);
  void tell_progress(const std::string& trouble = "");

  Transport& transport_;
  EventLoop& loop_;
  std::shared_ptr<MeshListener> listener_;  // owners: see MeshListener::open
  RendezvousConfig config_;
  RendezvousHooks hooks_;
  std::vector<Node> nodes_;
  State state_ = State::kJoining;
  int wrong_tokens_ = 0;
  TimerId timer_ = kNoTimer;
  Seconds give_up_at_;
  // Links are not freed in their own hooks.
  std::vector<std::unique_ptr<ControlLink>> retired_;
  // Owned here alone; posted tasks look whether it is still there.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

/// Whether two secrets are equal, in a time that says nothing of where they differ.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace longhaul
