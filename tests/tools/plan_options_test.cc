// What `longhaul plan` answers beyond a plan: limits on devices, money, explanations, alternatives.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

/// Plans the sample job on the sample cluster: sites delft (delft-1 with two cards, delft-2 with
/// one) and riga (node big with three), all of kind lab at 1 USD/h.
class PlanOptions : public testing::Test {
 protected:
  PlanOptions() { folder_.write_samples(); }

  RunResult plan(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"plan",     "--cluster", "cluster.yaml", "--job",
                                          "job.yaml", "--effort",  "0.05"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_longhaul(arguments, folder_.path());
  }
  nlohmann::json json(std::vector<std::string> more) const {
    more.push_back("--json");
    const RunResult run = plan(more);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? nlohmann::json::parse(run.out) : nlohmann::json();
  }

  TemporaryFolder folder_;
};

TEST_F(PlanOptions, excluded_devices_stay_idle_and_baselines_obey_too) {
  const nlohmann::json found = json({"--exclude", "delft-1", "--exclude", "big", "--baselines"});
  EXPECT_EQ(found["devices"], nlohmann::json::parse(R"([["delft-2/0"]])"));
  // One device is left, on which all policies have the same plan but for the micro-batch.
  for (const auto& baseline : found["baselines"]) {
    ASSERT_TRUE(baseline.contains("ratio")) << baseline;
    EXPECT_LE(baseline["ratio"], 1.0) << baseline;
    if (baseline["policy"] == "even") continue;  // one sequence at a time, whatever that costs
    EXPECT_GT(baseline["ratio"], 0.9) << baseline;
  }
}

TEST_F(PlanOptions, one_site_is_enough_when_no_more_are_allowed) {
  const nlohmann::json found = json({"--max-sites", "1"});
  const std::string site_of_first = std::string(found["devices"][0][0]).substr(0, 3);
  for (const auto& row : found["devices"]) {
    for (const std::string device : row) EXPECT_TRUE(device.starts_with(site_of_first)) << device;
  }
}

TEST_F(PlanOptions, names_and_combinations_that_cannot_be_are_refused) {
  const RunResult unknown = plan({"--exclude", "rigga"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(unknown.err.contains("did you mean `riga`?")) << unknown.err;
  const RunResult nobody = plan({"--exclude", "lab"});
  EXPECT_EQ(nobody.status, 3);
  EXPECT_TRUE(nobody.err.contains("without lab")) << nobody.err;
  const RunResult deep = plan({"--exclude", "riga", "--stages", "4"});
  EXPECT_EQ(deep.status, 3);
  EXPECT_TRUE(deep.err.contains("4 stages") && deep.err.contains("without riga")) << deep.err;
  EXPECT_EQ(plan({"--max-sites", "0"}).status, 2);
  EXPECT_EQ(plan({"--max-cost", "0"}).status, 2);
  EXPECT_EQ(plan({"--max-cost", "nan"}).status, 2);
  EXPECT_EQ(plan({"--objective", "speed"}).status, 2);
  const RunResult dtfm = run_longhaul(
      {"plan", "--objective", "dtfm", "--stages", "2", "--max-sites", "2"}, folder_.path());
  EXPECT_EQ(dtfm.status, 2);
  EXPECT_TRUE(dtfm.err.contains("--max-sites")) << dtfm.err;
}

TEST_F(PlanOptions, the_cheapest_plan_takes_one_card_and_a_price_between_takes_fewer_than_all) {
  // All cards cost the same and every exchange costs time, so that one card alone is cheapest.
  const nlohmann::json cheapest = json({"--objective", "cost"});
  EXPECT_EQ(cheapest["devices"].size(), 1u);
  EXPECT_EQ(cheapest["devices"][0].size(), 1u);
  const auto usd = [](const nlohmann::json& found) {
    return found["usd_per_step"].get<double>() / (24 * 128) * 1e9;  // a billion tokens
  };
  const nlohmann::json fastest = json({});
  ASSERT_GT(usd(fastest), usd(cheapest));
  const double between = (usd(fastest) + usd(cheapest)) / 2;
  const nlohmann::json bounded = json({"--max-cost", std::to_string(between)});
  EXPECT_LE(usd(bounded), between);
  EXPECT_LE(bounded["step_s"], cheapest["step_s"]);
  EXPECT_GE(bounded["step_s"], fastest["step_s"]);
  const RunResult dear = plan({"--max-cost", std::to_string(usd(cheapest) / 2)});
  EXPECT_EQ(dear.status, 3);
  EXPECT_TRUE(dear.err.contains("USD a billion tokens")) << dear.err;
}

TEST_F(PlanOptions, a_trade_off_runs_from_the_fastest_plan_to_the_cheapest) {
  const nlohmann::json found = json({"--objective", "pareto"});
  const nlohmann::json& front = found["pareto"];
  ASSERT_GE(front.size(), 2u);
  EXPECT_EQ(front.front()["step_s"], found["step_s"]);
  EXPECT_EQ(found["step_s"], json({})["step_s"]);
  EXPECT_EQ(front.back()["usd_per_step"], json({"--objective", "cost"})["usd_per_step"]);
  int knees = 0;
  for (std::size_t i = 0; i < front.size(); ++i) {
    knees += front[i]["knee"].get<bool>() ? 1 : 0;
    if (i == 0) continue;
    EXPECT_GT(front[i]["step_s"], front[i - 1]["step_s"]);
    EXPECT_LT(front[i]["usd_per_step"], front[i - 1]["usd_per_step"]);
  }
  EXPECT_LE(knees, 1);
  const RunResult text = plan({"--objective", "pareto"});
  EXPECT_TRUE(text.out.contains("plans that none found beats in both time and price\n"))
      << text.out;
}

TEST_F(PlanOptions, without_prices_questions_about_money_are_refused) {
  folder_.write("lab.yaml", edited(kDeviceText, "price: 1 USD/h\n", ""));
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--objective", "cost"},
                                             {"--max-cost", "5"},
                                             {"--objective", "pareto", "--max-cost", "5"}}) {
    const RunResult run = plan(options);
    EXPECT_EQ(run.status, 2);
    EXPECT_TRUE(run.err.contains("no prices")) << run.err;
  }
  const RunResult pareto = plan({"--objective", "pareto"});
  EXPECT_EQ(pareto.status, 0) << pareto.err;
  EXPECT_TRUE(pareto.err.contains("no prices")) << pareto.err;
  const RunResult policy = plan({"--policy", "dtfm", "--max-cost", "5"});
  EXPECT_EQ(policy.status, 2);
  EXPECT_TRUE(policy.err.contains("policy dtfm knows no prices")) << policy.err;
}

TEST_F(PlanOptions, explain_prints_tiers_memory_links_and_alternatives) {
  const RunResult text = plan({"--explain"});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const std::string wanted :
       {"\nalso: ", "no traffic between sites", "T0 bound", ": binds\n", "T1 closed form",
        "T2 one pipeline", "T3 simulation", "memory of the devices, the fullest first\n"}) {
    EXPECT_TRUE(text.out.contains(wanted)) << wanted << " is not in\n" << text.out;
  }
  EXPECT_TRUE(text.out.contains("\nwhere the figures come from\n")) << text.out;
  EXPECT_TRUE(text.out.contains("left out of the search: ring")) << text.out;
  EXPECT_FALSE(plan({"--explain", "--any-all-reduce"}).out.contains("left out of the search"));
  EXPECT_EQ(plan({"--explain", "--threads", "3"}).out, text.out);
  // Riga has three cards: four stages must cross to Delft.
  const RunResult far = plan({"--explain", "--stages", "4", "--pipelines", "1"});
  EXPECT_TRUE(far.out.contains("busiest links between sites")) << far.out;
  EXPECT_TRUE(far.out.contains("  delft <-> riga ")) << far.out;
  EXPECT_FALSE(far.out.contains("also: ")) << far.out;
  // Without it nothing of the kind is printed.
  EXPECT_FALSE(plan({}).out.contains("also: "));
}

TEST_F(PlanOptions, explain_is_the_same_in_json) {
  const nlohmann::json found = json({"--explain"});
  const nlohmann::json& explained = found["explain"];
  const nlohmann::json& origins = explained["origins"];
  ASSERT_GE(origins.size(), 4u);  // a kind, latencies, rates, TCP
  EXPECT_EQ(origins.back()["what"], "TCP");
  for (const nlohmann::json& origin : origins) {
    for (const char* key : {"what", "figures", "origin"}) {
      EXPECT_FALSE(origin[key].get<std::string>().empty());
    }
  }
  EXPECT_EQ(explained["step_s"], found["step_s"]);
  EXPECT_EQ(explained["closed_form"]["total_s"], found["closed_form_s"]);
  double parts = 0;
  for (const std::string part : {"fill_s", "steady_s", "exchange_s", "commit_s", "update_s"})
    parts += explained["closed_form"][part].get<double>();
  EXPECT_NEAR(parts, explained["closed_form"]["total_s"], 1e-9);
  EXPECT_EQ(explained["bounds"].size(), 3u);
  EXPECT_EQ(explained["memory"].size(),
            found["stages"].get<std::size_t>() * found["pipelines"].get<std::size_t>());
  EXPECT_EQ(explained["links"], nlohmann::json::array());
  const nlohmann::json far = json({"--explain", "--stages", "4", "--pipelines", "1"});
  ASSERT_EQ(far["explain"]["links"].size(), 1u);
  EXPECT_EQ(far["explain"]["links"][0]["sites"], nlohmann::json::parse(R"(["delft", "riga"])"));
  // At least one activation, one gradient and the commit cross 20 ms links.
  EXPECT_GE(far["explain"]["links"][0]["latency_down_1_ms_saves_s"], 2.9e-3);
  EXPECT_EQ(far["alternatives"], nlohmann::json::array());
  ASSERT_LE(found["alternatives"].size(), 4u);
  ASSERT_GE(found["alternatives"].size(), 1u);
  for (const auto& other : found["alternatives"]) {
    EXPECT_TRUE(other["stages"] != found["stages"] || other["pipelines"] != found["pipelines"]);
    EXPECT_GE(other["step_s"], found["step_s"]);
  }
  // A policy's plan can be explained as well; it has no alternatives.
  const nlohmann::json ranked = json({"--explain", "--policy", "rank-order"});
  EXPECT_EQ(ranked["explain"]["step_s"], ranked["step_s"]);
  EXPECT_FALSE(ranked.contains("alternatives"));
}

}  // namespace
}  // namespace longhaul
