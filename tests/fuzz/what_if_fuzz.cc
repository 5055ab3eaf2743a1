// libFuzzer target: any bytes, read as what-if sentences, must end in edits that can be applied or
// refused, in a sweep whose points are edits, or in an error; never in a crash, a hang or a leak.
// What was applied leaves a cluster that keeps its promises.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "netsim/cluster_file.h"
#include "tools/what_if_grammar.h"
#include "tools/what_if_world.h"

namespace longhaul {
namespace {

constexpr std::string_view kJob = R"(schema: longhaul/job/1
name: tiny
model: {family: gpt2, layers: 8, width: 256, heads: 8, context: 128, vocabulary: 1000}
batch: {global: 24, micro_batch: auto}
precision: fp16
)";
constexpr std::string_view kCluster = R"(schema: longhaul/cluster/1
name: three
network:
  links:
    - {between: [a, b], latency: 20 ms, bandwidth: 500 Mbit/s}
    - {between: [a, c], latency: 30 ms}
    - {between: [b, c], latency: 0 ms, bandwidth: 1 Gbit/s}
sites:
  - {name: a, uplink: 1 Gbit/s, egress: 0.02 USD/GB, nodes: [{devices: 2xv100, nic: 10 Gbit/s}]}
  - {name: b, nodes: [{devices: [v100, a100], count: 2}]}
  - {name: c, nodes: [{devices: t4}]}
)";

const WhatIfBase& base() {
  static const WhatIfBase made = [] {
    WhatIfBase out;
    out.topology = parse_cluster(kCluster, "fuzz.yaml", "").value();
    out.job = parse_job(kJob, "job.yaml").value();
    out.job_text = kJob;
    out.job_path = "job.yaml";
    out.links_like = "b";
    return out;
  }();
  return made;
}

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad edit is wrong input");
  LH_CHECK(!error.message.empty() && !error.text().empty(), "an error says something");
  LH_CHECK(error.excerpt.find_first_of(std::string_view("\0\x1b\r", 3)) == std::string::npos,
           "nothing in an error moves the cursor");
}

void check_world(const World& world) {
  const Topology& topology = world.topology();
  LH_CHECK(topology.device_count() >= 1, "a cluster has a device");
  LH_CHECK(topology.links.size() == topology.sites.size() * topology.sites.size(),
           "every pair of sites has a link");
  for (const Link& link : topology.links) {
    LH_CHECK(link.latency.value() >= 0 && link.latency.finite(), "latencies are times");
    LH_CHECK(link.rate.value() > 0 && link.rate.finite(), "links let something through");
    LH_CHECK(link.loss >= 0 && link.loss < 1, "loss is a probability");
  }
  for (int d = 0; d < topology.device_count(); ++d) {
    LH_CHECK(topology.site_of(d) < topology.site_count(), "a device stands at a site");
    LH_CHECK(static_cast<std::size_t>(topology.node_of(d)) < topology.nodes.size(), "on a node");
    LH_CHECK(
        topology.nodes[static_cast<std::size_t>(topology.node_of(d))].site == topology.site_of(d),
        "which is at that site");
    LH_CHECK(topology.kind_of(d).memory.value() > 0, "and has a kind");
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const Result<NamedEdits> named = parse_scenario(text); named) {
    World world(base());
    if (const Result<void> applied = world.apply(named->edits); applied) {
      check_world(world);
    } else {
      check_error(applied.error());
    }
  } else {
    check_error(named.error());
  }
  if (const Result<Sweep> sweep = parse_sweep(text); sweep) {
    LH_CHECK(sweep->points.size() <= kSweepPointsMax, "a sweep has a limit");
    for (const SweepPoint& point : sweep->points) {
      LH_CHECK(parse_edit(point.text).has_value(), "every point is an edit");
    }
  } else {
    check_error(sweep.error());
  }
  return 0;
}
