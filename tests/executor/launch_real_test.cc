// A launch over loopback with real children.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "executor/launch/agent.h"
#include "executor/launch/rendezvous.h"
#include "executor/launch/uv_process_host.h"
#include "executor/transport/asio_transport.h"

namespace longhaul {
namespace {

TEST(RealLaunch, agents_start_processes_and_pass_on_what_both_sides_say) {
  const std::string folder = testing::TempDir() + fmt::format("launch_real_{}", ::getpid());
  std::filesystem::create_directories(folder);
  {
    AsioRuntime runtime;
    const TimerId late = runtime.loop().after(Seconds(20), [&] {
      ADD_FAILURE() << "it does not end";
      runtime.stop();
    });
    const auto transport = runtime.make_transport();
    const auto listener = *MeshListener::open(*transport, runtime.loop(), "127.0.0.1:0");

    std::string failure, ending;
    int left = 0;
    const auto one_has_left = [&] {
      if (++left == 2) runtime.stop();
    };
    RendezvousConfig config;
    config.job = 7;
    config.token = "token";
    config.nodes = {{"here", {1, 2}}};
    config.spec = "the spec";
    RendezvousHooks hooks;
    hooks.ready = [&](auto mesh) { failure = mesh ? "a mesh of shells?" : mesh.error().message; };
    hooks.all_left = one_has_left;
    const auto rendezvous = *Rendezvous::start(*transport, runtime.loop(), listener,
                                               std::move(config), std::move(hooks));

    const auto processes = make_uv_process_host(runtime.loop());
    AgentConfig wanted;
    wanted.coordinator = listener->address();
    wanted.token = "token";
    wanted.folder = folder;
    wanted.program = "/bin/sh";
    // Says that it listens, keeps what it was told, and leaves as soon as it knows everybody; only
    // one has both lines, as the other is killed by then.
    wanted.arguments = {"-c",
                        "read start; echo listening 127.0.0.1:9; read peers; "
                        "echo \"$start\" > \"$0/start.$$\"; echo \"$peers\" > \"$0/peers.$$\"; "
                        "echo 'it broke' >&2; exit 3",
                        folder};
    const auto agents = runtime.make_transport();
    Agent agent(*agents, runtime.loop(), *processes, std::move(wanted),
                AgentHooks{{}, [&](Result<void> result) {
                             ending = result ? "all is well" : result.error().message;
                             one_has_left();
                           }});
    runtime.run();
    runtime.loop().cancel(late);
    EXPECT_NE(failure.find("node here, while connecting: rank "), std::string::npos) << failure;
    EXPECT_NE(failure.find(" exited with status 3: it broke"), std::string::npos) << failure;
    EXPECT_NE(ending.find(" exited with status 3: it broke"), std::string::npos) << ending;

    bool is_start_there = false, are_peers_there = false;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path());
      const std::string text(std::istreambuf_iterator<char>(file), {});
      const std::string name = entry.path().filename();
      if (name.starts_with("start.")) is_start_there |= text.find("the spec") != std::string::npos;
      if (name.starts_with("peers.")) {
        are_peers_there |= text.find(listener->address()) != std::string::npos;
      }
    }
    EXPECT_TRUE(is_start_there);
    EXPECT_TRUE(are_peers_there);
  }
  std::filesystem::remove_all(folder);
}

TEST(RealLaunch, a_child_learns_from_stdin_that_its_host_was_killed) {
  // The child's log is this pipe: it ends when the host and the child are gone.
  int log[2];
  ASSERT_EQ(::pipe(log), 0);
  const pid_t host_process = ::fork();
  ASSERT_GE(host_process, 0);
  if (host_process == 0) {
    AsioRuntime runtime;
    const auto host = make_uv_process_host(runtime.loop());
    ProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "echo running >&2; exec cat"};
    options.log = fmt::format("/proc/self/fd/{}", log[1]);
    const bool is_started = host->spawn(std::move(options)).has_value();
    runtime.loop().after(Seconds(is_started ? 30 : 0), [&] { runtime.stop(); });
    runtime.run();
    ::_exit(1);
  }
  ::close(log[1]);
  std::string text;
  char piece[100];
  for (ssize_t count; (count = ::read(log[0], piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(count));
    if (text == "running\n") ::kill(host_process, SIGKILL);
  }
  ::close(log[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(host_process, &status, 0), host_process);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << text;
  EXPECT_EQ(text, "running\n");
}

}  // namespace
}  // namespace longhaul
