// Children of both sides of the ProcessHost door: /bin/sh and its likes, and simulated ones.
#include "executor/launch/uv_process_host.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "executor/launch/sim_process_host.h"
#include "executor/runtime/sim_event_loop.h"
#include "executor/transport/asio_transport.h"

namespace longhaul {
namespace {

class UvHost : public testing::Test {
 protected:
  struct Child {
    ProcessId id = 0;
    std::vector<std::string> lines;
    std::optional<ProcessExit> exit;
  };

  void SetUp() override {
    log = testing::TempDir() + fmt::format("launch_process_{}.log", ::getpid());
    std::filesystem::remove(log);
  }
  void TearDown() override { std::filesystem::remove(log); }

  /// A shell that runs `script`.
  std::unique_ptr<Child> shell(const std::string& script, ProcessOptions options = {}) {
    auto child = std::make_unique<Child>();
    options.program = "/bin/sh";
    options.arguments = {"-c", script};
    options.line = [at = child.get()](const std::string& line) { at->lines.push_back(line); };
    options.exited = [at = child.get()](const ProcessExit& exit) { at->exit = exit; };
    const Result<ProcessId> id = host->spawn(std::move(options));
    EXPECT_TRUE(id) << id.error().text();
    child->id = id.value_or(0);
    return child;
  }
  void run_until(const std::function<bool()>& done) {
    if (done()) return;
    const TimerId late = runtime.loop().after(Seconds(20), [&] {
      ADD_FAILURE() << "nothing more happens";
      runtime.stop();
    });
    watch(done);
    runtime.run();
    runtime.loop().cancel(late);
  }
  ProcessExit exit_of(const Child& child) {
    run_until([&] { return child.exit.has_value(); });
    return child.exit.value_or(ProcessExit{-1, -1, ""});
  }
  /// The process that a child has printed the number of.
  static bool is_there(const std::string& number) { return ::kill(std::stoi(number), 0) == 0; }

  AsioRuntime runtime;
  std::unique_ptr<ProcessHost> host = make_uv_process_host(runtime.loop());
  std::string log;

 private:
  void watch(const std::function<bool()>& done) {
    if (done()) return runtime.stop();
    runtime.loop().after(Seconds(0.001), [this, &done] { watch(done); });
  }
};

TEST_F(UvHost, tells_lines_status_and_the_last_line_of_the_log) {
  const auto child = shell(
      "echo one; printf 'two\\n\\nno end'; echo first "
      ">&2; echo 'it broke\n  hint: mend it\n' >&2; exit 7",
      {.log = log});
  const ProcessExit exit = exit_of(*child);
  EXPECT_EQ(exit.status, 7);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(exit.last_log_line, "it broke");
  EXPECT_EQ(child->lines, (std::vector<std::string>{"one", "two", "", "no end"}));
}

TEST_F(UvHost, a_log_is_added_to) {
  exit_of(*shell("echo first >&2", {.log = log}));
  exit_of(*shell("echo second >&2", {.log = log}));
  std::ifstream file(log);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, "first\nsecond\n");
}

TEST_F(UvHost, the_environment_is_added_to_its_own) {
  ::setenv("LONGHAUL_TEST_KEPT", "kept", 1);
  ::setenv("LONGHAUL_TEST_CHANGED", "old", 1);
  const auto child = shell("echo $LONGHAUL_TEST_KEPT $LONGHAUL_TEST_CHANGED",
                           {.environment = {{"LONGHAUL_TEST_CHANGED", "a=b"}}});
  exit_of(*child);
  EXPECT_EQ(child->lines, (std::vector<std::string>{"kept a=b"}));
}

TEST_F(UvHost, lines_come_back_from_cat_and_the_end_of_stdin_ends_it) {
  const auto child = shell("exec cat");
  // More than a pipe holds, so that lines wait for the child.
  const std::string text(50000, 'x');
  for (int i = 0; i < 20; ++i) host->write_line(child->id, fmt::format("{} {}", i, text));
  host->close_stdin(child->id);
  host->close_stdin(child->id);
  host->write_line(child->id, "too late");
  EXPECT_EQ(exit_of(*child).status, 0);
  ASSERT_EQ(child->lines.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(child->lines[static_cast<std::size_t>(i)], fmt::format("{} {}", i, text));
  }
}

TEST_F(UvHost, a_line_is_cut_at_its_limit) {
  const auto child = shell(
      "head -c 65536 /dev/zero | tr '\\0' x; echo; head "
      "-c 65537 /dev/zero | tr '\\0' y; echo; echo z");
  exit_of(*child);
  ASSERT_EQ(child->lines.size(), 3u);
  EXPECT_EQ(child->lines[0], std::string(65536, 'x'));
  EXPECT_EQ(child->lines[1], std::string(65536, 'y'));
  EXPECT_EQ(child->lines[2], "z");
}

TEST_F(UvHost, a_child_may_have_closed_its_stdin) {
  const auto child = shell("exec <&-; echo ready; read line; sleep 0.2; exit 3");
  run_until([&] { return !child->lines.empty(); });
  for (int i = 0; i < 10; ++i) host->write_line(child->id, "nobody reads this");
  EXPECT_EQ(exit_of(*child).status, 3);
  host->write_line(child->id, "nor this");
  host->signal(child->id, SIGTERM);
}

TEST_F(UvHost, signals_end_a_child_or_are_handled_by_it) {
  const auto plain = shell("echo ready; exec sleep 100");
  const auto handling = shell(
      "trap 'echo asked; exit 5' TERM; echo ready; "
      "while :; do sleep 0.01; done");
  run_until([&] { return !plain->lines.empty() && !handling->lines.empty(); });
  host->signal(plain->id, SIGTERM);
  host->signal(handling->id, SIGTERM);
  EXPECT_EQ(exit_of(*plain).signal, SIGTERM);
  EXPECT_EQ(exit_of(*plain).status, 0);
  EXPECT_EQ(exit_of(*handling).status, 5);
  EXPECT_EQ(handling->lines.back(), "asked");
}

TEST_F(UvHost, what_cannot_be_started_is_said_at_once) {
  ProcessOptions missing{.program = "/no/such/program"};
  auto answer = host->spawn(std::move(missing));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "cannot start /no/such/program: no such file or directory");
  ProcessOptions no_log{.program = "/bin/sh", .log = "/no/such/folder/log"};
  answer = host->spawn(std::move(no_log));
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("its log /no/such/folder/log: No such file"),
            std::string::npos)
      << answer.error().message;
  EXPECT_EQ(exit_of(*shell("exit 4")).status, 4) << "the host goes on";
}

TEST_F(UvHost, destroying_it_kills_and_reaps_children_and_theirs) {
  const auto deaf = shell("trap '' TERM INT HUP; echo $$; sleep 100 & echo $!; wait; sleep 100");
  const auto cat = shell("echo $$; exec cat");
  run_until([&] { return deaf->lines.size() == 2 && cat->lines.size() == 1; });
  host.reset();
  EXPECT_FALSE(is_there(deaf->lines[0])) << "it is reaped, not a zombie";
  EXPECT_FALSE(is_there(cat->lines[0]));
  // Its own child is reaped by whoever adopts it.
  EXPECT_FALSE(deaf->exit || cat->exit) << "nothing is told any more";
}

TEST_F(UvHost, a_grandchild_that_holds_stdout_does_not_hide_the_end) {
  const auto child = shell("sleep 100 & echo $!; exit 6");
  EXPECT_EQ(exit_of(*child).status, 6);
  ASSERT_EQ(child->lines.size(), 1u);
  ::kill(std::stoi(child->lines[0]), SIGKILL);
}

TEST_F(UvHost, no_other_descriptor_reaches_a_child) {
  const int leak = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(leak, 0);
  const auto child = shell(fmt::format("[ -e /proc/self/fd/{0} ] && echo leaked; exit 0", leak));
  exit_of(*child);
  ::close(leak);
  EXPECT_TRUE(child->lines.empty());
}

TEST_F(UvHost, a_host_may_be_destroyed_in_its_own_hook) {
  ProcessOptions options{.program = "/bin/sh", .arguments = {"-c", "exit 0"}};
  bool is_done = false;
  options.exited = [&](const ProcessExit&) {
    host.reset();
    is_done = true;
  };
  ASSERT_TRUE(host->spawn(std::move(options)));
  run_until([&] { return is_done; });
}

TEST(SimHost, tells_what_the_program_does) {
  SimEventLoop loop;
  std::string told;
  SimProcess* program = nullptr;
  SimProcessHost host(loop, [&](SimProcess& process) {
    program = &process;
    process.on_line = [&](const std::string& line) { process.print("got " + line); };
    process.on_stdin_end = [&] { process.exit(2, "bye"); };
    return Result<void>();
  });
  ProcessOptions options;
  options.line = [&](const std::string& line) { told += line + ". "; };
  options.exited = [&](const ProcessExit& exit) {
    told += fmt::format("{} {} {}", exit.status, exit.signal, exit.last_log_line);
  };
  const ProcessId id = *host.spawn(std::move(options));
  host.write_line(id, "a");
  host.close_stdin(id);
  EXPECT_EQ(told, "");
  loop.run_until_idle(Seconds(1));
  EXPECT_EQ(told, "got a. 2 0 bye");
  EXPECT_EQ(host.running(), 0);
  host.signal(id, SIGKILL);
  loop.run_until_idle(Seconds(2));
  EXPECT_EQ(told, "got a. 2 0 bye");
}

TEST(SimHost, signals_end_a_child_unless_it_handles_them) {
  SimEventLoop loop;
  std::vector<int> ended, handled;
  SimProcessHost host(loop, [&](SimProcess& process) {
    if (process.options().program == "deaf") {
      process.on_signal = [&](int signal) { handled.push_back(signal); };
    }
    return Result<void>();
  });
  for (const std::string program : {"plain", "deaf"}) {
    ProcessOptions options;
    options.program = program;
    options.exited = [&](const ProcessExit& exit) { ended.push_back(exit.signal); };
    const ProcessId id = *host.spawn(std::move(options));
    host.signal(id, SIGTERM);
    loop.run_until_idle(Seconds(1));
    host.signal(id, SIGKILL);
    loop.run_until_idle(Seconds(1));
  }
  EXPECT_EQ(ended, (std::vector<int>{SIGTERM, SIGKILL}));
  EXPECT_EQ(handled, (std::vector<int>{SIGTERM}));
}

}  // namespace
}  // namespace longhaul
