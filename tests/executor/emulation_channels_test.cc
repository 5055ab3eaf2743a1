// The network of an emulation and the fluid on its channels, without processes.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/rng.h"
#include "executor/emulation/fluid_channels.h"
#include "tests/executor/emulation_fixtures.h"

namespace longhaul {
namespace {

using fixtures::plain_network;
using fixtures::uplink_network;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kSecond = 1'000'000'000;

TEST(EmulatedNetwork, wrong_networks_are_refused_with_what_is_wrong) {
  struct Row {
    const char* part_of_message;
    void (*spoil)(EmulatedNetwork&);
    double dilation = 1;
  };
  const Row rows[] = {
      {"dilation of 0", [](EmulatedNetwork&) {}, 0},
      {"dilation of inf", [](EmulatedNetwork&) {}, kInfinity},
      {"256 ranks, not 0", [](EmulatedNetwork& n) { n.ranks = 0; }},
      {"256 ranks, not 257", [](EmulatedNetwork& n) { n = plain_network(257, 1); }},
      {"9 paths, not 8", [](EmulatedNetwork& n) { n.paths.pop_back(); }},
      {"shared resources, not 65537",
       [](EmulatedNetwork& n) { n.capacities.assign(65537, bytes_per_second(1)); }},
      {"wire factor of 0.9", [](EmulatedNetwork& n) { n.wire_factor = 0.9; }},
      {"resource 0 has a capacity of 0",
       [](EmulatedNetwork& n) { n.capacities[0] = bytes_per_second(0); }},
      {"from rank 1 to rank 2 has a latency of -1",
       [](EmulatedNetwork& n) { n.path(1, 2).latency = seconds(-1); }},
      // A day is the most: 8640.1 s x 10.
      {"which is 86401", [](EmulatedNetwork& n) { n.path(1, 2).latency = seconds(8640.1); }, 10},
      {"has a rate of nan",
       [](EmulatedNetwork& n) {
         n.path(1, 2).rate_cap = bytes_per_second(std::numeric_limits<double>::quiet_NaN());
       }},
      {"crosses resource 1, but there are 1",
       [](EmulatedNetwork& n) { n.path(1, 2).resources = {1}; }},
      {"crosses resource -1", [](EmulatedNetwork& n) { n.path(1, 2).resources = {-1}; }},
      {"crosses a resource twice", [](EmulatedNetwork& n) { n.path(1, 2).resources = {0, 0}; }},
      {"crosses 65 shared resources",
       [](EmulatedNetwork& n) { n.path(1, 2).resources.assign(65, 0); }},
  };
  for (const Row& row : rows) {
    EmulatedNetwork network = uplink_network(3, 100, 0.1);
    row.spoil(network);
    const Result<void> checked = check_emulation(network, row.dilation);
    ASSERT_FALSE(checked) << row.part_of_message;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalid);
    EXPECT_NE(checked.error().message.find(row.part_of_message), std::string::npos)
        << checked.error().message;
  }
}

TEST(EmulatedNetwork, networks_at_the_limits_are_accepted) {
  EXPECT_TRUE(check_emulation(plain_network(1, 1), 0.001));
  EXPECT_TRUE(check_emulation(plain_network(kEmulatedRanksMax, kInfinity), 1));
  EmulatedNetwork network = uplink_network(2, kInfinity, 8640);  // a day after dilation
  network.path(0, 0).latency = seconds(-1);                      // nobody sends to oneself
  EXPECT_TRUE(check_emulation(network, 10));
}

/// Channels in memory of their own, in seconds.
class Fluid {
 public:
  /// A channel a path; rates in bytes/s.
  Fluid(std::vector<double> capacities, const std::vector<std::vector<std::int32_t>>& paths,
        std::vector<double> caps = {})
      : capacities_(std::move(capacities)), caps_(std::move(caps)), busy(paths.size()) {
    caps_.resize(paths.size(), kInfinity);
    for (double& capacity : capacities_) capacity /= 1e9;
    for (double& cap : caps_) cap /= 1e9;
    path_begin_.push_back(0);
    for (const auto& path : paths) {
      path_.insert(path_.end(), path.begin(), path.end());
      path_begin_.push_back(static_cast<std::int32_t>(path_.size()));
    }
    memory.resize(paths.size());
    channels.emplace(FluidNetwork{capacities_, caps_, path_begin_, path_}, state, busy, memory);
  }
  void push_at(double time, std::size_t channel, double bytes) {
    channels->advance(std::llround(time * 1e9));
    channels->push(channel, bytes);
  }
  /// Expects when the channel's next frame left.
  void expect_left(std::size_t channel, double time) {
    const auto left = channels->take_departed(channel);
    ASSERT_TRUE(left) << "channel " << channel;
    EXPECT_EQ(*left, std::llround(time * 1e9)) << "channel " << channel;
  }

 private:
  std::vector<double> capacities_, caps_;
  std::vector<std::int32_t> path_begin_, path_;

 public:
  FluidState state{};
  std::vector<std::int32_t> busy;
  std::vector<FluidChannel> memory;
  std::optional<FluidChannels> channels;
};

TEST(FluidChannels, short_flow_that_leaves_speeds_up_the_other) {
  // As in tests/netsim/flow_network_test.cc: at 50 bytes/s the short one ends at 4 s; the long one
  // has 800 left, at 100 bytes/s: 12 s. Nobody looks before 100 s.
  Fluid fluid({100}, {{0}, {0}});
  fluid.push_at(0, 0, 1000);
  fluid.push_at(0, 1, 200);
  fluid.channels->advance(100 * kSecond);
  fluid.expect_left(1, 4);
  fluid.expect_left(0, 12);
  EXPECT_EQ(fluid.channels->look_again_at(0), kNeverNanoseconds);
}

TEST(FluidChannels, change_travels_along_a_chain_of_links) {
  // As in tests/netsim/flow_network_test.cc, which derives the numbers: x and y cross link a (10),
  // y, z and w cross link b (6). Ends: w 10 s, x and z 20 s, y 25 s.
  Fluid fluid({10, 6}, {{0}, {0, 1}, {1}, {1}});
  fluid.push_at(0, 0, 150);
  fluid.push_at(0, 1, 80);
  fluid.push_at(0, 2, 50);
  fluid.push_at(0, 3, 20);
  EXPECT_DOUBLE_EQ(fluid.memory[0].rate * 1e9, 8);
  EXPECT_DOUBLE_EQ(fluid.memory[1].rate * 1e9, 2);
  fluid.channels->advance(25 * kSecond);
  fluid.expect_left(3, 10);
  fluid.expect_left(0, 20);
  fluid.expect_left(2, 20);
  fluid.expect_left(1, 25);
}

TEST(FluidChannels, frames_of_a_channel_follow_each_other_without_a_gap) {
  // 100 bytes/s: 3 s, nothing, 1 s; then idle until 10 s.
  Fluid fluid({100}, {{0}});
  fluid.push_at(0, 0, 300);
  fluid.push_at(1, 0, 0);
  fluid.push_at(2, 0, 100);
  fluid.push_at(10, 0, 50);
  fluid.channels->advance(20 * kSecond);
  fluid.expect_left(0, 3);
  fluid.expect_left(0, 3);
  fluid.expect_left(0, 4);
  fluid.expect_left(0, 10.5);
  EXPECT_FALSE(fluid.channels->take_departed(0));
}

TEST(FluidChannels, without_any_limit_frames_leave_at_once) {
  Fluid fluid({kInfinity}, {{0}});
  fluid.push_at(2, 0, 1e12);
  fluid.channels->advance(2 * kSecond);
  fluid.expect_left(0, 2);
}

TEST(FluidChannels, a_ring_holds_eight_frames_that_were_not_taken) {
  Fluid fluid({100}, {{0}});
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(fluid.channels->has_room(0));
    fluid.push_at(0, 0, 100);
  }
  EXPECT_FALSE(fluid.channels->has_room(0));
  fluid.channels->advance(kSecond);
  EXPECT_FALSE(fluid.channels->has_room(0));  // it left, and nobody took note
  fluid.expect_left(0, 1);
  EXPECT_TRUE(fluid.channels->has_room(0));
}

TEST(FluidChannels, a_cleared_channel_gives_its_share_to_the_others) {
  // 50 bytes/s until 4 s, then 100 bytes/s for the 800 that are left.
  Fluid fluid({100}, {{0}, {0}});
  fluid.push_at(0, 0, 1000);
  fluid.push_at(0, 1, 1000);
  fluid.channels->advance(4 * kSecond);
  fluid.channels->clear(1);
  fluid.channels->advance(100 * kSecond);
  EXPECT_FALSE(fluid.channels->take_departed(1));
  fluid.expect_left(0, 12);
}

TEST(FluidChannels, a_sender_looks_again_when_its_frame_leaves_or_could_leave_alone) {
  Fluid fluid({1000}, {{0}, {0}});
  fluid.push_at(0, 0, 1000);
  EXPECT_EQ(fluid.channels->look_again_at(0), kSecond);
  // Shared, it takes 2 s; alone it would take 1 s.
  fluid.push_at(0, 1, 1000);
  EXPECT_EQ(fluid.channels->look_again_at(0), kSecond);
  // With a byte left, alone 1 ms, shared 2 ms: not before the shortest time to look again.
  fluid.channels->advance(2 * kSecond - 2'000'000);
  EXPECT_EQ(fluid.channels->look_again_at(0), 2 * kSecond);
}

TEST(FluidChannels, a_half_done_change_is_made_whole) {
  // As if a process had died after it wrote its frame and before it told anybody.
  Fluid fluid({100}, {{0}, {0}, {0}});
  fluid.push_at(0, 0, 1000);
  fluid.memory[1].frames[0] = {1000, 0};
  fluid.memory[1].end = 1;
  fluid.memory[2].taken = 7;  // behind its own end
  fluid.state.busy_count = 3;
  fluid.channels->recover();
  fluid.channels->advance(100 * kSecond);
  fluid.expect_left(0, 20);
  fluid.expect_left(1, 20);
  EXPECT_FALSE(fluid.channels->take_departed(2));
}

TEST(FluidChannels, it_does_not_matter_when_anybody_looks) {
  // The same frames, seen once at the end and in many steps.
  const auto departures = [](std::uint64_t seed, bool often) {
    Rng workload("emulation_workload", seed);
    Rng looks("emulation_looks", seed);
    Fluid fluid({100, 70, 30}, {{0}, {0, 1}, {1, 2}, {2}, {0, 2}, {1}}, {40, 50});
    double time = 0;
    for (int i = 0; i < 40; ++i) {
      const std::size_t channel = workload.index(6);
      time += 3 * workload.uniform();
      const double bytes = workload.chance(0.1) ? 0 : 200 * workload.uniform();
      if (fluid.channels->has_room(channel)) fluid.push_at(time, channel, bytes);
      for (int look = 0; often && look < 20; ++look) {
        fluid.channels->advance(fluid.state.now + static_cast<std::int64_t>(looks.below(1000)));
      }
    }
    fluid.channels->advance(1'000'000 * kSecond);
    std::vector<std::int64_t> all;
    for (std::size_t c = 0; c < 6; ++c) {
      while (const auto left = fluid.channels->take_departed(c)) all.push_back(*left);
    }
    return all;
  };
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto rarely = departures(seed, false);
    const auto often = departures(seed, true);
    ASSERT_EQ(rarely.size(), often.size());
    EXPECT_GT(rarely.size(), 20u);
    for (std::size_t i = 0; i < rarely.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(rarely[i]), static_cast<double>(often[i]), 100)
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace longhaul
