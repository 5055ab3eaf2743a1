#include "netsim/flow_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace longhaul {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SimTime at_second(double time) {
  return SimTime::from(seconds(time));
}

/// A network in whole bytes and seconds, so that the tests read like their derivations.
class Net {
 public:
  ResourceId link(double capacity) { return net.add_resource(bytes_per_second(capacity)); }
  FlowId start(double time, std::vector<ResourceId> path, double amount, double cap = kInfinity,
               double weight = 1) {
    return net.start(at_second(time), path, bytes(amount), bytes_per_second(cap), weight);
  }
  void resize(double time, ResourceId link, double capacity) {
    net.set_capacity(at_second(time), link, bytes_per_second(capacity));
  }
  double rate(FlowId flow) { return net.rate(flow).value(); }
  /// Pops the next flow to end and expects which and when.
  void expect_end(FlowId flow, double time) {
    EXPECT_EQ(net.next_completion(), at_second(time));
    EXPECT_EQ(net.pop_completed(), flow);
  }

  FlowNetwork net;
};

TEST(FlowNetwork, one_flow_takes_amount_over_rate) {
  // 1000 bytes at 100 bytes/s.
  Net net;
  const FlowId flow = net.start(2, {net.link(100)}, 1000);
  EXPECT_EQ(net.rate(flow), 100);
  net.expect_end(flow, 12);
  EXPECT_EQ(net.net.next_completion(), SimTime::never());
  EXPECT_EQ(net.net.running(), 0u);
}

TEST(FlowNetwork, slowest_resource_of_a_path_sets_the_pace) {
  Net net;
  const FlowId flow = net.start(0, {net.link(100), net.link(20), net.link(50)}, 100);
  net.expect_end(flow, 5);
}

TEST(FlowNetwork, equal_flows_share_and_end_in_the_order_of_their_start) {
  // Each has 100 / 2 = 50 bytes/s for 500 bytes.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId first = net.start(0, {link}, 500);
  const FlowId second = net.start(0, {link}, 500);
  net.expect_end(first, 10);
  net.expect_end(second, 10);
}

TEST(FlowNetwork, second_flow_arriving_halfway_delays_the_first_by_half) {
  // Alone, the first would end at 10 s. At 5 s it has 500 bytes left and now 50 bytes/s: 15 s.
  // By then the second has 1000 - 500 = 500 left, at 100 bytes/s again: 20 s.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId first = net.start(0, {link}, 1000);
  const FlowId second = net.start(5, {link}, 1000);
  net.expect_end(first, 15);
  net.expect_end(second, 20);
}

TEST(FlowNetwork, short_flow_that_leaves_speeds_up_the_other) {
  // At 50 bytes/s the short one ends at 4 s; the long one has 800 left, at 100 bytes/s: 12 s.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId longer = net.start(0, {link}, 1000);
  const FlowId shorter = net.start(0, {link}, 200);
  net.expect_end(shorter, 4);
  EXPECT_EQ(net.rate(longer), 100);
  net.expect_end(longer, 12);
}

TEST(FlowNetwork, capped_flow_leaves_the_rest_to_the_others) {
  // 20 of 100 bytes/s for the capped flow: 400 bytes by 20 s. The other has 80: 800 bytes by 10 s.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId capped = net.start(0, {link}, 400, 20);
  const FlowId other = net.start(0, {link}, 800);
  EXPECT_EQ(net.rate(other), 80);
  net.expect_end(other, 10);
  EXPECT_EQ(net.rate(capped), 20);
  net.expect_end(capped, 20);
}

TEST(FlowNetwork, change_travels_along_a_chain_of_links) {
  // Link a (10): x and y. Link b (6): y, z, w. Link b fills at 2, x has 10 - 2 = 8.
  // w (20 bytes) ends at 10 s; then y and z have 3 and x has 7. z has 50 - 20 = 30 left and ends at
  // 20 s; so does x, with 150 - 80 = 70 left; x started first. y has 80 - 20 - 30 = 30 left and
  // min(10, 6) = 6 to itself: 25 s.
  Net net;
  const ResourceId a = net.link(10);
  const ResourceId b = net.link(6);
  const FlowId x = net.start(0, {a}, 150);
  const FlowId y = net.start(0, {a, b}, 80);
  const FlowId z = net.start(0, {b}, 50);
  const FlowId w = net.start(0, {b}, 20);
  EXPECT_EQ(net.rate(x), 8);
  EXPECT_EQ(net.rate(y), 2);
  net.expect_end(w, 10);
  EXPECT_EQ(net.rate(x), 7);
  net.expect_end(x, 20);
  net.expect_end(z, 20);
  net.expect_end(y, 25);
}

TEST(FlowNetwork, newcomer_takes_from_the_fastest_only) {
  // Link (12) carries one flow capped at 1 and one at 11. A third makes it 1, 5.5, 5.5.
  Net net;
  const ResourceId link = net.link(12);
  const FlowId slow = net.start(0, {link}, 100, 1);
  const FlowId fast = net.start(0, {link}, 100);
  EXPECT_EQ(net.rate(fast), 11);
  const FlowId third = net.start(1, {link}, 100);
  EXPECT_EQ(net.rate(slow), 1);
  EXPECT_EQ(net.rate(fast), 5.5);
  EXPECT_EQ(net.rate(third), 5.5);
}

TEST(FlowNetwork, newcomer_slows_flows_on_a_link_that_had_room) {
  // Each uplink (10) lets its flow run at 10 through the core (25), which has 5 of room. The third
  // flow makes the core the bottleneck of all three: 25 / 3.
  Net net;
  const ResourceId core = net.link(25);
  const FlowId first = net.start(0, {net.link(10), core}, 1000);
  const FlowId second = net.start(0, {net.link(10), core}, 1000);
  EXPECT_EQ(net.rate(first), 10);
  const FlowId third = net.start(1, {net.link(10), core}, 1000);
  EXPECT_DOUBLE_EQ(net.rate(first), 25.0 / 3);
  EXPECT_EQ(net.rate(second), net.rate(first));
  EXPECT_EQ(net.rate(third), net.rate(first));
}

TEST(FlowNetwork, unconnected_flows_end_exactly_as_alone) {
  // 1000 / 3 s = 333.333333333333 s, rounded once, whatever happens on the other link.
  Net net;
  const ResourceId quiet = net.link(3);
  const ResourceId busy = net.link(7);
  const FlowId flow = net.start(0, {quiet}, 1000);
  for (int i = 0; i < 100; ++i) {
    net.start(i, {busy}, 1);  // at 7 bytes/s, over before the next starts
    net.net.pop_completed();
  }
  EXPECT_EQ(net.net.next_completion().picoseconds(), 333'333'333'333'333);
  EXPECT_EQ(net.net.pop_completed(), flow);
}

TEST(FlowNetwork, capped_flow_on_a_link_with_room_ends_exactly_as_alone) {
  // The same on one link of 100: 3 + 7 leave it room, so that nobody's rate ever changes.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId flow = net.start(0, {link}, 1000, 3);
  for (int i = 0; i < 100; ++i) {
    net.start(i, {link}, 1, 7);
    net.net.pop_completed();
  }
  EXPECT_EQ(net.net.next_completion().picoseconds(), 333'333'333'333'333);
  EXPECT_EQ(net.net.pop_completed(), flow);
}

TEST(FlowNetwork, flow_that_meets_another_only_at_its_end_runs_as_alone) {
  // 30 + 80 would be more than 100 bytes/s, but the first ends at 10 s, when the second starts: 80
  // bytes/s for 400 bytes, 15 s.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId first = net.start(0, {link}, 300, 30);
  const FlowId second = net.start(10, {link}, 400, 80);
  net.expect_end(first, 10);
  EXPECT_EQ(net.rate(second), 80);
  net.expect_end(second, 15);
}

TEST(FlowNetwork, link_that_had_room_for_all_their_caps_is_shared_when_it_no_longer_has) {
  // 40 + 40 of 90 bytes/s; the third takes 90 / 3 = 30 as they do, for 60 bytes: 2 to 4 s. By then
  // the others have sent 80 + 60 of 300 bytes and have 40 again for the 160 left: 8 s.
  Net net;
  const ResourceId link = net.link(90);
  const FlowId first = net.start(0, {link}, 300, 40);
  const FlowId second = net.start(0, {link}, 300, 40);
  EXPECT_EQ(net.rate(first), 40);
  const FlowId third = net.start(2, {link}, 60);
  EXPECT_EQ(net.rate(first), 30);
  EXPECT_EQ(net.rate(third), 30);
  net.expect_end(third, 4);
  EXPECT_EQ(net.rate(second), 40);
  net.expect_end(first, 8);
  net.expect_end(second, 8);
}

TEST(FlowNetwork, narrower_link_elsewhere_makes_room_for_the_rest) {
  // Both want all of the 100 bytes/s of the wide link: 50 each. From 2 to 3 s the narrow one holds
  // the first to 20, and the other has 80. Then 200 - 100 - 20 = 80 and 340 - 100 - 80 = 160 bytes
  // are left, at 50 bytes/s again: the first ends at 4.6 s. The other's last 80 bytes go at
  // 100: 5.4.
  Net net;
  const ResourceId wide = net.link(100);
  const ResourceId narrow = net.link(70);
  const FlowId held = net.start(0, {wide, narrow}, 200);
  const FlowId other = net.start(0, {wide}, 340);
  net.resize(2, narrow, 20);
  EXPECT_EQ(net.rate(held), 20);
  EXPECT_EQ(net.rate(other), 80);
  net.resize(3, narrow, 70);
  EXPECT_EQ(net.rate(held), 50);
  EXPECT_EQ(net.rate(other), 50);
  net.expect_end(held, 4.6);
  net.expect_end(other, 5.4);
}

TEST(FlowNetwork, shares_are_as_the_weights) {
  // 100 as 1 : 3 is 25 and 75. The heavy one ends at 750 / 75 = 10 s; the light one has
  // 1000 - 250 = 750 left, at 100: 17.5 s.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId light = net.start(0, {link}, 1000);
  const FlowId heavy = net.start(0, {link}, 750, kInfinity, 3);
  EXPECT_EQ(net.rate(light), 25);
  EXPECT_EQ(net.rate(heavy), 75);
  net.expect_end(heavy, 10);
  net.expect_end(light, 17.5);
}

TEST(FlowNetwork, one_flow_of_weight_three_is_three_equal_flows) {
  // Capped at 10 each, three take 30 of 100 and leave 70 to the fourth; at 50 all have 12.5 but for
  // the cap: 30 and 20.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId three = net.start(0, {link}, 3000, 30, 3);
  const FlowId other = net.start(0, {link}, 1000);
  EXPECT_EQ(net.rate(three), 30);
  EXPECT_EQ(net.rate(other), 70);
  net.resize(1, link, 20);  // 5 each
  EXPECT_EQ(net.rate(three), 15);
  EXPECT_EQ(net.rate(other), 5);
}

TEST(FlowNetwork, flows_follow_a_capacity_that_changes) {
  // 1000 bytes at 100 until 4 s, then 600 at 50: 16 s. At 10 s 300 are left; at 300 a second: 11 s.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId flow = net.start(0, {link}, 1000);
  net.resize(4, link, 50);
  EXPECT_EQ(net.net.next_completion(), at_second(16));
  net.resize(10, link, 300);
  net.expect_end(flow, 11);
}

TEST(FlowNetwork, flows_wait_while_a_link_is_down) {
  // 400 of 1000 bytes by 4 s, nothing until 9 s, then 600 at 100: 15 s. What starts meanwhile
  // waits.
  Net net;
  const ResourceId link = net.link(100);
  const FlowId flow = net.start(0, {link}, 1000);
  net.resize(4, link, 0);
  EXPECT_EQ(net.rate(flow), 0);
  EXPECT_EQ(net.net.next_completion(), SimTime::never());
  const FlowId late = net.start(5, {link}, 50);
  EXPECT_EQ(net.rate(late), 0);
  net.resize(9, link, 100);
  net.expect_end(late, 10);  // 50 bytes at 50; the other has 550 left
  net.expect_end(flow, 15.5);
}

TEST(FlowNetwork, a_capacity_that_nobody_needs_may_change) {
  Net net;
  const ResourceId wide = net.link(100);
  const FlowId flow = net.start(0, {wide, net.link(10)}, 100);
  net.resize(1, wide, 40);
  net.resize(2, wide, 20);
  net.expect_end(flow, 10);
}

TEST(FlowNetwork, a_stopped_flow_gives_its_share_back) {
  Net net;
  const ResourceId link = net.link(100);
  const FlowId background = net.start(0, {link}, 1e30);
  const FlowId flow = net.start(0, {link}, 1000);
  EXPECT_EQ(net.rate(flow), 50);
  net.net.stop(at_second(10), background);
  EXPECT_EQ(net.rate(flow), 100);
  EXPECT_EQ(net.net.running(), 1u);
  net.expect_end(flow, 15);
}

TEST(FlowNetwork, zero_bytes_end_at_once_and_disturb_nobody) {
  Net net;
  const ResourceId link = net.link(100);
  const FlowId flow = net.start(0, {link}, 1000);
  const FlowId nothing = net.start(4, {link}, 0);
  net.expect_end(nothing, 4);
  net.expect_end(flow, 10);
}

TEST(FlowNetwork, infinite_rate_ends_at_once) {
  Net net;
  const FlowId through = net.start(3, {net.link(kInfinity)}, 1e15);
  const FlowId nowhere = net.start(3, {}, 1e15);
  net.expect_end(through, 3);
  net.expect_end(nowhere, 3);
}

TEST(FlowNetwork, infinite_capacity_connects_nobody) {
  // Both cross it; the caps 5 and 10 alone decide: 20 s and 10 s.
  Net net;
  const ResourceId link = net.link(kInfinity);
  const FlowId slow = net.start(0, {link}, 100, 5);
  const FlowId fast = net.start(0, {link}, 100, 10);
  net.expect_end(fast, 10);
  net.expect_end(slow, 20);
}

TEST(FlowNetwork, ends_beyond_the_range_of_time_are_never) {
  // 1e9 s are more than the 106 days of SimTime; the flow on the other link still ends.
  Net net;
  net.start(0, {net.link(1)}, 1e9);
  EXPECT_EQ(net.net.next_completion(), SimTime::never());
  const FlowId other = net.start(1, {net.link(1)}, 1);
  net.expect_end(other, 2);
  EXPECT_EQ(net.net.next_completion(), SimTime::never());
  EXPECT_EQ(net.net.running(), 1u);
}

TEST(FlowNetwork, identifiers_are_reused_after_the_end_but_order_is_that_of_starts) {
  // `first` ends at 1 s and gives its identifier to `third`, which ends with `second` at 4 s:
  // link a carries only `second` (cap 1), link b first 1 byte at 1 byte/s, then 3 bytes.
  Net net;
  const ResourceId a = net.link(9);
  const ResourceId b = net.link(1);
  const FlowId first = net.start(0, {b}, 1);
  const FlowId second = net.start(0, {a}, 4, 1);
  net.expect_end(first, 1);
  const FlowId third = net.start(1, {b}, 3);
  EXPECT_EQ(third, first);
  net.expect_end(second, 4);
  net.expect_end(third, 4);
}

TEST(FlowNetworkDeathTest, misuse_stops_the_program) {
  Net net;
  const ResourceId link = net.link(100);
  EXPECT_DEATH(net.net.pop_completed(), "no flow is about to end");
  const FlowId flow = net.start(5, {link}, 100);
  EXPECT_DEATH(net.start(4.999, {link}, 1), "time does not go backwards");
  EXPECT_DEATH(net.start(6.001, {link}, 1), "pop the flows that ended before");
  EXPECT_DEATH(net.start(5, {link, link}, 1), "crosses a resource once");
  EXPECT_DEATH(net.start(5, {link + 1}, 1), "ids from add_resource");
  EXPECT_DEATH(net.start(5, {link}, -1), "a number of bytes");
  EXPECT_DEATH(net.start(5, {link}, 1, 0), "would never end");
  EXPECT_DEATH(net.link(0), "without capacity");
  EXPECT_DEATH(net.start(5, {link}, 1, 1, 0), "share is a part");
  EXPECT_DEATH(net.resize(5, link, -1), "to finite ones");
  EXPECT_DEATH(net.resize(5, link + 1, 1), "ids come from");
  EXPECT_DEATH(net.resize(4.999, link, 1), "time does not go backwards");
  EXPECT_DEATH(net.net.stop(at_second(5), flow + 1), "can be stopped");
  EXPECT_DEATH(net.rate(flow + 1), "only running flows");
  net.start(6, {link}, 0);  // at the end itself is early enough
  net.expect_end(flow, 6);
}

// ---- Random workloads against a slow oracle ----------------------

struct Arrival {
  SimTime time;
  std::vector<ResourceId> path;
  double amount = 0;
  double cap = kInfinity;
  double weight = 1;
};

struct Resize {
  SimTime time;
  ResourceId resource = 0;
  double capacity = 0;
};

struct Workload {
  std::vector<double> capacities;
  std::vector<Arrival> arrivals;     // in order of time
  std::vector<Resize> resizes = {};  // in order of time
};

/// Textbook progressive filling over everything, independent of core's solver.
std::vector<double> slow_max_min(const std::vector<double>& capacities,
                                 const std::vector<const Arrival*>& flows) {
  std::vector<double> rates(flows.size(), -1);
  for (std::size_t fixed = 0; fixed < flows.size();) {
    std::vector<double> share = capacities;
    std::vector<double> open(capacities.size(), 0);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      for (const ResourceId r : flows[f]->path) {
        const auto i = static_cast<std::size_t>(r);
        if (rates[f] < 0) {
          open[i] += flows[f]->weight;
        } else {
          share[i] -= rates[f];
        }
      }
    }
    double level = kInfinity;
    for (std::size_t r = 0; r < share.size(); ++r) {
      if (open[r] > 0) level = std::min(level, share[r] /= open[r]);
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (rates[f] < 0) level = std::min(level, flows[f]->cap / flows[f]->weight);
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (rates[f] >= 0) continue;
      bool full = flows[f]->cap / flows[f]->weight <= level;
      for (const ResourceId r : flows[f]->path) {
        full |= share[static_cast<std::size_t>(r)] <= level * (1 + 1e-12);
      }
      if (!full) continue;
      rates[f] = level * flows[f]->weight;
      ++fixed;
    }
  }
  return rates;
}

/// The end of each arrival, in seconds: all rates are found anew at every event.
std::vector<double> slow_ends(const Workload& workload) {
  const std::size_t count = workload.arrivals.size();
  std::vector<double> ends(count, -1);
  std::vector<double> left;
  for (const Arrival& arrival : workload.arrivals) left.push_back(arrival.amount);
  double now = 0;
  std::vector<double> capacities = workload.capacities;
  std::size_t resized = 0;
  for (std::size_t started = 0;;) {
    std::vector<const Arrival*> flows;
    std::vector<std::size_t> ids;
    for (std::size_t i = 0; i < started; ++i) {
      if (ends[i] >= 0) continue;
      flows.push_back(&workload.arrivals[i]);
      ids.push_back(i);
    }
    if (flows.empty() && started == count) return ends;
    const std::vector<double> rates = slow_max_min(capacities, flows);
    double next = kInfinity;
    std::size_t ending = count;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const double end = left[ids[f]] == 0 ? now : now + left[ids[f]] / rates[f];
      if (end < next) ending = ids[f];
      next = std::min(next, end);
    }
    const double arrival =
        started < count ? workload.arrivals[started].time.seconds().value() : kInfinity;
    const double resize = resized < workload.resizes.size()
                              ? workload.resizes[resized].time.seconds().value()
                              : kInfinity;
    const double until = std::min({next, arrival, resize});
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (until > now) left[ids[f]] = std::max(0.0, left[ids[f]] - rates[f] * (until - now));
    }
    now = until;
    if (next == until) {
      ends[ending] = now;
    } else if (resize == until) {
      const Resize& change = workload.resizes[resized++];
      capacities[static_cast<std::size_t>(change.resource)] = change.capacity;
    } else {
      ++started;
    }
  }
}

/// Drives the network through a workload and calls `changed(time, running arrivals, their flows)`
/// after every event.
template <class Changed>
std::vector<SimTime> run(const Workload& workload, FlowNetwork& net, Changed changed) {
  for (const double capacity : workload.capacities) net.add_resource(bytes_per_second(capacity));
  std::vector<SimTime> ends(workload.arrivals.size());
  std::vector<std::size_t> running;
  std::vector<FlowId> flows;
  std::size_t resized = 0;
  for (std::size_t started = 0;;) {
    const bool more = started < workload.arrivals.size();
    const SimTime arrives = more ? workload.arrivals[started].time : SimTime::never();
    const SimTime resizes =
        resized < workload.resizes.size() ? workload.resizes[resized].time : SimTime::never();
    const SimTime now = std::min({net.next_completion(), arrives, resizes});
    if (now == SimTime::never()) return ends;
    if (net.next_completion() == now) {
      const FlowId flow = net.pop_completed();
      const auto place = std::find(flows.begin(), flows.end(), flow) - flows.begin();
      ends[running[static_cast<std::size_t>(place)]] = now;
      running.erase(running.begin() + place);
      flows.erase(flows.begin() + place);
    } else if (resizes == now) {
      const Resize& change = workload.resizes[resized++];
      net.set_capacity(now, change.resource, bytes_per_second(change.capacity));
    } else {
      const Arrival& arrival = workload.arrivals[started];
      flows.push_back(net.start(now, arrival.path, bytes(arrival.amount),
                                bytes_per_second(arrival.cap), arrival.weight));
      running.push_back(started++);
    }
    changed(now, running, flows);
  }
}

std::vector<SimTime> run(const Workload& workload) {
  FlowNetwork net;
  return run(workload, net, [](SimTime, const auto&, const auto&) {});
}

double random_rate(Rng& rng) {
  if (rng.chance(0.1)) return kInfinity;
  return rng.chance(0.5) ? static_cast<double>(1 + rng.below(4)) : 0.5 + 4 * rng.uniform();
}

Workload random_workload(std::uint64_t seed) {
  Rng rng("flow_network_test", seed);
  Workload workload;
  const std::size_t resources = 1 + rng.index(12);
  for (std::size_t r = 0; r < resources; ++r) workload.capacities.push_back(random_rate(rng));
  std::vector<ResourceId> all(resources);
  std::iota(all.begin(), all.end(), 0);
  const std::size_t count = 1 + rng.index(40);
  double time = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (rng.chance(0.7)) time += rng.uniform();  // else together with the one before
    rng.shuffle(std::span(all));
    const std::size_t length = rng.index(std::min<std::size_t>(resources, 4) + 1);
    workload.arrivals.push_back({at_second(time),
                                 {all.begin(), all.begin() + static_cast<long>(length)},
                                 rng.chance(0.05) ? 0 : 0.1 + 5 * rng.uniform(),
                                 rng.chance(0.5) ? kInfinity : random_rate(rng)});
  }
  return workload;
}

TEST(FlowNetwork, random_workloads_end_as_the_slow_oracle_says) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Workload workload = random_workload(seed);
    const std::vector<SimTime> ends = run(workload);
    const std::vector<double> expected = slow_ends(workload);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      // 1e-9 relative, and a few roundings to a picosecond.
      EXPECT_NEAR(ends[i].seconds().value(), expected[i], 1e-9 * expected[i] + 1e-11)
          << "seed " << seed << " arrival " << i;
    }
  }
}

TEST(FlowNetwork, weighted_flows_on_changing_links_end_as_the_slow_oracle_says) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Workload workload = random_workload(seed);
    Rng rng("flow_network_test_changes", seed);
    for (Arrival& arrival : workload.arrivals) {
      arrival.weight = rng.chance(0.3) ? 1 : rng.chance(0.5) ? 3 : 0.01 + 100 * rng.uniform();
    }
    double time = 0;
    for (int i = 0; i < 15; ++i) {
      time += 2 * rng.uniform();
      const auto resource = static_cast<ResourceId>(rng.index(workload.capacities.size()));
      double& first = workload.capacities[static_cast<std::size_t>(resource)];
      if (first == kInfinity) first = 2;
      const double capacity = rng.chance(0.1) ? 1e-3 : 0.5 + 4 * rng.uniform();
      workload.resizes.push_back({at_second(time), resource, capacity});
    }
    const std::vector<SimTime> ends = run(workload);
    const std::vector<double> expected = slow_ends(workload);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      EXPECT_NEAR(ends[i].seconds().value(), expected[i], 1e-8 * expected[i] + 1e-10)
          << "seed " << seed << " arrival " << i;
    }
  }
}

TEST(FlowNetwork, rates_are_fair_after_every_event_and_move_all_bytes) {
  for (std::uint64_t seed = 1000; seed < 1100; ++seed) {
    const Workload workload = random_workload(seed);
    std::vector<double> moved(workload.arrivals.size(), 0);
    std::vector<std::pair<std::size_t, double>> rates_before;  // by arrival
    SimTime before;
    FlowNetwork net;
    run(workload, net, [&](SimTime now, const auto& running, const auto& flows) {
      for (const auto& [i, rate] : rates_before) {
        if (now > before) moved[i] += rate * (now - before).seconds().value();
      }
      before = now;
      rates_before.clear();
      std::vector<const Arrival*> sharing;
      for (const std::size_t i : running) {
        if (workload.arrivals[i].amount > 0) sharing.push_back(&workload.arrivals[i]);
      }
      const std::vector<double> expected = slow_max_min(workload.capacities, sharing);
      std::size_t next = 0;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        if (workload.arrivals[running[f]].amount == 0) continue;
        const double rate = net.rate(flows[f]).value();
        rates_before.emplace_back(running[f], rate);
        const double fair = expected[next++];
        if (fair == kInfinity) {
          EXPECT_EQ(rate, kInfinity);
        } else {
          EXPECT_NEAR(rate, fair, 1e-9 * fair) << "seed " << seed << " at " << now.picoseconds();
        }
      }
    });
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const Arrival& arrival = workload.arrivals[i];
      const bool at_once = arrival.cap == kInfinity &&
                           std::all_of(arrival.path.begin(), arrival.path.end(), [&](ResourceId r) {
                             return workload.capacities[static_cast<std::size_t>(r)] == kInfinity;
                           });
      if (at_once) continue;  // no time passes while an infinite rate moves them
      EXPECT_NEAR(moved[i], arrival.amount, 1e-9 * arrival.amount) << "seed " << seed;
    }
  }
}

/// 64 hosts in 8 sites: NIC up, site uplink when the sites differ, NIC down. Arrivals come about as
/// fast as they end, so that the shares of one site reach into the others'.
Workload site_workload(std::size_t count) {
  Rng rng("flow_network_sites", 1);
  Workload workload;
  for (int host = 0; host < 128; ++host) workload.capacities.push_back(10 + rng.uniform());
  for (int site = 0; site < 8; ++site) workload.capacities.push_back(20 + 10 * rng.uniform());
  double time = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = static_cast<ResourceId>(rng.below(64));
    const auto to = static_cast<ResourceId>(rng.below(64));
    std::vector<ResourceId> path = {from, 64 + to};
    if (from / 8 != to / 8) path.push_back(128 + from / 8);
    time += 0.008 * rng.uniform();
    workload.arrivals.push_back({at_second(time), path, 1 + rng.uniform(), kInfinity});
  }
  return workload;
}

TEST(FlowNetwork, local_solves_stay_fair_among_many_flows) {
  const Workload workload = site_workload(1500);
  FlowNetwork net;
  std::size_t event = 0;
  std::size_t most = 0;
  run(workload, net, [&](SimTime now, const auto& running, const auto& flows) {
    most = std::max(most, running.size());
    if (event++ % 25 != 0) return;
    std::vector<const Arrival*> sharing;
    for (const std::size_t i : running) sharing.push_back(&workload.arrivals[i]);
    const std::vector<double> expected = slow_max_min(workload.capacities, sharing);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      EXPECT_NEAR(net.rate(flows[f]).value(), expected[f], 1e-9 * expected[f])
          << "at " << now.picoseconds();
    }
  });
  EXPECT_GT(most, 100u);  // otherwise the workload tests nothing
}

TEST(FlowNetwork, same_workload_gives_the_same_picoseconds) {
  const Workload workload = site_workload(1500);
  EXPECT_EQ(run(workload), run(workload));
}

}  // namespace
}  // namespace longhaul
