// A whole launch in virtual time: the coordinator at host c, agents and their workers at h0, h1,
// ...
#include "executor/launch/rendezvous.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <set>

#include "executor/launch/agent.h"
#include "executor/launch/sim_process_host.h"
#include "executor/launch/supervised.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/transport/sim_transport.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kJob = 0xfedcba9876543210;
constexpr const char* kToken = "one-time-token";
constexpr const char* kSpec = "{\"any\": \"text\n\"}";

struct World {
  /// A worker's program: the real supervised side and mesh.
  struct Worker {
    Worker(World& world_of_worker, SimProcess& its_process)
        : world(world_of_worker),
          process(its_process),
          supervised({[this](WorkerStart line) { begin(std::move(line)); },
                      [this](PeerAddresses peers) { connect(std::move(peers)); },
                      [this](const Error& why) { process.exit(1, why.message); }}) {
      process.on_line = [this](const std::string& line) { supervised.line(line); };
      process.on_stdin_end = [this] { supervised.end_of_lines(); };
      process.on_end = [this] {
        mesh.reset();
        if (listener) listener->close();
      };
    }
    void begin(WorkerStart line) {
      start = std::move(line);
      world.workers[start.rank] = this;
      if (world.before_listening && world.before_listening(*this)) return;
      transport = world.network.make_transport(start.host);
      listener = *MeshListener::open(*transport, world.loop, start.host + ":0");
      process.print("starting up");
      process.print(listening_line(listener->address()));
    }
    void connect(PeerAddresses peers) {
      MeshConfig wanted{peers.addresses, peers.identities, start.rank, start.job, 0, {},
                        Seconds(30)};
      connect_mesh(*transport, world.loop, listener, std::move(wanted), [this](auto made) {
        if (!made) return process.exit(1, made.error().message);
        mesh = std::move(*made);
      });
    }

    World& world;
    SimProcess& process;
    Supervised supervised;
    WorkerStart start;
    std::unique_ptr<Transport> transport;
    std::shared_ptr<MeshListener> listener;
    std::unique_ptr<TransportMesh> mesh;
  };

  struct Node {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<SimProcessHost> processes;
    std::unique_ptr<Agent> agent;
    bool has_ended = false;
    std::string ending;  // empty: every worker exited with status 0
    Seconds ended_at;
  };

  World() : network(loop, 1) {
    config.job = kJob;
    config.token = kToken;
    config.nodes = {{"a", {1, 2}}, {"b", {3, 4}}, {"c", {5, 6}}};
    config.spec = kSpec;
    agent.coordinator = "c:7000";
    agent.token = kToken;
    agent.program = "worker";
    agent.folder = "runs";
    agent.private_key = "private key";
    agent.public_key = "public key";
  }
  ~World() {
    nodes.clear();
    rendezvous.reset();
    mesh.reset();
    all_workers.clear();
    if (transport) listener->close();
    transport.reset();
  }

  void start_coordinator() {
    transport = network.make_transport("c");
    listener = *MeshListener::open(*transport, loop, "c:7000");
    hooks.progress = [this](const RendezvousProgress& progress) {
      last_progress = progress;
      if (!progress.trouble.empty()) troubles.push_back(progress.trouble);
    };
    hooks.ready = [this](Result<std::unique_ptr<TransportMesh>> result) {
      is_ready = true;
      if (result) {
        mesh = std::move(*result);
      } else {
        failure = result.error().message;
      }
    };
    hooks.exited = [this](const WorkerExited& exit) { exits.push_back(exit.text()); };
    hooks.agent_lost = [this](const std::string& node, const Error& why) {
      lost.push_back(node + ": " + why.message);
    };
    hooks.all_left = [this] {
      EXPECT_TRUE(is_ready);
      ++all_left;
    };
    auto started =
        Rendezvous::start(*transport, loop, listener, std::move(config), std::move(hooks));
    ASSERT_TRUE(started) << started.error().text();
    rendezvous = std::move(*started);
  }
  Node& start_agent(AgentConfig given) {
    nodes.push_back(std::make_unique<Node>());
    Node& node = *nodes.back();
    const std::string host = fmt::format("h{}", nodes.size() - 1);
    node.transport = network.make_transport(host);
    node.processes = std::make_unique<SimProcessHost>(loop, [this](SimProcess& process) {
      if (!spawn_error.empty()) return Result<void>(failed(spawn_error));
      all_workers.push_back(std::make_unique<Worker>(*this, process));
      return Result<void>();
    });
    node.agent = std::make_unique<Agent>(*node.transport, loop, *node.processes, std::move(given),
                                         AgentHooks{{}, [this, &node](Result<void> ending) {
                                                      node.has_ended = true;
                                                      node.ended_at = loop.now();
                                                      if (!ending) {
                                                        node.ending = ending.error().message;
                                                      }
                                                    }});
    return node;
  }
  Node& start_agent(const std::string& name = "") {
    AgentConfig given = agent;
    given.node = name;
    return start_agent(std::move(given));
  }
  void start_all() {
    start_coordinator();
    for (int i = 0; i < 3; ++i) start_agent();
  }
  void run_until(const std::function<bool()>& done) {
    while (!done()) ASSERT_TRUE(loop.step()) << "nothing more happens";
  }
  /// Everybody's mesh stands.
  void stand() {
    start_all();
    run_until([&] {
      return mesh && workers.size() == 6 &&
             std::ranges::all_of(workers, [](const auto& w) { return w.second->mesh != nullptr; });
    });
  }
  void run() { ASSERT_TRUE(loop.run_until_idle(Seconds(1e4))) << "it does not end"; }
  int running() const {
    int count = 0;
    for (const auto& node : nodes) count += node->processes ? node->processes->running() : 0;
    return count;
  }
  void expect_failure(const std::string& text) {
    EXPECT_NE(failure.find(text), std::string::npos) << failure;
    EXPECT_EQ(running(), 0);
    EXPECT_EQ(all_left, 1);
  }

  SimEventLoop loop;
  SimNetwork network;
  RendezvousConfig config;
  RendezvousHooks hooks;
  AgentConfig agent;
  /// Says whether the worker has done something else.
  std::function<bool(Worker& worker)> before_listening;
  std::string spawn_error;

  std::unique_ptr<Transport> transport;
  std::shared_ptr<MeshListener> listener;
  std::unique_ptr<Rendezvous> rendezvous;
  std::unique_ptr<TransportMesh> mesh;
  bool is_ready = false;
  std::string failure;
  RendezvousProgress last_progress;
  std::vector<std::string> troubles, exits, lost;
  int all_left = 0;
  std::vector<std::unique_ptr<Node>> nodes;
  std::map<int, Worker*> workers;  // by rank
  std::vector<std::unique_ptr<Worker>> all_workers;
};

TEST(Launch, three_nodes_of_two_workers_make_one_mesh_and_leave_when_they_are_done) {
  World world;
  world.stand();
  EXPECT_EQ(world.mesh->ranks(), 7);
  EXPECT_EQ(world.last_progress.joined, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(world.last_progress.listening, 6);
  for (const auto& [rank, worker] : world.workers) {
    EXPECT_EQ(worker->mesh->rank(), rank);
    EXPECT_EQ(worker->start.spec, kSpec);
    EXPECT_EQ(worker->start.job, kJob);
    EXPECT_EQ(worker->start.folder, "runs");
    // Agents came in the order of their hosts, and ranks are given in the order of the nodes.
    EXPECT_EQ(worker->start.host, fmt::format("h{}", (rank - 1) / 2));
    EXPECT_EQ(worker->start.node, std::string(1, static_cast<char>('a' + (rank - 1) / 2)));
    EXPECT_EQ(worker->start.key, "") << "there is no TLS";
    EXPECT_EQ(worker->process.options().log, fmt::format("runs/worker-{}.log", rank));
  }
  for (const auto& [rank, worker] : world.workers) worker->process.exit(0);
  world.run();
  EXPECT_EQ(world.exits.size(), 6u);
  EXPECT_EQ(world.exits.front(), "rank 1 exited with status 0");
  EXPECT_TRUE(world.lost.empty()) << world.lost.front();
  EXPECT_EQ(world.all_left, 1);
  for (const auto& node : world.nodes) EXPECT_TRUE(node->has_ended && node->ending.empty());
}

TEST(Launch, a_named_agent_gets_its_node_and_its_host) {
  World world;
  world.start_coordinator();
  AgentConfig named = world.agent;
  named.node = "b";
  named.host = "outside";
  world.start_agent(named);
  world.run_until([&] { return world.last_progress.listening == 2; });
  EXPECT_EQ(world.workers.begin()->first, 3);
  EXPECT_EQ(world.workers[3]->listener->address().substr(0, 8), "outside:");
  EXPECT_EQ(world.last_progress.missing, (std::vector<std::string>{"a", "c"}));
}

TEST(Launch, an_agent_may_come_before_its_coordinator) {
  World world;
  for (int i = 0; i < 3; ++i) world.start_agent();
  world.loop.after(Seconds(20), [&] { world.start_coordinator(); });
  world.run_until([&] { return world.mesh != nullptr; });
}

// ---- Who is not let in.

TEST(Launch, a_wrong_token_is_refused_and_the_right_one_still_welcome) {
  World world;
  world.start_coordinator();
  AgentConfig wrong = world.agent;
  wrong.token = "one-time-tokem";
  const World::Node& node = world.start_agent(wrong);
  world.run_until([&] { return node.has_ended; });
  EXPECT_EQ(node.ending,
            "the coordinator at c:7000 has not let us in: it "
            "says: the token is wrong");
  ASSERT_EQ(world.troubles.size(), 1u);
  EXPECT_NE(world.troubles[0].find("was refused: the token is wrong"), std::string::npos);
  for (int i = 0; i < 3; ++i) world.start_agent();
  world.run_until([&] { return world.mesh != nullptr; });
}

TEST(Launch, too_many_wrong_tokens_end_it) {
  for (const int tries : {9, 10}) {
    World world;
    world.start_coordinator();
    AgentConfig wrong = world.agent;
    for (int i = 0; i < tries; ++i) {
      wrong.token = std::string(static_cast<std::size_t>(i), 'x');
      const World::Node& node = world.start_agent(wrong);
      world.run_until([&] { return node.has_ended; });
    }
    world.loop.run_until_idle(Seconds(10));
    EXPECT_EQ(world.failure.find("10 agents came with a wrong token"),
              tries == 10 ? 0 : std::string::npos);
  }
}

TEST(Launch, a_node_that_is_unknown_or_taken_or_too_many_is_refused_by_name) {
  World world;
  world.start_coordinator();
  world.start_agent("b");
  world.run_until([&] { return world.last_progress.joined.size() == 1; });
  const World::Node& unknown = world.start_agent("d");
  const World::Node& taken = world.start_agent("b");
  world.run_until([&] { return unknown.has_ended && taken.has_ended; });
  EXPECT_NE(unknown.ending.find("this job has no node d; its nodes are a, b, c"), std::string::npos)
      << unknown.ending;
  EXPECT_NE(taken.ending.find("node b has already joined from h0:"), std::string::npos)
      << taken.ending;
  world.start_agent();
  world.start_agent();
  world.run_until([&] { return world.mesh != nullptr; });
  const World::Node& late = world.start_agent();
  world.run_until([&] { return late.has_ended; });
  EXPECT_NE(late.ending.find("all nodes of this job have joined"), std::string::npos)
      << late.ending;
}

TEST(Launch, certificates_reach_the_workers_and_their_absence_is_refused) {
  World world;
  world.hooks.certify = [](const std::string& key, const std::string& node) {
    if (node == "b") return Result<Certified>(failed("no such key"));
    return Result<Certified>(Certified{node + " has " + key, "the authority"});
  };
  world.config.coordinator_identity = "coordinator";
  world.config.nodes.resize(1);
  world.start_coordinator();
  world.start_agent();
  // Simulated connections show no certificate, so the mesh must not stand.
  world.run();
  EXPECT_EQ(world.workers.at(1)->start.certificate, "a has public key");
  EXPECT_EQ(world.workers.at(1)->start.authority, "the authority");
  EXPECT_EQ(world.workers.at(1)->start.key, "private key");
  world.expect_failure("rank 0 belongs to `coordinator`, and the certificate shown is none");

  World refusing;
  refusing.hooks.certify = [](const std::string&, const std::string&) {
    return Result<Certified>(failed("it is no key"));
  };
  refusing.start_coordinator();
  const World::Node& node = refusing.start_agent();
  refusing.run_until([&] { return node.has_ended; });
  EXPECT_NE(node.ending.find("its key cannot be certified: it is no key"), std::string::npos);
}

// ---- What goes wrong before the mesh stands.

TEST(Launch, a_worker_that_ends_before_it_listens_ends_it_with_the_last_line_of_its_log) {
  World world;
  world.before_listening = [](World::Worker& worker) {
    if (worker.start.rank != 4) return false;
    worker.process.exit(1, "no memory left");
    return true;
  };
  world.start_all();
  world.run();
  world.expect_failure(
      "node b, before all workers listened: rank 4 exited "
      "with status 1: no memory left");
  EXPECT_EQ(world.nodes[1]->ending, "rank 4 exited with status 1: no memory left");
  EXPECT_NE(world.nodes[0]->ending.find("the coordinator ended it: node b, before"),
            std::string::npos)
      << world.nodes[0]->ending;
}

TEST(Launch, a_worker_that_cannot_be_started_ends_it) {
  World world;
  world.spawn_error = "cannot start worker: no such file or directory";
  world.config.nodes.resize(1);
  world.start_coordinator();
  world.start_agent();
  world.run();
  world.expect_failure("node a: cannot start worker: no such file or directory");
  EXPECT_EQ(world.nodes[0]->ending, world.spawn_error);
}

TEST(Launch, the_deadline_names_who_is_missing) {
  World world;
  world.start_coordinator();
  world.start_agent("b");
  world.before_listening = [](World::Worker& worker) { return worker.start.rank == 4; };
  world.run();
  world.expect_failure(
      "after 60 s these nodes have not joined: a, c; these "
      "workers do not listen: rank 4 (node b)");
}

TEST(Launch, nobody_came) {
  World world;
  world.start_coordinator();
  world.run();
  world.expect_failure("after 60 s these nodes have not joined: a, b, c");
}

TEST(Launch, an_agent_that_is_lost_while_joining_ends_it) {
  World world;
  world.start_all();
  world.before_listening = [](World::Worker&) { return true; };
  world.run_until([&] { return world.workers.size() == 6; });
  world.network.kill("h1");
  world.nodes[1]->agent.reset();
  world.nodes[1]->processes.reset();
  world.run();
  world.expect_failure("the agent of node b is lost: the connection was reset");
}

TEST(Launch, an_owner_may_end_it_while_it_waits) {
  World world;
  world.start_coordinator();
  world.start_agent();
  world.run_until([&] { return world.last_progress.listening == 2; });
  world.rendezvous->terminate("interrupted");
  world.run();
  world.expect_failure("interrupted");
  EXPECT_EQ(world.nodes[0]->ending, "the coordinator ended it: interrupted");
}

TEST(Launch, an_agent_that_no_coordinator_answers_says_so) {
  World world;
  const World::Node& node = world.start_agent();
  world.run();
  EXPECT_NE(node.ending.find("cannot reach c:7000: connection refused"), std::string::npos)
      << node.ending;
  EXPECT_LE(node.ended_at, Seconds(60));
}

TEST(Launch, a_description_that_cannot_be_sent_is_refused_at_once) {
  const auto start = [](std::string spec) {
    SimEventLoop loop;
    SimNetwork network(loop, 1);
    const auto transport = network.make_transport("c");
    const auto listener = *MeshListener::open(*transport, loop, "c:1");
    RendezvousConfig config;
    config.token = kToken;
    config.nodes = {{"a", {1}}};
    config.spec = std::move(spec);
    const auto started = Rendezvous::start(*transport, loop, listener, std::move(config), {});
    return started ? "" : started.error().message;
  };
  EXPECT_EQ(start(std::string(kSpecBytesMax - 2, 'x')), "") << "two quotes are added";
  EXPECT_NE(start(std::string(kSpecBytesMax - 1, 'x')).find("at most 983040"), std::string::npos);
  EXPECT_NE(start("\xff").find("not UTF-8"), std::string::npos);
}

// ---- What goes wrong afterwards.

TEST(Launch, a_worker_that_dies_is_told_and_the_others_live_until_they_are_ended) {
  World world;
  world.stand();
  world.workers[2]->process.exit(3, "it broke");
  world.run_until([&] { return !world.exits.empty(); });
  EXPECT_EQ(world.exits[0], "rank 2 exited with status 3: it broke");
  EXPECT_EQ(world.running(), 5);
  world.rendezvous->terminate("rank 2 is gone");
  world.run();
  EXPECT_EQ(world.exits.size(), 6u);
  EXPECT_EQ(world.exits[1], "rank 1 was ended by signal 15");
  EXPECT_EQ(world.all_left, 1);
  EXPECT_EQ(world.nodes[0]->ending, "rank 2 exited with status 3: it broke");
  EXPECT_EQ(world.nodes[2]->ending, "the coordinator ended it: rank 2 is gone");
}

TEST(Launch, a_worker_that_does_not_end_when_asked_is_killed_after_the_grace) {
  World world;
  world.stand();
  int asked = 0;
  world.workers[1]->process.on_signal = [&](int signal) { asked = signal; };
  world.rendezvous->terminate("enough");
  const Seconds ordered = world.loop.now();
  world.run_until([&] { return world.nodes[1]->has_ended && world.nodes[2]->has_ended; });
  EXPECT_LT(world.loop.now() - ordered, Seconds(1));
  world.run();
  EXPECT_EQ(asked, SIGTERM);
  EXPECT_EQ(world.exits.back(), "rank 1 was ended by signal 9");
  // The order travels for 1 ms, and the grace is 10 s.
  EXPECT_NEAR((world.nodes[0]->ended_at - ordered).value(), 10, 0.1);
}

TEST(Launch, a_killed_agent_is_told_and_takes_its_workers_along) {
  World world;
  world.stand();
  world.nodes[1]->agent.reset();
  world.nodes[1]->processes.reset();
  world.network.kill("h1");
  world.run_until([&] { return !world.lost.empty(); });
  EXPECT_EQ(world.lost[0].find("b: the agent of node b is lost: "), 0u) << world.lost[0];
  EXPECT_EQ(world.running(), 4);
  EXPECT_EQ(world.all_left, 0);
  world.rendezvous->terminate("node b is gone");
  world.run();
  EXPECT_EQ(world.all_left, 1);
}

TEST(Launch, agents_whose_coordinator_dies_kill_their_workers) {
  World world;
  world.stand();
  world.network.kill("c");
  world.run_until([&] { return world.running() == 0; });
  world.loop.run_until_idle(Seconds(1e4));
  for (const auto& node : world.nodes) {
    EXPECT_EQ(node->ending,
              "the coordinator at c:7000 is lost, and the "
              "workers are killed: the connection was "
              "reset");
  }
}

TEST(Launch, silence_is_noticed_on_both_sides_after_six_heartbeats) {
  World world;
  world.stand();
  const Seconds start = world.loop.now();
  world.network.black_hole("c", "h1");
  world.run_until([&] { return world.nodes[1]->has_ended && !world.lost.empty(); });
  // The last ping came at most 0.5 s before; the seventh beat after it gives up.
  EXPECT_GT(world.loop.now() - start, Seconds(2.9));
  EXPECT_LT(world.loop.now() - start, Seconds(3.6));
  EXPECT_NE(world.nodes[1]->ending.find("nothing was heard of it for 3 s"), std::string::npos)
      << world.nodes[1]->ending;
  EXPECT_NE(world.lost[0].find("nothing was heard of it for 3 s"), std::string::npos);
  EXPECT_EQ(world.nodes[0]->processes->running(), 2) << "others are not disturbed";
}

TEST(Launch, an_idle_launch_stays) {
  World world;
  world.stand();
  world.loop.run_until_idle(world.loop.now() + Seconds(100));
  EXPECT_TRUE(world.lost.empty());
  EXPECT_EQ(world.running(), 6);
}

TEST(Launch, a_coordinator_that_is_destroyed_ends_everything) {
  World world;
  world.stand();
  world.rendezvous.reset();
  world.run();
  EXPECT_EQ(world.running(), 0);
}

TEST(Launch, wherever_the_coordinator_dies_no_worker_stays) {
  // After every fifth event, until the mesh stands.
  bool stood = false;
  for (int events = 0; !stood; events += 5) {
    World world;
    world.start_all();
    for (int i = 0; i < events; ++i) world.loop.step();
    stood = world.mesh != nullptr;
    world.rendezvous.reset();
    world.network.kill("c");
    world.loop.run_until_idle(world.loop.now() + Seconds(200));
    EXPECT_EQ(world.running(), 0) << events;
    for (const auto& node : world.nodes) EXPECT_TRUE(node->has_ended) << events;
  }
}

TEST(Launch, wherever_an_agent_dies_the_others_end) {
  bool stood = false;
  for (int events = 0; !stood; events += 5) {
    World world;
    world.start_all();
    for (int i = 0; i < events; ++i) world.loop.step();
    stood = world.mesh != nullptr;
    if (stood) EXPECT_GT(events, 100) << "there is much to interrupt";
    world.nodes[1]->agent.reset();
    world.nodes[1]->processes.reset();
    world.network.kill("h1");
    world.loop.after(Seconds(100), [&] { world.rendezvous->terminate("enough"); });
    world.loop.run_until_idle(world.loop.now() + Seconds(200));
    EXPECT_EQ(world.running(), 0) << events;
    EXPECT_EQ(world.all_left, 1) << events;
  }
}

TEST(Secrets, are_equal_or_not) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "ab"));
  EXPECT_FALSE(same_secret("", "ab"));
}

}  // namespace
}  // namespace longhaul
