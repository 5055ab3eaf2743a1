// `longhaul cluster build`: what it prints and writes, and that `plan` reads it as it is.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

RunResult build(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"cluster", "build"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_longhaul(all, folder.path());
}

TEST(ClusterBuild, plan_reads_what_it_wrote_and_says_what_is_modelled) {
  const TemporaryFolder folder;
  folder.write_samples();
  // The sample job does not fit one T4, so that links are part of the plan.
  const RunResult built =
      build(folder, {"--sites", "pittsburgh:2xt4,grenoble:2xt4", "-o", "labs/cluster.yaml"});
  ASSERT_EQ(built.status, 0) << built.err;
  EXPECT_EQ(built.err, "");
  const RunResult planned =
      run_longhaul({"plan", "--cluster", "labs/cluster.yaml", "--job", "job.yaml", "--effort",
                    "0.05", "--stages", "2", "--pipelines", "2", "--explain"},
                   folder.path());
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_TRUE(planned.err.contains("assumed: 2 latencies are modelled, not measured"))
      << planned.err;
  EXPECT_TRUE(planned.err.contains("assumed: 2 rates are modelled, not measured"));
  EXPECT_TRUE(planned.out.contains("2 modelled")) << planned.out;
}

TEST(ClusterBuild, the_table_says_what_is_measured_and_how_good_the_rest_is) {
  const TemporaryFolder folder;
  const RunResult built =
      build(folder, {"--sites", "tokyo:8xh100,frankfurt:4xa100,azure/eastus:2xt4,uksouth:t4"});
  ASSERT_EQ(built.status, 0) << built.err;
  // The ten regions know Tokyo and Frankfurt by these names: 223 ms and 0.36 Gbit/s.
  EXPECT_TRUE(built.out.contains("223 ms  measured, aws-ten-regions.csv    360 Mbit/s"))
      << built.out;
  // East US to UK South: 78 ms in the trace, no rate.
  EXPECT_TRUE(built.out.contains("78 ms       measured, azure-2026.csv")) << built.out;
  EXPECT_TRUE(built.out.contains("8 of 12 directed round trips are modelled")) << built.out;
  EXPECT_TRUE(built.out.contains("10 of 12 directed rates are modelled")) << built.out;
  EXPECT_TRUE(built.out.contains("half are within 6 %, nine in ten within 15 %")) << built.out;
  EXPECT_TRUE(built.out.contains("cluster cluster.yaml: 15 devices in 4 sites")) << built.out;
}

TEST(ClusterBuild, a_given_trace_goes_before_the_shipped_ones) {
  const TemporaryFolder folder;
  folder.write("mine.csv", "from,to,latency_ms,basis\ntokyo,frankfurt,250,rtt\n");
  folder.write("other.csv", "from,to,latency_ms,basis\natlantis,frankfurt,250,rtt\n");
  const RunResult built = build(folder, {"--sites", "tokyo:8xh100,frankfurt:4xa100", "--trace",
                                         "mine.csv", "--trace", "other.csv"});
  ASSERT_EQ(built.status, 0) << built.err;
  EXPECT_TRUE(built.out.contains("250 ms  measured, mine.csv  360 Mbit/s  measured, aws"))
      << built.out;
  EXPECT_FALSE(built.err.contains("mine.csv"));
  EXPECT_TRUE(built.err.contains("note: trace other.csv measured no pair of these sites"))
      << built.err;
}

TEST(ClusterBuild, the_same_command_writes_the_same_bytes) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments = {"--sites", "tokyo:8xh100,delft:t4,-33.9,18.4:2x8xt4",
                                              "--nic",   "25 Gbit/s",
                                              "--name",  "a name"};
  const RunResult first = build(folder, arguments);
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string cluster = read_text(folder / "cluster.yaml");
  const std::string links = read_text(folder / "cluster.links.csv");
  EXPECT_TRUE(cluster.contains("name: \"a name\"")) << cluster;
  EXPECT_TRUE(cluster.contains("{devices: 8xt4, count: 2, nic: 25 Gbit/s}")) << cluster;
  const RunResult second = build(folder, arguments);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(read_text(folder / "cluster.yaml"), cluster);
  EXPECT_EQ(read_text(folder / "cluster.links.csv"), links);
}

TEST(ClusterBuild, wrong_usage_is_refused_and_writes_nothing) {
  const TemporaryFolder folder;
  folder.write("broken.csv", "from,to\n");
  const struct {
    std::vector<std::string> arguments;
    std::string_view says;
  } cases[] = {
      {{}, "--sites is required"},
      {{"--sites", "tokio:8xh100"}, "--sites: no city or cloud region is named `tokio`"},
      {{"--sites", "tokyo:8xh1000"}, "--sites: unknown device kind"},
      {{"--sites", "tokyo:t4", "--nic", "25"}, "--nic: `25` has no unit"},
      {{"--sites", "tokyo:t4", "--uplink", "25 Gbps"}, "--uplink: "},
      {{"--sites", "tokyo:t4", "--rate-cap", "0 Gbit/s"}, "--rate-cap: no rate at all"},
      {{"--sites", "tokyo:t4", "--trace", "absent.csv"}, "cannot read trace absent.csv"},
      {{"--sites", "tokyo:t4", "--trace", "broken.csv"}, "broken.csv:1:1"},
      {{"--sites", "tokyo:t4", "--frobnicate"}, "--frobnicate"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.says);
    const RunResult run = build(folder, bad.arguments);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(run.err.contains(bad.says)) << run.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "cluster.yaml"));
  }
  const RunResult none = run_longhaul({"cluster"}, folder.path());
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(none.err.contains("subcommand is required")) << none.err;
}

TEST(ClusterBuild, a_place_that_cannot_be_written_is_a_failure) {
  const TemporaryFolder folder;
  folder.write("file", "");
  const RunResult run = build(folder, {"--sites", "tokyo:t4,osaka:t4", "-o", "file/cluster.yaml"});
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(run.err.contains("file/cluster")) << run.err;
}

}  // namespace
}  // namespace longhaul
