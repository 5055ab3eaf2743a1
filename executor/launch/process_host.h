// The ProcessHost door: child processes. Two sides: UvProcessHost starts real ones, SimProcessHost
// (for tests) pretends to.
//
// Children never outlive their host: destroying it kills and reaps them. When the host's own
// process dies without that, their stdin ends, and they must exit then (see supervised.h). A child
// is in a session of its own, so that a key pressed at a terminal reaches whoever started it and
// not the child.
//
// Belongs to the thread of the event loop; hooks are called in tasks of it, and none after the host
// is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "executor/runtime/event_loop.h"

namespace longhaul {

struct ProcessExit {
  int status = 0;             // 0 where a signal ended it
  int signal = 0;             // 0 where it ended itself
  std::string last_log_line;  // of its log, the last neither empty nor indented
};

struct ProcessOptions {
  std::string program = {};                 // looked for in PATH where it has no `/`
  std::vector<std::string> arguments = {};  // without the program
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to the host's own
  std::string log = {};  // its stderr is appended here; empty: the host's own stderr
  /// A line of its stdout, without its end. Of a line longer than kLineBytesMax the rest is
  /// dropped.
  std::function<void(const std::string& line)> line = {};
  /// The last call, when it has ended and its lines were told.
  std::function<void(const ProcessExit& exit)> exited = {};
};

using ProcessId = std::uint64_t;  // counted by the host from 1; never used again

class ProcessHost {
 public:
  static constexpr std::size_t kLineBytesMax = std::size_t{64} << 10;

  virtual ~ProcessHost() = default;
  /// Starts a child; answers when it runs its program, or says why it cannot.
  virtual Result<ProcessId> spawn(ProcessOptions options) = 0;

  // These have no effect on a child that has ended.
  /// Adds the line's end. Lines wait in memory for a child that is slow to read.
  virtual void write_line(ProcessId child, const std::string& line) = 0;
  virtual void close_stdin(ProcessId child) = 0;
  virtual void signal(ProcessId child, int signal) = 0;
};

}  // namespace longhaul
