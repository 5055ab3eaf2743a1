#include "executor/emulation/emulated_network.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace longhaul {
namespace {

Result<void> check_path(const EmulatedNetwork& network, int from, int to, double dilation) {
  const EmulatedPath& path = network.path(from, to);
  const auto wrong = [&](const std::string& what) {
    return invalid(fmt::format("the emulated path from rank {} to rank {} {}", from, to, what));
  };
  const double latency = path.latency.value();
  if (!(latency >= 0) || latency * dilation > kEmulatedLatencyMax.value()) {
    return wrong(
        fmt::format("has a latency of {} s, which is {} s after dilation: not within 0 to "
                    "{} s",
                    latency, latency * dilation, kEmulatedLatencyMax.value()));
  }
  if (!(path.rate_cap.value() > 0)) {
    return wrong(fmt::format("has a rate of {} bytes/s: not above 0", path.rate_cap.value()));
  }
  if (path.resources.size() > kEmulatedPathMax) {
    return wrong(fmt::format("crosses {} shared resources, more than the {} allowed",
                             path.resources.size(), kEmulatedPathMax));
  }
  std::vector<int> sorted = path.resources;
  std::ranges::sort(sorted);
  for (const int resource : sorted) {
    if (resource < 0 || static_cast<std::size_t>(resource) >= network.capacities.size()) {
      return wrong(fmt::format("crosses resource {}, but there are {}", resource,
                               network.capacities.size()));
    }
  }
  if (std::ranges::adjacent_find(sorted) != sorted.end()) return wrong("crosses a resource twice");
  return {};
}

}  // namespace

Result<void> check_emulation(const EmulatedNetwork& network, double dilation) {
  if (!(dilation > 0) || !std::isfinite(dilation)) {
    return invalid(fmt::format("an emulation cannot run with a dilation of {}", dilation),
                   "1 runs in real time, 10 ten times slower");
  }
  if (network.ranks < 1 || network.ranks > kEmulatedRanksMax) {
    return invalid(fmt::format("an emulated network has 1 to {} ranks, not {}", kEmulatedRanksMax,
                               network.ranks));
  }
  const auto ranks = static_cast<std::size_t>(network.ranks);
  if (network.paths.size() != ranks * ranks) {
    return invalid(fmt::format("an emulated network of {} ranks has {} paths, not {}", ranks,
                               ranks * ranks, network.paths.size()));
  }
  if (network.capacities.size() > kEmulatedResourcesMax) {
    return invalid(fmt::format("an emulated network has at most {} shared resources, not {}",
                               kEmulatedResourcesMax, network.capacities.size()));
  }
  if (!(network.wire_factor >= 1) || !std::isfinite(network.wire_factor)) {
    return invalid(
        fmt::format("a wire factor of {} is below 1 or not finite", network.wire_factor));
  }
  for (std::size_t r = 0; r < network.capacities.size(); ++r) {
    if (!(network.capacities[r].value() > 0)) {
      return invalid(
          fmt::format("the emulated resource {} has a capacity of {} bytes/s: not above "
                      "0",
                      r, network.capacities[r].value()));
    }
  }
  for (int from = 0; from < network.ranks; ++from) {
    for (int to = 0; to < network.ranks; ++to) {
      if (from != to) LH_TRY(check_path(network, from, to, dilation));
    }
  }
  return {};
}

}  // namespace longhaul
