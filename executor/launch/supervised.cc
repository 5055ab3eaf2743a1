#include "executor/launch/supervised.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <csignal>
#include <utility>

namespace longhaul {

// ---- what the lines say

void Supervised::line(const std::string& line) {
  if (!hooks_.abandoned) return;
  if (auto done = read(line); !done) {
    std::exchange(hooks_.abandoned, nullptr)(within("stdin", std::move(done.error())).error());
  }
}

Result<void> Supervised::read(const std::string& line) {
  LH_ASSIGN(LaunchMessage message, parse_launch(line));
  if (auto* start = std::get_if<WorkerStart>(&message); start != nullptr && rank_ < 0) {
    if (start->rank == 0) return failed("rank 0 is the coordinator's");
    const bool has_certificate = !start->certificate.empty();
    if (has_certificate == start->key.empty() || has_certificate == start->authority.empty()) {
      return failed("authority, certificate and key come together or not at all");
    }
    rank_ = start->rank;
    hooks_.start(std::move(*start));
    return {};
  }
  if (auto* peers = std::get_if<PeerAddresses>(&message);
      peers != nullptr && rank_ > 0 && !is_connected_) {
    const std::size_t ranks = peers->addresses.size();
    if (static_cast<std::size_t>(rank_) >= ranks) {
      return failed(fmt::format("{} addresses, and this is rank {}", ranks, rank_));
    }
    if (!peers->identities.empty() && peers->identities.size() != ranks) {
      return failed(fmt::format("{} identities of {} ranks", peers->identities.size(), ranks));
    }
    is_connected_ = true;
    hooks_.connect(std::move(*peers));
    return {};
  }
  return failed(rank_ < 0 ? "the first line does not start a worker"
                          : "a line after the first that is not the list of addresses, once");
}

void Supervised::end_of_lines() {
  if (const auto hook = std::exchange(hooks_.abandoned, nullptr)) {
    hook(failed("stdin has ended: nobody looks after this worker any more").error());
  }
}

// ---- reading them

LineReader::LineReader(EventLoop& loop, int fd, std::function<void(const std::string& line)> line,
                       std::function<void()> end)
    : loop_(loop),
      hooks_(std::make_shared<Hooks>(Hooks{std::move(line), std::move(end)})),
      weak_hooks_(hooks_) {
  LH_CHECK(::pipe2(wake_, O_CLOEXEC) == 0, "a process can have a pipe");
  thread_ = std::thread([this, fd] { run(fd); });
}

LineReader::~LineReader() {
  hooks_.reset();
  ::close(wake_[1]);
  thread_.join();
  ::close(wake_[0]);
}

void LineReader::post_line(std::string line) {
  loop_.post([weak = weak_hooks_, line = std::move(line)] {
    if (const auto hooks = weak.lock()) hooks->line(line);
  });
}

void LineReader::run(int fd) {
  std::string text;
  char piece[16 << 10];
  while (text.size() <= kWorkerLineMax) {
    pollfd events[2] = {{fd, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (::poll(events, 2, -1) < 0 && errno != EINTR) break;
    if (events[1].revents != 0) return;
    if (events[0].revents == 0) continue;
    const ssize_t count = ::read(fd, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    const std::size_t searched = text.size();
    text.append(piece, static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n', searched); end != std::string::npos;
         end = text.find('\n', begin)) {
      post_line(text.substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
  loop_.post([weak = weak_hooks_] {
    if (const auto hooks = weak.lock()) hooks->end();
  });
}

void die_with_parent() {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

}  // namespace longhaul
