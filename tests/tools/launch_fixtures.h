// A job that trains in a fraction of a second, plans for it, and eyes for what `longhaul launch`
// leaves behind: processes, files, ports.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul::fixtures {

inline constexpr std::string_view kCoreText = R"(schema: longhaul/device/1
kind: core
title: a core of this machine
memory: 1 GiB
reserved: 0 GiB
peak: {fp32: 10 GFLOP/s, fp16: 10 GFLOP/s}
efficiency: 0.5
memory_bandwidth: 10 GB/s
memory_efficiency: 0.75
overhead: 50 us
origin: assumed
source: invented
)";

/// Devices d/0, d/1, r/0 and o/0.
inline constexpr std::string_view kThreeNodesText = R"(schema: longhaul/cluster/1
name: three-nodes
device_files: {core: core.yaml}
network:
  links:
    - {between: [delft, riga], latency: 1 ms, bandwidth: 500 Mbit/s}
    - {between: [delft, oslo], latency: 1 ms, bandwidth: 500 Mbit/s}
    - {between: [riga, oslo], latency: 1 ms, bandwidth: 500 Mbit/s}
sites:
  - name: delft
    nodes:
      - {name: d, devices: 2xcore}
  - name: riga
    nodes:
      - {name: r, devices: core}
  - name: oslo
    nodes:
      - {name: o, devices: core}
)";

/// 12 steps, validated and saved after every fourth.
inline constexpr std::string_view kTinyJobText = R"(schema: longhaul/job/1
name: tiny
model: {family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocabulary: 256, tied_embedding: true}
batch: {global: 8, micro_batch: 1}
precision: fp32
training:
  data: data
  seed: 1
  steps: 12
  learning_rate: {max: 3e-3, min: 0, decay: constant, warm_up: 2}
  optimiser: {beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: 1.0}
  validation: {every: 4, sequences: 16}
  checkpoints: {every: 4, keep: 2}
)";

/// A plan of `job`; `grid` is its layers, pipelines and micro-batches.
inline std::string plan_of(std::string_view job, std::string_view layers,
                           std::string_view pipelines, std::string_view micro_batches,
                           std::string_view in_flight) {
  return fmt::format(R"(schema: longhaul/plan/1
inputs:
  cluster: {{file: cluster.yaml}}
  job: {{file: {}}}
layers: {}
pipelines: {}
batch:
  micro_batch: 1
  micro_batches: {}
schedule: {{family: 1f1b, in_flight: {}}}
coordinator: delft
)",
                     job, layers, pipelines, micro_batches, in_flight);
}

/// Polls until `is_so`, for at most so many seconds.
inline bool comes_true(const std::function<bool()>& is_so, double seconds = 5) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    poll(nullptr, 0, 5);
  }
  return true;
}

/// A folder with everything that is launched here. The plans: 1x1.yaml, 1x2.yaml and 2x2.yaml
/// (pipelines x stages) of tiny.yaml, and long.yaml, which is 2x2 of a job that does not end.
class LaunchFolder {
 public:
  LaunchFolder() {
    write("core.yaml", kCoreText);
    write("cluster.yaml", kThreeNodesText);
    write("tiny.yaml", kTinyJobText);
    write("endless.yaml", edited(edited(kTinyJobText, "steps: 12", "steps: 1000000"),
                                 "{every: 4, keep: 2}", "{every: 1000000, keep: 2}"));
    write("1x1.yaml", plan_of("tiny.yaml", "[2]", "[[d/0]]", "[8]", "[1]"));
    write("1x2.yaml", plan_of("tiny.yaml", "[1, 1]", "[[d/0, r/0]]", "[8]", "[2, 1]"));
    write("2x2.yaml",
          plan_of("tiny.yaml", "[1, 1]", "[[d/0, d/1], [r/0, o/0]]", "[4, 4]", "[2, 1]"));
    write("long.yaml",
          plan_of("endless.yaml", "[1, 1]", "[[d/0, d/1], [r/0, o/0]]", "[4, 4]", "[2, 1]"));
    std::string text;
    for (int i = 0; i < 300; ++i) text += fmt::format("Line {} has {} letters.\n", i, i * 7 % 97);
    write("text.txt", text);
    const RunResult prepared = run({"data", "prepare", "text.txt", "-o", "data"});
    EXPECT_EQ(prepared.status, 0) << prepared.err;
  }

  const std::string& path() const { return folder_.path(); }
  std::string operator/(std::string_view name) const { return folder_ / name; }
  void write(std::string_view name, std::string_view text) const { folder_.write(name, text); }
  bool has(std::string_view name) const { return std::filesystem::exists(*this / name); }

  RunResult run(const std::vector<std::string>& arguments) const {
    return run_longhaul(arguments, path());
  }
  RunResult launch(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "launch");
    return run(arguments);
  }

  /// Of each step, in the order of metrics.jsonl: a resumed run's come after those before it.
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> losses;
    std::ifstream file(*this / ("runs/" + run + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const std::string begin = fmt::format("{{\"step\":{},\"loss\":", losses.size());
      if (line.starts_with(begin)) {
        losses.push_back(std::stod(line.substr(begin.size())));
      } else {
        EXPECT_FALSE(line.contains("\"loss\":")) << losses.size() << " steps, and now " << line;
      }
    }
    return losses;
  }

  struct Running {
    pid_t id = 0;
    std::string command;  // its arguments, with spaces between them
    std::string log;      // where its stderr goes
  };
  /// Whoever works in this folder: all that a launch starts do.
  std::vector<Running> processes() const {
    std::vector<Running> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const auto link = [&](const char* which) {
        std::error_code gone;
        return std::filesystem::read_symlink(entry.path() / which, gone).string();
      };
      if (link("cwd") != path()) continue;
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      std::string command{std::istreambuf_iterator<char>(file), {}};
      for (char& letter : command) letter = letter == '\0' ? ' ' : letter;
      if (command.empty()) continue;  // it has ended and waits for its parent
      found.push_back({static_cast<pid_t>(std::stol(name)), command, link("fd/2")});
    }
    return found;
  }
  /// The worker of this rank; 0 when there is none.
  pid_t worker(int rank) const {
    for (const Running& process : processes()) {
      if (process.log.ends_with(fmt::format("/worker-{}.log", rank))) return process.id;
    }
    return 0;
  }
  Running agent() const {
    for (const Running& process : processes()) {
      if (process.command.contains(" agent --join ")) return process;
    }
    return {};
  }
  bool is_everybody_gone() const {
    return comes_true([&] { return processes().empty(); });
  }

 private:
  TemporaryFolder folder_;
};

/// Whether somebody could listen on this port of the loopback now.
inline bool is_port_free(int port) {
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free = bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       listen(socket_, 1) == 0;
  close(socket_);
  return is_free;
}

/// Pages of emulations on this machine whose launch is the given process.
inline int pages_of(pid_t launch) {
  int pages = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    pages += entry.path().filename().string().starts_with(fmt::format("longhaul-{}-", launch));
  }
  return pages;
}

}  // namespace longhaul::fixtures
