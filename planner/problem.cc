#include "planner/problem.h"

#include <utility>

#include "core/model_math.h"

namespace longhaul {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

Problem::Problem(const Topology& topology, const Job& job, const std::vector<char>& admitted,
                 const Goal& goal, const PlanRules& rules)
    : topology_(topology), job_(job), goal_(goal), rules_(rules) {
  const double sequences = 1;
  for (int d = 0; d < topology.device_count(); ++d) {
    const DeviceKind& kind = topology.kind_of(d);
    const FlopsPerSecond rate = kind.rate_at(job.precision);
    seconds_per_flop_.push_back(rate > FlopsPerSecond(0) ? 1 / rate.value() : 0);
    overhead_.push_back(kind.overhead.value());
    memory_.push_back((kind.memory - kind.reserved).value());
    update_.push_back(update_time(kind, sequences).value());
    usd_per_second_.push_back(kind.usd_per_hour / 3600);
    node_.push_back(topology.node_of(d));
    site_.push_back(topology.site_of(d));
    kind_.push_back(topology.devices[at(d)].kind);
    const bool may = admitted.empty() || admitted[at(d)] != 0;
    if (may && rate > FlopsPerSecond(0)) usable_.push_back(d);
  }
  sites_ = topology.site_count();
  for (int a = 0; a < sites_; ++a) {
    for (int b = 0; b < sites_; ++b) {
      const Link& link = topology.link(a, b);
      BytesPerSecond through = link.rate;
      if (a != b) {
        through = std::min({through, topology.sites[at(a)].uplink, topology.sites[at(b)].downlink});
      }
      site_latency_.push_back(link.latency.value());
      site_rate_.push_back(through.value());
    }
  }
  std::vector<int> devices_on(topology.nodes.size(), 0);
  for (const int device : usable_) ++devices_on[at(node(device))];
  for (std::size_t n = 0; n < topology.nodes.size(); ++n) {
    nic_.push_back(topology.nodes[n].nic.value());
    inside_rate_.push_back(topology.nodes[n].inside_rate.value());
    inside_latency_.push_back(topology.nodes[n].inside_latency.value());
    shared_.push_back(devices_on[n] > 1 ? 1 : 0);
  }
  std::sort(usable_.begin(), usable_.end(), [&](int a, int b) {
    return std::pair(seconds_per_flop_[at(a)], a) < std::pair(seconds_per_flop_[at(b)], b);
  });
  // Two devices of one node, of two nodes of a site, or of two sites, whose fastest NICs count.
  std::vector<double> first_nic(at(sites_), 0), second_nic(at(sites_), 0);
  for (std::size_t n = 0; n < topology.nodes.size(); ++n) {
    if (devices_on[n] == 0) continue;
    if (devices_on[n] > 1) fastest_rate_ = std::max(fastest_rate_, inside_rate_[n]);
    double& first = first_nic[at(topology.nodes[n].site)];
    double& second = second_nic[at(topology.nodes[n].site)];
    second = std::max(second, std::min(first, nic_[n]));
    first = std::max(first, nic_[n]);
  }
  for (int a = 0; a < sites_; ++a) {
    for (int b = 0; b < sites_; ++b) {
      const double nics = a == b ? second_nic[at(a)] : std::min(first_nic[at(a)], first_nic[at(b)]);
      fastest_rate_ = std::max(fastest_rate_, std::min(site_rate(a, b), nics));
    }
  }
}

}  // namespace longhaul
