#include "netsim/import/import.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul {
namespace {

ImportedTrace imported(const std::vector<ImportFile>& files, const ImportOptions& options = {}) {
  Result<ImportedTrace> result = import_traces(files, options);
  EXPECT_TRUE(result) << result.error().text();
  return std::move(result).value();  // throws, which ends the test
}

ImportedTrace imported(const std::string& text, const ImportOptions& options = {}) {
  return imported({{"t.txt", text}}, options);
}

std::string error_of(const std::string& text, const ImportOptions& options = {}) {
  const Result<ImportedTrace> result = import_traces({{"t.txt", text}}, options);
  EXPECT_FALSE(result) << text;
  if (result) return "";
  EXPECT_EQ(result.error().code, ErrorCode::kInvalid);
  return result.error().text();
}

bool says(const std::vector<std::string>& lines, std::string_view text) {
  for (const std::string& line : lines) {
    if (line.contains(text)) return true;
  }
  return false;
}

ImportOptions rtt() {
  ImportOptions options;
  options.basis = LatencyBasis::kRoundTrip;
  return options;
}

ImportOptions pair_options() {
  ImportOptions options;
  options.from = {"a"};
  options.to = {"b"};
  return options;
}

// ---- Units of tables come from their headers.

TEST(ImportTable, names_of_columns_say_unit_and_basis) {
  struct Case {
    std::string header;
    std::string value;
    double one_way_ms;
  };
  // A round trip is halved; 12,000 us are 12 ms, 0.012 s too.
  for (const Case& c :
       {Case{"rtt_ms", "12", 6}, Case{"avg_rtt_us", "12000", 6}, Case{"one_way_ms", "12", 12},
        Case{"Round-trip latency (ms)", "12", 6}, Case{"owd_ns", "12000000", 12},
        Case{"ping (s)", "0.012", 6}, Case{"RTT", "12 ms", 6}, Case{"meanRttMs", "12", 6}}) {
    SCOPED_TRACE(c.header);
    const ImportedTrace got = imported("from,to," + c.header + "\na,b," + c.value + "\n");
    EXPECT_NEAR(got.trace.rows.at(0).latency->value(), c.one_way_ms / 1e3, 1e-12);
  }
}

TEST(ImportTable, bits_and_bytes_are_told_apart) {
  struct Case {
    std::string header;
    double bytes_per_second;
  };
  // 8 Mbit/s are 1e6 bytes/s; 8 MB/s 8e6; 8 MiB/s 8 x 2^20.
  for (const Case& c :
       {Case{"Mbps", 1e6}, Case{"bandwidth_mbps", 1e6}, Case{"throughput (Mbit/s)", 1e6},
        Case{"rate_mbit_per_s", 1e6}, Case{"MB/s", 8e6}, Case{"bitrate_MBps", 8e6},
        Case{"throughput_MiB/s", 8388608}, Case{"rate_bps", 1}, Case{"rate_Bps", 8},
        Case{"throughput_megabytes", 0}, Case{"gbit_s", 1e9}, Case{"kbytes/sec", 8e3}}) {
    SCOPED_TRACE(c.header);
    ImportOptions options;
    options.streams = 1;
    const std::string value =
        c.bytes_per_second <= 8 ? "8000" : "8";  // a rate below 1 kbit/s is none
    const double scale = c.bytes_per_second <= 8 ? 1000 : 1;
    const std::string text = "src,dst," + c.header + "\na,b," + value + "\n";
    if (c.bytes_per_second == 0) {
      EXPECT_FALSE(import_traces({{"t.csv", text}}, options));
      continue;
    }
    EXPECT_NEAR(imported(text, options).trace.rows.at(0).rate->value(), c.bytes_per_second * scale,
                1e-6);
  }
}

TEST(ImportTable, what_the_file_does_not_say_is_refused_until_it_is_declared) {
  EXPECT_TRUE(error_of("from,to,latency_ms\na,b,12\n").contains("round trips or one way?"));
  EXPECT_TRUE(error_of("from,to,rtt\na,b,12\n").contains("in which unit?"));
  EXPECT_TRUE(error_of("from,to,bandwidth\na,b,12\n", pair_options()).contains("streams"));
  ImportOptions options = rtt();
  options.streams = 4;
  EXPECT_TRUE(error_of("from,to,bandwidth\na,b,12\n", options).contains("bits or bytes"));
  EXPECT_TRUE(error_of("from,to,bandwidth_MBPS\na,b,12\n", options).contains("bits or bytes"));
  EXPECT_TRUE(error_of("from,to,bandwidth (mb/s)\na,b,12\n", options).contains("bits or bytes"));
  options.rate_unit = "MB/s";
  options.latency_unit = "us";
  const ImportedTrace got = imported("from,to,latency,bandwidth\na,b,12000,5\n", options);
  EXPECT_EQ(got.trace.rows.at(0).latency, milliseconds(6));
  EXPECT_EQ(got.trace.rows.at(0).rate, bytes_per_second(5e6));
  EXPECT_EQ(got.trace.rows.at(0).streams, 4);
  EXPECT_TRUE(says(got.assumptions, "rtt, as declared"));
  EXPECT_TRUE(says(got.assumptions, "in us, as declared"));
  EXPECT_TRUE(says(got.assumptions, "in MB/s, as declared"));
  EXPECT_TRUE(says(got.assumptions, "4 streams, as declared"));
}

TEST(ImportTable, semicolons_tabs_losses_jitter_times_and_blanks) {
  const ImportedTrace got = imported(
      "from;to;time;rtt_ms;loss_percent;jitter_ms;Mbps;streams\n"
      "a;b;2026-11-29T12:00:00Z;10;2;1.5;80;4\n"
      "a;b;1795953660;12;n/a;;-;\n");  // a minute later
  ASSERT_EQ(got.trace.rows.size(), 2u);
  EXPECT_EQ(got.trace.rows[0].loss, 0.02);
  EXPECT_EQ(got.trace.rows[0].jitter, milliseconds(1.5));
  EXPECT_EQ(got.trace.rows[0].rate, bytes_per_second(1e7));
  EXPECT_EQ(got.trace.rows[0].streams, 4);
  EXPECT_EQ(got.trace.rows[0].time_s, 0);
  EXPECT_EQ(got.trace.rows[1].time_s, 60);
  EXPECT_FALSE(got.trace.rows[1].loss);
  EXPECT_FALSE(got.trace.rows[1].rate);
  EXPECT_TRUE(says(got.assumptions, "time 0 of the trace is 2026-11-29 12:00:00 UTC"));
}

TEST(ImportTable, of_several_columns_the_mean_is_taken) {
  const ImportedTrace got =
      imported("from,to,min_rtt_ms,avg_rtt_ms,max_rtt_ms,mdev_ms\na,b,1,2,3,0.5\n");
  EXPECT_EQ(got.trace.rows.at(0).latency, milliseconds(1));
  EXPECT_EQ(got.trace.rows.at(0).jitter, milliseconds(0.5));
}

TEST(ImportTable, a_matrix_needs_to_be_told_what_its_numbers_are) {
  const std::string text = "x,a,b\na,0,10\nb,12,0\n";
  EXPECT_TRUE(error_of(text).contains("nothing says what the numbers of this matrix are"));
  ImportOptions options = rtt();
  options.latency_unit = "ms";
  const ImportedTrace got = imported(text, options);
  ASSERT_EQ(got.trace.rows.size(), 2u);  // zeros of the diagonal are not measured
  EXPECT_EQ(got.trace.rows[0].latency, milliseconds(5));
  EXPECT_EQ(got.trace.places[static_cast<std::size_t>(got.trace.rows[1].from)], "b");
  // The corner may say it.
  EXPECT_EQ(imported("rtt_ms,a,b\na,,10\nb,12,\n").trace.rows[0].latency, milliseconds(5));
}

TEST(ImportTable, markdown_tables_of_pairs) {
  const ImportedTrace got = imported(
      "# Links\n\n| from | to | RTT (ms) |\n|---|:-:|---|\n| **a** | `b` | 10 |\n| b | "
      "[c](http://x) | 20 |\n\ntext\n");
  ASSERT_EQ(got.trace.rows.size(), 2u);
  EXPECT_EQ(got.trace.places, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(got.trace.rows[1].line, 6);
}

TEST(ImportTable, json_lists_of_objects_are_tables) {
  const ImportedTrace got = imported(
      R"([{"from": "a", "to": "b", "rtt_ms": 10}, {"from": "b", "to": "a", "rtt_ms": null}])");
  ASSERT_EQ(got.trace.rows.size(), 1u);
  EXPECT_EQ(got.trace.rows[0].latency, milliseconds(5));
}

// ---- Formats whose numbers need a derivation. The golden test has all samples.

TEST(ImportFormats, doits_bitrates_are_bytes_a_second) {
  // 44,171,264 B/s are 353.37 Mbit/s; 191.605 ms are round trips.
  const ImportedTrace got = imported(
      "timestamp,run_id,from_cloud,from_region,to_cloud,to_region,bitrate_Bps,avgrtt\n"
      "2022-02-14T08:59:09Z,emosav,GCP,southamerica-east1,AWS,eu-west-2,44171264.0,191.605\n");
  EXPECT_EQ(got.trace.rows.at(0).rate, bytes_per_second(44171264));
  EXPECT_NEAR(got.trace.rows[0].latency->value(), 0.0958025, 1e-12);
  EXPECT_EQ(got.trace.places[0], "gcp:southamerica-east1");
}

TEST(ImportFormats, dtfms_table_is_read_as_declared) {
  const std::string text = "src,dst,delay_ms,bandwidth_gbps\nOregon,Virginia,67,0.79\n";
  EXPECT_TRUE(error_of(text).contains("round trips or one way?"));
  EXPECT_EQ(imported(text, rtt()).trace.rows.at(0).latency, milliseconds(33.5));
  ImportOptions one_way;
  one_way.basis = LatencyBasis::kOneWay;
  EXPECT_EQ(imported(text, one_way).trace.rows.at(0).latency, milliseconds(67));
  EXPECT_EQ(imported(text, one_way).trace.rows.at(0).rate, gigabits_per_second(0.79));
}

TEST(ImportFormats, sailors_fit_holds_from_one_megabyte_on) {
  // 0.01 x^2 + 0.1 x + 1 GB/s at x = log2(64 MB) = 6: 0.36 + 0.6 + 1 = 1.96; at most 1.5 for c.
  const std::string text = R"({"a": {"b": [[0.01, 0.1, 1], 9e9], "c": [[0.01, 0.1, 1], 1.5e9]}})";
  ImportOptions options;
  EXPECT_TRUE(error_of(text, options).contains("depend on the size of a message"));
  options.message = bytes(64e6);
  const ImportedTrace got = imported(text, options);
  EXPECT_NEAR(got.trace.rows.at(0).rate->value(), 1.96e9, 1);
  EXPECT_EQ(got.trace.rows.at(1).rate, bytes_per_second(1.5e9));
  EXPECT_EQ(got.trace.rows[0].origin, Origin::kModelled);
  options.message = bytes(1e6);
  EXPECT_TRUE(import_traces({{"t", text}}, options));
  options.message = bytes(1e6 - 1);
  EXPECT_TRUE(error_of(text, options).contains("does not hold for a message"));
  options.message = bytes(1024e6);
  EXPECT_TRUE(import_traces({{"t", text}}, options));
  options.message = bytes(1024e6 + 1e3);
  EXPECT_TRUE(error_of(text, options).contains("does not hold for a message"));
  options.message = bytes(64e6);
  EXPECT_TRUE(error_of(R"({"a": {"b": [[0.01, 0.1, -1], 9e9]}})", options)
                  .contains("the fit gives -0.04 GB/s"));  // 0.36 + 0.6 - 1
}

TEST(ImportFormats, ripes_lost_packets_are_losses_and_not_latencies) {
  // (10 + 12) / 2 = 11 ms; deviation 1 ms; 1 of 3 lost. The second result has lost everything.
  const ImportedTrace got = imported(
      R"({"fw": 5020, "prb_id": 7, "dst_name": "x", "timestamp": 1654959318, "sent": 3, "rcvd": 2,
 "result": [{"rtt": 10}, {"x": "*"}, {"rtt": 12}]})"
      "\n");
  EXPECT_EQ(got.trace.rows.at(0).latency, milliseconds(5.5));
  EXPECT_NEAR(*got.trace.rows[0].loss, 1.0 / 3, 1e-15);
  EXPECT_EQ(got.trace.rows[0].jitter, milliseconds(1));
  const std::string lines =
      R"({"prb_id": 7, "dst_name": "x", "timestamp": 1654959318, "sent": 1, "rcvd": 1, "min": 10, "avg": 10})"
      "\n"
      R"({"prb_id": 7, "dst_name": "x", "timestamp": 1654959378, "sent": 3, "rcvd": 0, "min": -1, "avg": -1})"
      "\n";
  const ImportedTrace two = imported(lines);
  EXPECT_EQ(two.trace.rows.size(), 1u);
  EXPECT_TRUE(says(two.assumptions, "1 results are left out: every packet was lost"));
}

TEST(ImportFormats, iperf3_counts_what_was_received_and_turns_round_with_reverse) {
  const auto text = [](const std::string& reverse) {
    return R"({"start": {"test_start": {"protocol": "TCP", "num_streams": 2, "reverse": )" +
           reverse +
           R"(}}, "end": {"streams": [{"sender": {"mean_rtt": 40000}}, {"sender": {"mean_rtt": 60000}}],
             "sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 8e9}}})";
  };
  // Microseconds: (40 + 60) / 2 ms round trip, 25 ms one way. 8 Gbit/s are 1e9 bytes/s.
  const ImportedTrace there = imported(text("0"), pair_options());
  EXPECT_EQ(there.trace.rows.at(0).rate, bytes_per_second(1e9));
  EXPECT_EQ(there.trace.rows[0].latency, milliseconds(25));
  EXPECT_EQ(there.trace.rows[0].streams, 2);
  EXPECT_EQ(there.trace.places[0], "a");
  EXPECT_EQ(imported(text("1"), pair_options()).trace.places[0], "b");
}

TEST(ImportFormats, ping_that_was_cut_off_has_its_replies) {
  // (10 + 14) / 2 = 12 ms round trips.
  const ImportedTrace got = imported(
      "PING x (192.0.2.1) 56(84) bytes of data.\n"
      "64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=10 ms\n"
      "64 bytes from 192.0.2.1: icmp_seq=3 ttl=64 time=14 ms\n",
      pair_options());
  EXPECT_EQ(got.trace.rows.at(0).latency, milliseconds(6));
  EXPECT_FALSE(got.trace.rows[0].loss);
  EXPECT_TRUE(says(got.assumptions, "the summary is missing"));
}

TEST(ImportFormats, ping_of_other_systems_and_with_losses) {
  const ImportedTrace got = imported(
      "PING x (192.0.2.1): 56 data bytes\n"
      "64 bytes from 192.0.2.1: icmp_seq=0 ttl=56 time=10.0 ms\n"
      "Request timeout for icmp_seq 1\n"
      "\n--- x ping statistics ---\n"
      "2 packets transmitted, 1 packets received, 50.0% packet loss\n"
      "round-trip min/avg/max/stddev = 10.0/10.0/10.0/0.0 ms\n",
      pair_options());
  EXPECT_EQ(got.trace.rows.at(0).latency, milliseconds(5));
  EXPECT_EQ(got.trace.rows[0].loss, 0.5);
}

TEST(ImportFormats, astra_sims_gigabytes_are_binary) {
  // 1.25 x 2^30 B/s; a switch is two links of 500 ns.
  const ImportedTrace got =
      imported("topology: [ Switch ]\nnpus_count: [ 2 ]\nbandwidth: [ 1.25 ]\nlatency: [ 500 ]\n");
  EXPECT_EQ(got.trace.rows.at(0).rate, bytes_per_second(1342177280));
  EXPECT_NEAR(got.trace.rows[0].latency->value(), 1e-6, 1e-18);
}

// ---- Several files.

TEST(ImportMerge, a_latency_matrix_and_a_table_of_rates_make_one_trace) {
  ImportOptions options;
  options.streams = 1;
  const ImportedTrace got = imported(
      {{"m.csv", "rtt_ms,a,b\na,,10\nb,12,\n"}, {"t.csv", "src,dst,Mbps\na,b,80\nb,a,40\n"}},
      options);
  ASSERT_EQ(got.trace.rows.size(), 4u);
  const std::vector<PairSummary> pairs = summarise(got.trace, 50);
  EXPECT_EQ(pairs[1].latency, milliseconds(5));
  EXPECT_EQ(pairs[1].rate, bytes_per_second(1e7));
  EXPECT_TRUE(got.conflicts.empty());
}

TEST(ImportMerge, the_newest_of_two_wins_and_both_are_named) {
  // Without dates the file named last; within a file, the line further down.
  const ImportFile old{"old.csv", "from,to,rtt_ms\na,b,10\n"};
  const ImportFile fresh{"new.csv", "from,to,rtt_ms\na,b,14\na,b,12\n"};
  const ImportedTrace got = imported({old, fresh});
  ASSERT_EQ(got.trace.rows.size(), 1u);
  EXPECT_EQ(got.trace.rows[0].latency, milliseconds(6));
  ASSERT_EQ(got.conflicts.size(), 2u);
  EXPECT_TRUE(got.conflicts[0].contains("a -> b: one-way latency 6 ms of table new.csv:3"));
  EXPECT_TRUE(got.conflicts[1].contains("replaces 5 ms of table old.csv:2"));
}

TEST(ImportMerge, dates_say_which_is_the_newest) {
  const auto month = [](const std::string& date, const std::string& ms) {
    return "## " + date + "\n| Average latency (ms) | a | b |\n|---|---|---|\n| a | | " + ms +
           " |\n";
  };
  const ImportedTrace got =
      imported({{"1.md", month("7 Dec 2025", "30")}, {"2.md", month("16 Nov 2025", "32")}});
  ASSERT_EQ(got.trace.rows.size(), 1u);
  EXPECT_EQ(got.trace.rows[0].latency, milliseconds(15));
}

TEST(ImportMerge, points_in_time_of_several_files_stay_together) {
  const auto ping = [](const std::string& time) {
    return "[" + time + "] 64 bytes from x: icmp_seq=1 ttl=64 time=10 ms\n";
  };
  const ImportedTrace got =
      imported({{"1.txt", ping("1795962032.5")}, {"2.txt", ping("1795962092.5")}}, pair_options());
  ASSERT_EQ(got.trace.rows.size(), 2u);
  EXPECT_EQ(got.trace.rows[0].time_s, 0.5);  // the trace begins with a whole second
  EXPECT_EQ(got.trace.rows[1].time_s, 60.5);
}

TEST(ImportMerge, a_trace_of_ours_keeps_its_times_and_origins) {
  const std::string text =
      "# assumed: time 0 of the trace is 2026-11-29 12:00:00 UTC\n"
      "from,to,time_s,latency_ms,basis,origin,source\n"
      "a,b,0,10,rtt,assumed,x\n"
      "a,b,60,12,rtt,assumed,x\n";
  const ImportedTrace got = imported({{"t.csv", text}, {"more.csv", text}});
  ASSERT_EQ(got.trace.rows.size(), 4u);
  EXPECT_EQ(got.trace.rows[3].time_s, 60);
  EXPECT_EQ(got.trace.rows[3].origin, Origin::kAssumed);
  EXPECT_EQ(got.trace.rows[3].source, "x");
}

TEST(ImportMerge, each_file_of_one_pair_has_its_own_ends) {
  const std::string ping = "64 bytes from x: icmp_seq=1 ttl=64 time=10 ms\n";
  ImportOptions options;
  options.from = {"a", "a"};
  options.to = {"b", "c"};
  const ImportedTrace got = imported({{"1.txt", ping}, {"2.txt", ping}}, options);
  EXPECT_EQ(got.trace.places, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(ImportMerge, places_are_renamed_whole_or_by_their_beginning) {
  ImportOptions options;
  options.rename = {"aws:*=*", "aws:x=site x"};
  const ImportedTrace got = imported("from,to,rtt_ms\naws:x,aws:y,1\nz,aws:x,2\n", options);
  EXPECT_EQ(got.trace.places, (std::vector<std::string>{"site x", "y", "z"}));
}

TEST(ImportMerge, the_same_input_makes_the_same_bytes) {
  const std::vector<ImportFile> files = {{"m.csv", "rtt_ms,a,b\na,,10\nb,12,\n"},
                                         {"n.csv", "rtt_ms,a,b\na,,11\nb,13,\n"}};
  const ImportedTrace first = imported(files);
  const ImportedTrace second = imported(files);
  EXPECT_EQ(trace_csv(first.trace, first.conflicts), trace_csv(second.trace, second.conflicts));
}

// ---- Refusals: each row dies at a check of its own.

struct Bad {
  std::string text;
  std::string says;
  ImportOptions options = {};
};

std::vector<Bad> bad_tables() {
  ImportOptions unknown;
  unknown.format = "iperf";
  ImportOptions both = rtt();
  both.latency_unit = "ms";
  both.rate_unit = "Mbit/s";
  ImportOptions parsec = rtt();
  parsec.latency_unit = "parsec";
  ImportOptions gbps;
  gbps.rate_unit = "Gbps";
  gbps.streams = 1;
  ImportOptions rename;
  rename.rename = {"x"};
  ImportOptions twice;
  twice.rename = {"x=y", "x=z"};
  ImportOptions doit;
  doit.format = "doit";
  return {
      {"", "the file is empty"},
      {"# a comment\n", "the file is empty"},
      {std::string("from,to\0", 8), "this is no text"},
      {"from,to,rtt_ms\na,b,\x01\n", "t.txt:2:5: error: control character 0x01"},
      {"from,to,rtt_ms\n", "no table in this file has a row"},
      {"schema: x\na, b, c\n", "not a format that is known, and no table"},
      {"[ ID] Interval Transfer Bitrate\n", "run iperf3 -J"},
      {"Reply from 192.0.2.1: bytes=32 time=14ms TTL=55\n", "ping of Windows is not read"},
      {"from,to,rtt_ms\na,b\n", "t.txt:2:1: error: 2 fields, but the header has 3 columns"},
      {"from,to,rtt_ms\n\"a,b,1\n", "t.txt:2:1: error: a quoted field is not closed"},
      {"from,to,rtt_ms\na,b,ten\n", "t.txt:2: error: `ten` is no number for `rtt_ms`"},
      {"from,to,rtt_ms\na,b,\"1,5\"\n", "write `.` before the decimals"},
      {"from,to,rtt_ms\na,,1\n", "the name of a place is empty"},
      {"from,to,rtt_ms\na,b,-1\n", "outside 0 to 60 s"},
      {"from,to,rtt_ms\na,b,60001\n", "a latency of 60.001 s is outside 0 to 60 s"},
      {"from,to,one_way_ms\na,b,60001\n", "a latency of 60.001 s is outside 0 to 60 s"},
      {"from,to,rtt_ms\na,b,\n", "no measurement in this file"},
      {"from,to,rtt_ms,ping_ms\na,b,1,2\n", "both look like the latency"},
      {"from,to,colour\na,b,red\n", "no column is a latency or a rate"},
      {"name,colour\na,red\n", "no columns for the two ends"},
      {"from,to,rtt_ms,loss\na,b,1,0.1\n", "percent or a fraction?"},
      {"from,to,rtt_ms,loss_percent\na,b,1,100\n", "a loss of 1 is outside 0 to 0.999"},
      {"from,to,Mbps,jitter,streams\na,b,1,1,1\n", "`jitter`: in which unit?"},
      {"from,to,Mbps,streams\na,b,1,1.5\n", "streams are a whole number"},
      {"from,to,Mbps,streams\na,b,1,\n", "how many streams reached it"},
      {"from,to,Mbps,streams\na,b,1e12,1\n", "outside 1 kbit/s to 1 Pbit/s"},
      {"from,to,rtt_ms,time\na,b,1,yesterday\n", "`yesterday` is no time"},
      {"from,to,rtt_ms\na,b,1\n", "--format: `iperf` is no format", unknown},
      {"from,to,rtt_ms\na,b,1\n", "--rename: `x` is not OLD=NEW", rename},
      {"from,to,rtt_ms\na,b,1\n", "`x` is renamed twice", twice},
      {"from,to,rtt_ms\na,b,1\n", "column `from_cloud` is missing", doit},
      {"x,a,b\na,,10\nb,12,\n", "import one matrix at a time", both},
      {"from,to,latency\na,b,1\n", "--latency-unit:", parsec},
      {"from,to,rate\na,b,1\n", "--rate-unit:", gbps},
      {"src,dst,cost\na,b,0.09\n", "prices of egress"},
      {"src_region,dst_region,throughput_sent\na,b,1\n", "`throughput_received` is missing"},
      {"source,destination,min,avg,max\n4,5,1,2,3\n", "the pings name servers by numbers alone"},
      {"Throughput,Throughput Units\n1,furlongs\n", "`furlongs` is no unit of a throughput"},
      {"from,to,latency_ms,basis\na,b,1,RTT\n", "`RTT` is not a value of `basis`"},
      {"| from | to | rtt_ms |\n|---|---|---|\n| a | b | 1 | 2 |\n",
       "4 cells, but the table has 3"},
  };
}

std::vector<Bad> bad_documents() {
  ImportOptions loss = pair_options();
  loss.event_type = "packet-loss-rate";
  ImportOptions throughput = pair_options();
  throughput.event_type = "throughput";
  throughput.streams = 1;
  ImportOptions rates = throughput;
  rates.event_type = "histogram-rtt";
  ImportOptions cloudping;
  cloudping.format = "cloudping";
  const std::string start = R"({"start": {"connected": [], "test_start": {"protocol": "TCP"}}, )";
  return {
      {"{\"a\": \n", "t.txt:2:1: error: the JSON ends too early"},
      {"{\"a\": 1,\n \"b\" 2}\n", "t.txt:2:6: error: this is not JSON"},
      {start + "\"intervals\": [", "iperf3 was cut off"},
      {start + "\"intervals\": []}", "the test did not end", pair_options()},
      {start + R"("intervals": [], "error": "unable to connect"})", "iperf3 failed"},
      {start + R"("end": {"sum_received": {"bits_per_second": 0}}})", "nothing was received",
       pair_options()},
      {start + R"("end": {"sum_received": {"bits_per_second": 8}}})",
       "say --from PLACE --to PLACE"},
      {"{\"a\": 1}", "JSON of no format that is known"},
      {"[]", "the list is empty"},
      {"[{\"a\": 1}, 2]", "item 2 of the list is no object"},
      {R"({"a": {"b": 1}})", "nothing says what these numbers"},
      {R"({"metadata": {"unit": "s"}, "data": {"a": {"b": 1}}})", "unit is `s`"},
      {R"({"a": {"b": "x"}})", "CloudPing's data are not numbers", cloudping},
      {R"({"DataResponses": 1})", "`DataResponses` is no list"},
      {R"({"DataResponses": [{"Metric": "jitter"}]})", "metric `jitter` is not read"},
      {R"({"DataResponses": [{"Metric": "aggregate-latency", "MetricPoints": [{"Value": 1, "StartDate": "x"}]}]})",
       "`StartDate` is no time"},
      {R"({"prb_id": 1})", "no target"},
      {R"({"msm_id": 1, "dst_name": "x"})", "no probe"},
      {R"({"prb_id": 1, "dst_name": "x", "type": "traceroute"})", "is a `traceroute`, not a ping"},
      {R"([{"ts": 1, "val": 2}])", "points of which event type?", pair_options()},
      {R"([{"ts": 1, "val": 2}])", "a trace has no row of a loss alone", loss},
      {R"([{"ts": "x", "val": 2}])", "`ts` is no number", throughput},
      {R"([{"ts": 1, "val": {}}])", "`val` is no number", throughput},
      {R"([{"ts": 1, "val": {"x": 1}}])", "is no histogram", rates},
      {"PING x\n3 packets transmitted, 0 received, 100% packet loss, time 1ms\n",
       "every packet was lost", pair_options()},
      {"PING x\n64 Bytes von x: icmp_seq=1 ttl=64 Zeit=1 ms\n", "LC_ALL=C", pair_options()},
      {"graph [\n node [\n id 0\n", "the graph ends too early"},
      {"graph [\n node [ label \"x\" ] ]\n", "a node has no `id`"},
      {"graph [\n node [ id 0 host_bandwidth_up \"1 Gb\" ] ]\n", "no value of `host_bandwidth_up`"},
      {"graph [\n node [ id 0 ]\n edge [ source 0 target 1 latency \"1 ms\" ] ]\n", "no node's id"},
      {"graph [\n node [ id 0 ]\n edge [ source 0 target 0 latency \"1\" ] ]\n",
       "t.txt:3: error: `1` is no value of `latency`"},
      {"graph [\n router [ id 0 ]\n node [ id 1 ] ]\n", "`router` in a graph is not read"},
      {"topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
       "its pairs are not alike"},
      {"topology: [ Ring ]\nnpus_count: [ 8, 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
       "different numbers of dimensions"},
      {"<?xml version='1.0'?><svg/>", "`svg` is not SimGrid's `platform`"},
  };
}

TEST(ImportRefusals, each_says_what_is_wrong_and_where) {
  for (const auto& rows : {bad_tables(), bad_documents()}) {
    for (const Bad& bad : rows) {
      const std::string error = error_of(bad.text, bad.options);
      EXPECT_TRUE(error.contains(bad.says)) << bad.text << "\n" << error;
    }
  }
}

TEST(ImportRefusals, a_declaration_that_contradicts_a_format_is_taken_and_told) {
  ImportOptions one_way = pair_options();
  one_way.basis = LatencyBasis::kOneWay;
  const ImportedTrace got = imported("64 bytes from x: icmp_seq=1 ttl=64 time=10 ms\n", one_way);
  EXPECT_EQ(got.trace.rows.at(0).latency, milliseconds(10));
  EXPECT_TRUE(says(got.assumptions, "one_way, as declared (they would be read as rtt"));
}

TEST(ImportRefusals, the_largest_latencies_are_taken) {
  EXPECT_EQ(imported("from,to,rtt_ms\na,b,60000\n").trace.rows.at(0).latency, seconds(30));
  EXPECT_EQ(imported("from,to,one_way_ms\na,b,60000\n").trace.rows.at(0).latency, seconds(60));
}

TEST(ImportRefusals, at_most_1024_places) {
  std::string text = "from,to,rtt_ms\n";
  for (int i = 1; i < 1024; ++i) text += "p0,p" + std::to_string(i) + ",1\n";
  EXPECT_EQ(imported(text).trace.places.size(), 1024u);
  EXPECT_TRUE(error_of(text + "p0,p1024,1\n").contains("1025 places; a trace has at most 1024"));
}

}  // namespace
}  // namespace longhaul
