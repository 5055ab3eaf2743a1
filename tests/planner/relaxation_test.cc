#include "planner/relaxation.h"

#include <gtest/gtest.h>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;
using Words = std::vector<std::string>;

constexpr double kMiB = 1048576;

/// Two devices, and a model of 4 layers in fp32. With micro-batches of b sequences on one device:
/// states 16 bytes x 68 parameters (4 x 16, embeddings 1 + 1, final norm 2) or less, and for each
/// layer 40 b of activations and 4 b of softmax statistics.
Job batch_of(int micro_batch) {
  Job job = unit_job(4, 1 << 20);
  job.micro_batch = micro_batch;
  return job;
}

Topology with_memory(double first, double second) {
  Topology topology = unit_topology({0, 1});
  topology.kinds[0].memory = bytes(first);
  topology.kinds[1].memory = bytes(second);
  // Fast enough that a step of a million sequences ends.
  for (DeviceKind& kind : topology.kinds) kind.rate.fill(flops_per_second(1e9));
  return topology;
}

TEST(Relaxation, small_micro_batches_and_more_memory_are_found) {
  // 2^20 sequences: 44 MiB of activations a layer, and for a stage with neighbours 4 x 4 MiB of
  // buffers and 8 MiB of workspace. 80 MiB hold one layer; the other device must hold three, 156
  // MiB and a little for the states: 77 MiB more. Recompute cannot help, since one micro-batch in
  // flight needs all activations of its stage at once in any case.
  const Topology topology = with_memory(80 * kMiB, 80 * kMiB);
  const Job job = batch_of(1 << 20);
  ASSERT_FALSE(search_plan(topology, job, {.effort = 0.05}));
  const Relaxations changes = relaxations(topology, job, {}, Bytes(200 * kMiB));
  EXPECT_EQ(changes.enough, (Words{"micro-batches of 1 sequence", "77 MiB more on every kind-0",
                                   "77 MiB more on every kind-1"}));
  EXPECT_EQ(changes.not_enough, Words{"`recompute: true` in the job"});
}

TEST(Relaxation, the_memory_it_names_makes_a_plan_and_a_little_less_does_not) {
  Topology topology = with_memory(80 * kMiB, 80 * kMiB);
  const Job job = batch_of(1 << 20);
  topology.kinds[0].memory = bytes((80 + 77) * kMiB);
  EXPECT_TRUE(search_plan(topology, job, {.effort = 0.05}));
  topology.kinds[0].memory = bytes((80 + 76) * kMiB);
  EXPECT_FALSE(search_plan(topology, job, {.effort = 0.05}));
}

TEST(Relaxation, a_further_stage_and_the_excluded_device_are_found) {
  // The states of four layers take 1,088 bytes: more than one device has, less than two have.
  const Topology topology = with_memory(800, 800);
  Job job = unit_job(4, 4);
  const SearchOptions one_stage{.limits = {.stages = 1, .pipelines = 1}};
  const Relaxations stage = relaxations(topology, job, one_stage, Bytes(2000));
  EXPECT_EQ(stage.enough, (Words{"one more stage (2)", "1 MiB more on every kind-0",
                                 "1 MiB more on every kind-1"}));
  EXPECT_EQ(stage.not_enough, Words{"`recompute: true` in the job"});

  const SearchOptions excluded{.devices = {{"kind-1"}, 0}};
  const Relaxations device = relaxations(topology, job, excluded, Bytes(2000));
  EXPECT_EQ(device.enough, (Words{"all devices of the cluster", "1 MiB more on every kind-0"}));
}

TEST(Relaxation, the_search_says_what_is_enough_and_what_is_not) {
  const Result<SearchResult> found =
      search_plan(with_memory(10, 10), unit_job(2, 4), {.effort = 0.05, .limits = {.stages = 2}});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInfeasible);
  // Either device alone is not enough: the other's stage lacks memory still.
  EXPECT_EQ(found.error().hint,
            "no single change is known to be enough: add devices; not enough alone: `recompute: "
            "true` in the job, one more stage (3), more memory on kind-0 only, more memory on "
            "kind-1 only");
}

}  // namespace
}  // namespace longhaul
