// Two sites with a node each and a third that stands idle, a job of one micro-batch, and a plan of
// two stages, so that a step is a sum that can be done by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "netsim/cluster_file.h"
#include "tests/tools/sample_files.h"
#include "tools/what_if_run.h"

namespace longhaul {

/// No overhead, so that a pass takes FLOPs / rate; twice the speed is half the time.
inline constexpr std::string_view kWhatIfDevice = R"(schema: longhaul/device/1
kind: lab
title: a card of the lab
memory: 8 GiB
reserved: 1 GiB
peak: {fp32: 10 TFLOP/s, fp16: 50 TFLOP/s}
efficiency: 0.5
memory_bandwidth: 400 GB/s
memory_efficiency: 0.75
overhead: 0 us
price: 1 USD/h
origin: assumed
source: invented
)";

/// delft -> riga: 62.5e6 B/s and 20 ms; windows limit nothing. No header factor.
inline constexpr std::string_view kWhatIfCluster = R"(schema: longhaul/cluster/1
name: three
device_files: {lab: lab.yaml}
network:
  tcp: {window: unlimited, wire_factor: 1}
  links:
    - {between: [delft, riga], latency: 20 ms, bandwidth: 500 Mbit/s}
    - {between: [delft, oslo], latency: 30 ms, bandwidth: 500 Mbit/s}
    - {between: [riga, oslo], latency: 10 ms, bandwidth: 500 Mbit/s}
sites:
  - {name: delft, nodes: [{devices: lab, nic: 10 Gbit/s}]}
  - {name: riga, nodes: [{devices: lab, nic: 10 Gbit/s}]}
  - {name: oslo, nodes: [{devices: lab, nic: 10 Gbit/s}]}
)";

/// A boundary tensor is 24 sequences x 128 tokens x 256 x 2 B = 1572864 B: 25.165824 ms on the
/// link.
inline constexpr std::string_view kWhatIfJob = R"(schema: longhaul/job/1
name: tiny
model:
  {family: llama, layers: 8, width: 256, heads: 8, kv_heads: 2, ffn_width: 512, context: 128, vocabulary: 1000}
batch: {global: 24, micro_batch: auto}
precision: fp16
)";

inline constexpr std::string_view kWhatIfPlan = R"(schema: longhaul/plan/1
inputs:
  cluster: {file: cluster.yaml}
  job: {file: job.yaml}
layers: [4, 4]
pipelines:
  - [delft-1/0, riga-1/0]
batch:
  micro_batch: 24
  micro_batches: [1]
schedule: {family: 1f1b}
coordinator: delft
)";

class WhatIfTest : public testing::Test {
 protected:
  WhatIfTest() {
    folder_.write("lab.yaml", kWhatIfDevice);
    use(kWhatIfCluster, kWhatIfJob, kWhatIfPlan);
  }

  void use(std::string_view cluster, std::string_view job, std::string_view plan) {
    folder_.write("cluster.yaml", cluster);
    folder_.write("job.yaml", job);
    folder_.write("plan.yaml", plan);
    base_.cluster_path = folder_ / "cluster.yaml";
    base_.job_path = folder_ / "job.yaml";
    base_.job_text = job;
    Result<Topology> topology = load_cluster(base_.cluster_path);
    Result<Job> parsed = parse_job(job, "job.yaml");
    ASSERT_TRUE(topology) << topology.error().text();
    ASSERT_TRUE(parsed) << parsed.error().text();
    base_.topology = *std::move(topology);
    base_.job = *std::move(parsed);
    Result<PlanFile> file = parse_plan(plan, "plan.yaml", base_.topology, base_.job);
    ASSERT_TRUE(file) << file.error().text();
    plan_ = std::move(file->plan);
  }

  WhatIfTable table(const WhatIfRequest& request) const {
    Result<WhatIfTable> answered = what_if(base_, plan_, request);
    EXPECT_TRUE(answered) << answered.error().text();
    return answered.value_or(WhatIfTable{});
  }
  /// The row of one scenario.
  WhatIfRow row(const std::string& edits) const {
    const WhatIfTable made = table({.sets = {edits}});
    EXPECT_EQ(made.rows.size(), 2u) << edits;
    return made.rows.size() == 2 ? made.rows[1] : WhatIfRow{};
  }
  WhatIfRow as_it_is() const { return table({.scenarios = {"x: link * latency +0ms"}}).rows.at(0); }
  /// How much longer the step gets, in milliseconds.
  double longer_ms(const std::string& edits) const {
    const WhatIfRow changed = row(edits);
    EXPECT_EQ(changed.problem, "") << edits;
    return (changed.step - as_it_is().step).value() * 1e3;
  }

  TemporaryFolder folder_;
  WhatIfBase base_;
  Plan plan_;
};

}  // namespace longhaul
