#include "netsim/message_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/rng.h"

namespace longhaul {
namespace {

struct Sent {
  SimTime time;
  std::size_t path = 0;
  double amount = 0;
};

/// Three paths: two over one resource of their own each and a common one, one over the common one.
struct World {
  World() {
    const ResourceId shared = net.add_resource(bytes_per_second(100));
    for (const double own : {60.0, 45.0}) {
      const ResourceId id = net.add_resource(bytes_per_second(own));
      paths.push_back({{id, shared}, bytes_per_second(1000), Seconds(0), 0});
    }
    paths.push_back({{shared}, bytes_per_second(20), Seconds(0), 0});
    for (std::size_t i = 0; i < paths.size(); ++i) paths[i].lane = static_cast<std::int32_t>(i);
  }
  FlowNetwork net;
  std::vector<NetworkPath> paths;
};

std::vector<SimTime> ends_in_lanes(const std::vector<Sent>& messages) {
  World world;
  MessageLanes lanes(world.net);
  std::vector<SimTime> ends(messages.size());
  std::size_t next = 0;
  std::size_t ended = 0;
  while (ended < messages.size()) {
    const SimTime arrives = next < messages.size() ? messages[next].time : SimTime::never();
    const SimTime completes = world.net.next_completion();
    if (completes <= arrives) {
      ends[static_cast<std::size_t>(lanes.pop_completed())] = completes;
      ++ended;
    } else {
      lanes.start(arrives, world.paths[messages[next].path], bytes(messages[next].amount), 1,
                  static_cast<std::int32_t>(next));
      ++next;
    }
  }
  return ends;
}

std::vector<SimTime> ends_as_flows(const std::vector<Sent>& messages) {
  World world;
  std::vector<SimTime> ends(messages.size());
  std::map<FlowId, std::size_t> message_of;
  std::size_t next = 0;
  std::size_t ended = 0;
  while (ended < messages.size()) {
    const SimTime arrives = next < messages.size() ? messages[next].time : SimTime::never();
    const SimTime completes = world.net.next_completion();
    if (completes <= arrives) {
      ends[message_of[world.net.pop_completed()]] = completes;
      ++ended;
    } else {
      const NetworkPath& path = world.paths[messages[next].path];
      message_of[world.net.start(arrives, path.resources, bytes(messages[next].amount), path.cap)] =
          next;
      ++next;
    }
  }
  return ends;
}

TEST(MessageLanes, two_messages_of_a_path_share_and_the_shorter_ends_first) {
  // Alone on 60 bytes/s: 300 bytes by 5 s. At 2 s a second one of 90 joins: 30 each, it ends at 5
  // s; the first has 300 - 120 - 90 = 90 left: 6.5 s.
  const std::vector<SimTime> ends =
      ends_in_lanes({{SimTime(), 0, 300}, {SimTime::from(seconds(2)), 0, 90}});
  EXPECT_EQ(ends[1], SimTime::from(seconds(5)));
  EXPECT_EQ(ends[0], SimTime::from(seconds(6.5)));
}

TEST(MessageLanes, equal_messages_end_together_in_the_order_of_their_start) {
  World world;
  MessageLanes lanes(world.net);
  for (int i = 0; i < 3; ++i) lanes.start(SimTime(), world.paths[0], bytes(100), 1, i);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(world.net.next_completion(), SimTime::from(seconds(5)));
    EXPECT_EQ(lanes.pop_completed(), i);
  }
  EXPECT_EQ(world.net.running(), 0u);
}

TEST(MessageLanes, caps_are_of_a_message) {
  // Path 2 lets a message have 20: three have 60 of 100 together, 200 bytes each in 10 s.
  const std::vector<SimTime> ends =
      ends_in_lanes({{SimTime(), 2, 200}, {SimTime(), 2, 200}, {SimTime(), 2, 200}});
  for (const SimTime end : ends) EXPECT_EQ(end, SimTime::from(seconds(10)));
}

TEST(MessageLanes, messages_end_as_flows_of_their_own_would) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng("message_lanes_test", seed);
    std::vector<Sent> messages;
    double time = 0;
    for (int i = 0; i < 60; ++i) {
      if (rng.chance(0.6)) time += 2 * rng.uniform();
      const double amount = rng.chance(0.05) ? 0 : rng.chance(0.3) ? 50 : 100 * rng.uniform();
      messages.push_back({SimTime::from(seconds(time)), rng.index(3), amount});
    }
    const std::vector<SimTime> lanes = ends_in_lanes(messages);
    const std::vector<SimTime> flows = ends_as_flows(messages);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      EXPECT_NEAR(lanes[i].seconds().value(), flows[i].seconds().value(), 1e-9)
          << "seed " << seed << " message " << i;
    }
  }
}

}  // namespace
}  // namespace longhaul
