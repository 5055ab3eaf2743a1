#include "planner/explanation.h"

#include <gtest/gtest.h>

#include "core/rng.h"
#include "planner/search.h"
#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using namespace fixtures;

/// Two stages of one layer, one in each of two sites, four micro-batches of one sequence.
Plan two_sites() {
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {4});
  plan.in_flight = {3, 1};
  return plan;
}

TEST(Explanation, tiers_of_a_pipeline_whose_hop_takes_a_second) {
  // Stage 0: forward 1 s, backward 2 s. Stage 1 with the head: 1.125 s and 2.25 s.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(1), BytesPerSecond::infinity());
  const Job job = unit_job(2, 4);
  const Result<Explanation> explained = explain_plan(topology, job, two_sites(), {}, false, 1);
  ASSERT_TRUE(explained) << explained.error().text();

  // T1: fill 3 + 3.375 + 2; the period is stage 1's 3.375 (the cycle over both is 8.375 / 3); then
  // a commit there and back.
  const ClosedForm& parts = explained->closed_form;
  EXPECT_NEAR(parts.fill, 8.375, 1e-9);
  EXPECT_NEAR(parts.period, 3.375, 1e-9);
  EXPECT_NEAR(parts.steady, 3 * 3.375, 1e-9);
  EXPECT_NEAR(parts.exchange, 0, 1e-9);
  EXPECT_NEAR(parts.commit, 2, 1e-9);
  EXPECT_NEAR(parts.update, 0, 1e-9);
  EXPECT_NEAR(parts.seconds, 20.5, 1e-9);
  // T2: stage 1 works without a gap from 2 s to 15.5 s; its last gradient takes 1 s, then the last
  // backward of stage 0 2 s.
  EXPECT_EQ(explained->slowest_pipeline, 0);
  EXPECT_NEAR(explained->pipeline.value(), 18.5, 1e-9);
  // T3: the coordinator is with stage 0, so that the commit takes only the way to stage 1.
  EXPECT_NEAR(explained->step.value(), 19.5, 1e-9);
  // T0: stage 1 waits 2 s for its first input, works 4 x 3.375 s, and hears of the commit 1 s later
  // (to a quarter of a percent); 4 x (2 x 3 + 0.375) s of work over two devices; or one
  // micro-batch's forward, 1.125 and 1 s, and the gradients of its inputs, 1.25 s a layer and
  // 0.125.
  ASSERT_EQ(explained->bounds.size(), 3u);
  EXPECT_NEAR(explained->bounds[0].seconds, 16.5, 16.5 * 2.5e-3);
  EXPECT_EQ(explained->bounds[0].name, "compute, and all activations between a and b");
  EXPECT_NEAR(explained->bounds[1].seconds, 12.75, 1e-9);
  EXPECT_EQ(explained->bounds[1].name, "compute of the 2 fastest devices");
  EXPECT_NEAR(explained->bounds[2].seconds, 4.75, 1e-9);

  // Three hops are on the way: the first activation, the last gradient, the commit.
  ASSERT_EQ(explained->links.size(), 1u);
  EXPECT_NEAR(explained->links[0].saved_by_latency.value(), 3e-3, 1e-9);
  EXPECT_NEAR(explained->links[0].saved_by_rate.value(), 0, 1e-9);
}

TEST(Explanation, a_tenth_more_rate_saves_a_tenth_of_what_the_link_binds) {
  // 4 bytes at 0.4 B/s are 10 s each way. Four micro-batches, 10 s apart: the fourth
  // activation has arrived at 1 + 40 s; stage 1 takes 3.375 s, its gradient 10 s, stage 0 2 s. With
  // a tenth more rate 50 s on the link become 50 / 1.1.
  Topology topology = unit_topology({0, 1});
  set_link(topology, 0, 1, Seconds(0), bytes_per_second(0.4));
  Plan plan = two_sites();
  plan.in_flight = {4, 1};
  const Result<Explanation> explained = explain_plan(topology, unit_job(2, 4), plan, {}, false, 1);
  ASSERT_TRUE(explained) << explained.error().text();
  EXPECT_NEAR(explained->step.value(), 1 + 50 + 3.375 + 2, 1e-9);
  ASSERT_EQ(explained->links.size(), 1u);
  EXPECT_NEAR(explained->links[0].saved_by_rate.value(), 50 - 50 / 1.1, 1e-6);
  EXPECT_NEAR(explained->links[0].saved_by_latency.value(), 0, 1e-9);
  EXPECT_NEAR(explained->links[0].busy.value(), 40, 1e-9);
  EXPECT_NEAR(explained->links[0].wire.value(), 8 * 4, 1e-9);
}

TEST(Explanation, the_fullest_device_comes_first_and_a_site_alone_has_no_links) {
  Topology topology = unit_topology({0, 0});
  topology.kinds[1].memory = gibibytes(0.5);
  const Result<Explanation> explained =
      explain_plan(topology, unit_job(2, 4), two_sites(), {}, false, 1);
  ASSERT_TRUE(explained) << explained.error().text();
  ASSERT_EQ(explained->memory.size(), 2u);
  EXPECT_EQ(explained->memory[0].device, 1);
  EXPECT_EQ(explained->memory[0].stage, 1);
  EXPECT_EQ(explained->memory[0].size, gibibytes(0.5));
  EXPECT_GT(explained->memory[0].need, bytes(16 * 18));  // states of 16 + 1 + 2 parameters at least
  EXPECT_TRUE(explained->links.empty());
}

TEST(Explanation, agrees_with_the_search_and_does_not_depend_on_threads) {
  Topology topology = unit_topology({0, 0, 1, 2});
  Rng rng("explained cluster", 1);
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < a; ++b)
      set_link(topology, a, b, Seconds(rng.uniform()), bytes_per_second(20 + 100 * rng.uniform()));
  }
  const Job job = unit_job(4, 12);
  const SearchOptions options{.effort = 0.05, .limits = {2, 2, 1}};
  const Result<SearchResult> found = search_plan(topology, job, options);
  ASSERT_TRUE(found) << found.error().text();
  const Result<Explanation> one = explain_plan(topology, job, found->best.plan, {}, false, 1);
  const Result<Explanation> four = explain_plan(topology, job, found->best.plan, {}, false, 4);
  ASSERT_TRUE(one && four);
  EXPECT_EQ(one->closed_form.seconds, found->best.closed_form_s);
  EXPECT_EQ(one->step, found->best.step.step);
  const ClosedForm& parts = one->closed_form;
  EXPECT_NEAR(parts.fill + parts.steady + parts.exchange + parts.commit + parts.update,
              parts.seconds, 1e-9);
  ASSERT_FALSE(one->links.empty());
  ASSERT_EQ(one->links.size(), four->links.size());
  for (std::size_t i = 0; i < one->links.size(); ++i) {
    EXPECT_EQ(one->links[i].site, four->links[i].site);
    EXPECT_EQ(one->links[i].saved_by_rate, four->links[i].saved_by_rate);
    EXPECT_EQ(one->links[i].saved_by_latency, four->links[i].saved_by_latency);
  }
}

}  // namespace
}  // namespace longhaul
