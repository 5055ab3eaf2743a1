#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "netsim/conditions.h"
#include "netsim/step_network.h"
#include "netsim/step_simulation.h"
#include "tests/core/fixtures.h"

// The unit model (tests/core/fixtures.h): a forward takes 1 s, a backward 2 s, 1.125 s and 2.25 s
// where the head is; a boundary tensor has 4 bytes.

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::two_sites;
using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

/// In two_sites, undisturbed: F0 0-1, at b at 1.75, F1 -2.875, B1 -5.125, at a at 5.5, B0 -7.5,
/// commit 7.75.
double step_under(const Topology& topology, const Conditions& conditions, double begin = 0,
                  std::uint64_t step = 0) {
  return simulate_step(topology, unit_job(2, 1),
                       unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1}),
                       {.conditions = &conditions, .begin = seconds(begin), .step = step})
      .value()
      .step.value();
}

struct Measured {
  double time_s;
  double latency_s;
  double bytes_per_s;
};

/// Of the link from a to b.
LinkReplay replay_of(const Topology& topology, const std::vector<Measured>& rows,
                     bool loop = false) {
  Trace trace;
  trace.places = {"a", "b"};
  for (const Measured& row : rows) {
    TraceRow& out = trace.rows.emplace_back();
    out.to = 1;
    out.time_s = row.time_s;
    if (row.latency_s > 0) out.latency = seconds(row.latency_s);
    out.rate = bytes_per_second(row.bytes_per_s);
  }
  return LinkReplay::make(topology, trace, loop).value();
}

TEST(StepConditions, nothing_unusual_changes_nothing) {
  EXPECT_DOUBLE_EQ(step_under(two_sites(), {}), 7.75);
}

TEST(StepConditions, a_slow_device_takes_longer_for_what_begins_in_the_window) {
  Conditions conditions;
  conditions.slowdowns.push_back({{1}, 2, {}});
  // F1 1.75-4, B1 -8.5, at a at 8.875, B0 -10.875, commit.
  EXPECT_DOUBLE_EQ(step_under(two_sites(), conditions), 11.125);
  // From 2 s on: F1 began before; B1 2.875-7.375, at a at 7.75, B0 -9.75.
  conditions.slowdowns[0].window.begin = seconds(2);
  EXPECT_DOUBLE_EQ(step_under(two_sites(), conditions), 10);
  // The same in a step that begins 100 s after the run.
  conditions.slowdowns[0].window.begin = seconds(102);
  EXPECT_DOUBLE_EQ(step_under(two_sites(), conditions, 100), 10);
  EXPECT_DOUBLE_EQ(step_under(two_sites(), conditions), 7.75);
}

TEST(StepConditions, slowdowns_of_one_device_multiply) {
  Conditions conditions;
  conditions.slowdowns = {{{1}, 2, {}}, {{0, 1}, 1.5, {seconds(5)}}};
  // F1 1.75-4; B1 begins before 5 s: -8.5; at a at 8.875; B0 takes 3 s: 11.875, commit.
  EXPECT_DOUBLE_EQ(step_under(two_sites(), conditions), 12.125);
}

TEST(StepConditions, a_transfer_follows_the_replayed_rate) {
  // The tensor leaves at 1 s with 8 bytes/s; from 1.25 s on the link gives 4: 2 bytes are left and
  // go by 1.75, 0.25 s later than undisturbed.
  const Topology topology = two_sites();
  Conditions conditions;
  conditions.replay = replay_of(topology, {{1.25, 0, 4}});
  EXPECT_NEAR(step_under(topology, conditions), 8, 1e-9);
  // The latency of a message is that of the moment at which its last byte leaves: at b at 3, 1.25 s
  // late, and so is B0, at 8.75; the commit takes 1.25 s too.
  conditions.replay = replay_of(topology, {{1.25, 1.25, 4}});
  EXPECT_NEAR(step_under(topology, conditions), 10, 1e-9);
}

TEST(StepConditions, a_looped_trace_begins_again) {
  // Rows at 0 and 10 s; the pass is 20 s long. A step that begins at 20 s sees what one at 0 sees.
  const Topology topology = two_sites();
  Conditions conditions;
  conditions.replay = replay_of(topology, {{0, 0.25, 4}, {10, 0.25, 8}}, true);
  EXPECT_NEAR(step_under(topology, conditions), 8.25, 1e-9);  // the tensor takes 1 s, not 0.5
  EXPECT_NEAR(step_under(topology, conditions, 20), 8.25, 1e-9);
  EXPECT_NEAR(step_under(topology, conditions, 10), 7.75, 1e-9);
  EXPECT_EQ(conditions.next_change(seconds(3)), seconds(10));
  EXPECT_EQ(conditions.next_change(seconds(13)), seconds(20));
  EXPECT_EQ(conditions.next_change(seconds(25)), seconds(30));
}

TEST(StepConditions, a_replay_needs_times_and_known_sites) {
  const Topology topology = two_sites();
  const auto made = [&](const std::string& rows) {
    return LinkReplay::make(
        topology, parse_trace("from,to,time_s,latency_ms,basis\n" + rows, "t.csv").value(), false);
  };
  EXPECT_NE(made("a,b,,1,rtt\n").error().message.find("no times"), std::string::npos);
  EXPECT_NE(made("x,y,0,1,rtt\n").error().message.find("two of the sites"), std::string::npos);
}

TEST(StepConditions, traffic_of_others_takes_its_share_of_what_is_shared) {
  Topology topology = two_sites();
  link_of(topology, 0, 1).rate = BytesPerSecond::infinity();
  topology.sites[0].uplink = bytes_per_second(8);
  Conditions conditions;
  // Two flows in all: 4 bytes/s each, so the tensor takes 1 s.
  conditions.background.push_back({0, 1, BytesPerSecond::infinity(), 1, {}});
  EXPECT_NEAR(step_under(topology, conditions), 8.25, 1e-9);
  // Four in all: 2 s.
  conditions.background[0].flows = 3;
  EXPECT_NEAR(step_under(topology, conditions), 9.25, 1e-9);
  // Never more than 4 bytes/s together: 1 s.
  conditions.background[0].rate = bytes_per_second(4);
  EXPECT_NEAR(step_under(topology, conditions), 8.25, 1e-9);
  // It ends at 1.5 s: 2 bytes are left by then and take 0.25 s.
  conditions.background[0].window.end = seconds(1.5);
  EXPECT_NEAR(step_under(topology, conditions), 8, 1e-9);
}

/// Two pipelines that begin at site a behind one uplink of 4 bytes/s and end at sites b and c.
struct SharedUplink {
  SharedUplink(int last_site) {
    topology = unit_topology({0, 0, 1, last_site});
    topology.sites[0].uplink = bytes_per_second(4);
    plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1, 1});
    plan.devices = {{0, 2}, {1, 3}};
  }
  double sent(const Conditions& conditions, int pipeline) const {
    const StepResult result =
        simulate_step(topology, unit_job(2, 2), plan, {.timeline = true, .conditions = &conditions})
            .value();
    for (const TimelineSlice& slice : result.timeline) {
      if (slice.op == Op::kSendActivation && slice.cell == 2 * pipeline) {
        return slice.end.seconds().value();
      }
    }
    return -1;
  }
  Topology topology;
  Plan plan;
};

TEST(StepConditions, short_round_trips_get_more_where_sharing_is_by_round_trip) {
  // 0.25 and 0.75 s one way: 3 and 1 of 4 bytes/s. The first has its 4 bytes out after 4/3 s; the
  // second then has 8/3 left at 4 bytes/s: 2 s in all.
  SharedUplink world(2);
  link_of(world.topology, 0, 1).latency = seconds(0.25);
  link_of(world.topology, 0, 2).latency = seconds(0.75);
  Conditions conditions;
  EXPECT_NEAR(world.sent(conditions, 0), 3, 1e-9);
  EXPECT_NEAR(world.sent(conditions, 1), 3, 1e-9);
  conditions.sharing = Sharing::kRtt;
  EXPECT_NEAR(world.sent(conditions, 0), 1 + 4.0 / 3, 1e-9);
  EXPECT_NEAR(world.sent(conditions, 1), 3, 1e-9);
}

TEST(StepConditions, pipelines_take_turns_on_a_link) {
  // 1 s each, one after the other.
  SharedUplink world(1);
  Conditions conditions;
  conditions.sharing = Sharing::kTurns;
  EXPECT_NEAR(world.sent(conditions, 0), 2, 1e-9);
  EXPECT_NEAR(world.sent(conditions, 1), 3, 1e-9);
}

TEST(StepConditions, jitter_keeps_the_mean_and_the_shortest_way) {
  // 250 ms with a jitter of 50: never below 200, exponential above it, so 1 in e above 250.
  Topology topology = two_sites();
  link_of(topology, 0, 1).jitter = seconds(0.05);
  Conditions conditions;
  conditions.jitter = true;
  const StepNetwork network(topology, &conditions, Seconds(0), 0);
  double sum = 0;
  int late = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double latency =
        network.latency(SimTime(), 0, 1, static_cast<std::uint64_t>(i)).seconds().value();
    EXPECT_GE(latency, 0.2 - 1e-12);
    sum += latency;
    late += latency > 0.25 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kCount, 0.25, 0.0015);  // four standard errors
  EXPECT_NEAR(late / static_cast<double>(kCount), std::exp(-1.0), 0.014);
}

TEST(StepConditions, a_lost_last_packet_costs_a_round_trip) {
  Topology topology = two_sites();
  link_of(topology, 0, 1).loss = 0.1;
  Conditions conditions;
  conditions.jitter = true;
  const StepNetwork network(topology, &conditions, Seconds(0), 0);
  int lost = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double latency =
        network.latency(SimTime(), 0, 1, static_cast<std::uint64_t>(i)).seconds().value();
    EXPECT_TRUE(latency == 0.25 || latency == 0.75) << latency;
    lost += latency > 0.5 ? 1 : 0;
  }
  EXPECT_NEAR(lost / static_cast<double>(kCount), 0.1, 0.0085);
}

TEST(StepConditions, jitter_follows_from_seed_and_step_alone) {
  Topology topology = two_sites();
  link_of(topology, 0, 1).jitter = seconds(0.05);
  Conditions conditions;
  conditions.jitter = true;
  const double first = step_under(topology, conditions, 0, 1);
  EXPECT_EQ(step_under(topology, conditions, 0, 1), first);
  EXPECT_NE(step_under(topology, conditions, 0, 2), first);
  conditions.seed = 2;
  EXPECT_NE(step_under(topology, conditions, 0, 1), first);
}

TEST(StepConditions, nothing_overtakes_on_a_connection) {
  // Sixteen micro-batches whose tensors leave 0.5 s apart or less, under a jitter as large as that:
  // forwards of stage 1 still run in order, and the step ends.
  Topology topology = two_sites();
  link_of(topology, 0, 1).jitter = seconds(0.25);
  Conditions conditions;
  conditions.jitter = true;
  const StepResult result =
      simulate_step(topology, unit_job(2, 16), unit_plan(ScheduleFamily::kGpipe, 2, {16}),
                    {.timeline = true, .conditions = &conditions})
          .value();
  int next = 0;
  for (const TimelineSlice& slice : result.timeline) {
    if (slice.op == Op::kForward && slice.cell == 1) {
      EXPECT_EQ(slice.micro_batch, next++);
    }
  }
  EXPECT_EQ(next, 16);
}

TEST(CriticalPath, adds_up_to_the_step_and_names_its_parts) {
  // F0 1, 0.5 on the wire and 0.25 on the way, F1 1.125, B1 2.25, 0.25 and 0.125 back, B0 2 and the
  // update of 28 x 18 / 504 = 1 s.
  Topology topology = two_sites();
  topology.kinds[0].memory_rate = bytes_per_second(504);
  const StepResult result = simulate_step(topology, unit_job(2, 1),
                                          unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1}))
                                .value();
  struct Row {
    CriticalKind kind;
    int from, to;
    double time;
  };
  const Row rows[] = {{CriticalKind::kCompute, 1, 0, 3.375},  {CriticalKind::kCompute, 0, 0, 3},
                      {CriticalKind::kUpdate, 0, 0, 1},       {CriticalKind::kBandwidth, 0, 1, 0.5},
                      {CriticalKind::kBandwidth, 1, 0, 0.25}, {CriticalKind::kLatency, 0, 1, 0.25},
                      {CriticalKind::kLatency, 1, 0, 0.125}};
  ASSERT_EQ(result.critical.size(), std::size(rows));
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(result.critical[i].kind, rows[i].kind) << i;
    EXPECT_EQ(result.critical[i].from, rows[i].from) << i;
    EXPECT_EQ(result.critical[i].to, rows[i].to) << i;
    EXPECT_NEAR(result.critical[i].time.value(), rows[i].time, 1e-12) << i;
  }
  EXPECT_NEAR(result.step.value(), 8.5, 1e-12);
}

TEST(CriticalPath, adds_up_whatever_happens) {
  // Two replicas, a shared uplink, exchanges, jitter and turns: the chain has no gap.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SharedUplink world(1);
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
      link_of(world.topology, from, to).latency = seconds(0.25);
      link_of(world.topology, from, to).jitter = seconds(0.2);
      link_of(world.topology, from, to).rate = bytes_per_second(30);
    }
    world.plan.micro_batches = {3, 2};
    world.plan.devices = {{0, 2}, {3, 1}};
    Conditions conditions;
    conditions.jitter = true;
    conditions.seed = seed;
    conditions.sharing = seed % 2 == 0 ? Sharing::kTurns : Sharing::kFair;
    const StepResult result =
        simulate_step(world.topology, unit_job(2, 5), world.plan, {.conditions = &conditions})
            .value();
    Seconds sum;
    for (const CriticalPart& part : result.critical) sum += part.time;
    EXPECT_NEAR(sum.value(), result.step.value(), 1e-9) << seed;
  }
}

}  // namespace
}  // namespace longhaul
