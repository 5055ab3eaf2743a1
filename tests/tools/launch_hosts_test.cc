// Agents that are started by hand. First on one host; then on three, which are network namespaces
// of this machine, joined by a bridge. They are nobody's but this process's, and end with it.
//
//   coordinator and node d: 10.77.0.1, with the bridge   node r: 10.77.0.2   node o: 10.77.0.3
#include <fcntl.h>
#include <sched.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/tools/launch_fixtures.h"

namespace longhaul {
namespace {

using fixtures::LaunchFolder;
using fixtures::plan_of;

// ---- agents by hand, on one host

class LaunchAgents : public testing::Test {
 protected:
  std::unique_ptr<Process> launch(const std::string& plan) {
    auto process =
        std::make_unique<Process>(std::vector<std::string>{"launch", plan, "--listen", address_,
                                                           "--name", "run", "--wait", "120"},
                                  folder_.path());
    EXPECT_TRUE(process->wait_for_error_text("nodes: d, r, o"));
    for (const std::string node : {"d", "r", "o"}) {
      agents_.push_back(std::make_unique<Process>(
          std::vector<std::string>{"agent", "--join", address_, "--token-file",
                                   "runs/run/join.json", "--node", node, "--folder", node},
          folder_.path()));
    }
    return process;
  }

  LaunchFolder folder_;
  // Every process has a loopback address of its own, so that tests can run side by side.
  const std::string address_ =
      fmt::format("127.77.{}.{}:7000", getpid() / 256 % 256, getpid() % 256);
  std::vector<std::unique_ptr<Process>> agents_;
};

TEST_F(LaunchAgents, three_agents_train_to_the_bits_of_one) {
  ASSERT_EQ(folder_.launch({"2x2.yaml", "--local", "--name", "local"}).status, 0);
  const RunResult run = launch("2x2.yaml")->wait();
  ASSERT_EQ(run.status, 0) << run.err;
  for (const auto& agent : agents_) EXPECT_EQ(agent->wait().status, 0);
  EXPECT_EQ(folder_.losses("run"), folder_.losses("local"));
  EXPECT_TRUE(folder_.has("r/worker-3.log"));
}

TEST_F(LaunchAgents, workers_of_one_node_fetch_the_same_files_at_the_same_time) {
  folder_.write("twins.yaml", plan_of("tiny.yaml", "[2]", "[[d/0], [d/1]]", "[4, 4]", "[1]"));
  ASSERT_EQ(folder_.launch({"twins.yaml", "--local", "--name", "whole"}).status, 0);
  ASSERT_EQ(folder_.launch({"twins.yaml", "--local", "--name", "run", "--steps", "8"}).status, 0);
  Process launched({"launch", "twins.yaml", "--listen", address_, "--resume", "runs/run"},
                   folder_.path());
  ASSERT_TRUE(launched.wait_for_error_text("nodes: d"));
  Process agent(
      {"agent", "--join", address_, "--token-file", "runs/run/join.json", "--folder", "fresh"},
      folder_.path());
  const RunResult run = launched.wait();
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(agent.wait().status, 0);
  EXPECT_EQ(folder_.losses("run"), folder_.losses("whole"));
}

TEST_F(LaunchAgents, an_agent_that_is_interrupted_ends_the_run) {
  auto launched = launch("long.yaml");
  ASSERT_TRUE(launched->wait_for_error_text("tokens/s"));
  agents_[1]->send(SIGINT);
  const RunResult run = launched->wait();
  EXPECT_EQ(run.status, 1) << run.err;
  // Its peers may be faster than it is itself: `rank 4 ... lost rank 3 ...`.
  EXPECT_TRUE(run.err.contains("rank 3 was ended by signal 15")) << run.err;
  EXPECT_TRUE(run.err.contains("its log is worker-3.log in the folder of that node's agent"))
      << run.err;
  EXPECT_EQ(agents_[0]->wait().status, 1);
  EXPECT_EQ(agents_[1]->wait().status, 128 + SIGINT);
  EXPECT_EQ(agents_[2]->wait().status, 1);
  agents_.clear();
  EXPECT_TRUE(folder_.is_everybody_gone());
}

TEST_F(LaunchAgents, an_agent_says_why_nobody_answers_and_gives_up) {
  folder_.write("join.json", R"({"schema":"longhaul/join-file/1","token":"a","fingerprint":""})");
  const RunResult agent =
      folder_.run({"agent", "--join", address_, "--token-file", "join.json", "--wait", "1"});
  EXPECT_EQ(agent.status, 1);
  EXPECT_TRUE(agent.err.contains("Connection refused")) << agent.err;
  EXPECT_TRUE(agent.err.contains("trying again for up to 1 s")) << agent.err;
  const RunResult strange =
      folder_.run({"agent", "--join", address_, "--token-file", "tiny.yaml", "--wait", "1"});
  EXPECT_EQ(strange.status, 2);
  EXPECT_TRUE(strange.err.contains("tiny.yaml: no join file")) << strange.err;
}

// ---- hosts

class Host {
 public:
  Host() : outside_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (unshare(CLONE_NEWNET) != 0) return;
    inside_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    setns(outside_, CLONE_NEWNET);
  }
  ~Host() {
    close(inside_);
    close(outside_);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  bool stands() const { return inside_ >= 0; }
  /// As `ip` takes it.
  std::string name() const { return fmt::format("/proc/{}/fd/{}", getpid(), inside_); }
  /// What this does, and what it starts, is on this host.
  template <class What>
  auto at(What what) const {
    EXPECT_EQ(setns(inside_, CLONE_NEWNET), 0);
    auto result = what();
    EXPECT_EQ(setns(outside_, CLONE_NEWNET), 0);
    return result;
  }
  bool ip(const std::string& arguments) const {
    return at([&] { return std::system(("ip " + arguments + " 2>/dev/null").c_str()) == 0; });
  }

 private:
  int outside_ = -1;
  int inside_ = -1;
};

class LaunchHostsSlow : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_[0].stands() || !hosts_[1].stands() || !hosts_[2].stands()) {
      GTEST_SKIP() << "needs root, to make network namespaces";
    }
    bool stands = hosts_[0].ip("link set lo up") && hosts_[0].ip("link add bridge type bridge") &&
                  hosts_[0].ip("address add 10.77.0.1/24 dev bridge") &&
                  hosts_[0].ip("link set bridge up");
    for (int i = 1; i < 3; ++i) {
      stands = stands &&
               hosts_[0].ip(fmt::format("link add host{} type veth peer name out netns {}", i,
                                        hosts_[i].name())) &&
               hosts_[0].ip(fmt::format("link set host{} master bridge up", i)) &&
               hosts_[i].ip("link set lo up") && hosts_[i].ip("link set out up") &&
               hosts_[i].ip(fmt::format("address add 10.77.0.{}/24 dev out", i + 1));
    }
    if (!stands) GTEST_SKIP() << "needs `ip`, and a kernel with bridges and veth pairs";
  }

  std::unique_ptr<Process> start(int host, const std::vector<std::string>& arguments) {
    return hosts_[host].at([&] { return std::make_unique<Process>(arguments, folder_.path()); });
  }
  /// A launch that waits for its nodes. The data is out of sight of the agents from then on.
  std::unique_ptr<Process> launch(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"launch",         "2x2.yaml", "--listen",
                                          "10.77.0.1:7000", "--wait",   "120"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::unique_ptr<Process> process = start(0, arguments);
    EXPECT_TRUE(process->wait_for_error_text("nodes: d, r, o"));
    std::filesystem::rename(folder_ / "data", folder_ / "hidden");
    return process;
  }
  void show_data() { std::filesystem::rename(folder_ / "hidden", folder_ / "data"); }
  std::unique_ptr<Process> agent(int host, const std::string& folder, const std::string& join) {
    static const char* const kNodes[] = {"d", "r", "o"};
    return start(host, {"agent", "--join", "10.77.0.1:7000", "--token-file", join, "--node",
                        kNodes[host], "--folder", folder + "-" + kNodes[host], "--wait", "60"});
  }
  /// All three join and see the run through.
  RunResult end_with_agents(Process& launched, const std::string& run) {
    std::vector<std::unique_ptr<Process>> agents;
    for (int host = 0; host < 3; ++host) {
      agents.push_back(agent(host, run, "runs/" + run + "/join.json"));
    }
    const RunResult result = launched.wait();
    for (const auto& each : agents) {
      const RunResult agent = each->wait();
      EXPECT_EQ(agent.status, 0) << agent.err;
    }
    show_data();
    EXPECT_TRUE(folder_.is_everybody_gone());
    return result;
  }

  LaunchFolder folder_;
  Host hosts_[3];
};

TEST_F(LaunchHostsSlow, three_hosts_train_to_the_bits_of_one_with_tls_and_without) {
  const RunResult local = folder_.launch({"2x2.yaml", "--local", "--name", "local"});
  ASSERT_EQ(local.status, 0) << local.err;

  auto secure = launch({"--name", "secure"});
  const RunResult with = end_with_agents(*secure, "secure");
  ASSERT_EQ(with.status, 0) << with.err;
  EXPECT_FALSE(with.err.contains("warning")) << with.err;
  EXPECT_EQ(folder_.losses("secure"), folder_.losses("local"));
  // Logs and checkpoints of a node are in its agent's folder; the coordinator has all files, too.
  EXPECT_TRUE(folder_.has("secure-r/worker-3.log"));
  EXPECT_TRUE(folder_.has("runs/secure/checkpoints/term-000001-step-000000012/manifest.yaml"));

  auto insecure = launch({"--name", "insecure", "--insecure"});
  const RunResult without = end_with_agents(*insecure, "insecure");
  ASSERT_EQ(without.status, 0) << without.err;
  EXPECT_TRUE(without.err.contains("warning: --insecure")) << without.err;
  EXPECT_EQ(folder_.losses("insecure"), folder_.losses("local"));
}

TEST_F(LaunchHostsSlow, who_does_not_belong_to_the_run_is_turned_away_and_the_run_goes_on) {
  // Another run's file, whose authority is another one.
  auto other = launch({"--name", "other"});
  other->send(SIGINT);
  const RunResult interrupted = other->wait();
  EXPECT_EQ(interrupted.status, 128 + SIGINT) << interrupted.err;
  show_data();

  auto launched = launch({"--name", "run"});
  const RunResult stranger =
      start(1, {"agent", "--join", "10.77.0.1:7000", "--token-file", "runs/other/join.json",
                "--node", "r", "--folder", "stranger", "--wait", "2"})
          ->wait();
  EXPECT_EQ(stranger.status, 1);
  EXPECT_TRUE(stranger.err.contains("authority is not the one of the join file")) << stranger.err;

  nlohmann::json join = nlohmann::json::parse(read_text(folder_ / "runs/run/join.json"));
  join["token"] = std::string(32, '0');
  folder_.write("wrong.json", join.dump());
  const RunResult guess = agent(2, "guess", "wrong.json")->wait();
  EXPECT_EQ(guess.status, 1);
  EXPECT_TRUE(guess.err.contains("the token is wrong")) << guess.err;

  const RunResult run = end_with_agents(*launched, "run");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.err.contains("turned away: an agent at 10.77.0.3")) << run.err;
  EXPECT_TRUE(run.err.contains("the token is wrong")) << run.err;
  EXPECT_EQ(folder_.losses("run").size(), 12u);
}

TEST_F(LaunchHostsSlow, a_resumed_run_fetches_its_checkpoint_to_new_hosts) {
  ASSERT_EQ(folder_.launch({"2x2.yaml", "--local", "--name", "whole"}).status, 0);
  const RunResult begun = folder_.launch({"2x2.yaml", "--local", "--name", "run", "--steps", "8"});
  ASSERT_EQ(begun.status, 0) << begun.err;
  ASSERT_TRUE(begun.out.contains("checkpoint  runs/run/checkpoints/term-000001-step-000000008"))
      << begun.out << begun.err;
  auto resumed = launch({"--resume", "runs/run"});
  const RunResult run = end_with_agents(*resumed, "run");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.err.contains("steps 9 to 12")) << run.err;
  EXPECT_EQ(folder_.losses("run"), folder_.losses("whole"));
}

TEST_F(LaunchHostsSlow, an_agent_that_dies_is_the_first_cause_and_ends_the_others) {
  folder_.write("2x2.yaml", read_text(folder_ / "long.yaml"));
  auto launched = launch({"--name", "run"});
  std::vector<std::unique_ptr<Process>> agents;
  for (int host = 0; host < 3; ++host) agents.push_back(agent(host, "run", "runs/run/join.json"));
  ASSERT_TRUE(launched->wait_for_error_text("tokens/s"));
  agents[1]->send(SIGKILL);
  const RunResult run = launched->wait();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(
      run.err.contains("rank 3 is device r/0 of node r in riga; its log is worker-3.log in "
                       "the folder of that node's agent"))
      << run.err;
  EXPECT_EQ(agents[0]->wait().status, 1);
  EXPECT_EQ(agents[2]->wait().status, 1);
  agents.clear();
  EXPECT_TRUE(folder_.is_everybody_gone());
}

}  // namespace
}  // namespace longhaul
