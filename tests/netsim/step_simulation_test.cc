#include "netsim/step_simulation.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/model_math.h"
#include "netsim/cluster_file.h"
#include "tests/core/fixtures.h"

// The numbers below are of the unit model (tests/core/fixtures.h): forward f = 1 s and backward
// b = 2 s a stage of one layer, 1.125 s and 2.25 s where the head is; a boundary tensor of 4 bytes;
// 18 parameters on the first of several stages, 19 on the last, 21 on a lone one (20 without the
// second accumulator of a tied embedding, which is one scalar).

namespace longhaul {
namespace {

using fixtures::link_of;
using fixtures::set_link;
using fixtures::two_sites;
using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

constexpr auto kGpipe = ScheduleFamily::kGpipe;
constexpr auto kOneForwardOneBackward = ScheduleFamily::kOneForwardOneBackward;

StepResult simulated(const Topology& topology, const Job& job, const Plan& plan) {
  return simulate_step(topology, job, plan, {.timeline = true}).value();
}

/// Compares to the picosecond.
void expect_time(Seconds time, double expected, const std::string& what = "") {
  EXPECT_NEAR(time.value(), expected, 1e-12) << what;
}

struct Parts {
  double compute, transfer, bubble, reduce, commit, update;
};

void expect_parts(const TaskletTimes& times, const Parts& parts) {
  expect_time(times.compute, parts.compute, "compute");
  expect_time(times.transfer, parts.transfer, "transfer");
  expect_time(times.bubble, parts.bubble, "bubble");
  expect_time(times.reduce, parts.reduce, "reduce");
  expect_time(times.commit, parts.commit, "commit");
  expect_time(times.update, parts.update, "update");
}

void expect_parts_to_add_up(const StepResult& result) {
  for (const TaskletTimes& t : result.tasklets) {
    const Seconds sum = t.compute + t.transfer + t.bubble + t.reduce + t.commit + t.update;
    EXPECT_NEAR(sum.value(), result.step.value(), 1e-9);
    for (const Seconds part : {t.compute, t.transfer, t.bubble, t.reduce, t.commit, t.update}) {
      EXPECT_GE(part.value(), -1e-12);
    }
  }
}

/// Start and end of the only slice of that op, micro-batch and cell.
TimelineSlice slice_of(const StepResult& result, Op op, int micro_batch, int cell) {
  const auto is_it = [&](const TimelineSlice& slice) {
    return slice.op == op && slice.micro_batch == micro_batch && slice.cell == cell;
  };
  EXPECT_EQ(std::ranges::count_if(result.timeline, is_it), 1);
  const auto found = std::ranges::find_if(result.timeline, is_it);
  return found == result.timeline.end() ? TimelineSlice{} : *found;
}

void expect_slice(const StepResult& result, Op op, int micro_batch, int cell, double start,
                  double end) {
  const TimelineSlice slice = slice_of(result, op, micro_batch, cell);
  const std::string what = fmt::format("{} {} of cell {}", name_of(op), micro_batch, cell);
  expect_time(slice.start.seconds(), start, what);
  expect_time(slice.end.seconds(), end, what);
}

// ---- One pipeline.

// A unit layer: F 1 s, B 1.25 s (attention's products have no weights), W 0.75 s; with the head
// 1.125, 1.375 and 0.875 s. Links are free.
//   stage 0  F0 0-1  F1 1-2                B0 3.5-4.75     W0 4.75-5.5           B1 6-7.25  W1 -8
//   stage 1          F0 1-2.125  B0 -3.5   F1 3.5-4.625    B1 4.625-6   W0 -6.875   W1 -7.75
TEST(StepSimulation, a_split_backward_sends_before_it_makes_weight_gradients) {
  Plan plan = unit_plan(ScheduleFamily::kGreedy, 2, {2});
  plan.orders = {parse_order("F0 F1 B0 W0 B1 W1").value(),
                 parse_order("F0 B0 F1 B1 W0 W1").value()};
  const StepResult result = simulated(unit_topology({0, 1}), unit_job(2, 2), plan);
  expect_slice(result, Op::kBackwardInput, 0, 1, 2.125, 3.5);
  expect_slice(result, Op::kBackwardInput, 0, 0, 3.5, 4.75);
  expect_slice(result, Op::kBackwardWeight, 0, 0, 4.75, 5.5);
  expect_slice(result, Op::kBackwardInput, 1, 0, 6, 7.25);
  expect_slice(result, Op::kBackwardWeight, 1, 0, 7.25, 8);
  expect_slice(result, Op::kBackwardWeight, 0, 1, 6, 6.875);
  expect_slice(result, Op::kBackwardWeight, 1, 1, 6.875, 7.75);
  expect_time(result.step, 8);
  expect_parts(result.tasklets[0], {6, 0, 2, 0, 0, 0});
  expect_parts(result.tasklets[1], {6.75, 0, 1, 0, 0.25, 0});
}

TEST(StepSimulation, each_half_of_a_backward_has_the_overhead_of_a_pass) {
  Topology topology = unit_topology({0});
  topology.kinds[0].overhead = Seconds(0.5);
  Plan plan = unit_plan(ScheduleFamily::kGreedy, 1, {1});
  plan.orders = {parse_order("F0 B0 W0").value()};
  expect_time(simulated(topology, unit_job(1, 1), plan).step, 3.375 + 3 * 0.5);
  expect_time(simulated(topology, unit_job(1, 1), unit_plan(kOneForwardOneBackward, 1, {1})).step,
              3.375 + 2 * 0.5);
}

TEST(StepSimulation, a_reduce_follows_the_last_weight_gradient) {
  Topology topology = unit_topology({0, 0});
  link_of(topology, 0, 0).latency = seconds(0.25);
  Plan plan = unit_plan(ScheduleFamily::kGreedy, 1, {1, 1});
  plan.orders = {parse_order("F0 B0 W0").value()};
  // F, B and W take 3.375 s; two phases of 0.25 s.
  expect_slice(simulated(topology, unit_job(1, 2), plan), Op::kReduce, -1, 0, 3.375, 3.875);
}

TEST(StepSimulation, one_device_computes_and_updates) {
  // 3 x (1.125 + 2.25) = 10.125; commit 2 x 0.25 inside the site; 28 bytes x 21 parameters at 588
  // bytes/s is 1 s.
  Topology topology = unit_topology({0});
  link_of(topology, 0, 0).latency = seconds(0.25);
  topology.kinds[0].memory_rate = bytes_per_second(28 * 21);
  const StepResult result =
      simulated(topology, unit_job(1, 3), unit_plan(kOneForwardOneBackward, 1, {3}));
  expect_time(result.step, 11.625);
  expect_parts(result.tasklets[0], {10.125, 0, 0, 0, 0.5, 1});
  EXPECT_TRUE(result.traffic.empty());
  EXPECT_EQ(result.flows, 0u);
}

TEST(StepSimulation, one_micro_batch_goes_there_and_back) {
  // f0 1, wire 0.5 + 0.25 -> 1.75; f1 -> 2.875; b1 -> 5.125; wire 0.25 + 0.125 -> 5.5; b0 -> 7.5.
  // The coordinator is at site a, so it has everybody at 7.5 (stage 1 was prepared at 5.125 +
  // 0.125), and stage 1 learns it at 7.75. Updates: 28 x 18 / 504 = 1 s and 28 x 19 / 1064 = 0.5 s.
  Topology topology = two_sites();
  topology.kinds[0].memory_rate = bytes_per_second(504);
  topology.kinds[1].memory_rate = bytes_per_second(1064);
  const StepResult result =
      simulated(topology, unit_job(2, 1), unit_plan(kOneForwardOneBackward, 2, {1}));
  expect_slice(result, Op::kForward, 0, 0, 0, 1);
  expect_slice(result, Op::kSendActivation, 0, 0, 1, 1.5);
  expect_slice(result, Op::kForward, 0, 1, 1.75, 2.875);
  expect_slice(result, Op::kBackward, 0, 1, 2.875, 5.125);
  expect_slice(result, Op::kSendGradient, 0, 1, 5.125, 5.375);
  expect_slice(result, Op::kBackward, 0, 0, 5.5, 7.5);
  expect_slice(result, Op::kUpdate, -1, 0, 7.5, 8.5);
  expect_slice(result, Op::kUpdate, -1, 1, 7.75, 8.25);
  expect_time(result.step, 8.5);
  // Stage 0 idles from 1 to 5.5; its gradient was made at 5.125. Stage 1 idles from 0 to 1.75; its
  // activation was made at 1. At the end stage 1 waits from 5.125 to 7.75 and from 8.25 to 8.5.
  expect_parts(result.tasklets[0], {3, 0.375, 4.125, 0, 0, 1});
  expect_parts(result.tasklets[1], {3.375, 0.75, 1, 0, 2.875, 0.5});
  EXPECT_EQ(result.flows, 2u);
}

TEST(StepSimulation, the_coordinators_site_decides_who_waits_for_the_commit) {
  // At site b: stage 0 is prepared at 7.5 + 0.25 there, and learns of the commit 0.125 later.
  Plan plan = unit_plan(kOneForwardOneBackward, 2, {1});
  plan.coordinator_site = 1;
  expect_time(simulated(two_sites(), unit_job(2, 1), plan).step, 7.875);
}

TEST(StepSimulation, a_send_lane_carries_one_message_at_a_time) {
  // 2 bytes/s: a message takes 2 s. Forwards end at 1, 2, 3; sends run 1-3, 3-5, 5-7.
  Topology topology = unit_topology({0, 1});
  link_of(topology, 0, 1).rate = bytes_per_second(2);
  const StepResult result = simulated(topology, unit_job(2, 3), unit_plan(kGpipe, 2, {3}));
  expect_slice(result, Op::kSendActivation, 0, 0, 1, 3);
  expect_slice(result, Op::kSendActivation, 1, 0, 3, 5);
  expect_slice(result, Op::kSendActivation, 2, 0, 5, 7);
  // Stage 1 is as fast as its input: forwards 3-4.125, 5-6.125, 7-8.125, then 3 x 2.25.
  expect_slice(result, Op::kForward, 2, 1, 7, 8.125);
  expect_slice(result, Op::kBackward, 2, 1, 12.625, 14.875);
  // Gradients cost nothing here; the last backward of stage 0 follows at once.
  expect_time(result.step, 16.875);
}

TEST(StepSimulation, in_flight_depth_hides_the_round_trip) {
  // K = (1, 1): stage 0 starts a forward only after the backward before it, so a micro-batch takes
  // 1 + 0.75 + 3.375 + 0.375 + 2 = 7.5 s and four take 30 s; the commit takes 0.25 s more.
  Plan plan = unit_plan(kOneForwardOneBackward, 2, {4});
  plan.in_flight = {1, 1};
  expect_time(simulated(two_sites(), unit_job(2, 4), plan).step, 30.25);
  // K = (2, 1) has period (t_0 + t_1 + RTT) / 2 = (3 + 3.375 + 1.125) / 2 = 3.75 s. Stage 0 runs F0
  // F1 0-2, B0 5.5-7.5, F2 -8.5; stage 1 gets F2's activation at 9.25; B2 of stage 0 is at 13-15,
  // two periods after B0.
  plan.in_flight = {2, 1};
  const StepResult result = simulated(two_sites(), unit_job(2, 4), plan);
  expect_slice(result, Op::kForward, 1, 1, 5.125, 6.25);
  expect_slice(result, Op::kForward, 2, 0, 7.5, 8.5);
  expect_slice(result, Op::kForward, 2, 1, 9.25, 10.375);
  expect_slice(result, Op::kBackward, 2, 0, 13, 15);
  // Stage 1: B1 6.25-8.5; its gradient is at stage 0 at 8.875: B1 -10.875, F3 -11.875; at stage 1
  // at 12.625, when its B2 ends: F3 -13.75, B3 -16; at stage 0 at 16.375: B3 -18.375; commit 0.25.
  expect_time(result.step, 18.625);
}

TEST(StepSimulation, recompute_hides_in_the_wait_for_the_gradient) {
  // Stage 0 makes its activations again from 1 to 2 while it waits; stage 1 needs 1 s (its layer,
  // not the head) between forward and backward, which delays all that follows: 7.5 + 1.
  Job job = unit_job(2, 1);
  job.recompute = Recompute::kYes;
  const StepResult result = simulated(two_sites(), job, unit_plan(kOneForwardOneBackward, 2, {1}));
  expect_slice(result, Op::kRecompute, 0, 0, 1, 2);
  expect_slice(result, Op::kRecompute, 0, 1, 2.875, 3.875);
  expect_time(result.step, 8.75);  // and 0.25 s of commit to stage 1
}

TEST(StepSimulation, a_schedule_that_dead_locks_is_an_error) {
  Plan plan = unit_plan(kOneForwardOneBackward, 2, {2});
  plan.in_flight = {1, 2};
  const Result<StepResult> result = simulate_step(two_sites(), unit_job(2, 2), plan);
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message.contains("dead-locks"));
}

TEST(StepSimulation, the_timeline_is_made_only_when_asked_for) {
  const Plan plan = unit_plan(kOneForwardOneBackward, 2, {1});
  EXPECT_TRUE(simulate_step(two_sites(), unit_job(2, 1), plan)->timeline.empty());
}

// ---- The exchange of gradients.

/// Devices at sites of their own; 0.25 s between any two; what a node may send and receive is
/// limited by `nic`, and a link by `rate`.
Topology replicas(int count, BytesPerSecond rate, BytesPerSecond nic) {
  std::vector<int> sites;
  for (int i = 0; i < count; ++i) sites.push_back(i);
  Topology topology = unit_topology(sites);
  for (int i = 0; i < count; ++i) {
    topology.nodes[static_cast<std::size_t>(i)].nic = nic;
    for (int j = 0; j < i; ++j) set_link(topology, i, j, seconds(0.25), rate);
  }
  return topology;
}

constexpr BytesPerSecond kFree = BytesPerSecond::infinity();

TEST(StepSimulation, two_replicas_reduce_in_two_phases) {
  // 21 parameters of 4 bytes, two shards of 42 bytes: at 42 bytes/s each phase takes 1 + 0.25 s.
  // f + b = 3.375; reduced at 5.875; site b's PREPARE arrives 0.25 s later and the commit goes
  // back.
  const Topology topology = replicas(2, bytes_per_second(42), kFree);
  const StepResult result =
      simulated(topology, unit_job(1, 2), unit_plan(kOneForwardOneBackward, 1, {1, 1}));
  expect_slice(result, Op::kReduce, -1, 0, 3.375, 5.875);
  expect_slice(result, Op::kReduce, -1, 1, 3.375, 5.875);
  expect_time(result.step, 6.375);
  expect_parts(result.tasklets[0], {3.375, 0, 0, 2.5, 0.5, 0});
  expect_parts(result.tasklets[1], {3.375, 0, 0, 2.5, 0.5, 0});
  // Each sends its part of the other's shard and its own shard's sum.
  EXPECT_EQ(result.flows, 4u);
  ASSERT_EQ(result.traffic.size(), 2u);
  EXPECT_EQ(result.traffic[0].raw, bytes(84));
  EXPECT_EQ(result.traffic[1].raw, bytes(84));
}

TEST(StepSimulation, a_tied_embedding_of_a_lone_stage_is_reduced_once) {
  // 20 parameters: shards of 40 bytes at 40 bytes/s.
  const Topology topology = replicas(2, bytes_per_second(40), kFree);
  const StepResult result =
      simulated(topology, unit_job(1, 2, true), unit_plan(kOneForwardOneBackward, 1, {1, 1}));
  expect_slice(result, Op::kReduce, -1, 0, 3.375, 5.875);
}

TEST(StepSimulation, the_late_replica_sends_its_sum_behind_its_contribution) {
  // Device 1 is half as fast: 6.75 s. By then device 0's contribution is there (3.375 + 1.25), so
  // device 1 publishes its shard at once, behind its contribution, as one link sends one message
  // after the other: 42 bytes at 42 bytes/s until 7.75, there at 8, and 42 more until 8.75, there
  // at 9, when device 0 is done. Its own sum leaves at 8 and is there at 9.25. PREPARE 0.25, commit
  // 0.25.
  Topology topology = replicas(2, bytes_per_second(42), kFree);
  topology.kinds[1].rate.fill(flops_per_second(8));
  const StepResult result =
      simulated(topology, unit_job(1, 2), unit_plan(kOneForwardOneBackward, 1, {1, 1}));
  expect_slice(result, Op::kReduce, -1, 0, 3.375, 9);
  expect_slice(result, Op::kReduce, -1, 1, 6.75, 9.25);
  expect_time(result.step, 9.75);
}

TEST(StepSimulation, three_replicas_share_their_network_cards) {
  // Three shards of 28 bytes. Each member sends two at a time through a NIC of 28 bytes/s: 2 s, and
  // 0.25 s on the way; twice. 3.375 + 4.5 = 7.875.
  const Topology topology = replicas(3, kFree, bytes_per_second(28));
  const StepResult result =
      simulated(topology, unit_job(1, 3), unit_plan(kOneForwardOneBackward, 1, {1, 1, 1}));
  for (int d = 0; d < 3; ++d) expect_slice(result, Op::kReduce, -1, d, 3.375, 7.875);
  expect_time(result.step, 8.375);
  EXPECT_EQ(result.flows, 12u);  // 3 members x 2 others x 2 phases
}

TEST(StepSimulation, unequal_shares_of_micro_batches_meet_at_the_exchange) {
  // Pipeline 0 runs two micro-batches (6.75 s), pipeline 1 one: as in the late replica above, with
  // the roles swapped.
  const Topology topology = replicas(2, bytes_per_second(42), kFree);
  const StepResult result =
      simulated(topology, unit_job(1, 3), unit_plan(kOneForwardOneBackward, 1, {2, 1}));
  expect_slice(result, Op::kReduce, -1, 1, 3.375, 9);
  expect_slice(result, Op::kReduce, -1, 0, 6.75, 9.25);
  // The coordinator is at the late replica's site: commit at 9.25, there 0.25 s later.
  expect_time(result.step, 9.5);
}

TEST(StepSimulation, the_ends_of_a_tied_pipeline_exchange_the_embedding) {
  // 4 bytes/s and 0.25 s each way; the embedding is one scalar, its two shards 2 bytes.
  // F0 0-1; wire -2; there 2.25; F1 -3.375; B1 -5.625. Then stage 1 sends the gradient (4 bytes)
  // until 6.625, there at 6.875, and behind it its part of shard 0 (2 bytes). B0 -8.875.
  // Stage 0 now sends its part of shard 1, left at 9.375, there at 9.625, and behind it the sum of
  // shard 0, left at 9.875, there at 10.125, when stage 1 is done. That has sent the sum of shard 1
  // at 9.625: 0.5 + 0.25: 10.375.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, seconds(0.25), bytes_per_second(4));
  const StepResult result =
      simulated(topology, unit_job(2, 1, true), unit_plan(kOneForwardOneBackward, 2, {1}));
  expect_slice(result, Op::kBackward, 0, 0, 6.875, 8.875);
  expect_slice(result, Op::kTiedReduce, -1, 1, 5.625, 10.125);
  expect_slice(result, Op::kTiedReduce, -1, 0, 8.875, 10.375);
  expect_time(result.step, 10.625);
  expect_parts_to_add_up(result);
}

// ---- Shared links.

/// Two pipelines of two stages: the first stages at site a, the last at site b.
Plan two_by_two(std::vector<int> micro_batches) {
  Plan plan = unit_plan(kOneForwardOneBackward, 2, std::move(micro_batches));
  plan.devices = {{0, 2}, {1, 3}};
  return plan;
}

TEST(StepSimulation, pipelines_halve_a_shared_uplink) {
  // Both send 4 bytes from 1 on. Alone at 4 bytes/s that takes 1 s, together 2 s. Nothing else
  // costs: 1 + 2 + 1.125 + 2.25 + 2 = 8.375.
  const auto step_with = [](auto&& limit) {
    Topology topology = unit_topology({0, 0, 1, 1});
    limit(topology);
    return simulated(topology, unit_job(2, 2), two_by_two({1, 1})).step.value();
  };
  const BytesPerSecond low = bytes_per_second(4);
  EXPECT_NEAR(step_with([](Topology&) {}), 6.375, 1e-12);
  EXPECT_NEAR(step_with([&](Topology& t) { link_of(t, 0, 1).rate = low; }), 7.375, 1e-12);
  EXPECT_NEAR(step_with([&](Topology& t) { t.sites[0].uplink = low; }), 8.375, 1e-12);
  EXPECT_NEAR(step_with([&](Topology& t) { t.sites[1].downlink = low; }), 8.375, 1e-12);
  EXPECT_NEAR(step_with([&](Topology& t) {
                link_of(t, 0, 1).rate = low;
                link_of(t, 0, 1).scope = LinkScope::kSitePair;
              }),
              8.375, 1e-12);
  // A limit on the way in to site a slows the gradients alone.
  EXPECT_NEAR(step_with([&](Topology& t) { t.sites[0].downlink = low; }), 8.375, 1e-12);
}

// ---- Sizes.

/// A pipeline of the devices 0, 1 and 2 with such micro-batches.
Plan of(int micro_batch) {
  Plan plan = unit_plan(kOneForwardOneBackward, 3, {2 / micro_batch});
  plan.micro_batch = micro_batch;
  return plan;
}

TEST(MessageSize, codecs_act_between_sites_only) {
  Topology topology = unit_topology({0, 0, 1});
  Job job = unit_job(2, 2);
  job.model.context = 10;
  job.model.width = 13;  // 130 elements a sequence
  job.activations = Codec::kInt8;
  job.gradients = Codec::kBf16;
  topology.tcp.wire_factor = 2;
  // int8: 130 + scales in 64 bytes + frame of 68 = 262.
  const MessageSize between = activation_message(topology, job, of(1), 0, 1);
  EXPECT_EQ(between.raw, bytes(520));
  EXPECT_EQ(between.wire, bytes(524));
  const MessageSize inside = activation_message(topology, job, of(1), 0, 0);
  EXPECT_EQ(inside.raw, bytes(520));
  EXPECT_EQ(inside.wire, bytes(1040));
  // Two sequences: 260 + 64 + 68 = 392.
  EXPECT_EQ(activation_gradient_message(topology, job, of(2), 0, 1).wire, bytes(784));
  // bf16 gradients: 2 x 100 + 68.
  EXPECT_EQ(gradient_message(topology, job.gradients, {100, 0}, 0, 2).raw, bytes(400));
  EXPECT_EQ(gradient_message(topology, job.gradients, {100, 0}, 0, 2).wire, bytes(536));
  EXPECT_EQ(gradient_message(topology, job.gradients, {100, 0}, 0, 1).wire, bytes(800));
  // And ten that are too small to be coded: 200 + 68 + 40.
  EXPECT_EQ(gradient_message(topology, job.gradients, {100, 10}, 0, 2).wire, bytes(616));
}

TEST(MessageSize, without_a_codec_tensors_go_as_they_are_computed) {
  Topology topology = unit_topology({0, 1, 1});
  Job job = unit_job(2, 2);
  job.precision = Precision::kFp16;
  EXPECT_EQ(activation_message(topology, job, of(2), 0, 0).wire, bytes(4));  // 2 bytes an element
  EXPECT_EQ(gradient_message(topology, job.gradients, {3, 0}, 0, 1).wire,
            bytes(12));  // fp32 always
}

/// 130 elements a sequence, two a micro-batch; sites 0, 1 and 2 apart.
Job aq_job(Codec activations) {
  Job job = unit_job(3, 2);
  job.model.context = 10;
  job.model.width = 13;
  job.activations = activations;
  job.history.emplace();
  return job;
}

TEST(MessageSize, a_history_makes_later_visits_smaller) {
  const Topology topology = unit_topology({0, 1, 2});
  Job job = aq_job(Codec::kAqInt3);
  // Each of the two sequences has a frame. Later: five blocks of 32 x 3 bits are 60, with scales in
  // 64 bytes, the frame's 68 and the history's 64 they are 256. First, bf16: 260 + 132 = 392, so
  // 448; int8: 130 + 64 + 132 = 326, so 384.
  EXPECT_EQ(activation_message(topology, job, of(2), 0, 0).wire, bytes(2 * 256));
  EXPECT_EQ(activation_message(topology, job, of(2), 0, 0, Visit::kFirst).wire, bytes(2 * 448));
  job.history->first_visit = Codec::kInt8;
  EXPECT_EQ(activation_message(topology, job, of(2), 0, 0, Visit::kFirst).wire, bytes(2 * 384));
  // Gradients go in int6, both sequences in one frame: five blocks of 64 x 6 bits are 240.
  EXPECT_EQ(activation_gradient_message(topology, job, of(2), 0, 0).wire, bytes(240 + 64 + 68));
  EXPECT_TRUE(asks_visit(topology, job, of(2)));
  EXPECT_FALSE(asks_visit(unit_topology({0, 0, 0}), job, of(2)));
  EXPECT_FALSE(asks_visit(topology, aq_job(Codec::kInt8), of(2)));
}

TEST(MessageSize, what_finds_no_room_travels_as_on_a_first_visit) {
  const Topology topology = unit_topology({0, 1, 2});
  Job job = aq_job(Codec::kAqInt3);
  // A history is 260 bytes. The second stage has two boundaries, so each end of each has room for 3
  // of the 4 samples.
  job.history->memory = bytes(2 * 3 * 260);
  job.history->disk = bytes(0);
  job.history->samples = 4;
  EXPECT_EQ(activation_message(topology, job, of(2), 0, 0).wire,
            bytes(2 * (0.75 * 256 + 0.25 * 448)));
}

TEST(StepSimulation, each_direction_has_a_codec_of_its_own) {
  // Forwards 133 bytes (int8), backwards the 4 of a unit tensor.
  const Topology topology = unit_topology({0, 1});
  Job job = unit_job(2, 1);
  job.activations = Codec::kInt8;
  job.activation_gradients = Codec::kNone;
  const Plan plan = unit_plan(kOneForwardOneBackward, 2, {1});
  const StepResult result = simulated(topology, job, plan);
  ASSERT_EQ(result.traffic.size(), 2u);
  EXPECT_EQ(result.traffic[0].wire, bytes(133));
  EXPECT_EQ(result.traffic[1].wire, bytes(4));
}

TEST(StepSimulation, a_first_visit_takes_its_own_bytes) {
  // A unit tensor's later frame of 68 + 64 + 64 + 12 bytes is padded to 256; bf16: 68 + 64 + 2:
  // 192.
  const Topology topology = unit_topology({0, 1});
  Job job = unit_job(2, 1);
  job.activations = Codec::kAqInt3;
  job.history.emplace();
  const Plan plan = unit_plan(kOneForwardOneBackward, 2, {1});
  EXPECT_EQ(simulated(topology, job, plan).traffic[0].wire, bytes(256));
  EXPECT_EQ(simulate_step(topology, job, plan, {.visit = Visit::kFirst})->traffic[0].wire,
            bytes(192));
}

TEST(StepSimulation, traffic_is_the_sum_of_the_messages) {
  // Three activations and three gradients of each of two pipelines between the sites: 2 x 3 x 4
  // bytes each way. The exchanges are inside the sites: at a 18 parameters, at b 19; each of two
  // members sends two shards of half of it: 18 x 4 x 2 = 144 and 19 x 4 x 2 = 152 bytes.
  Topology topology = unit_topology({0, 0, 1, 1});
  topology.tcp.wire_factor = 1.25;
  const StepResult result = simulated(topology, unit_job(2, 6), two_by_two({3, 3}));
  ASSERT_EQ(result.traffic.size(), 4u);
  const double raw[] = {144, 24, 24, 152};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.traffic[i].from_site, static_cast<int>(i) / 2);
    EXPECT_EQ(result.traffic[i].to_site, static_cast<int>(i) % 2);
    EXPECT_NEAR(result.traffic[i].raw.value(), raw[i], 1e-9);
    EXPECT_NEAR(result.traffic[i].wire.value(), 1.25 * raw[i], 1e-9);
  }
  EXPECT_EQ(result.flows, 12u + 8u);
}

TEST(StepSimulation, a_codec_shortens_what_goes_between_sites) {
  // int8 makes 133 bytes of a unit tensor's 4: at 133 bytes/s it takes 1 s.
  Topology topology = unit_topology({0, 1});
  link_of(topology, 0, 1).rate = bytes_per_second(133);
  Job job = unit_job(2, 1);
  job.activations = Codec::kInt8;
  const StepResult result = simulated(topology, job, unit_plan(kOneForwardOneBackward, 2, {1}));
  expect_slice(result, Op::kSendActivation, 0, 0, 1, 2);
  EXPECT_EQ(result.traffic[0].raw, bytes(4));
  EXPECT_EQ(result.traffic[0].wire, bytes(133));
}

TEST(StepSimulation, money_is_device_time_and_egress) {
  // 7.75 s of two devices at 3600 and 7200 USD/h, 1 and 2 USD/s; 4 bytes leave each site, at 10 and
  // 100 USD a byte.
  Topology topology = two_sites();
  topology.kinds[0].usd_per_hour = 3600;
  topology.kinds[1].usd_per_hour = 7200;
  topology.sites[0].egress_usd_per_byte = 10;
  topology.sites[1].egress_usd_per_byte = 100;
  const StepResult result =
      simulated(topology, unit_job(2, 1), unit_plan(kOneForwardOneBackward, 2, {1}));
  expect_time(result.step, 7.75);
  EXPECT_NEAR(result.usd, 3 * 7.75 + 40 + 400, 1e-9);
}

TEST(StepSimulation, egress_inside_a_site_is_free) {
  Topology topology = unit_topology({0, 0});
  topology.sites[0].egress_usd_per_byte = 10;
  EXPECT_EQ(simulated(topology, unit_job(2, 1), unit_plan(kOneForwardOneBackward, 2, {1})).usd, 0);
}

// ---- A real cluster.

struct RealCase {
  Topology topology =
      load_cluster(std::string(LONGHAUL_SOURCE_DIR) + "/configs/clusters/eight-cities.yaml")
          .value();
  Job job = load_job(std::string(LONGHAUL_SOURCE_DIR) + "/configs/jobs/gpt2-small.yaml").value();
  Plan plan;

  RealCase() {
    // Four stages by four pipelines over all sixteen devices, uneven layers and shares.
    plan.layers = {2, 4, 4, 2};
    for (int d = 0; d < 4; ++d) plan.devices.push_back({d, 4 + d, 8 + d, 12 + d});
    plan.micro_batches = {20, 16, 14, 14};
    plan.micro_batch = 8;
    plan.in_flight = {6, 4, 2, 1};
    plan.coordinator_site = 2;
  }
};

TEST(StepSimulation, the_parts_of_every_tasklet_add_up_to_the_step) {
  const RealCase real;
  for (const bool recompute : {false, true}) {
    Job job = real.job;
    job.recompute = recompute ? Recompute::kYes : Recompute::kNo;
    const StepResult result = simulated(real.topology, job, real.plan);
    ASSERT_EQ(result.tasklets.size(), 16u);
    expect_parts_to_add_up(result);
  }
}

TEST(StepSimulation, compute_is_the_sum_of_the_instructions) {
  const RealCase real;
  const StepResult result = simulated(real.topology, real.job, real.plan);
  const std::vector<StageShape> shapes = stage_shapes(real.plan.layers);
  for (int d = 0; d < 4; ++d) {
    for (int i = 0; i < 4; ++i) {
      const DeviceKind& kind = real.topology.kind_of(real.plan.device(d, i));
      const StageWork work = stage_work(real.job.model, shapes[static_cast<std::size_t>(i)], 8);
      const Seconds each = compute_time(kind, real.job.precision, work.forward) +
                           compute_time(kind, real.job.precision, work.backward);
      const int count = real.plan.micro_batches[static_cast<std::size_t>(d)];
      EXPECT_NEAR(result.tasklets[static_cast<std::size_t>(d * 4 + i)].compute.value(),
                  count * each.value(), 1e-9);
    }
  }
}

TEST(StepSimulation, the_same_input_gives_the_same_step_to_the_picosecond) {
  const RealCase real;
  const StepResult a = simulated(real.topology, real.job, real.plan);
  const StepResult b = simulated(real.topology, real.job, real.plan);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.usd, b.usd);
  EXPECT_EQ(a.flows, b.flows);
  ASSERT_EQ(a.timeline.size(), b.timeline.size());
  for (std::size_t i = 0; i < a.timeline.size(); ++i) {
    const TimelineSlice& x = a.timeline[i];
    const TimelineSlice& y = b.timeline[i];
    ASSERT_TRUE(x.op == y.op && x.micro_batch == y.micro_batch && x.cell == y.cell &&
                x.peer == y.peer && x.start == y.start && x.end == y.end)
        << i;
  }
  for (std::size_t i = 0; i < a.tasklets.size(); ++i) {
    EXPECT_EQ(a.tasklets[i].transfer, b.tasklets[i].transfer);
    EXPECT_EQ(a.tasklets[i].bubble, b.tasklets[i].bubble);
  }
  // Asking for the timeline changes nothing else.
  const StepResult plain = simulate_step(real.topology, real.job, real.plan).value();
  EXPECT_EQ(plain.step, a.step);
}

TEST(StepSimulation, the_timeline_is_in_order_of_ends) {
  const RealCase real;
  const StepResult result = simulated(real.topology, real.job, real.plan);
  // 64 micro-batches x 4 stages x (forward, backward), x 3 hops x 2 ways, and for each of sixteen
  // tasklets a reduction and an update; the eight tasklets at the ends also a tied reduction.
  EXPECT_EQ(result.timeline.size(), 64u * 4 * 2 + 64u * 3 * 2 + 16 * 2 + 8);
}

}  // namespace
}  // namespace longhaul
