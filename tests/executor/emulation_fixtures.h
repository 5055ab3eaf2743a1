// Small emulated networks and the files of their pages.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "executor/emulation/shared_page.h"

namespace longhaul::fixtures {

/// A path for a page, whose file goes with this.
class PageFile {
 public:
  PageFile() {
    static int number = 0;
    path = fmt::format("{}/emulation_{}_{}.page", testing::TempDir(), getpid(), number++);
  }
  ~PageFile() { std::remove(path.c_str()); }
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  std::unique_ptr<SharedPage> create(const EmulatedNetwork& network, double dilation = 1,
                                     int permits = 2) const {
    auto page = SharedPage::create(path, network, dilation, permits);
    EXPECT_TRUE(page) << page.error().text();
    return page ? std::move(*page) : nullptr;
  }

  std::string path;
};

/// Ranks without shared resources, a byte on the wire per byte of payload.
inline EmulatedNetwork plain_network(int ranks, double rate, double latency = 0) {
  EmulatedNetwork network;
  network.ranks = ranks;
  network.wire_factor = 1;
  network.paths.assign(
      static_cast<std::size_t>(ranks * ranks),
      {.latency = seconds(latency), .rate_cap = bytes_per_second(rate), .resources = {}});
  return network;
}

/// Everything that leaves rank 0 crosses one uplink, the only limit.
inline EmulatedNetwork uplink_network(int ranks, double uplink, double latency = 0) {
  EmulatedNetwork network = plain_network(ranks, std::numeric_limits<double>::infinity(), latency);
  network.capacities = {bytes_per_second(uplink)};
  for (int to = 1; to < ranks; ++to) network.path(0, to).resources = {0};
  return network;
}

}  // namespace longhaul::fixtures
