// What a plan chooses beside its grid and its schedule: read, written and held against the job.

#include "core/plan_choices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/core/fixtures.h"

namespace longhaul {
namespace {

using fixtures::unit_job;
using fixtures::unit_plan;
using fixtures::unit_topology;

/// Two pipelines of two stages on sites a, b, c and d, with a tied embedding and a job that leaves
/// everything to the plan, down to int8.
struct Case {
  Topology topology = unit_topology({0, 1, 2, 3});
  Job job = unit_job(2, 2, true);
  PlanFile file;

  Case() {
    file.plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {1, 1});
    file.cluster_path = "c";
    file.job_path = "j";
    job.recompute = Recompute::kAuto;
    job.activations = job.gradients = Codec::kInt8;
    job.activations_auto = job.gradients_auto = true;
  }

  std::string text() const { return plan_text(file, topology, job); }
  Result<PlanFile> parsed(const std::string& choices) const {
    return parse_plan(text() + choices, "plan.yaml", topology, job);
  }
  Plan plan_with(const std::string& choices) const {
    const Result<PlanFile> read = parsed(choices);
    EXPECT_TRUE(read) << choices << (read ? "" : read.error().text());
    return read ? read->plan : Plan{};
  }
  std::string errors_of(const std::string& choices) const {
    const Result<PlanFile> read = parsed(choices);
    EXPECT_FALSE(read) << choices;
    return read ? "" : read.error().text();
  }
};

TEST(PlanChoices, what_a_plan_does_not_say_is_not_written_and_is_the_jobs) {
  const Case c;
  for (const std::string_view key : {"recompute", "codecs", "reductions"}) {
    EXPECT_FALSE(c.text().contains(key)) << key;
  }
  const Plan plan = c.plan_with("");
  EXPECT_FALSE(recomputes(plan, c.job));
  EXPECT_EQ(activation_codec(plan, c.job, 3, 0), Codec::kInt8);
  for (int stage = 0; stage <= 2; ++stage) {
    EXPECT_EQ(reduction_of(plan, c.job, stage), (Reduction{.codec = Codec::kInt8}));
  }
  EXPECT_TRUE(shown_choices(plan, c.topology, c.job).empty());
}

TEST(PlanChoices, everything_that_is_said_comes_back) {
  Case c;
  c.file.plan.recompute = true;
  c.file.plan.activation_codecs = {{0, 2, Codec::kNone}, {1, 3, Codec::kBf16}};
  c.file.plan.reductions = {
      {ReduceShape::kSharded, {0.3, 0.7}, Codec::kBf16},
      {ReduceShape::kRing, {}, Codec::kInt8},
      {ReduceShape::kSharded, {0.25, 0.25, 0.5, 0}, Codec::kInt8},
  };
  EXPECT_TRUE(
      c.text().contains("recompute: true\n"
                        "codecs:  # where not the job's\n"
                        "  - {between: [a, c], activations: none}\n"
                        "  - {between: [b, d], activations: bf16}\n"
                        "reductions:  # others: sharded, equal, the job's codec\n"
                        "  - {stage: 0, shape: sharded, shares: [0.3, 0.7], codec: bf16}\n"
                        "  - {stage: 1, shape: ring}\n"
                        "  - {tied: true, shape: sharded, shares: [0.25, 0.25, 0.5, 0]}\n"))
      << c.text();
  const Plan plan = c.plan_with("");
  EXPECT_TRUE(plan.recompute);
  EXPECT_EQ(plan.activation_codecs, c.file.plan.activation_codecs);
  EXPECT_EQ(plan.reductions, c.file.plan.reductions);
  EXPECT_EQ(activation_codec(plan, c.job, 2, 0), Codec::kNone);
  EXPECT_EQ(activation_codec(plan, c.job, 0, 1), Codec::kInt8);

  std::vector<std::string> shown;
  for (const auto& [name, text] : shown_choices(plan, c.topology, c.job)) {
    shown.push_back(name + ": " + text);
  }
  EXPECT_EQ(shown,
            (std::vector<std::string>{
                "recompute: yes", "activations a - c: none", "activations b - d: bf16",
                "gradients of stage 0: sharded, shares 0.3 0.7, bf16", "gradients of stage 1: ring",
                "gradients of the tied embedding: sharded, shares 0.25 0.25 0.5 0"}));
}

TEST(PlanChoices, what_the_job_does_anyway_is_no_choice) {
  const Case c;
  const Plan plan = c.plan_with(
      "codecs: [{between: [d, b], activations: bf16}, {between: [a, b], activations: int8}]\n"
      "reductions: [{stage: 1, codec: int8}, {tied: true, shape: sharded}]\n");
  EXPECT_EQ(plan.activation_codecs, (std::vector<PairCodec>{{1, 3, Codec::kBf16}}));
  EXPECT_TRUE(plan.reductions.empty());
}

TEST(PlanChoices, shares_may_miss_1_by_a_millionth) {
  const Case c;
  const auto with = [](const std::string& shares) {
    return "reductions: [{stage: 0, shares: [" + shares + "]}]\n";
  };
  EXPECT_EQ(c.plan_with(with("0.3333333, 0.6666660")).reductions[0].shares.size(), 2u);
  EXPECT_TRUE(c.errors_of(with("0.3333333, 0.666665")).contains("the shares add up to 0.999998"));
  EXPECT_TRUE(c.errors_of(with("0.5, 0.500002")).contains("not to 1"));
  EXPECT_EQ(c.plan_with(with("1, 0")).reductions[0].shares, (std::vector{1.0, 0.0}));
  EXPECT_TRUE(c.errors_of(with("1.5, -0.5")).contains("from 0 to 1"));
}

TEST(PlanChoices, a_codec_is_as_fine_as_the_floor) {
  Case c;
  const auto codecs = [](const std::string& codec) {
    return "codecs: [{between: [a, b], activations: " + codec +
           "}]\nreductions: [{stage: 0, codec: " + codec + "}]\n";
  };
  for (const std::string fine : {"none", "bf16", "int8"}) c.plan_with(codecs(fine));
  c.job.activations = c.job.gradients = Codec::kBf16;
  c.plan_with(codecs("none"));
  c.plan_with(codecs("bf16"));
  const std::string coarse = c.errors_of(codecs("int8"));
  EXPECT_TRUE(coarse.contains("int8 is coarser than bf16, the floor of the job's activations"));
  EXPECT_TRUE(coarse.contains("int8 is coarser than bf16, the floor of the job's gradients"));
  // A job that chooses itself is right, also where a plan would be finer.
  c.job.activations_auto = c.job.gradients_auto = false;
  c.plan_with(codecs("bf16"));
  for (const std::string other : {"none", "int8"}) {
    const std::string errors = c.errors_of(codecs(other));
    EXPECT_TRUE(errors.contains("the job says `activations: bf16`")) << errors;
    EXPECT_TRUE(errors.contains("write `gradients: auto` in the job")) << errors;
  }
}

TEST(PlanChoices, gradients_of_activations_have_a_codec_of_their_own) {
  Case c;
  c.job.activations = Codec::kAqInt2;  // a floor of 2 bits
  c.job.history.emplace();
  const Plan plan = c.plan_with(
      "codecs: [{between: [a, b], activations: aq-int3, activation_gradients: int4}, {between: "
      "[a, c], activations: aq-int2, activation_gradients: int8}, {between: [b, c], activations: "
      "aq-int4}]\n");
  ASSERT_EQ(plan.activation_codecs.size(), 3u);
  EXPECT_EQ(activation_codec(plan, c.job, 1, 0), Codec::kAqInt3);
  EXPECT_EQ(activation_gradient_codec(plan, c.job, 1, 0), Codec::kInt4);
  EXPECT_EQ(activation_gradient_codec(plan, c.job, 0, 2), Codec::kInt8);
  EXPECT_EQ(activation_gradient_codec(plan, c.job, 1, 2), Codec::kInt8);  // usual beside aq-int4
  EXPECT_EQ(activation_gradient_codec(plan, c.job, 0, 3), Codec::kInt4);  // and beside aq-int2
  c.file.plan = plan;
  EXPECT_TRUE(
      c.text().contains("  - {between: [a, b], activations: aq-int3, activation_gradients: int4}\n"
                        "  - {between: [a, c], activations: aq-int2, activation_gradients: int8}\n"
                        "  - {between: [b, c], activations: aq-int4}\n"))
      << c.text();
  EXPECT_EQ(c.plan_with("").activation_codecs, plan.activation_codecs);
  EXPECT_EQ(shown_choices(plan, c.topology, c.job)[0].second, "aq-int3, gradients int4");
}

TEST(PlanChoices, a_codec_is_fit_for_what_it_writes) {
  Case c;
  c.job.activations = Codec::kHadamard4;
  const auto errors = [&](const std::string& pair) {
    return c.errors_of("codecs: [{between: [a, b], " + pair + "}]\n");
  };
  EXPECT_TRUE(errors("activations: int3").contains("3 bits without a history lose 17 %"));
  EXPECT_TRUE(errors("activations: aq-int4").contains("the job has no room for one"));
  EXPECT_TRUE(errors("activations: int4, activation_gradients: aq-int4")
                  .contains("sends their gradients directly"));
  EXPECT_TRUE(errors("activations: int4, activation_gradients: int3")
                  .contains("int3 is coarser than hadamard4"));
  EXPECT_TRUE(errors("activations: ternary").contains("must be one of none, bf16, fp16"));
  c.job.activation_gradients = Codec::kInt8;
  EXPECT_TRUE(errors("activations: int4, activation_gradients: int6")
                  .contains("the job says `activation_gradients: int8`"));
}

TEST(PlanChoices, recomputation_is_the_plans_where_the_job_says_auto) {
  Case c;
  EXPECT_TRUE(recomputes(c.plan_with("recompute: true\n"), c.job));
  EXPECT_FALSE(recomputes(c.plan_with("recompute: false\n"), c.job));
  c.job.recompute = Recompute::kYes;
  EXPECT_TRUE(recomputes(c.plan_with(""), c.job));
  EXPECT_TRUE(recomputes(c.plan_with("recompute: true\n"), c.job));
  EXPECT_TRUE(c.errors_of("recompute: false\n").contains("the job `recompute: yes`"));
  c.job.recompute = Recompute::kNo;
  EXPECT_FALSE(recomputes(c.plan_with("recompute: false\n"), c.job));
  EXPECT_TRUE(c.errors_of("recompute: true\n").contains("write `recompute: auto` in the job"));
}

TEST(PlanChoices, memory_is_that_of_the_plans_recomputation) {
  // Three layers, the first two on stage 0: as CheckMemory.recompute_makes_room, 832 bytes or 668.
  Topology topology = unit_topology({0, 1});
  Job job = unit_job(3, 3);
  job.recompute = Recompute::kAuto;
  Plan plan = unit_plan(ScheduleFamily::kOneForwardOneBackward, 2, {3});
  plan.layers = {2, 1};
  plan.in_flight = {3, 1};
  topology.kinds[0].memory = bytes(668);
  EXPECT_FALSE(check_memory(plan, topology, job));
  plan.recompute = true;
  EXPECT_TRUE(check_memory(plan, topology, job));
}

}  // namespace
}  // namespace longhaul
