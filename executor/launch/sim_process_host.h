// The simulated side of the ProcessHost door: a child is what a test makes of it. Signals end a
// child at once unless it has a handler (SIGKILL: always); everything is told in a later task.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "executor/launch/process_host.h"

namespace longhaul {

/// A child, as its program sees itself.
class SimProcess {
 public:
  SimProcess(EventLoop& loop, ProcessOptions options);

  const ProcessOptions& options() const { return options_; }
  void print(const std::string& line);
  void exit(int status, const std::string& last_log_line = "");

  // What the program does; each may be empty.
  std::function<void(const std::string& line)> on_line;
  std::function<void()> on_stdin_end;
  std::function<void(int signal)> on_signal;
  /// It has ended, however that was: the program's memory and sockets are gone.
  std::function<void()> on_end;

 private:
  friend class SimProcessHost;
  void end(ProcessExit exit);
  void later(Task task);

  EventLoop& loop_;
  ProcessOptions options_;
  bool has_ended_ = false;
  bool has_stdin_ = true;
  // Owned here alone; tasks look whether the host still wants to hear.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

class SimProcessHost : public ProcessHost {
 public:
  /// Called for each child; an error is what spawn answers.
  using Program = std::function<Result<void>(SimProcess& process)>;

  SimProcessHost(EventLoop& loop, Program program) : loop_(loop), program_(std::move(program)) {}
  ~SimProcessHost() override;

  Result<ProcessId> spawn(ProcessOptions options) override;
  void write_line(ProcessId child, const std::string& line) override;
  void close_stdin(ProcessId child) override;
  void signal(ProcessId child, int signal) override;

  SimProcess& process(ProcessId child) { return *children_.at(child); }
  int running() const;

 private:
  EventLoop& loop_;
  Program program_;
  std::map<ProcessId, std::unique_ptr<SimProcess>> children_;  // those that have ended, too
};

}  // namespace longhaul
