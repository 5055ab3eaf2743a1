// libFuzzer target: any bytes, read as a cluster file in a folder that does not exist (so that the
// traces and device files it names are missing, and only the shipped device kinds are known), must
// end in a topology that keeps its promises or in errors with a place; never in a crash, a hang or
// a leak.
//
//   cmake -B build/fuzz -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "netsim/cluster_file.h"

namespace longhaul {
namespace {

void check_error(const Error& error) {
  LH_CHECK(error.code == ErrorCode::kInvalid, "a bad cluster is wrong input");
  LH_CHECK(error.count() <= 100, "a report has a limit");
  LH_CHECK(!error.message.empty() && !error.text().empty(), "an error says something");
}

void check_topology(const Topology& topology) {
  const int sites = topology.site_count();
  LH_CHECK(sites >= 1 && topology.device_count() >= 1, "a cluster has a device");
  LH_CHECK(topology.links.size() == static_cast<std::size_t>(sites) * topology.sites.size(),
           "every pair of sites has a link");
  for (const Link& link : topology.links) {
    LH_CHECK(link.latency.value() >= 0 && link.latency.finite(), "latencies are times");
    LH_CHECK(link.rate.value() > 0, "links let something through");
    LH_CHECK(link.loss >= 0 && link.loss < 1, "loss is a probability");
  }
  for (const Device& device : topology.devices) {
    LH_CHECK(device.site >= 0 && device.site < sites, "a device stands at a site");
    LH_CHECK(static_cast<std::size_t>(device.node) < topology.nodes.size(), "on a node");
    LH_CHECK(topology.nodes[static_cast<std::size_t>(device.node)].site == device.site,
             "which is at that site");
    LH_CHECK(static_cast<std::size_t>(device.kind) < topology.kinds.size(), "and has a kind");
  }
  // Paths between the first few devices are what a simulation would ask for.
  const int some = std::min(topology.device_count(), 8);
  for (int from = 0; from < some; ++from) {
    LH_CHECK(!topology.devices[static_cast<std::size_t>(from)].name.empty(), "devices have names");
    for (int to = 0; to < some; ++to) {
      LH_CHECK(topology.rate(from, to).value() > 0, "every device reaches every other");
      LH_CHECK(topology.latency(from, to).value() >= 0, "in some time");
    }
  }
}

}  // namespace
}  // namespace longhaul

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Topology> topology = parse_cluster(text, "fuzz.yaml", "/nonexistent/longhaul-fuzz");
  if (topology) {
    check_topology(*topology);
  } else {
    check_error(topology.error());
  }
  static_cast<void>(parse_device_count(text));
  return 0;
}
