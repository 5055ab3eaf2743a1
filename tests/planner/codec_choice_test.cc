#include "planner/codec_choice.h"

#include <gtest/gtest.h>

#include "core/plan.h"
#include "planner/search.h"
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

TEST(CodecChoice, a_floor_of_bits_goes_down_to_hadamard4_where_a_link_binds) {
  // Every byte between b and c is on the way of the first micro-batch: int4 would take 4 % more.
  Chain chain;
  chain.job.activations = Codec::kHadamard4;
  chain.job.activations_auto = true;
  const JudgedPlan after = finer_codecs(Problem(chain.topology, chain.job), chain.judged());
  EXPECT_EQ(after.plan.activation_codecs, (std::vector<PairCodec>{{0, 1, Codec::kNone}}));
  EXPECT_EQ(activation_codec(after.plan, chain.job, 1, 2), Codec::kHadamard4);
  EXPECT_EQ(activation_gradient_codec(after.plan, chain.job, 1, 2), Codec::kHadamard4);
}

TEST(CodecChoice, each_direction_is_chosen_by_itself_where_the_job_says_auto) {
  // From b to c is slow, back is free.
  Chain chain;
  chain.job.activations = Codec::kHadamard4;
  chain.job.activations_auto = true;
  chain.job.activation_gradients = Codec::kInt6;
  chain.job.activation_gradients_auto = true;
  link_of(chain.topology, 2, 1).rate = BytesPerSecond::infinity();
  const JudgedPlan after = finer_codecs(Problem(chain.topology, chain.job), chain.judged());
  EXPECT_EQ(after.plan.activation_codecs,
            (std::vector<PairCodec>{{0, 1, Codec::kNone, Codec::kNone},
                                    {1, 2, Codec::kHadamard4, Codec::kNone}}));
}

/// The chain with a floor of 3 bits, and room for so many of 8 samples: a history is 8,192 bytes,
/// and the middle stage has two boundaries.
Chain chain_with_room(double samples) {
  Chain chain;
  chain.job.activations = Codec::kAqInt3;
  chain.job.activations_auto = true;
  chain.job.history.emplace();
  chain.job.history->memory = bytes(2 * 8192 * samples);
  chain.job.history->disk = bytes(0);
  chain.job.history->samples = 8;
  return chain;
}

TEST(CodecChoice, a_history_is_kept_where_it_buys_time) {
  // One micro-batch at a time goes to c and back: aq-int3 takes 1,536 + 256 + 132 bytes, in whole
  // 64 1,984, and int6 back 3,268; int6 both ways would take longer by 1.3 KB, 0.13 s.
  const Chain chain = chain_with_room(8);
  const JudgedPlan after = finer_codecs(Problem(chain.topology, chain.job), chain.judged());
  EXPECT_EQ(after.plan.activation_codecs, (std::vector<PairCodec>{{0, 1, Codec::kNone}}));
  EXPECT_EQ(activation_codec(after.plan, chain.job, 1, 2), Codec::kAqInt3);
  EXPECT_EQ(activation_gradient_codec(after.plan, chain.job, 1, 2), Codec::kInt6);
}

TEST(CodecChoice, a_history_without_room_gives_way) {
  // With room for one sample of eight, most travel in bf16, four times as long as hadamard4.
  const Chain chain = chain_with_room(1);
  const JudgedPlan before = chain.judged();
  const JudgedPlan after = finer_codecs(Problem(chain.topology, chain.job), before);
  EXPECT_EQ(activation_codec(after.plan, chain.job, 0, 1), Codec::kNone);
  EXPECT_EQ(activation_codec(after.plan, chain.job, 1, 2), Codec::kHadamard4);
  EXPECT_EQ(activation_gradient_codec(after.plan, chain.job, 1, 2), Codec::kHadamard4);
  EXPECT_LT(after.step.step, before.step.step);
}

TEST(CodecChoice, a_search_without_room_for_histories_does_without) {
  Chain chain = chain_with_room(8);
  // Two stages of two layers and one, without histories.
  Job direct = chain.job;
  direct.activations = Codec::kHadamard4;
  SearchOptions options;
  options.limits.stages = 3;
  const Result<SearchResult> without = search_plan(chain.topology, direct, options);
  ASSERT_TRUE(without) << without.error().text();
  // Each device has room for what it needs without a history, and no byte more.
  const auto memory = memory_of(without->best.plan, chain.topology, direct);
  double most = 0;
  for (const MemoryUse& use : memory) most = std::max(most, use.total().value());
  for (DeviceKind& kind : chain.topology.kinds) kind.memory = bytes(most);
  const Result<SearchResult> found = search_plan(chain.topology, chain.job, options);
  ASSERT_TRUE(found) << found.error().text();
  EXPECT_TRUE(check_memory(found->best.plan, chain.topology, chain.job));
  for (const PairCodec& pair : found->best.plan.activation_codecs) {
    EXPECT_FALSE(has_history(pair.codec)) << name_of(pair.codec);
  }
  EXPECT_EQ(found->best.plan.activation_codecs.size(), 2u);
}

TEST(CodecChoice, a_job_whose_histories_find_no_room_is_told_so) {
  // A million samples of 8 KiB are more than a device's GiB.
  Chain chain = chain_with_room(1e6);
  chain.job.activations_auto = false;
  chain.job.history->samples = 1'000'000;
  SearchOptions options;
  options.limits.stages = 3;
  const Result<SearchResult> found = search_plan(chain.topology, chain.job, options);
  ASSERT_FALSE(found);
  EXPECT_TRUE(found.error().text().contains(
      "it fits with less `memory` in the job's `compression.history`"))
      << found.error().text();
}

TEST(CodecChoice, gradients_go_down_to_the_floor_of_bits) {
  // Two replicas over a slow link, which is all that takes time: int4 (4.5 bits) would take 5 %
  // more of it than hadamard4 (4.25).
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(0), bytes_per_second(100));
  for (DeviceKind& kind : topology.kinds) kind.rate.fill(flops_per_second(1e8));
  Job job = unit_job(2, 4);
  job.model.vocabulary = 4096;
  job.gradients = Codec::kHadamard4;
  job.gradients_auto = true;
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 1, {2, 2});
  plan.layers = {2};
  const JudgedPlan judged{plan, *simulate_step(topology, job, plan), 0};
  const JudgedPlan after = finer_codecs(Problem(topology, job), judged);
  EXPECT_EQ(reduction_of(after.plan, job, 0).codec, Codec::kHadamard4);
  job.gradients = Codec::kInt8;  // a higher floor
  const JudgedPlan higher{plan, *simulate_step(topology, job, plan), 0};
  EXPECT_EQ(reduction_of(finer_codecs(Problem(topology, job), higher).plan, job, 0).codec,
            Codec::kInt8);
}

}  // namespace
}  // namespace longhaul
