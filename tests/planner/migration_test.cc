#include "planner/migration.h"

#include <gtest/gtest.h>

#include "core/model_math.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Devices a, b and c alone at three sites. Before: layers 0 and 1 on a, layer 2 on b. After: layer
/// 0 on a, layers 1 and 2 on c.
struct Example {
  Topology topology = unit_topology({0, 1, 2});
  Job job = unit_job(3, 4);
  Plan before = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {4});
  Plan after = before;

  Example() {
    before.layers = {2, 1};
    before.devices = {{0, 1}};
    after.layers = {1, 2};
    after.devices = {{0, 2}};
    set_link(topology, 0, 2, Seconds(1), bytes_per_second(96));
    set_link(topology, 1, 2, Seconds(0.5), bytes_per_second(57));
  }
};

TEST(Migration, the_worked_example) {
  // A layer has 16 parameters, the final norm 2, the untied head 1. c gets layer 1 from a: 12 x 16
  // = 192 B at 96 B/s and 1 s later, at 3 s; and layer 2, norm and head from b: 12 x 19 = 228 B at
  // 57 B/s and 0.5 s later, at 4.5 s. a has what it needs.
  const Example example;
  const Migration migration =
      migration_between(example.topology, example.job, example.before, example.after);
  ASSERT_EQ(migration.moves.size(), 2u);
  const Move& first = migration.moves[0];
  EXPECT_EQ(first.from_device, 0);
  EXPECT_EQ(first.to_device, 2);
  EXPECT_EQ(first.layers, (std::vector<int>{1}));
  EXPECT_FALSE(first.ends);
  EXPECT_EQ(first.bytes, bytes(192));
  const Move& second = migration.moves[1];
  EXPECT_EQ(second.from_device, 1);
  EXPECT_EQ(second.layers, (std::vector<int>{2}));
  EXPECT_TRUE(second.ends);
  EXPECT_EQ(second.bytes, bytes(228));
  EXPECT_EQ(migration.bytes, bytes(420));
  EXPECT_NEAR(migration.time.value(), 4.5, 1e-9);
}

TEST(Migration, transfers_share_the_receivers_nic) {
  // c's NIC of 100 B/s is halved until a's 192 B are there at 3.84 s; b has then sent as many and
  // sends its other 36 B at 57 B/s: 3.84 + 36 / 57 + 0.5 s of latency.
  Example example;
  example.topology.nodes[2].nic = bytes_per_second(100);
  const Migration migration =
      migration_between(example.topology, example.job, example.before, example.after);
  EXPECT_NEAR(migration.time.value(), 3.84 + 36.0 / 57 + 0.5, 1e-9);
}

TEST(Migration, headers_are_on_the_wire_but_not_in_the_size) {
  Example example;
  example.topology.tcp.wire_factor = 1.5;
  const Migration migration =
      migration_between(example.topology, example.job, example.before, example.after);
  EXPECT_EQ(migration.bytes, bytes(420));
  EXPECT_NEAR(migration.time.value(), 1.5 * 228 / 57 + 0.5, 1e-9);
}

TEST(Migration, nothing_moves_to_the_same_plan_or_to_one_pipeline_fewer) {
  Example example;
  EXPECT_EQ(migration_between(example.topology, example.job, example.before, example.before).bytes,
            bytes(0));
  Plan both = example.before;
  both.devices = {{0}, {1}};
  both.layers = {3};
  both.micro_batches = {2, 2};
  Plan one = both;
  one.devices = {{1}};
  const Migration migration = migration_between(example.topology, example.job, both, one);
  EXPECT_TRUE(migration.moves.empty());
  EXPECT_EQ(migration.time, Seconds(0));
}

TEST(Migration, the_fastest_sender_is_taken_and_equal_ones_take_turns) {
  // a and b each have the whole model; c joins. All of it is 3 x 16 + 1 + 1 + 2 + 1 = 53
  // parameters.
  Example example;
  Plan before = example.before;
  before.layers = {3};
  before.devices = {{0}, {1}};
  Plan after = before;
  after.devices = {{0}, {1}, {2}};
  const auto moves = [&] {
    return migration_between(example.topology, example.job, before, after).moves;
  };
  ASSERT_EQ(moves().size(), 1u);  // from a, at 96 B/s
  EXPECT_EQ(moves()[0].from_device, 0);
  EXPECT_EQ(moves()[0].bytes, bytes(12 * 53));
  // As fast: a sends layers 0 and 2, b layer 1 and then what is small, having sent less.
  set_link(example.topology, 1, 2, Seconds(0.5), bytes_per_second(96));
  ASSERT_EQ(moves().size(), 2u);
  EXPECT_EQ(moves()[0].layers, (std::vector<int>{0, 2}));
  EXPECT_FALSE(moves()[0].ends);
  EXPECT_EQ(moves()[1].layers, (std::vector<int>{1}));
  EXPECT_TRUE(moves()[1].ends);
}

TEST(Migration, what_nobody_has_any_more_comes_from_the_coordinator) {
  Example example;
  example.before.devices = {{kGone, 1}};
  example.after.coordinator_site = 0;
  // Layer 0 and the embeddings to a, which stands where the checkpoint lies, layer 1 to c from a.
  const Migration migration =
      migration_between(example.topology, example.job, example.before, example.after);
  ASSERT_EQ(migration.moves.size(), 3u);
  EXPECT_TRUE(migration.moves[0].from_checkpoint);
  EXPECT_EQ(migration.moves[0].from_device, 0);
  EXPECT_EQ(migration.moves[0].to_device, 0);
  EXPECT_EQ(migration.moves[0].bytes, bytes(12 * (16 + 2)));
  EXPECT_TRUE(migration.moves[1].from_checkpoint);
  EXPECT_EQ(migration.moves[1].from_device, 0);
  EXPECT_EQ(migration.moves[1].layers, (std::vector<int>{1}));
  EXPECT_FALSE(migration.moves[2].from_checkpoint);
  // The disk at a takes no time; the slowest is as in the worked example.
  EXPECT_NEAR(migration.time.value(), 4.5, 1e-9);
}

TEST(Migration, all_parts_of_a_stage_together_are_its_parameters) {
  for (const bool tied : {false, true}) {
    const Topology topology = unit_topology({0, 1, 2});
    const Job job = unit_job(3, 4, tied);
    Plan before = unit_plan(ScheduleFamily::kOneForwardOneBackward, 1, {4});
    before.layers = {3};
    before.devices = {{0}};
    Plan after = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {4});
    after.layers = {1, 2};
    after.devices = {{1, 2}};
    const Migration migration = migration_between(topology, job, before, after);
    ASSERT_EQ(migration.moves.size(), 2u);
    EXPECT_EQ(migration.moves[0].bytes,
              bytes(12 * stage_parameters(job.model, StageShape{1, true, false})));
    EXPECT_EQ(migration.moves[1].bytes,
              bytes(12 * stage_parameters(job.model, StageShape{2, false, true})));
  }
}

TEST(Migration, longer_than_the_network_counts_is_added_up) {
  Example example;
  set_link(example.topology, 0, 2, Seconds(1), bytes_per_second(1e-5));
  const Migration migration =
      migration_between(example.topology, example.job, example.before, example.after);
  EXPECT_NEAR(migration.time.value(), 192e5 + 1 + 4.5, 1);
}

TEST(Migration, equal_devices_and_equal_nodes_are_exchanged_where_less_moves) {
  // Nodes 0 and 1 of site a and node 2 of site b; all of one kind.
  Topology topology = unit_topology({0, 0, 1});
  for (Device& device : topology.devices) device.kind = 0;
  const Job job = unit_job(2, 4);
  Plan before = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {4});
  Plan after = before;
  after.devices = {{1, 0}};
  EXPECT_EQ(with_less_to_move(topology, job, before, after).devices, before.devices);
  // An idle one counts as well: stage 0 stays with node 0.
  after.devices = {{1, 2}};
  EXPECT_EQ(with_less_to_move(topology, job, before, after).devices,
            (std::vector<std::vector<int>>{{0, 2}}));
  // Another site, another NIC or another kind is another node.
  after.devices = {{1, 0}};
  topology.nodes[0].nic = bytes_per_second(100);
  EXPECT_EQ(with_less_to_move(topology, job, before, after).devices, after.devices);
  // Two devices of one node.
  topology.devices[1].node = 0;
  EXPECT_EQ(with_less_to_move(topology, job, before, after).devices, before.devices);
  topology.devices[1].kind = 1;
  EXPECT_EQ(with_less_to_move(topology, job, before, after).devices, after.devices);
}

}  // namespace
}  // namespace longhaul
