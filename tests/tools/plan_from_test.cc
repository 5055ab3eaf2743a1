// `longhaul plan` with rules and a past: --pin, --from and --horizon, --no-seeds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

class PlanFrom : public testing::Test {
 protected:
  PlanFrom() { folder_.write_samples(); }

  RunResult plan(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"plan",  "--cluster", "cluster.yaml",
                                          "--job", "job.yaml",  "--effort",
                                          "0.05",  "-o",        "made.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_longhaul(arguments, folder_.path());
  }
  Json json(std::vector<std::string> more) const {
    more.push_back("--json");
    const RunResult run = plan(more);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? Json::parse(run.out) : Json();
  }

  TemporaryFolder folder_;
};

TEST_F(PlanFrom, pinned_devices_stand_where_they_are_pinned) {
  const Json found = json({"--pin", "big/1=last", "--pin", "delft-2/0=0", "--stages", "2"});
  bool is_first = false, is_last = false;
  for (const Json& row : found["devices"]) {
    is_first = is_first || row[0] == "delft-2/0";
    is_last = is_last || row[1] == "big/1";
  }
  EXPECT_TRUE(is_first && is_last) << found["devices"];
}

TEST_F(PlanFrom, pins_that_cannot_be_are_refused) {
  const struct {
    std::vector<std::string> options;
    int status;
    const char* said;
  } cases[] = {
      {{"--pin", "bog/1=0"}, 2, "did you mean `big/1`?"},
      {{"--pin", "big/1"}, 2, "DEVICE=STAGE"},
      {{"--pin", "big/1=4", "--stages", "4"}, 2, "plans have 4 stages"},
      {{"--pin", "big/1=0", "--exclude", "riga"}, 2, "excluded and pinned"},
      {{"--pin", "big/1=0", "--pin", "big/1=2"}, 2, "stage 0 and to stage 2"},
      {{"--pin", "big/1=0", "--policy", "even"}, 2, "--pin and --from"},
      {{"--any-all-reduce", "--for", "torchrun"}, 2, "leave out --for"},
      {{"--pin", "big/1=8"}, 3, "can hold the plan"},
      {{"--pin", "big/1=0", "--pin", "big/2=0", "--pipelines", "1"}, 3, "can hold the plan"},
  };
  for (const auto& each : cases) {
    const RunResult run = plan(each.options);
    EXPECT_EQ(run.status, each.status) << run.err;
    EXPECT_TRUE(run.err.contains(each.said)) << run.err;
  }
}

TEST_F(PlanFrom, the_plan_in_use_is_compared_and_what_moves_is_said) {
  const Json found = json({"--from", "plan.yaml"});
  const Json& from = found["from"];
  EXPECT_EQ(from["plan"], "plan.yaml");
  EXPECT_EQ(from["gone"], Json::array());
  EXPECT_EQ(from["horizon_s"], 86400);
  ASSERT_FALSE(from["kept"].get<bool>()) << from;
  EXPECT_LT(found["step_s"], from["old_step_s"]);
  EXPECT_EQ(found["step_s"], from["found_step_s"]);
  EXPECT_GE(from["pays_after_steps"], 0);
  double all = 0;
  for (const Json& move : from["moves"]) all += move["bytes"].get<double>();
  EXPECT_EQ(from["bytes_moved"], all);
  const RunResult text = plan({"--from", "plan.yaml"});
  EXPECT_TRUE(text.out.contains("plan in use plan.yaml: step ")) << text.out;
  EXPECT_TRUE(text.out.contains("\nnew plan: step ")) << text.out;

  // A plan that was just made is not left again.
  EXPECT_EQ(plan({}).status, 0);
  folder_.write("used.yaml", read_text(folder_ / "made.yaml"));
  const Json again = json({"--from", "used.yaml"});
  EXPECT_TRUE(again["from"]["kept"].get<bool>()) << again["from"];
  EXPECT_EQ(again["step_s"], again["from"]["old_step_s"]);
  EXPECT_EQ(again["from"]["moves"], Json::array());
  EXPECT_TRUE(plan({"--from", "used.yaml"}).out.contains("\nkept: ")) << again;
}

TEST_F(PlanFrom, devices_that_are_gone_are_named_and_replaced) {
  folder_.write("cluster.yaml", edited(kClusterText, "3xlab", "2xlab"));
  const Json found = json({"--from", "plan.yaml"});
  EXPECT_EQ(found["from"]["gone"], Json::parse(R"(["big/2"])"));
  // Five devices are left for two pipelines of three stages: one pipeline is given up.
  EXPECT_GT(found["from"]["old_step_s"], 0);
  for (const Json& row : found["devices"]) {
    for (const std::string device : row) EXPECT_NE(device, "big/2");
  }
  const RunResult text = plan({"--from", "plan.yaml"});
  EXPECT_TRUE(text.out.contains("gone: big/2")) << text.out;
}

TEST_F(PlanFrom, what_cannot_be_a_plan_in_use_is_refused) {
  EXPECT_EQ(plan({"--from", "none.yaml"}).status, 2);
  EXPECT_EQ(plan({"--from", "job.yaml"}).status, 2);
  EXPECT_EQ(plan({"--horizon", "1h"}).status, 2);
  EXPECT_EQ(plan({"--from", "plan.yaml", "--horizon", "0 s"}).status, 2);
  EXPECT_EQ(plan({"--from", "plan.yaml", "--horizon", "soon"}).status, 2);
  EXPECT_EQ(plan({"--from", "plan.yaml", "--objective", "pareto"}).status, 2);
  EXPECT_EQ(plan({"--from", "plan.yaml", "--policy", "even"}).status, 2);
}

TEST_F(PlanFrom, seeds_never_make_the_plan_worse) {
  const Json with = json({});
  const Json without = json({"--no-seeds"});
  EXPECT_LE(with["step_s"], without["step_s"].get<double>() * 1.01);
}

}  // namespace
}  // namespace longhaul
