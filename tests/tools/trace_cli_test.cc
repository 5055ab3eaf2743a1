// `trace import` and `trace check` as people run them.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/longhaul_process.h"
#include "tests/tools/sample_files.h"

namespace longhaul {
namespace {

const std::string kSamples = std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/net/";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CliTraceImport, the_trace_goes_to_stdout_and_what_was_taken_to_stderr) {
  const RunResult run = run_longhaul(
      {"trace", "import", kSamples + "dtfm_10city_delay_bw.csv", "--basis", "rtt"}, "/");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.contains("\nOregon,Virginia,67,rtt,0.79,1,"));
  EXPECT_TRUE(run.err.contains("recognised: dtfm_10city_delay_bw.csv is dtfm"));
  EXPECT_TRUE(
      run.err.contains("assumed: dtfm_10city_delay_bw.csv: the values of `delay_ms` are "
                       "rtt, as declared"));
  // Where it comes from stays with it.
  EXPECT_TRUE(run.out.contains("# dtfm_10city_delay_bw.csv says: source: github.com/DS3Lab/DT-FM"));
}

TEST(CliTraceImport, what_it_writes_can_be_planned_with_checked_and_imported_again) {
  const TemporaryFolder folder;
  folder.write_samples();
  const RunResult run = run_longhaul({"trace", "import", kSamples + "dtfm_10city_delay_bw.csv",
                                      "--basis", "rtt", "-o", "links2.csv"},
                                     folder.path());
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.contains("links2.csv: 45 rows between 10 places"));
  const RunResult check = run_longhaul({"trace", "check", "links2.csv"}, folder.path());
  EXPECT_EQ(check.status, 0) << check.out;
  EXPECT_TRUE(check.out.contains("45 directions have no latency")) << check.out;
  const RunResult again =
      run_longhaul({"trace", "import", "links2.csv", "-o", "links3.csv"}, folder.path());
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(again.err.contains("links2.csv is longhaul"));
  const RunResult plan =
      run_longhaul({"plan", "--trace", "links3.csv", "--devices", "Tokyo:2xv100,Seoul:2xv100",
                    "--job", "job.yaml", "--effort", "0.01"},
                   folder.path());
  EXPECT_EQ(plan.status, 0) << plan.err;
}

TEST(CliTraceImport, files_of_one_pair_each_have_their_ends) {
  const RunResult run = run_longhaul({"trace", "import", kSamples + "iperf3_J_tcp_loopback.json",
                                      kSamples + "ping_iputils_loopback.txt", "--from", "a", "--to",
                                      "b", "--from", "a", "--to", "c"},
                                     "/");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.contains("\na,b,0.233,rtt,14.8307356769,2,")) << run.out;
  EXPECT_TRUE(run.out.contains("\na,c,0.103,rtt,")) << run.out;
}

TEST(CliTraceImport, refusals_name_the_cure_and_leave_no_file) {
  const TemporaryFolder folder;
  const std::string prices = kSamples + "aws_egress_usd_per_gb_8regions.csv";
  const RunResult run = run_longhaul({"trace", "import", prices, "-o", "out.csv"}, folder.path());
  EXPECT_EQ(run.status, 2);
  EXPECT_TRUE(run.err.contains("key `egress`")) << run.err;
  EXPECT_EQ(text_of(folder.path() + "/out.csv"), "");
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--basis", "both"},
                                              {"--streams", "0"},
                                              {"--streams", "4097"},
                                              {"--message", "64"},
                                              {"--rename", "x"},
                                              {"--format", "iperf"}}) {
    std::vector<std::string> arguments = {"trace", "import", prices};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    const RunResult refused = run_longhaul(arguments, folder.path());
    EXPECT_EQ(refused.status, 2) << bad[0] << refused.err;
    EXPECT_TRUE(refused.err.contains(bad[0])) << refused.err;
  }
  EXPECT_EQ(run_longhaul({"trace", "import"}, "/").status, 2);
  EXPECT_EQ(run_longhaul({"trace", "import", "/nonexistent.csv"}, "/").status, 2);
}

TEST(CliTraceCheck, warnings_are_status_3_and_json_lists_them) {
  const std::string trace = std::string(LONGHAUL_SOURCE_DIR) + "/traces/dtfm-5-worldwide.csv";
  const RunResult run = run_longhaul({"trace", "check", trace, "--json"}, "/");
  EXPECT_EQ(run.status, 3) << run.err;
  const auto document = nlohmann::json::parse(run.out);
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["warnings"], 1);
  // The published scenario reads a table of round trips one way, and this sees it.
  EXPECT_EQ(document["findings"][0]["kind"], "unit");
  const RunResult fine = run_longhaul(
      {"trace", "check", std::string(LONGHAUL_SOURCE_DIR) + "/traces/aws-ten-regions.csv"}, "/");
  EXPECT_EQ(fine.status, 0) << fine.out;
  EXPECT_TRUE(fine.out.ends_with("0 warnings, 0 notes\n"));
}

}  // namespace
}  // namespace longhaul
