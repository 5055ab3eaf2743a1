// A worker's side of its agent: what comes by stdin, and what follows when that ends.
//
// The first line is a WorkerStart, the second the PeerAddresses (launch_messages.h); there is no
// third. The end of stdin, at any time, means that nobody looks after this worker any more: it must
// exit. Between the two lines the worker prints listening_line() on its stdout.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "executor/launch/launch_messages.h"
#include "executor/runtime/event_loop.h"

namespace longhaul {

struct SupervisedHooks {
  std::function<void(WorkerStart start)> start;
  std::function<void(PeerAddresses addresses)> connect;
  /// The last call, and the worker must exit: stdin has ended, or holds what cannot be read.
  std::function<void(const Error& why)> abandoned;
};

/// Reads the lines in order. Belongs to the thread of the event loop.
class Supervised {
 public:
  explicit Supervised(SupervisedHooks hooks) : hooks_(std::move(hooks)) {}

  void line(const std::string& line);
  void end_of_lines();

 private:
  Result<void> read(const std::string& line);

  SupervisedHooks hooks_;
  int rank_ = -1;  // before the first line
  bool is_connected_ = false;
};

/// Reads `fd` on a thread of its own and posts what comes to the loop. A line longer than
/// kWorkerLineMax ends the lines.
class LineReader {
 public:
  LineReader(EventLoop& loop, int fd, std::function<void(const std::string& line)> line,
             std::function<void()> end);
  /// Joins the thread; nothing is called any more. Leaves the descriptor open.
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

 private:
  struct Hooks {
    std::function<void(const std::string& line)> line;
    std::function<void()> end;
  };
  void run(int fd);
  void post_line(std::string line);

  EventLoop& loop_;
  // Owned here alone; posted tasks look whether it is still there.
  std::shared_ptr<Hooks> hooks_;
  std::weak_ptr<Hooks> weak_hooks_;  // for the thread, which must not be the last owner
  int wake_[2] = {-1, -1};
  std::thread thread_;
};

/// Asks the system, where it knows how, to kill this process when whoever started it dies.
void die_with_parent();

}  // namespace longhaul
