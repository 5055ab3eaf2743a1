// Runs the real `longhaul` binary as a child process, for tests of what people see.
//
//   const RunResult run = run_longhaul({"plan", "--job", "job.yaml"}, folder.path());
//   EXPECT_EQ(run.status, 0) << run.err;
//
// A Process is used by the thread that made it. Every wait has a deadline, after which the child is
// killed and the test fails. A child never outlives its Process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;

namespace longhaul {

struct RunResult {
  int status = -1;  // exit status; minus the signal's number when a signal ended the program
  std::string out;
  std::string err;
};

class Process {
 public:
  Process(const std::vector<std::string>& arguments, const std::string& folder) {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) {
      ADD_FAILURE() << "no pipes";
      return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    std::string program = LONGHAUL_BINARY;
    std::vector<std::string> copies = arguments;
    std::vector<char*> argv = {program.data()};
    for (std::string& argument : copies) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error = posix_spawn(&pid_, LONGHAUL_BINARY, &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    pipes_ = {out[0], err[0]};
    if (error != 0) {
      pid_ = -1;
      ADD_FAILURE() << "cannot start " << LONGHAUL_BINARY << ": error " << error;
    }
  }

  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int pipe : pipes_) {
      if (pipe >= 0) close(pipe);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Waits until the program has written `text` to stderr; false when it ended without.
  bool wait_for_error_text(std::string_view text) {
    while (!run_.err.contains(text)) {
      if (!read_some()) return false;
    }
    return true;
  }

  /// What it has written to stderr so far.
  const std::string& error_text() const { return run_.err; }

  void send(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }

  /// Waits for the end of the program.
  RunResult wait() {
    while (read_some()) continue;
    if (pid_ > 0) {
      int status = 0;
      waitpid(pid_, &status, 0);
      run_.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      pid_ = -1;
    }
    return run_;
  }

 private:
  /// Takes what the program wrote; false once it has closed both streams.
  bool read_some() {
    constexpr int kDeadlineMs = 240'000;  // without a word from the program
    std::array<pollfd, 2> polled{};
    for (std::size_t i = 0; i < 2; ++i) polled[i] = {pipes_[i], POLLIN, 0};  // -1 is skipped
    if (pipes_[0] < 0 && pipes_[1] < 0) return false;
    const int ready = poll(polled.data(), polled.size(), kDeadlineMs);
    if (ready < 0) return errno == EINTR;
    if (ready == 0) {
      ADD_FAILURE() << "the program hangs; so far it said:\n" << run_.err;
      send(SIGKILL);
      return false;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (polled[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t got = read(pipes_[i], buffer.data(), buffer.size());
      if (got > 0) {
        (i == 0 ? run_.out : run_.err).append(buffer.data(), static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        close(pipes_[i]);
        pipes_[i] = -1;
      }
    }
    return true;
  }

  pid_t pid_ = -1;
  std::array<int, 2> pipes_ = {-1, -1};  // stdout, stderr
  RunResult run_;
};

/// Runs the binary in `folder` to its end.
inline RunResult run_longhaul(const std::vector<std::string>& arguments,
                              const std::string& folder) {
  return Process(arguments, folder).wait();
}

}  // namespace longhaul
