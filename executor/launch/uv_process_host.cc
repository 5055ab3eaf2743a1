#include "executor/launch/uv_process_host.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace longhaul {
namespace {

/// From a child's end until its stdout counts as ended too, should a child of its own hold it.
constexpr std::uint64_t kDrainMilliseconds = 500;
constexpr off_t kLogTailBytes = 4096;

std::string last_line_of(const std::string& path) {
  const int file = path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::string tail(static_cast<std::size_t>(std::clamp<off_t>(size, 0, kLogTailBytes)), '\0');
  const ssize_t count =
      ::pread(file, tail.data(), tail.size(), std::max<off_t>(size - kLogTailBytes, 0));
  ::close(file);
  tail.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  // Lines that begin with a blank go on with the one before, as an error's hint does.
  for (std::string line;;) {
    const std::size_t end = tail.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) return line;
    tail.resize(end + 1);
    const std::size_t newline = tail.rfind('\n');
    line = newline == std::string::npos ? tail : tail.substr(newline + 1);
    if (newline == std::string::npos || line.front() != ' ') return line;
    tail.resize(newline);
  }
}

/// What a child's owner is called with; owned by the host, on the thread of its loop.
struct ChildHooks {
  std::function<void(const std::string& line)> line;
  std::function<void(const ProcessExit& exit)> exited;
};

class UvProcessHost : public ProcessHost {
 public:
  explicit UvProcessHost(EventLoop& loop) : loop_(loop) {
    LH_CHECK(uv_loop_init(&uv_) == 0, "a process can have an event loop");
    LH_CHECK(uv_async_init(&uv_, &wake_,
                           [](uv_async_t* wake) {
                             static_cast<UvProcessHost*>(wake->data)->run_orders();
                           }) == 0,
             "and can wake it");
    wake_.data = this;
    thread_ = std::thread([this] { run(); });
  }

  ~UvProcessHost() override {
    hooks_.clear();
    order([this] { shut(); });
    thread_.join();
    uv_loop_close(&uv_);
  }

  Result<ProcessId> spawn(ProcessOptions options) override {
    const ProcessId id = next_id_++;
    // Only here and in the loop's tasks; the thread has no copy.
    hooks_[id] = std::make_shared<ChildHooks>(
        ChildHooks{std::exchange(options.line, nullptr), std::exchange(options.exited, nullptr)});
    std::promise<std::string> answer;
    order([&] { answer.set_value(start(id, options)); });
    if (const std::string wrong = answer.get_future().get(); !wrong.empty()) {
      hooks_.erase(id);
      return failed(fmt::format("cannot start {}: {}", options.program, wrong));
    }
    return id;
  }

  void write_line(ProcessId child, const std::string& line) override {
    order([this, child, text = line + '\n'] {
      if (Child* const to = find(child)) write(*to, text);
    });
  }
  void close_stdin(ProcessId child) override {
    order([this, child] {
      Child* const to = find(child);
      if (to == nullptr || std::exchange(to->in_is_ending, true)) return;
      // Closes it after what is still to be written.
      auto* const request = new uv_shutdown_t;
      const auto done = [](uv_shutdown_t* shutdown, int) {
        close(reinterpret_cast<uv_handle_t*>(shutdown->handle));
        delete shutdown;
      };
      if (uv_shutdown(request, stream(to->in), done) != 0) {
        delete request;
        close(handle(to->in));
      }
    });
  }
  void signal(ProcessId child, int signal) override {
    order([this, child, signal] {
      const Child* const to = find(child);
      if (to != nullptr && !to->exit) send_signal(*to, signal);
    });
  }

 private:
  /// A child as the thread sees it; freed when its four handles are closed.
  struct Child {
    UvProcessHost* host = nullptr;
    ProcessId id = 0;
    std::string log;
    uv_process_t process{};
    uv_pipe_t in{}, out{};
    uv_timer_t drain{};
    int open_handles = 0;
    std::optional<ProcessExit> exit;
    bool in_is_ending = false;
    bool out_has_ended = false;
    bool is_told = false;
    std::string line;  // begun
    std::array<char, 16 << 10> buffer{};
  };
  struct Write {
    uv_write_t request{};
    std::string text;
  };

  template <class T>
  static uv_handle_t* handle(T& which) {
    return reinterpret_cast<uv_handle_t*>(&which);
  }
  static uv_stream_t* stream(uv_pipe_t& pipe) { return reinterpret_cast<uv_stream_t*>(&pipe); }
  static Child& child_of(void* data) { return *static_cast<Child*>(data); }

  // ---- the owner's thread

  void order(Task task) {
    {
      const std::scoped_lock lock(mutex_);
      orders_.push_back(std::move(task));
    }
    uv_async_send(&wake_);
  }

  /// Calls the child's owner in a task of the loop, unless the host is gone by then.
  void tell(ProcessId id, std::function<void(ChildHooks&)> what) {
    loop_.post([this, alive = std::weak_ptr(alive_), id, what = std::move(what)] {
      if (alive.expired()) return;
      const auto hooks = hooks_.find(id);
      if (hooks == hooks_.end()) return;
      const std::shared_ptr<ChildHooks> owner = hooks->second;  // it may destroy the host
      what(*owner);
    });
  }

  // ---- the thread of libuv

  void run() {
    // A child that has closed its stdin is an error of a write; signals but those of children are
    // for the other threads.
    sigset_t blocked;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGCHLD);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    uv_run(&uv_, UV_RUN_DEFAULT);
  }

  void run_orders() {
    std::vector<Task> orders;
    {
      const std::scoped_lock lock(mutex_);
      orders.swap(orders_);
    }
    for (Task& task : orders) task();
  }

  Child* find(ProcessId id) {
    const auto child = children_.find(id);
    return child == children_.end() || child->second->is_told ? nullptr : child->second.get();
  }

  /// Why the child cannot be started; empty when it runs.
  std::string start(ProcessId id, const ProcessOptions& options) {
    int log = STDERR_FILENO;
    if (!options.log.empty()) {
      log = ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (log < 0) return fmt::format("its log {}: {}", options.log, std::strerror(errno));
    }
    // Sockets of this process must not live on in a child: peers would not see them close.
    ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);

    Child& child = *children_.emplace(id, std::make_unique<Child>()).first->second;
    child.host = this;
    child.id = id;
    child.log = options.log;
    uv_pipe_init(&uv_, &child.in, 0);
    uv_pipe_init(&uv_, &child.out, 0);
    uv_timer_init(&uv_, &child.drain);
    for (uv_handle_t* each :
         {handle(child.in), handle(child.out), handle(child.drain), handle(child.process)}) {
      each->data = &child;
    }

    const std::vector<std::string> environment = merged_environment(options);
    std::vector<char*> arguments = {const_cast<char*>(options.program.c_str())};
    for (const std::string& text : options.arguments) {
      arguments.push_back(const_cast<char*>(text.c_str()));
    }
    std::vector<char*> variables;
    for (const std::string& text : environment) {
      variables.push_back(const_cast<char*>(text.c_str()));
    }
    arguments.push_back(nullptr);
    variables.push_back(nullptr);

    uv_stdio_container_t stdio[3] = {};
    stdio[0].flags = static_cast<uv_stdio_flags>(UV_CREATE_PIPE | UV_READABLE_PIPE);
    stdio[0].data.stream = stream(child.in);
    stdio[1].flags = static_cast<uv_stdio_flags>(UV_CREATE_PIPE | UV_WRITABLE_PIPE);
    stdio[1].data.stream = stream(child.out);
    stdio[2].flags = UV_INHERIT_FD;
    stdio[2].data.fd = log;
    uv_process_options_t how = {};
    how.file = arguments[0];
    how.args = arguments.data();
    how.env = variables.data();
    how.stdio = stdio;
    how.stdio_count = 3;
    how.flags = UV_PROCESS_DETACHED;  // a session of its own
    how.exit_cb = [](uv_process_t* process, std::int64_t status, int signal) {
      Child& ended = child_of(process->data);
      ended.exit = ProcessExit{signal != 0 ? 0 : static_cast<int>(status), signal, ""};
      ended.host->has_exited(ended);
    };
    const int result = uv_spawn(&uv_, &child.process, &how);
    if (log != STDERR_FILENO) ::close(log);
    child.open_handles = 4;
    if (result != 0) {
      child.is_told = true;
      close_all(child);
      return uv_strerror(result);
    }
    uv_read_start(
        stream(child.out),
        [](uv_handle_t* pipe, std::size_t, uv_buf_t* buffer) {
          Child& reader = child_of(pipe->data);
          *buffer = uv_buf_init(reader.buffer.data(), static_cast<unsigned>(reader.buffer.size()));
        },
        [](uv_stream_t* pipe, ssize_t count, const uv_buf_t* buffer) {
          Child& reader = child_of(pipe->data);
          if (count > 0) {
            reader.host->take(reader,
                              std::string_view(buffer->base, static_cast<std::size_t>(count)));
          } else if (count < 0) {
            reader.out_has_ended = true;
            reader.host->tell_if_ended(reader);
          }
        });
    return "";
  }

  static std::vector<std::string> merged_environment(const ProcessOptions& options) {
    std::map<std::string, std::string> variables;
    for (char** text = environ; *text != nullptr; ++text) {
      const std::string_view entry = *text;
      const std::size_t equals = entry.find('=');
      if (equals == std::string_view::npos) continue;
      variables[std::string(entry.substr(0, equals))] = entry.substr(equals + 1);
    }
    for (const auto& [name, value] : options.environment) variables[name] = value;
    std::vector<std::string> entries;
    for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
    return entries;
  }

  void take(Child& child, std::string_view text) {
    while (!text.empty()) {
      const std::size_t newline = text.find('\n');
      const std::string_view piece = text.substr(0, newline);
      const std::size_t room = kLineBytesMax - child.line.size();
      child.line.append(piece.substr(0, room));
      if (newline == std::string_view::npos) return;
      tell_line(child);
      text.remove_prefix(newline + 1);
    }
  }

  void tell_line(Child& child) {
    tell(child.id, [line = std::exchange(child.line, {})](ChildHooks& owner) {
      if (owner.line) owner.line(line);
    });
  }

  void has_exited(Child& child) {
    if (child.out_has_ended) return tell_if_ended(child);
    uv_timer_start(
        &child.drain,
        [](uv_timer_t* timer) {
          Child& ended = child_of(timer->data);
          ended.out_has_ended = true;
          ended.host->tell_if_ended(ended);
        },
        kDrainMilliseconds, 0);
  }

  void tell_if_ended(Child& child) {
    if (!child.exit || !child.out_has_ended || std::exchange(child.is_told, true)) return;
    if (!child.line.empty()) tell_line(child);
    child.exit->last_log_line = last_line_of(child.log);
    tell(child.id, [this, id = child.id, exit = *child.exit](ChildHooks& owner) {
      hooks_.erase(id);
      if (owner.exited) owner.exited(exit);
    });
    close_all(child);
  }

  void write(Child& child, const std::string& text) {
    if (uv_is_closing(handle(child.in)) != 0) return;
    auto* const write = new Write;
    write->text = text;
    write->request.data = write;
    const uv_buf_t buffer =
        uv_buf_init(write->text.data(), static_cast<unsigned>(write->text.size()));
    const auto done = [](uv_write_t* request, int) { delete static_cast<Write*>(request->data); };
    if (uv_write(&write->request, stream(child.in), &buffer, 1, done) != 0) delete write;
  }

  static void send_signal(const Child& child, int signal) {
    // Its whole session; it alone where the system has not made one yet.
    if (::kill(-child.process.pid, signal) != 0) ::kill(child.process.pid, signal);
  }

  static void close(uv_handle_t* which) {
    if (uv_is_closing(which) != 0) return;
    uv_close(which, [](uv_handle_t* closed) {
      Child& child = child_of(closed->data);
      if (--child.open_handles == 0) child.host->children_.erase(child.id);
    });
  }
  static void close_all(Child& child) {
    close(handle(child.in));
    close(handle(child.out));
    close(handle(child.drain));
    close(handle(child.process));
  }

  /// Ends the thread once every child is reaped.
  void shut() {
    uv_close(handle(wake_), nullptr);
    for (const auto& [id, child] : children_) {
      if (child->is_told) continue;
      if (!child->exit) send_signal(*child, SIGKILL);
      child->out_has_ended = true;  // nobody reads it any more
      tell_if_ended(*child);
    }
  }

  EventLoop& loop_;
  std::map<ProcessId, std::shared_ptr<ChildHooks>> hooks_;  // owners: this, and the hook at work
  ProcessId next_id_ = 1;
  // Owned here alone; posted tasks look whether it is still there.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);

  std::mutex mutex_;
  std::vector<Task> orders_;  // guarded by mutex_

  uv_loop_t uv_{};
  uv_async_t wake_{};
  std::map<ProcessId, std::unique_ptr<Child>> children_;  // the thread's
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ProcessHost> make_uv_process_host(EventLoop& loop) {
  return std::make_unique<UvProcessHost>(loop);
}

}  // namespace longhaul
