// `longhaul plan --objective dtfm` on raw matrices: what it prints can be recomputed from its
// stages, and what people get wrong is said with its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

const std::string kGolden = LONGHAUL_SOURCE_DIR "/tests/golden/dtfm/";

std::vector<std::string> dtfm_with(const std::string& latency, const std::string& rate,
                                   const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"plan",  "--objective",      "dtfm", "--latency-ms",
                                        latency, "--bandwidth-gbps", rate};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

RunResult run_golden(const std::string& name, const std::vector<std::string>& more,
                     const std::string& folder) {
  std::vector<std::string> all = {
      "--stages", "8", "--gradient-gb", "0.65", "--activation-gb", "0.47124922275543213"};
  all.insert(all.end(), more.begin(), more.end());
  return run_longhaul(
      dtfm_with(kGolden + name + ".delay_ms.csv", kGolden + name + ".bandwidth_gbps.csv", all),
      folder);
}

using Matrix = std::vector<std::vector<double>>;

Matrix read_matrix(const std::string& path) {
  Matrix matrix;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    matrix.emplace_back();
    std::stringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      matrix.back().push_back(std::stod(cell));
    }
  }
  return matrix;
}

struct Recomputed {
  double data_parallel_s = 0;
  double pipeline_s = 0;
};

/// The cost from the printed stages alone. The i-th devices form pipeline i, so a hop takes what
/// its slowest pipeline takes, and no matching is needed.
Recomputed recompute(const nlohmann::json& stages, const Matrix& latency_ms, const Matrix& gbps,
                     double gradient_gb, double activation_gb) {
  const auto groups = stages.get<std::vector<std::vector<std::size_t>>>();
  Recomputed out;
  for (const std::vector<std::size_t>& group : groups) {
    for (const std::size_t i : group) {
      double sum = 0;
      for (const std::size_t j : group) {
        if (i == j) continue;
        const double shard_gbit = gradient_gb * 8 / static_cast<double>(group.size());
        sum += 2 * (latency_ms[i][j] / 1000 + shard_gbit / gbps[i][j]);
      }
      out.data_parallel_s = std::max(out.data_parallel_s, sum);
    }
  }
  for (std::size_t s = 1; s < groups.size(); ++s) {
    double slowest = 0;
    for (std::size_t i = 0; i < groups[s].size(); ++i) {
      const std::size_t from = groups[s - 1][i];
      const std::size_t to = groups[s][i];
      slowest = std::max(slowest, latency_ms[from][to] / 1000 + activation_gb * 8 / gbps[from][to]);
    }
    out.pipeline_s += 2 * slowest;  // forward and backward
  }
  return out;
}

TEST(DtfmCommand, printed_cost_follows_from_the_printed_stages) {
  const TemporaryFolder folder;
  for (const std::string name : {"case1_spot", "case3_regional", "hardA_worldwide8_uneven"}) {
    const RunResult run = run_golden(name, {"--json", "--effort", "0.1"}, folder.path());
    ASSERT_EQ(run.status, 0) << run.err;
    const nlohmann::json out = nlohmann::json::parse(run.out);
    std::vector<int> devices;
    for (const auto& stage : out.at("stages")) {
      EXPECT_EQ(stage.size(), 8u);
      for (const int device : stage) devices.push_back(device);
    }
    std::ranges::sort(devices);
    ASSERT_EQ(devices.size(), 64u);
    for (int device = 0; device < 64; ++device) {
      EXPECT_EQ(devices[static_cast<std::size_t>(device)], device);
    }
    const Recomputed cost =
        recompute(out.at("stages"), read_matrix(kGolden + name + ".delay_ms.csv"),
                  read_matrix(kGolden + name + ".bandwidth_gbps.csv"), 0.65, 0.47124922275543213);
    EXPECT_NEAR(out.at("data_parallel_s").get<double>(), cost.data_parallel_s, 1e-9);
    EXPECT_NEAR(out.at("pipeline_s").get<double>(), cost.pipeline_s, 1e-9);
    const double total = out.at("cost_s");
    const double bound = out.at("lower_bound_s");
    EXPECT_NEAR(total, cost.data_parallel_s + cost.pipeline_s, 1e-9);
    EXPECT_LE(bound, total);
    EXPECT_NEAR(out.at("gap").get<double>(), total / bound - 1, 1e-12);
    EXPECT_GT(out.at("evaluations").get<int>(), 0);
    EXPECT_GE(out.at("seconds").get<double>(), 0);
    EXPECT_FALSE(out.at("binding").get<std::string>().empty());
  }
}

TEST(DtfmCommand, regional_and_spot_are_proven_optimal) {
  // 2 x (3 x 0.0377 + 4 x 3.0160) + 7.28 (tests/golden/dtfm/README.md), and four regions' optimum.
  const TemporaryFolder folder;
  for (const auto& [name, optimum] :
       {std::pair<std::string, double>{"case1_spot", 31.634159832},
        std::pair<std::string, double>{"case3_regional", 34.802041017}}) {
    const RunResult run = run_golden(name, {"--json"}, folder.path());
    ASSERT_EQ(run.status, 0) << run.err;
    const nlohmann::json out = nlohmann::json::parse(run.out);
    EXPECT_NEAR(out.at("cost_s").get<double>(), optimum, 1e-8);
    EXPECT_EQ(out.at("lower_bound_s"), out.at("cost_s"));
    EXPECT_EQ(out.at("gap"), 0);
    EXPECT_EQ(out.at("binding"), "exact");
  }
}

TEST(DtfmCommand, same_seed_prints_the_same_but_for_the_seconds) {
  const TemporaryFolder folder;
  std::vector<nlohmann::json> seen;
  for (const char* threads : {"1", "3"}) {
    const RunResult run = run_golden(
        "hardA_worldwide8_uneven",
        {"--json", "--effort", "0.05", "--seed", "7", "--threads", threads}, folder.path());
    ASSERT_EQ(run.status, 0) << run.err;
    seen.push_back(nlohmann::json::parse(run.out));
    seen.back().erase("seconds");
  }
  EXPECT_EQ(seen[0].dump(), seen[1].dump());
}

TEST(DtfmCommand, without_json_a_short_table) {
  const TemporaryFolder folder;
  const RunResult run = run_golden("case3_regional", {"--time-limit", "1s"}, folder.path());
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.contains("64 devices in 8 stages of 8")) << run.out;
  EXPECT_TRUE(run.out.contains("cost 34.8020 s")) << run.out;
  EXPECT_TRUE(run.out.contains("proven: no placement costs less")) << run.out;
  EXPECT_LE(std::ranges::count(run.out, '\n'), 14);
}

struct BadInput {
  std::string latency;
  std::string rate;
  std::vector<std::string> options;
  std::string says;  // on stderr
};

TEST(DtfmCommand, bad_input_is_refused_with_its_place) {
  const std::string good = "0,1\n1,0\n";
  const std::vector<std::string> amounts = {"--stages",        "2", "--gradient-gb", "1",
                                            "--activation-gb", "1"};
  const std::vector<std::string> no_stages = {"--gradient-gb", "1", "--activation-gb", "1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = amounts;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto stages = [&](const std::string& count) {
    return std::vector<std::string>{"--stages",        count, "--gradient-gb", "1",
                                    "--activation-gb", "1"};
  };
  const std::vector<BadInput> cases = {
      {"0,1\n1,x\n", good, amounts, "l.csv:2:3"},
      {"0,1\n1\n", good, amounts, "l.csv:2:2"},
      {"0,1,2\n1,0\n", good, amounts, "l.csv:2:4: error: 2 numbers where 3 are wanted"},
      {"0,1\n", good, amounts, "l.csv:2:1"},
      {"0,1\n1,0\n0,0\n", good, amounts, "l.csv:3:1"},
      {"", good, amounts, "l.csv:1:1"},
      {good, "0,1\n1,\n", amounts, "b.csv:2:3: error: '' is not a number"},
      {good, "0,1,1\n1,0,1\n1,1,0\n", amounts, "b.csv:1:5: error: more than 2 numbers"},
      {good, "0\n", amounts, "b.csv:1:2"},
      {"0,1\n-3,0\n", good, amounts,
       "l.csv:2: error: the latency from device 1 to 0 cannot be -3 ms"},
      {"0,inf\n1,0\n", good, amounts, "l.csv:1: error: the latency from device 0 to 1"},
      {"0,nan\n1,0\n", good, amounts, "l.csv:1: error: the latency from device 0 to 1"},
      {good, "0,0\n1,0\n", amounts,
       "b.csv:1: error: the rate from device 0 to 1 cannot be 0 Gbit/s"},
      {good, "0,-1\n1,0\n", amounts, "b.csv:1: error: the rate from device 0 to 1"},
      {good, good, stages("3"), "2 devices cannot be divided into 3 equal stages"},
      {good, good, stages("0"), "--stages"},
      {good, good, no_stages, "needs a number of stages"},
      {good, good, {"--stages", "2"}, "needs the amounts of data"},
      {good, good, {"--stages", "2", "--gradient-gb", "1"}, "needs the amounts of data"},
      {good, good, {"--stages", "2", "--gradient-gb", "-1", "--activation-gb", "1"}, "-1"},
      {good, good, {"--stages", "2", "--gradient-gb", "nan", "--activation-gb", "1"}, "nan"},
      {good, good, with({"--seed", "-1"}), "--seed"},
      {good, good, with({"--time-limit", "1"}), "--time-limit"},
      {good, good, with({"--job", "job.yaml"}), "no --job"},
  };
  for (const BadInput& bad : cases) {
    SCOPED_TRACE(bad.says);
    const TemporaryFolder folder;
    folder.write("l.csv", bad.latency);
    folder.write("b.csv", bad.rate);
    const RunResult run = run_longhaul(dtfm_with("l.csv", "b.csv", bad.options), folder.path());
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(bad.says)) << run.err;
  }
  const TemporaryFolder folder;
  folder.write("l.csv", good);
  folder.write("b.csv", good);
  EXPECT_EQ(run_longhaul(dtfm_with("absent.csv", "b.csv", amounts), folder.path()).status, 2);
  EXPECT_EQ(run_longhaul({"plan", "--objective", "dtfm"}, folder.path()).status, 2);
  // The smallest that is accepted: one device a stage, no data.
  const RunResult run = run_longhaul(
      dtfm_with("l.csv", "b.csv",
                {"--stages", "2", "--gradient-gb", "0", "--activation-gb", "0", "--json"}),
      folder.path());
  ASSERT_EQ(run.status, 0) << run.err;
  // One hop of 1 ms, there and back.
  EXPECT_NEAR(nlohmann::json::parse(run.out).at("cost_s").get<double>(), 0.002, 1e-12);
}

}  // namespace
}  // namespace longhaul
