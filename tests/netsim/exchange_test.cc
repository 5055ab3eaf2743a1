#include "netsim/exchange.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "netsim/step_simulation.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

constexpr auto kRing = ReduceShape::kRing;
constexpr auto kSharded = ReduceShape::kSharded;
constexpr auto kHierarchical = ReduceShape::kHierarchical;

/// Elements by (from, to), once every member has joined; all results must come to be.
std::map<std::pair<int, int>, double> sent(const Reduction& reduction, double elements,
                                           const std::vector<int>& sites) {
  ExchangeGraph graph = exchange_graph(reduction, elements, sites);
  std::map<std::pair<int, int>, double> out;
  std::vector<int> steps;
  std::size_t done = 0;
  for (std::size_t i = 0; i < sites.size(); ++i) steps.push_back(static_cast<int>(i));
  while (!steps.empty()) {
    ExchangePoint& point = graph.points[static_cast<std::size_t>(steps.back())];
    steps.pop_back();
    if (--point.waits > 0) continue;
    EXPECT_EQ(point.waits, 0) << "a point has more steps than it waits for";
    if (point.member >= 0) ++done;
    for (const ExchangeMessage& message : point.messages) {
      out[{message.from, message.to}] += message.elements;
      steps.push_back(message.next);
    }
    steps.insert(steps.end(), point.next.begin(), point.next.end());
  }
  EXPECT_EQ(done, sites.size());
  return out;
}

using Sent = std::map<std::pair<int, int>, double>;

/// Of those, from a member of one site to one of another.
double between_sites(const Sent& all, const std::vector<int>& sites) {
  double sum = 0;
  for (const auto& [pair, elements] : all) {
    const auto [from, to] = pair;
    if (sites[static_cast<std::size_t>(from)] != sites[static_cast<std::size_t>(to)]) {
      sum += elements;
    }
  }
  return sum;
}

TEST(ExchangeGraph, a_member_alone_sends_nothing) {
  for (const ReduceShape shape : {kSharded, kRing, kHierarchical}) {
    EXPECT_TRUE(sent({.shape = shape}, 100, {0}).empty());
  }
}

TEST(ExchangeGraph, sharded_members_send_each_other_a_part_and_a_sum) {
  // Shards of 40: to each of two others a part of theirs and the sum of its own.
  const Sent all = sent({}, 120, {0, 1, 2});
  EXPECT_EQ(all.size(), 6u);
  for (const auto& [pair, elements] : all) EXPECT_NEAR(elements, 80, 1e-9);
}

TEST(ExchangeGraph, a_member_without_a_share_publishes_nothing) {
  // Shards of 75, 25 and 0: from i to j go i's part of j's shard and the sum of i's own.
  const Sent all = sent({.shares = {0.75, 0.25, 0}}, 100, {0, 1, 2});
  EXPECT_EQ(
      all,
      (Sent{{{0, 1}, 100}, {{1, 0}, 100}, {{0, 2}, 75}, {{2, 0}, 75}, {{1, 2}, 25}, {{2, 1}, 25}}));
}

TEST(ExchangeGraph, one_owner_of_all_is_a_server) {
  EXPECT_EQ(sent({.shares = {0, 1, 0}}, 100, {0, 1, 2}),
            (Sent{{{0, 1}, 100}, {{2, 1}, 100}, {{1, 0}, 100}, {{1, 2}, 100}}));
}

TEST(ExchangeGraph, a_ring_sends_to_the_next_member_alone) {
  // 2 x 2 steps of 40 elements.
  EXPECT_EQ(sent({.shape = kRing}, 120, {0, 1, 2}),
            (Sent{{{0, 1}, 160}, {{1, 2}, 160}, {{2, 0}, 160}}));
  // Two members: each part once there and once back, as sharded.
  EXPECT_EQ(sent({.shape = kRing}, 120, {0, 1}), sent({}, 120, {0, 1}));
}

TEST(ExchangeGraph, a_hierarchical_exchange_crosses_once_a_site) {
  // Two sites of two. Sharded: each of four members sends two others beyond the border a part and
  // a sum of 25 each: 4 x 2 x 50 = 400. Hierarchical: two pieces of 50, each with two owners who
  // exchange halves: 2 x 2 x (25 + 25) = 200.
  const std::vector<int> sites = {0, 0, 1, 1};
  EXPECT_NEAR(between_sites(sent({}, 100, sites), sites), 400, 1e-9);
  const Sent all = sent({.shape = kHierarchical}, 100, sites);
  EXPECT_NEAR(between_sites(all, sites), 200, 1e-9);
  // Inside: a part of the other's piece, and its own piece when it is complete.
  EXPECT_EQ(all, (Sent{{{0, 1}, 100},
                       {{1, 0}, 100},
                       {{2, 3}, 100},
                       {{3, 2}, 100},
                       {{0, 2}, 50},
                       {{2, 0}, 50},
                       {{1, 3}, 50},
                       {{3, 1}, 50}}));
}

TEST(ExchangeGraph, members_of_a_smaller_site_own_pieces_in_turn) {
  // Three pieces of 40; members 0 to 2 of site 0 own one each. Of site 1, member 3 owns pieces 0
  // and 2, member 4 piece 1. Owners of a piece exchange halves: 20 each way, then 20 of the sums.
  const std::vector<int> sites = {0, 0, 0, 1, 1};
  const Sent all = sent({.shape = kHierarchical}, 120, sites);
  EXPECT_EQ(all.at({0, 3}), 40);
  EXPECT_EQ(all.at({2, 3}), 40);
  EXPECT_EQ(all.at({1, 4}), 40);
  EXPECT_EQ(all.at({3, 4}), 40 + 80);  // its part of piece 1; pieces 0 and 2 complete
  EXPECT_EQ(all.at({4, 3}), 80 + 40);
  EXPECT_EQ(all.at({0, 1}), 80);
  EXPECT_FALSE(all.contains({0, 4}));
  EXPECT_NEAR(between_sites(all, sites), 2 * 120, 1e-9);  // S = 2: 2 (S - 1) / S of 120 a site
}

TEST(ExchangeGraph, sites_of_one_member_are_sharded_and_one_site_is_too) {
  EXPECT_EQ(sent({.shape = kHierarchical}, 120, {2, 0, 1}), sent({}, 120, {2, 0, 1}));
  EXPECT_EQ(sent({.shape = kHierarchical}, 120, {1, 1, 1}), sent({}, 120, {1, 1, 1}));
}

// ---- As flows. A lone stage of the unit model has 21 parameters, 84 bytes of gradient; F and B
// take 3.375 s, and all exchanges begin then.

constexpr double kStart = 3.375;

/// One stage on each device, one micro-batch each.
StepResult exchanged(const Topology& topology, Reduction reduction, int members,
                     int vocabulary = 1) {
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 1,
                        std::vector<int>(static_cast<std::size_t>(members), 1));
  plan.reductions = {std::move(reduction)};
  Job job = unit_job(1, members);
  job.model.vocabulary = vocabulary;
  return simulate_step(topology, job, plan, {.timeline = true}).value();
}

/// When the cell's exchange ends.
double end_of(const StepResult& result, int cell) {
  for (const TimelineSlice& slice : result.timeline) {
    if (slice.op == Op::kReduce && slice.cell == cell) return slice.end.seconds().value();
  }
  return 0;
}

TEST(Exchange, a_ring_of_three_takes_four_steps) {
  // Links of 0.25 s and 56 bytes/s each: a part of 28 bytes takes 0.5 + 0.25 s, four times.
  Topology topology = unit_topology({0, 1, 2});
  for (Link& link : topology.links) {
    link.latency = seconds(0.25);
    link.rate = bytes_per_second(56);
  }
  const StepResult result = exchanged(topology, {.shape = kRing}, 3);
  for (int cell = 0; cell < 3; ++cell) EXPECT_NEAR(end_of(result, cell), kStart + 3, 1e-9);
  EXPECT_EQ(result.flows, 12u);
  EXPECT_EQ(result.traffic.size(), 3u);  // only from each to its next
  for (const LinkTraffic& traffic : result.traffic) EXPECT_NEAR(traffic.raw.value(), 112, 1e-9);
}

TEST(Exchange, a_step_of_a_ring_waits_for_the_part_before) {
  // The link 0 to 1 alone has a latency, of 1 s. By steps, when what comes is there:
  //   member   0 1 2 3
  //   0        0 0 1 1     what 1 had at 1 s in steps 0 and 1 is passed on by 1 and 2
  //   1        1 1 1 2     0 has something to send at 0, 0, 0 and 1 s
  //   2        0 1 1 1
  Topology topology = unit_topology({0, 1, 2});
  link_of(topology, 0, 1).latency = seconds(1);
  const StepResult result = exchanged(topology, {.shape = kRing}, 3);
  EXPECT_NEAR(end_of(result, 0), kStart + 1, 1e-9);
  EXPECT_NEAR(end_of(result, 1), kStart + 2, 1e-9);
  EXPECT_NEAR(end_of(result, 2), kStart + 1, 1e-9);
}

TEST(Exchange, two_members_send_everything_once_whatever_their_shares) {
  // Uplinks of 84 and 28 bytes/s. Equal shares: 0 sends its part of 42 until 0.5 s, member 1 its
  // own until 1.5 s and, behind it, the sum of its shard until 3 s. 0's sum goes from 1.5 to 2 s.
  Topology topology = unit_topology({0, 1});
  topology.sites[0].uplink = bytes_per_second(84);
  topology.sites[1].uplink = bytes_per_second(28);
  const StepResult even = exchanged(topology, {}, 2);
  EXPECT_NEAR(end_of(even, 0), kStart + 3, 1e-9);
  EXPECT_NEAR(end_of(even, 1), kStart + 2, 1e-9);
  // All with 0: member 1 sends 84 bytes in 3 s, then 0 the sum in 1 s; one flow each way.
  const StepResult server = exchanged(topology, {.shares = {1, 0}}, 2);
  EXPECT_NEAR(end_of(server, 0), kStart + 3, 1e-9);
  EXPECT_NEAR(end_of(server, 1), kStart + 4, 1e-9);
  EXPECT_EQ(server.flows, 2u);
  // A quarter with 1: 0's part of 21 is there at 0.25 s, 1's of 63 at 2.25 s, the sum of 21 behind
  // it at 3 s. 0 sends its sum of 63 from 2.25 to 3 s.
  const StepResult uneven = exchanged(topology, {.shares = {0.75, 0.25}}, 2);
  EXPECT_NEAR(end_of(uneven, 0), kStart + 3, 1e-9);
  EXPECT_NEAR(end_of(uneven, 1), kStart + 3, 1e-9);
  for (const StepResult* result : {&even, &server, &uneven}) {
    for (const LinkTraffic& traffic : result->traffic) EXPECT_NEAR(traffic.raw.value(), 84, 1e-9);
  }
}

TEST(Exchange, a_slow_member_that_owns_nothing_spares_its_uplink) {
  // Uplinks of 84, 84 and 21 bytes/s. Member i sends 84 (1 - f_i) + 168 f_i. Equal shares: member
  // 2 has sent 14 of its parts when, at 2/3 s, the others' are there; then half of its uplink goes
  // to its sum: the parts' other 42 end at 4 2/3 s, its last 14 at 5 1/3 s, as do the sums of 0.
  Topology topology = unit_topology({0, 1, 2});
  topology.sites[0].uplink = topology.sites[1].uplink = bytes_per_second(84);
  topology.sites[2].uplink = bytes_per_second(21);
  EXPECT_NEAR(end_of(exchanged(topology, {}, 3), 0), kStart + 16.0 / 3, 1e-9);
  // Without a share it sends its 84 in 4 s; then 0 and 1 send two sums of 42 each in 1 s.
  const StepResult result = exchanged(topology, {.shares = {0.5, 0.5, 0}}, 3);
  EXPECT_NEAR(end_of(result, 0), kStart + 5, 1e-9);
  double sent_by_last = 0;
  for (const LinkTraffic& traffic : result.traffic) {
    if (traffic.from_site == 2) sent_by_last += traffic.raw.value();
  }
  EXPECT_NEAR(sent_by_last, 84, 1e-9);
}

TEST(Exchange, hierarchy_halves_what_two_sites_of_two_pay_for) {
  // Out of each site go sharded 2 members x 2 peers x 2 x 21 = 168 bytes, hierarchical 84; at 1 USD
  // a byte and an uplink of 84 bytes/s, shared by both members, that is 2 s and 1 s.
  Topology topology = unit_topology({0, 0, 1, 1});
  for (Site& site : topology.sites) {
    site.uplink = bytes_per_second(84);
    site.egress_usd_per_byte = 1;
  }
  const StepResult sharded = exchanged(topology, {}, 4);
  const StepResult hierarchical = exchanged(topology, {.shape = kHierarchical}, 4);
  EXPECT_NEAR(sharded.usd, 2 * 168, 1e-9);
  EXPECT_NEAR(hierarchical.usd, 2 * 84, 1e-9);
  EXPECT_NEAR(end_of(sharded, 0), kStart + 2, 1e-9);
  EXPECT_NEAR(end_of(hierarchical, 0), kStart + 1, 1e-9);
}

TEST(Exchange, a_stage_has_the_codec_of_its_reduction) {
  // Embeddings of 4,096 and 4,096, and 19 elements that no codec is for. Of the halves, twice 4,096
  // take 2 bytes each in bf16 and a frame of 68, twice 9.5 take 4 bytes: 2 x (8,260 + 38).
  const Topology topology = unit_topology({0, 1});
  const StepResult result = exchanged(topology, {.codec = Codec::kBf16}, 2, 4096);
  EXPECT_NEAR(result.traffic[0].wire.value(), 16596, 1e-6);
}

TEST(Exchange, the_tied_embedding_has_shares_of_its_own) {
  // Two pipelines of two stages, one site each device; wte is one scalar, 4 bytes. Members in
  // order: last stages (cells 1 and 3), first stages (0 and 2). All to the first of them, on
  // site 1: 4 bytes come from each other site, and go back.
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1, 1});
  Reduction tied{.shares = {1, 0, 0, 0}};
  plan.reductions = {{}, {}, tied};
  const Job job = unit_job(2, 2, true);
  const Topology topology = unit_topology({0, 1, 2, 3});
  const StepResult result = simulate_step(topology, job, plan).value();
  double to = 0, from = 0, others = 0;
  for (const LinkTraffic& traffic : result.traffic) {
    const int a = traffic.from_site, b = traffic.to_site;
    if (b == 1 && a == 2) to += traffic.raw.value();
    if (a == 1 && b == 2) from += traffic.raw.value();
    if (a + b == 3 && a * b == 0) others += traffic.raw.value();  // sites 0 and 3
  }
  EXPECT_NEAR(to, 4, 1e-9);
  EXPECT_NEAR(from, 4, 1e-9);
  EXPECT_EQ(others, 0);
}

TEST(Exchange, a_pair_of_sites_has_its_own_codec_for_activations) {
  // Three stages at a, b and c. The job says int8 (133 bytes of a unit tensor), b and c bf16 (70).
  Job job = unit_job(3, 1);
  job.activations = Codec::kInt8;
  job.activations_auto = true;
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 3, {1});
  plan.activation_codecs = {{1, 2, Codec::kBf16}};
  const StepResult result = simulate_step(unit_topology({0, 1, 2}), job, plan).value();
  ASSERT_EQ(result.traffic.size(), 4u);  // a-b, b-a, b-c, c-b
  EXPECT_EQ(result.traffic[0].wire, bytes(133));
  EXPECT_EQ(result.traffic[1].wire, bytes(133));
  EXPECT_EQ(result.traffic[2].wire, bytes(70));
  EXPECT_EQ(result.traffic[3].wire, bytes(70));
}

}  // namespace
}  // namespace longhaul
