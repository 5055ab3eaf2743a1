// Builders for tests: models, machines and plans whose numbers a person can follow.
//
// The unit model has width, heads, MLP width, context and vocabulary 1. By core/model_math.h one
// layer is 6 weights + 6 biases + 4 norm scalars = 16 parameters, its forward over one sequence is
// 2 x 6 + 4 = 16 FLOP, the head's forward 2 FLOP, and a boundary tensor is one element.
// A unit device does 16 FLOP/s: 1 s a layer forward, 2 s backward, and 0.125 s (0.25 s) more where
// the head is. Everything else of a unit topology is free or without limit until a test sets it.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "core/topology.h"

namespace longhaul::fixtures {

inline ModelShape unit_model(int layers, bool tied = false) {
  return {.family = ModelFamily::kGpt2,
          .layers = layers,
          .width = 1,
          .heads = 1,
          .kv_heads = 1,
          .head_width = 1,
          .ffn_width = 1,
          .context = 1,
          .vocabulary = 1,
          .tied_embedding = tied};
}

/// fp32, so that a boundary tensor is 4 bytes a sequence.
inline Job unit_job(int layers, int global_batch, bool tied = false) {
  Job job;
  job.name = "unit";
  job.model = unit_model(layers, tied);
  job.global_batch = global_batch;
  job.precision = Precision::kFp32;
  return job;
}

inline DeviceKind unit_kind(const std::string& name) {
  DeviceKind kind;
  kind.name = name;
  kind.memory = gibibytes(1);
  kind.rate.fill(flops_per_second(16));
  kind.memory_rate = BytesPerSecond::infinity();
  return kind;
}

/// Device n is alone on node n, has kind n to itself, and stands at site `site_of_device[n]`. Sites
/// are called a, b, c, ...; the second node of site a is `a-2`, its device `a-2/0`.
inline Topology unit_topology(const std::vector<int>& site_of_device) {
  Topology topology;
  topology.name = "unit";
  topology.tcp.wire_factor = 1;
  const int sites = *std::max_element(site_of_device.begin(), site_of_device.end()) + 1;
  std::vector<int> nodes_of_site(static_cast<std::size_t>(sites), 0);
  for (int s = 0; s < sites; ++s) {
    topology.sites.push_back({std::string(1, static_cast<char>('a' + s)), "",
                              BytesPerSecond::infinity(), BytesPerSecond::infinity(), 0});
  }
  for (std::size_t n = 0; n < site_of_device.size(); ++n) {
    const int site = site_of_device[n];
    const std::string name = fmt::format("{}-{}", static_cast<char>('a' + site),
                                         ++nodes_of_site[static_cast<std::size_t>(site)]);
    topology.nodes.push_back(
        {name, site, BytesPerSecond::infinity(), BytesPerSecond::infinity(), Seconds(0), ""});
    topology.kinds.push_back(unit_kind(fmt::format("kind-{}", n)));
    topology.devices.push_back({name + "/0", static_cast<int>(n), site, static_cast<int>(n)});
  }
  Link link;
  link.rate = BytesPerSecond::infinity();
  topology.links.assign(static_cast<std::size_t>(sites * sites), link);
  return topology;
}

inline Link& link_of(Topology& topology, int from_site, int to_site) {
  return topology.links[static_cast<std::size_t>(from_site * topology.site_count() + to_site)];
}

/// Sites a and b with a device each; a to b 0.25 s and 8 bytes/s (0.5 s a boundary tensor of a
/// sequence), back 0.125 s and 16 bytes/s (0.25 s).
inline Topology two_sites() {
  Topology topology = unit_topology({0, 1});
  link_of(topology, 0, 1).latency = seconds(0.25);
  link_of(topology, 0, 1).rate = bytes_per_second(8);
  link_of(topology, 1, 0).latency = seconds(0.125);
  link_of(topology, 1, 0).rate = bytes_per_second(16);
  return topology;
}

/// Sets both directions.
inline void set_link(Topology& topology, int site, int other, Seconds latency,
                     BytesPerSecond rate) {
  for (Link* link : {&link_of(topology, site, other), &link_of(topology, other, site)}) {
    link->latency = latency;
    link->rate = rate;
  }
}

/// One layer a stage, micro-batches of one sequence, device d * P + i for stage i of pipeline d.
inline Plan unit_plan(ScheduleFamily family, int stages, std::vector<int> micro_batches) {
  Plan plan;
  plan.layers.assign(static_cast<std::size_t>(stages), 1);
  plan.micro_batches = std::move(micro_batches);
  plan.family = family;
  int device = 0;
  for (std::size_t d = 0; d < plan.micro_batches.size(); ++d) {
    plan.devices.emplace_back();
    for (int i = 0; i < stages; ++i) plan.devices.back().push_back(device++);
  }
  plan.in_flight = default_in_flight(
      family, stages, *std::max_element(plan.micro_batches.begin(), plan.micro_batches.end()));
  return plan;
}

}  // namespace longhaul::fixtures
