#include "planner/codec_choice.h"

#include <gtest/gtest.h>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Three stages at three sites: the first hop costs nothing, the second takes long.
struct Chain {
  Chain() : topology(unit_topology({0, 1, 2})), job(unit_job(3, 4)) {
    // A boundary tensor of 4,096 numbers: 16 KiB, or about 4.3 KB as int8.
    job.model.context = 4096;
    job.activations = Codec::kInt8;
    for (DeviceKind& kind : topology.kinds) kind.rate.fill(flops_per_second(1e8));
    set_link(topology, 1, 2, Seconds(0), bytes_per_second(10000));
    plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 3, {4});
  }
  JudgedPlan judged() const { return {plan, *simulate_step(topology, job, plan), 0}; }

  Topology topology;
  Job job;
  Plan plan;
};

TEST(CodecChoice, a_link_that_does_not_bind_gets_the_finest) {
  Chain chain;
  chain.job.activations_auto = true;
  const JudgedPlan before = chain.judged();
  const JudgedPlan after = finer_codecs(Problem(chain.topology, chain.job), before);
  ASSERT_EQ(after.plan.activation_codecs.size(), 1u);
  EXPECT_EQ(activation_codec(after.plan, chain.job, 0, 1), Codec::kNone);
  EXPECT_EQ(activation_codec(after.plan, chain.job, 1, 2), Codec::kInt8);
  EXPECT_EQ(after.step.step, before.step.step);
}

TEST(CodecChoice, codecs_that_the_job_fixes_stay) {
  Chain chain;
  const JudgedPlan after = finer_codecs(Problem(chain.topology, chain.job), chain.judged());
  EXPECT_TRUE(after.plan.activation_codecs.empty());
  EXPECT_TRUE(after.plan.reductions.empty());
}

TEST(CodecChoice, an_exchange_over_free_links_is_not_coded) {
  // Two replicas at two sites with nothing between them: int8 buys no time.
  const Topology topology = unit_topology({0, 1});
  Job job = unit_job(2, 4);
  job.gradients = Codec::kInt8;
  job.gradients_auto = true;
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 1, {2, 2});
  plan.layers = {2};
  const JudgedPlan judged{plan, *simulate_step(topology, job, plan), 0};
  const JudgedPlan after = finer_codecs(Problem(topology, job), judged);
  ASSERT_EQ(after.plan.reductions.size(), 1u);
  EXPECT_EQ(after.plan.reductions[0].codec, Codec::kNone);
}

}  // namespace
}  // namespace longhaul
