#include "executor/launch/sim_process_host.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace longhaul {

SimProcess::SimProcess(EventLoop& loop, ProcessOptions options)
    : loop_(loop), options_(std::move(options)) {}

void SimProcess::later(Task task) {
  loop_.post([weak = std::weak_ptr(alive_), task = std::move(task)]() mutable {
    if (weak.lock()) task();
  });
}

void SimProcess::print(const std::string& line) {
  if (has_ended_) return;
  later([this, line] {
    if (options_.line) options_.line(line);
  });
}

void SimProcess::exit(int status, const std::string& last_log_line) {
  end({status, 0, last_log_line});
}

void SimProcess::end(ProcessExit exit) {
  if (std::exchange(has_ended_, true)) return;
  if (on_end) on_end();
  later([this, exit = std::move(exit)] {
    if (options_.exited) options_.exited(exit);
  });
}

SimProcessHost::~SimProcessHost() {
  for (const auto& [id, child] : children_) {
    child->alive_.reset();
    child->end({0, SIGKILL, ""});
  }
}

Result<ProcessId> SimProcessHost::spawn(ProcessOptions options) {
  auto child = std::make_unique<SimProcess>(loop_, std::move(options));
  LH_TRY(program_(*child));
  const ProcessId id = children_.size() + 1;
  children_.emplace(id, std::move(child));
  return id;
}

void SimProcessHost::write_line(ProcessId child, const std::string& line) {
  SimProcess& to = process(child);
  to.later([&to, line] {
    if (!to.has_ended_ && to.on_line) to.on_line(line);
  });
}

void SimProcessHost::close_stdin(ProcessId child) {
  SimProcess& to = process(child);
  if (!std::exchange(to.has_stdin_, false)) return;
  to.later([&to] {
    if (!to.has_ended_ && to.on_stdin_end) to.on_stdin_end();
  });
}

void SimProcessHost::signal(ProcessId child, int signal) {
  SimProcess& to = process(child);
  to.later([&to, signal] {
    if (to.has_ended_) return;
    if (signal != SIGKILL && to.on_signal) return to.on_signal(signal);
    to.end({0, signal, ""});
  });
}

int SimProcessHost::running() const {
  return static_cast<int>(std::ranges::count_if(
      children_, [](const auto& child) { return !child.second->has_ended_; }));
}

}  // namespace longhaul
