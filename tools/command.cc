#include "tools/command.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "core/quantity.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

std::atomic<int> g_signal = 0;  // written by the handler, read by any thread
static_assert(std::atomic<int>::is_always_lock_free);

void remember_signal(int signal) {
  if (g_signal != 0) _exit(128 + signal);
  g_signal = signal;
}

}  // namespace

int report_error(const Error& error) {
  fmt::print(stderr, "{}\n", error.text());
  return static_cast<int>(error.code);
}

std::string not_a_number(const std::string& text) {
  const Result<double> number = parse_number(text);
  return number ? "" : number.error().message;
}

std::string path_from(const std::string& from, const std::string& file) {
  if (fs::path(file).is_absolute()) return file;
  const fs::path folder = fs::absolute(from).parent_path().lexically_normal();
  return fs::absolute(file).lexically_normal().lexically_relative(folder).string();
}

std::string resolve_from(const std::string& from, const std::string& path) {
  const fs::path folder = fs::path(from).parent_path();
  if (fs::path(path).is_absolute() || folder.empty()) return path;
  return (folder / path).lexically_normal().string();
}

void raise_open_files_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // where it is refused, the limit stays what it was
}

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && shown_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::show(const std::string& text) {
  shown_ = true;
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", text);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

InterruptFlag::InterruptFlag() {
  g_signal = 0;
  struct sigaction action{};
  action.sa_handler = remember_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int InterruptFlag::signal() {
  return g_signal;
}

}  // namespace longhaul
