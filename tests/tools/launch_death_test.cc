// What is left when a process of a run dies in the middle: nothing, and the first cause is named.
#include "tests/tools/launch_fixtures.h"

namespace longhaul {
namespace {

using fixtures::LaunchFolder;

/// A run in its middle.
class LaunchDeath : public testing::Test {
 protected:
  /// Emulated, with `--emulate`.
  void begin(const std::string& where = "--local") {
    process_.emplace(std::vector<std::string>{"launch", "long.yaml", where, "--name", "run"},
                     folder_.path());
    ASSERT_TRUE(process_->wait_for_error_text("tokens/s"));
    const LaunchFolder::Running agent = folder_.agent();
    ASSERT_NE(agent.id, 0);
    agent_ = agent.id;
    const std::string before = "--join 127.0.0.1:";
    port_ = std::stoi(agent.command.substr(agent.command.find(before) + before.size()));
    for (const auto& running : folder_.processes()) {
      if (running.command.contains(" launch ")) launch_ = running.id;
    }
    ASSERT_NE(launch_, 0);
    ASSERT_EQ(folder_.processes().size(), 6u);  // launch, the agent and four workers
    EXPECT_FALSE(fixtures::is_port_free(port_));
    EXPECT_EQ(fixtures::pages_of(launch_), 0);  // it has no name while it is used, either
  }
  RunResult end() {
    const RunResult run = process_->wait();
    EXPECT_TRUE(folder_.is_everybody_gone());
    EXPECT_TRUE(fixtures::comes_true([&] { return fixtures::is_port_free(port_); }));
    EXPECT_EQ(fixtures::pages_of(launch_), 0);
    return run;
  }

  LaunchFolder folder_;
  std::optional<Process> process_;
  pid_t launch_ = 0;
  pid_t agent_ = 0;
  int port_ = 0;
};

TEST_F(LaunchDeath, a_killed_worker_is_the_first_cause) {
  begin();
  kill(folder_.worker(3), SIGKILL);
  const RunResult run = end();
  EXPECT_EQ(run.status, 1) << run.err;
  // Rank 3 is the first stage of the second pipeline.
  const std::size_t cause = run.err.find("first cause: ");
  ASSERT_NE(cause, std::string::npos) << run.err;
  EXPECT_TRUE(run.err.substr(cause, run.err.find('\n', cause) - cause)
                  .contains("rank 3 (stage 0, pipeline 1)"))
      << run.err;
  EXPECT_TRUE(run.err.contains("rank 3 was ended by signal 9")) << run.err;
  EXPECT_TRUE(
      run.err.contains("rank 3 is device r/0 of node r in riga; its log is "
                       "runs/run/worker-3.log"))
      << run.err;
}

TEST_F(LaunchDeath, a_killed_agent_is_the_first_cause) {
  begin();
  kill(agent_, SIGKILL);
  const RunResult run = end();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(run.err.contains("the agent of node local is lost")) << run.err;
  EXPECT_TRUE(run.err.contains("first cause: ")) << run.err;
}

TEST_F(LaunchDeath, nothing_outlives_a_killed_launch) {
  begin();
  process_->send(SIGKILL);
  EXPECT_EQ(end().status, -SIGKILL);
}

TEST_F(LaunchDeath, nothing_outlives_a_killed_launch_of_an_emulation) {
  begin("--emulate");
  process_->send(SIGKILL);
  EXPECT_EQ(end().status, -SIGKILL);
}

TEST_F(LaunchDeath, nothing_outlives_a_launch_that_is_killed_before_anybody_has_joined) {
  Process process({"launch", "long.yaml", "--local", "--name", "run"}, folder_.path());
  ASSERT_TRUE(process.wait_for_error_text("run runs/run: "));
  process.send(SIGKILL);
  process.wait();
  EXPECT_TRUE(folder_.is_everybody_gone());
}

TEST_F(LaunchDeath, a_killed_worker_of_an_emulation_leaves_no_page) {
  begin("--emulate");
  kill(folder_.worker(2), SIGKILL);
  const RunResult run = end();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(run.err.contains("first cause: ")) << run.err;
}

TEST_F(LaunchDeath, a_termination_stops_in_order_as_an_interrupt_does) {
  begin();
  process_->send(SIGTERM);
  const RunResult run = end();
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_TRUE(run.err.contains("go on with: longhaul launch long.yaml --resume runs/run --local"))
      << run.err;
  EXPECT_TRUE(run.out.contains("checkpoint  runs/run/checkpoints/")) << run.out;
}

TEST_F(LaunchDeath, a_second_interrupt_ends_at_once_and_leaves_nobody) {
  begin();
  kill(folder_.worker(1), SIGSTOP);  // so that the step at hand does not end by itself
  process_->send(SIGINT);
  ASSERT_TRUE(process_->wait_for_error_text("stopping after the step at hand"));
  process_->send(SIGINT);
  EXPECT_EQ(end().status, 128 + SIGINT);
}

/// 6 heartbeats, one every 500 ms.
TEST(LaunchDeathSlow, a_worker_that_hangs_is_named) {
  const LaunchFolder folder;
  Process process({"launch", "long.yaml", "--local", "--name", "run"}, folder.path());
  ASSERT_TRUE(process.wait_for_error_text("tokens/s"));
  kill(folder.worker(2), SIGSTOP);
  const RunResult run = process.wait();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(
      run.err.contains("first cause: rank 2 (stage 1, pipeline 0) answered none of 6 heartbeats"))
      << run.err;
  // That we have killed it then is not what it died of.
  EXPECT_FALSE(run.err.contains("rank 2 was ended by signal")) << run.err;
  EXPECT_TRUE(folder.is_everybody_gone());
}

}  // namespace
}  // namespace longhaul
