// `longhaul plan compare`: its status, and what it says differs.

#include <gtest/gtest.h>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

class PlanCompare : public testing::Test {
 protected:
  void SetUp() override { folder_.write_samples(); }

  RunResult compared(const std::string& text) const {
    folder_.write("other.yaml", text);
    return run_longhaul({"plan", "compare", "plan.yaml", "other.yaml"}, folder_.path());
  }
  void expect_different(const std::string& text, const std::vector<std::string>& says) const {
    const RunResult run = compared(text);
    EXPECT_EQ(run.status, 3) << run.err;
    for (const std::string& part : says) EXPECT_TRUE(run.out.contains(part)) << part << run.out;
  }

  const TemporaryFolder folder_;
};

TEST_F(PlanCompare, a_copy_is_the_same_plan) {
  const RunResult run = compared(std::string(kPlanText));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            "the same plan: 3 stages x 2 pipelines\n"
            "                      plan.yaml     other.yaml\n"
            "  predicted step  not predicted  not predicted\n");
}

TEST_F(PlanCompare, who_planned_and_what_was_predicted_are_no_part_of_a_plan) {
  // The default depths of 3 stages are 3, 2, 1: leaving them out changes nothing either.
  const RunResult run = compared(
      edited(kPlanText, ", in_flight: [3, 2, 1]", "") +
      "made_by: {policy: search, seed: 7}\npredicted: {step: 1.5 s, tokens_per_s: 2048}\n");
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_TRUE(run.out.contains("not predicted       1.5 s\n")) << run.out;
}

TEST_F(PlanCompare, each_part_of_a_plan_counts) {
  expect_different(edited(kPlanText, "[3, 3, 2]", "[2, 3, 3]"),
                   {"layers", "[3, 3, 2]", "[2, 3, 3]"});
  expect_different(edited(kPlanText, "[6, 6]", "[5, 7]"), {"micro-batches", "[6, 6]", "[5, 7]"});
  expect_different(
      edited(edited(kPlanText, "micro_batch: 2", "micro_batch: 4"), "[6, 6]", "[3, 3]"),
      {"micro-batch  ", "micro-batches"});
  expect_different(edited(kPlanText, "[3, 2, 1]", "[4, 2, 1]"),
                   {"in flight", "[3, 2, 1]", "[4, 2, 1]"});
  expect_different(edited(kPlanText, "{family: 1f1b, in_flight: [3, 2, 1]}", "{family: gpipe}"),
                   {"schedule", "1f1b", "gpipe", "[6, 6, 6]"});
  expect_different(edited(kPlanText, "coordinator: delft", "coordinator: riga"),
                   {"coordinator", "riga"});
}

TEST_F(PlanCompare, the_orders_of_a_greedy_schedule_count) {
  const std::string early = "F0 B0 W0 F1 B1 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5";
  const std::string late = "F0 B0 F1 B1 W0 W1 F2 B2 W2 F3 B3 W3 F4 B4 W4 F5 B5 W5";
  const auto greedy = [&](const std::string& last) {
    return edited(kPlanText, "{family: 1f1b, in_flight: [3, 2, 1]}",
                  "{family: greedy, in_flight: [6, 6, 6], orders: [" + early + ", " + early + ", " +
                      last + "]}");
  };
  folder_.write("plan.yaml", greedy(early));
  EXPECT_EQ(compared(greedy(early)).status, 0);
  expect_different(greedy(late), {"orders", "differ at stages [2]"});
}

TEST_F(PlanCompare, choices_beside_the_schedule_count) {
  folder_.write("job.yaml", edited(edited(kJobText, "recompute: false", "recompute: auto"),
                                   "{activations: bf16}", "{activations: auto, gradients: auto}"));
  const std::string chosen = std::string(kPlanText) +
                             "recompute: true\n"
                             "codecs: [{between: [delft, riga], activations: none}]\n"
                             "reductions: [{stage: 1, shares: [0.25, 0.75], codec: none}]\n";
  expect_different(
      chosen, {"  recompute                             -                              yes\n",
               "  activations delft - riga              -                             none\n",
               "  gradients of stage 1                  -  sharded, shares 0.25 0.75, none\n"});
  folder_.write("plan.yaml", chosen);
  EXPECT_EQ(compared(chosen).status, 0);
}

TEST_F(PlanCompare, devices_that_moved_are_named_for_each_stage) {
  // big/0 and big/1 change places: stages 0 and 1 each lose one and get the other.
  const RunResult run =
      compared(edited(kPlanText, "[big/0, big/1, big/2]", "[big/1, big/0, big/2]"));
  EXPECT_EQ(run.status, 3);
  EXPECT_TRUE(
      run.out.contains("  devices of stage   left   came\n"
                       "  0                 big/0  big/1\n"
                       "  1                 big/1  big/0\n"))
      << run.out;
  EXPECT_FALSE(run.out.contains("layers")) << run.out;
}

TEST_F(PlanCompare, another_pairing_of_the_same_devices_is_said) {
  expect_different(edited(edited(kPlanText, "delft-1/1, delft-2/0]", "big/1, delft-2/0]"),
                          "[big/0, big/1,", "[big/0, delft-1/1,"),
                   {"every stage has the same devices, in other pipelines"});
}

TEST_F(PlanCompare, grids_of_another_size_are_compared_stage_by_stage) {
  const std::string two = edited(
      edited(edited(edited(edited(kPlanText, "[3, 3, 2]", "[4, 4]"),
                           "- [delft-1/0, delft-1/1, delft-2/0]", "- [delft-1/0, delft-1/1]"),
                    "- [big/0, big/1, big/2]", "- [big/0, big/1]\n  - [delft-2/0, big/2]"),
             "[6, 6]", "[4, 4, 4]"),
      "[3, 2, 1]", "[2, 1]");
  // delft-2/0 moves from stage 2, which is gone, to stage 0, big/2 to stage 1.
  expect_different(two, {"3 stages x 2 pipelines", "2 stages x 3 pipelines",
                         "  0                                -  delft-2/0\n",
                         "  1                                -      big/2\n",
                         "  2                 big/2, delft-2/0          -\n"});
}

TEST_F(PlanCompare, another_state_of_the_inputs_is_noted_and_does_not_count) {
  folder_.write("slow.yaml", edited(kClusterText, "500 Mbit/s", "100 Mbit/s"));
  const RunResult run = compared(edited(kPlanText, "cluster.yaml", "slow.yaml"));
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_TRUE(run.out.contains("note: the plans are for another cluster")) << run.out;
}

TEST_F(PlanCompare, a_plan_that_cannot_be_read_is_no_difference) {
  EXPECT_EQ(compared(edited(kPlanText, "[3, 3, 2]", "[3, 3, 3]")).status, 2);
  const RunResult run =
      run_longhaul({"plan", "compare", "plan.yaml", "absent.yaml"}, folder_.path());
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.contains("absent.yaml")) << run.err;
  EXPECT_NE(run.status, 3);
  EXPECT_NE(run.status, 0);
}

}  // namespace
}  // namespace longhaul
