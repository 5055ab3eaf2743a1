// A good file of each kind, small enough that a search over them takes a tenth of a second, and a
// folder to put them in. Tests make bad files of them by one edit.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace longhaul {

inline constexpr std::string_view kDeviceText = R"(schema: longhaul/device/1
kind: lab
title: a card of the lab
memory: 8 GiB
reserved: 1 GiB
peak: {fp32: 10 TFLOP/s, fp16: 50 TFLOP/s}
efficiency: 0.5
memory_bandwidth: 400 GB/s
memory_efficiency: 0.75
overhead: 50 us
price: 1 USD/h
origin: assumed
source: invented
)";

/// Six devices: delft-1/0, delft-1/1, delft-2/0, big/0, big/1, big/2.
inline constexpr std::string_view kClusterText = R"(schema: longhaul/cluster/1
name: two-labs
device_files: {lab: lab.yaml}
network:
  tcp: {window: 4 MiB, streams: auto}
  links:
    - {between: [delft, riga], latency: 20 ms, bandwidth: 500 Mbit/s}
sites:
  - name: delft
    nodes:
      - {devices: 2xlab}
      - {devices: lab}
  - name: riga
    nodes:
      - {name: big, devices: 3xlab, inside: {bandwidth: 8 GB/s, latency: 10 us}}
)";

inline constexpr std::string_view kTraceText = R"(# Two labs.
from,to,latency_ms,basis,gbit_per_s,streams,origin,source
delft,riga,40,rtt,0.5,1,measured,"ping, iperf3"
delft,delft,0.25,one_way,10,1,assumed,
)";

inline constexpr std::string_view kJobText = R"(schema: longhaul/job/1
name: tiny
model:
  {family: llama, layers: 8, width: 256, heads: 8, kv_heads: 2, ffn_width: 512, context: 128, vocabulary: 1000}
batch: {global: 24, micro_batch: auto}
precision: fp16
recompute: false
compression: {activations: bf16}
)";

/// A plan of kJobText on kClusterText.
inline constexpr std::string_view kPlanText = R"(schema: longhaul/plan/1
inputs:
  cluster: {file: cluster.yaml}
  job: {file: job.yaml}
layers: [3, 3, 2]
pipelines:
  - [delft-1/0, delft-1/1, delft-2/0]
  - [big/0, big/1, big/2]
batch:
  micro_batch: 2
  micro_batches: [6, 6]
schedule: {family: 1f1b, in_flight: [3, 2, 1]}
coordinator: delft
)";

/// `text` with its only `old` replaced.
inline std::string edited(std::string_view text, std::string_view old,
                          std::string_view replacement) {
  std::string out(text);
  const std::size_t at = out.find(old);
  EXPECT_NE(at, std::string::npos) << "no `" << old << "` in\n" << text;
  EXPECT_EQ(out.find(old, at + 1), std::string::npos) << "two `" << old << "` in\n" << text;
  return at == std::string::npos ? out : out.replace(at, old.size(), replacement);
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A folder that goes away with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "longhaul-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream file(*this / name, std::ios::binary);
    file << text;
    EXPECT_TRUE(file.flush()) << name;
  }
  /// All five good files: lab.yaml, cluster.yaml, links.csv, job.yaml and plan.yaml.
  void write_samples() const {
    write("lab.yaml", kDeviceText);
    write("cluster.yaml", kClusterText);
    write("links.csv", kTraceText);
    write("job.yaml", kJobText);
    write("plan.yaml", kPlanText);
  }

 private:
  std::string path_;
};

}  // namespace longhaul
