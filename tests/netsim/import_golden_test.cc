// Every sample of tests/golden/net against the trace that it makes. The expected files were looked
// through by hand; import_test.cc derives their important numbers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "netsim/import/import.h"

namespace longhaul {
namespace {

const std::string kFolder = std::string(LONGHAUL_SOURCE_DIR) + "/tests/golden/net/";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Sample {
  std::string expected;
  std::vector<std::string> files;
  ImportOptions options = {};
  std::string refused = {};  // what the error says, where it is one
};

ImportOptions with_pair(ImportOptions options = {}) {
  options.from = {"here"};
  options.to = {"there"};
  return options;
}

std::vector<Sample> samples() {
  ImportOptions rtt;
  rtt.basis = LatencyBasis::kRoundTrip;
  ImportOptions cloudping;
  cloudping.format = "cloudping";
  ImportOptions message;
  message.message = bytes(64e6);
  ImportOptions throughput = with_pair();
  throughput.event_type = "throughput";
  throughput.streams = 4;
  ImportOptions owdelay = with_pair();
  owdelay.event_type = "histogram-owdelay";
  ImportOptions streams;
  streams.streams = 1;
  return {
      {"dtfm", {"dtfm_10city_delay_bw.csv"}, rtt},
      {"cloudping_json", {"cloudping_co_p50_1y_2022-04-08.json"}, cloudping},
      {"cloudping_matrix", {"cloudping_co_p50_1y_2022-04-08_matrix.csv"}},
      {"aws", {"aws_ec2_get_aws_network_performance_data.json"}},
      {"", {"aws_egress_usd_per_gb_8regions.csv"}, {}, "prices of egress"},
      {"doit", {"doit_intercloud_throughput_2022-02_sample.csv"}},
      {"sailor", {"sailor_bandwidth_coeffs_sample.json"}, message},
      {"ripe_new", {"ripe_atlas_ping_fw5020_shape.jsonl"}},
      {"ripe_old", {"ripe_atlas_ping_fw1_doc_example.json"}},
      {"iperf3_tcp", {"iperf3_J_tcp_loopback.json"}, with_pair()},
      {"iperf3_udp", {"iperf3_J_udp_loopback.json"}, with_pair()},
      {"ping", {"ping_iputils_loopback.txt"}, with_pair()},
      {"ping_D", {"ping_D_timestamps_loopback.txt"}, with_pair()},
      {"wondernetwork", {"wondernetwork_pings_shape.csv", "wondernetwork_servers_shape.csv"}},
      {"astra_sim", {"astra_sim_network_2dim.yml"}},
      {"simgrid", {"simgrid_platform_2sites.xml"}},
      {"simgrid_nested", {"simgrid_nested_zones.xml"}},
      {"azure", {"azure_latency_excerpt.md"}},
      {"ibm", {"ibm_latency_excerpt.md"}},
      {"skyplane", {"skyplane_throughput_excerpt.csv", "skyplane_latency_excerpt.csv"}},
      {"mlab_csv", {"mlab_ndt7_shape.csv"}, with_pair()},
      {"mlab_json", {"mlab_ndt7_shape.json"}, with_pair()},
      {"esmond_throughput", {"esmond_throughput_shape.json"}, throughput},
      {"esmond_owdelay", {"esmond_owdelay_shape.json"}, owdelay},
      {"netperf_stream", {"netperf_stream_shape.csv"}, with_pair()},
      {"netperf_rr", {"netperf_rr_shape.csv"}, with_pair()},
      {"shadow", {"shadow_shape.gml"}},
      {"gcp", {"gcp_dashboard_shape.csv"}, streams},
  };
}

std::string imported_text(const ImportedTrace& imported) {
  std::vector<std::string> comments = imported.recognised;
  comments.insert(comments.end(), imported.assumptions.begin(), imported.assumptions.end());
  comments.insert(comments.end(), imported.conflicts.begin(), imported.conflicts.end());
  return trace_csv(imported.trace, comments);
}

TEST(ImportGolden, every_sample_makes_its_trace) {
  const bool writes = std::getenv("LONGHAUL_WRITE_GOLDEN") != nullptr;
  std::set<std::string> seen;
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.files[0]);
    std::vector<ImportFile> files;
    for (const std::string& name : sample.files) {
      files.push_back({name, text_of(kFolder + name)});
      seen.insert(name);
    }
    const Result<ImportedTrace> imported = import_traces(files, sample.options);
    if (!sample.refused.empty()) {
      ASSERT_FALSE(imported);
      EXPECT_TRUE(imported.error().message.contains(sample.refused)) << imported.error().text();
      continue;
    }
    ASSERT_TRUE(imported) << imported.error().text();
    const std::string text = imported_text(*imported);
    const std::string path = kFolder + "expected/" + sample.expected + ".csv";
    if (writes) std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(text, text_of(path));
    const Result<Trace> again = parse_trace(text, "again.csv");
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->rows.size(), imported->trace.rows.size());
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "README.md") continue;
    EXPECT_TRUE(seen.contains(name)) << name << " is imported by no row";
  }
}

}  // namespace
}  // namespace longhaul
