#include "tools/random_cluster.h"

#include <gtest/gtest.h>

#include <set>

#include "core/model_math.h"

namespace longhaul {
namespace {

TEST(RandomCluster, a_seed_gives_one_text_and_another_seed_another) {
  EXPECT_EQ(random_cluster_text(3, 32), random_cluster_text(3, 32));
  EXPECT_NE(random_cluster_text(3, 32), random_cluster_text(4, 32));
  const Topology topology = random_cluster(3, 32);
  EXPECT_EQ(random_job_text(3, topology), random_job_text(3, topology));
}

TEST(RandomCluster, sizes_and_links_are_within_what_is_said) {
  std::set<std::size_t> kinds_seen;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const int devices_max = 4 + static_cast<int>(seed % 60);
    const Topology topology = random_cluster(seed, devices_max);
    EXPECT_GE(topology.site_count(), 2);
    EXPECT_LE(topology.site_count(), 8);
    EXPECT_GE(topology.device_count(), 4);
    EXPECT_LE(topology.device_count(), devices_max);
    std::set<int> kinds;
    for (const Device& device : topology.devices) kinds.insert(device.kind);
    kinds_seen.insert(kinds.size());
    for (int a = 0; a < topology.site_count(); ++a) {
      for (int b = 0; b < topology.site_count(); ++b) {
        if (a == b) continue;
        // The antipode is 20,015 km away: 150 ms one way and 1 ms, and 5 % more at most.
        EXPECT_GE(topology.link(a, b).latency.value(), 0.95e-3);
        EXPECT_LE(topology.link(a, b).latency.value(), 1.05 * 151.2e-3);
        EXPECT_NE(topology.link(a, b).rate, topology.link(b, a).rate);
      }
    }
    const Job job = random_job(seed, topology);
    EXPECT_EQ(job.global_batch % 256, 0);
  }
  EXPECT_GE(kinds_seen.size(), 3u);  // alone and mixed
}

TEST(SmallCluster, has_four_to_eight_servers_of_both_kinds) {
  EXPECT_EQ(small_cluster_text(3), small_cluster_text(3));
  std::set<int> sizes;
  bool has_uplink = false;  // that is no more than a link's rate may be
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Topology topology = small_cluster(seed);
    EXPECT_GE(topology.site_count(), 2);
    EXPECT_LE(topology.site_count(), 4);
    EXPECT_GE(topology.device_count(), 4);
    EXPECT_LE(topology.device_count(), 8);
    sizes.insert(topology.device_count());
    std::set<std::string> kinds;
    for (int d = 0; d < topology.device_count(); ++d) kinds.insert(topology.kind_of(d).name);
    EXPECT_EQ(kinds, (std::set<std::string>{"vps", "vps-half"}));
    // What is nearer can't be emulated in time.
    EXPECT_EQ(topology.nodes.size(), topology.devices.size());
    for (const Link& link : topology.links) EXPECT_GE(link.latency, milliseconds(1.9));
    for (int s = 0; s < topology.site_count(); ++s) {
      EXPECT_GE(topology.link(s, s).latency, milliseconds(6));
    }
    for (const Site& site : topology.sites)
      has_uplink = has_uplink || site.uplink.value() < 500e6 / 8;
  }
  EXPECT_EQ(sizes, (std::set<int>{4, 5, 6, 7, 8}));
  EXPECT_TRUE(has_uplink);
}

TEST(CityCluster, has_its_sites_and_devices_eight_a_node) {
  const Topology topology = city_cluster({.sites = 10, .devices = 640}, 1);
  EXPECT_EQ(topology.site_count(), 10);
  EXPECT_EQ(topology.device_count(), 640);
  EXPECT_EQ(topology.nodes.size(), 80u);
  // 7 devices in 2 sites: 4 and 3, a node each.
  const Topology small = city_cluster({.sites = 2, .devices = 7}, 1);
  EXPECT_EQ(small.device_count(), 7);
  EXPECT_EQ(small.nodes.size(), 2u);
  EXPECT_EQ(city_cluster_text({.sites = 5, .devices = 50}, 2),
            city_cluster_text({.sites = 5, .devices = 50}, 2));
}

}  // namespace
}  // namespace longhaul
