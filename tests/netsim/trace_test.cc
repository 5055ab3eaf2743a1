#include "netsim/trace.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "core/hash.h"

namespace longhaul {
namespace {

Trace parsed(std::string_view text) {
  Result<Trace> trace = parse_trace(text, "t.csv");
  EXPECT_TRUE(trace) << trace.error().text();
  return std::move(trace).value();  // throws, which ends the test
}

std::string error_of(std::string_view text) {
  const Result<Trace> trace = parse_trace(text, "t.csv");
  EXPECT_FALSE(trace) << text;
  if (trace) return "";
  EXPECT_EQ(trace.error().code, ErrorCode::kInvalid);
  return trace.error().text();
}

const PairSummary& pair_of(const Trace& trace, const std::vector<PairSummary>& summaries,
                           std::string_view from, std::string_view to) {
  const auto row = static_cast<std::size_t>(trace.find_place(from));
  const auto column = static_cast<std::size_t>(trace.find_place(to));
  return summaries.at(row * trace.places.size() + column);
}

// ---- Reading.

TEST(ParseTrace, reads_every_canonical_column) {
  const Trace trace = parsed(
      "from,to,scope,time_s,latency_ms,basis,gbit_per_s,streams,loss,jitter_ms,origin,source\n"
      "tokyo,oregon,site_pair,12.5,48,one_way,0.523,4,0.01,1.5,modelled,somebody\n");
  EXPECT_EQ(trace.name, "t.csv");
  EXPECT_EQ(trace.places, (std::vector<std::string>{"tokyo", "oregon"}));
  ASSERT_EQ(trace.rows.size(), 1u);
  const TraceRow& row = trace.rows[0];
  EXPECT_EQ(row.from, 0);
  EXPECT_EQ(row.to, 1);
  EXPECT_EQ(row.scope, LinkScope::kSitePair);
  EXPECT_EQ(row.time_s, 12.5);
  EXPECT_EQ(row.latency, milliseconds(48));
  EXPECT_EQ(row.rate, gigabits_per_second(0.523));
  EXPECT_EQ(row.streams, 4);
  EXPECT_EQ(row.loss, 0.01);
  EXPECT_EQ(row.jitter, milliseconds(1.5));
  EXPECT_EQ(row.origin, Origin::kModelled);
  EXPECT_EQ(row.source, "somebody");
  EXPECT_EQ(row.line, 2);
}

TEST(ParseTrace, a_round_trip_is_halved_and_one_way_is_not) {
  const Trace trace = parsed("from,to,latency_ms,basis\na,b,67,rtt\na,b,67,one_way\n");
  EXPECT_EQ(trace.rows[0].latency, milliseconds(33.5));
  EXPECT_EQ(trace.rows[1].latency, milliseconds(67));
}

TEST(ParseTrace, what_is_left_out_has_its_default) {
  for (const std::string_view text : {"from,to,gbit_per_s\na,b,1\n",
                                      "from,to,scope,time_s,latency_ms,basis,gbit_per_s,streams,"
                                      "loss,jitter_ms,origin,source\na,b,,,,,1,,,,,\n"}) {
    const TraceRow row = parsed(text).rows.at(0);
    EXPECT_EQ(row.scope, LinkScope::kNode);
    EXPECT_FALSE(row.time_s);
    EXPECT_FALSE(row.latency);
    EXPECT_EQ(row.streams, 1);
    EXPECT_FALSE(row.loss);
    EXPECT_FALSE(row.jitter);
    EXPECT_EQ(row.origin, Origin::kMeasured);
    EXPECT_EQ(row.source, "");
  }
}

TEST(ParseTrace, columns_may_stand_in_any_order) {
  const Trace trace = parsed("gbit_per_s,to,from\n2,b,a\n");
  EXPECT_EQ(trace.places, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(trace.rows[0].rate, gigabits_per_second(2));
}

TEST(ParseTrace, quoted_fields_hold_commas_and_quotes) {
  const Trace trace = parsed(
      "from,to,gbit_per_s,source\n"
      "\"St. John's, NL\",b,1,\"the \"\"big\"\" one\"\n"
      "b,\"St. John's, NL\",\"2\",\"\"\n");
  EXPECT_EQ(trace.places, (std::vector<std::string>{"St. John's, NL", "b"}));
  EXPECT_EQ(trace.rows[0].source, "the \"big\" one");
  EXPECT_EQ(trace.rows[1].rate, gigabits_per_second(2));
  EXPECT_EQ(trace.rows[1].to, 0);
}

TEST(ParseTrace, comments_blank_lines_line_ends_and_marks_of_other_systems_are_taken) {
  const Trace trace = parsed(
      "\xef\xbb\xbf# saved by a spreadsheet\r\n"
      "\r\n"
      "from, to , gbit_per_s\r\n"
      "# half way\r\n"
      "a,\tb ,1\r\n"
      "\n"
      "b,a,2");  // no line end at the end
  ASSERT_EQ(trace.rows.size(), 2u);
  EXPECT_EQ(trace.places, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(trace.rows[0].line, 5);
  EXPECT_EQ(trace.rows[1].line, 7);
  EXPECT_EQ(trace.rows[1].rate, gigabits_per_second(2));
  // The mark alone may stand before the header too.
  EXPECT_EQ(parsed("\xef\xbb\xbf"
                   "from,to,gbit_per_s\na,b,1\n")
                .rows.size(),
            1u);
}

TEST(ParseTrace, the_hash_is_that_of_the_text) {
  const std::string_view text = "from,to,gbit_per_s\na,b,1\n";
  EXPECT_EQ(parsed(text).hash, hash_text(text));
  EXPECT_NE(parsed("from,to,gbit_per_s\na,b,2\n").hash, hash_text(text));
}

TEST(ParseTrace, finds_places_by_name) {
  const Trace trace = parsed("from,to,gbit_per_s\na,b,1\n");
  EXPECT_EQ(trace.find_place("b"), 1);
  EXPECT_EQ(trace.find_place("c"), -1);
}

struct BadTrace {
  std::string_view text;
  std::string_view says;
};

TEST(ParseTrace, what_is_wrong_is_refused_with_place_and_reason) {
  const BadTrace cases[] = {
      {"", "the trace is empty"},
      {"# only a comment\n", "the trace is empty"},
      {"from,to,gbit_per_s\n", "the trace has a header but no measurement"},
      {"from,gbit_per_s\na,1\n", "t.csv:1:1: error: column `to` is missing"},
      {"to,gbit_per_s\na,1\n", "column `from` is missing"},
      {"from,to,loss\na,b,0\n", "neither `latency_ms` nor `gbit_per_s`"},
      {"from,to,latency_ms\na,b,1\n", "`latency_ms` needs a column `basis`"},
      {"from,to,gbit_per_s,gbps\na,b,1,1\n", "t.csv:1:20: error: unknown column `gbps`"},
      {"from,to,latncy_ms,basis\na,b,1,rtt\n", "did you mean `latency_ms`?"},
      {"from,to,gbit_per_s,to\na,b,1,b\n", "t.csv:1:20: error: column `to` appears twice"},
      {"from,to,gbit_per_s\na,b\n", "t.csv:2:1: error: 2 fields, but the header has 3 columns"},
      {"from,to,gbit_per_s\na,b,1,2\n", "4 fields, but the header has 3 columns"},
      {"from,to,gbit_per_s\n,b,1\n", "the name of a place is empty"},
      {"from,to,gbit_per_s\na,\"\",1\n", "t.csv:2:3: error: the name of a place is empty"},
      {"from,to,gbit_per_s\na,b,fast\n", "t.csv:2:5: error: `fast` is not a number"},
      {"from,to,gbit_per_s\na,b,1 Gbit/s\n", "write the number alone"},
      {"from,to,gbit_per_s\na,b,nan\n", "is not a number"},
      {"from,to,gbit_per_s\na,b,inf\n", "is not a number"},
      {"from,to,gbit_per_s\na,b,\n", "this row has neither a latency nor a rate"},
      {"from,to,latency_ms,basis\na,b,5,\n", "t.csv:2:5: error: this latency has no `basis`"},
      {"from,to,latency_ms,basis\na,b,5,RTT\n", "`RTT` is not a value of `basis`"},
      {"from,to,gbit_per_s,scope\na,b,1,site\n", "one of: node, site_pair"},
      {"from,to,gbit_per_s,origin\na,b,1,guess\n", "one of: measured, mirrored, assumed, modelled"},
      {"from,to,gbit_per_s\n\"a,b,1\n", "a quoted field is not closed"},
      {"from,to,gbit_per_s\n\"a\"x,b,1\n", "t.csv:2:4: error: a quoted field must end at a comma"},
      {"from,to,gbit_per_s,streams\na,b,1,1.5\n", "`streams` must be a whole number"},
  };
  for (const BadTrace& bad : cases) {
    const std::string error = error_of(bad.text);
    EXPECT_TRUE(error.contains(bad.says)) << bad.text << "\n" << error;
  }
}

struct Boundary {
  std::string_view column;
  std::string_view inside;
  std::string_view outside;
};

TEST(ParseTrace, both_sides_of_every_limit) {
  const Boundary boundaries[] = {
      {"latency_ms", "0", "-0.001"},   {"latency_ms", "60000", "60000.1"},
      {"gbit_per_s", "1e-6", "9e-7"},  {"gbit_per_s", "1e6", "1000001"},
      {"streams", "1", "0"},           {"streams", "4096", "4097"},
      {"loss", "0", "-0.1"},           {"loss", "0.999", "1"},
      {"jitter_ms", "60000", "60001"}, {"time_s", "0", "-1"},
      {"time_s", "1e12", "1.1e12"},
  };
  for (const Boundary& at : boundaries) {
    const auto text = [&](std::string_view value) {
      // Of two columns of one name, the one under test goes instead of the fixed one.
      std::string header = "from,to,basis," + std::string(at.column);
      std::string row = "a,b,one_way," + std::string(value);
      if (at.column != "gbit_per_s") header += ",gbit_per_s", row += ",1";
      return header + "\n" + row + "\n";
    };
    EXPECT_TRUE(parse_trace(text(at.inside), "t.csv")) << at.column << " " << at.inside;
    const std::string error = error_of(text(at.outside));
    EXPECT_TRUE(error.contains("is outside")) << error;
  }
}

TEST(ParseTrace, at_most_1024_places) {
  std::string text = "from,to,gbit_per_s\n";
  for (int i = 1; i < 1024; ++i) text += "p0,p" + std::to_string(i) + ",1\n";
  EXPECT_EQ(parsed(text).places.size(), 1024u);
  EXPECT_TRUE(
      error_of(text + "p0,p1024,1\n").contains("t.csv:1025:4: error: more than 1024 places"));
}

TEST(LoadTrace, what_cannot_be_read_is_refused_by_name) {
  const Result<Trace> missing = load_trace("/nonexistent/t.csv");
  ASSERT_FALSE(missing);
  EXPECT_TRUE(missing.error().message.contains("/nonexistent/t.csv"));
  EXPECT_FALSE(load_trace(testing::TempDir()));  // a folder
}

// ---- Percentiles.

TEST(Summarise, interpolates_between_order_statistics) {
  // Four of each. Rank of percentile q is q / 100 x 3: 50 -> 1.5, half way between second and
  // third; 95 -> 2.85. Of the rate it is 100 - q: 95 -> rank 0.15.
  const Trace trace = parsed(
      "from,to,latency_ms,basis,gbit_per_s,loss,jitter_ms\n"
      "a,b,30,one_way,1,0.3,3\n"
      "a,b,10,one_way,4,0.1,1\n"
      "a,b,40,one_way,2,0.4,4\n"
      "a,b,20,one_way,3,0.2,2\n");
  struct Case {
    double percentile, latency_ms, gbit_per_s, loss;
  };
  for (const Case& c : {Case{0, 10, 4, 0.1}, Case{50, 25, 2.5, 0.25}, Case{95, 38.5, 1.15, 0.385},
                        Case{100, 40, 1, 0.4}}) {
    const std::vector<PairSummary> summaries = summarise(trace, c.percentile);
    const PairSummary& pair = pair_of(trace, summaries, "a", "b");
    EXPECT_EQ(pair.rows, 4u);
    EXPECT_NEAR(pair.latency->value(), c.latency_ms / 1e3, 1e-15);
    EXPECT_NEAR(pair.rate->value(), gigabits_per_second(c.gbit_per_s).value(), 1e-5);
    EXPECT_NEAR(pair.loss, c.loss, 1e-15);
    EXPECT_NEAR(pair.jitter.value(), c.latency_ms / 1e4, 1e-15);
  }
}

TEST(Summarise, one_measurement_is_every_percentile) {
  const Trace trace = parsed("from,to,latency_ms,basis,gbit_per_s\na,b,48,one_way,0.5\n");
  for (const double percentile : {0.0, 37.0, 100.0}) {
    const PairSummary pair = summarise(trace, percentile)[1];
    EXPECT_EQ(pair.latency, milliseconds(48));
    EXPECT_EQ(pair.rate, gigabits_per_second(0.5));
  }
}

TEST(Summarise, latency_and_rate_may_come_from_different_rows) {
  const Trace trace = parsed(
      "from,to,latency_ms,basis,gbit_per_s\n"
      "a,b,10,one_way,\n"
      "a,b,,,2\n"
      "a,b,20,one_way,\n"
      "b,a,30,one_way,\n");
  const std::vector<PairSummary> summaries = summarise(trace, 50);
  const PairSummary& there = pair_of(trace, summaries, "a", "b");
  EXPECT_EQ(there.latency, milliseconds(15));
  EXPECT_EQ(there.rate, gigabits_per_second(2));
  const PairSummary& back = pair_of(trace, summaries, "b", "a");
  EXPECT_EQ(back.latency, milliseconds(30));
  EXPECT_FALSE(back.rate);
  const PairSummary& inside = pair_of(trace, summaries, "a", "a");
  EXPECT_EQ(inside.rows, 0u);
  EXPECT_FALSE(inside.latency);
}

TEST(Summarise, scope_and_origin_are_those_of_the_last_row_that_has_the_figure) {
  const Trace trace = parsed(
      "from,to,gbit_per_s,latency_ms,basis,scope,origin\n"
      "a,b,1,,,node,measured\n"
      "a,b,2,,,site_pair,modelled\n"
      "a,b,,5,one_way,node,assumed\n");
  const PairSummary pair = summarise(trace, 50)[1];
  EXPECT_EQ(pair.scope, LinkScope::kSitePair);
  EXPECT_EQ(pair.rate_origin, Origin::kModelled);
  EXPECT_EQ(pair.latency_origin, Origin::kAssumed);
}

TEST(Summarise, a_row_that_does_not_say_loss_and_jitter_does_not_count_for_them) {
  // A ping with 2 % loss beside a throughput test: the median is 2 %, not half of it.
  const Trace trace = parsed(
      "from,to,gbit_per_s,latency_ms,basis,loss,jitter_ms\n"
      "a,b,,5,one_way,0.02,3\n"
      "a,b,2,,,,\n");
  const PairSummary pair = summarise(trace, 50)[1];
  EXPECT_EQ(pair.loss, 0.02);
  EXPECT_EQ(pair.jitter, milliseconds(3));
}

// ---- Writing.

TEST(TraceCsv, what_is_written_reads_back_the_same) {
  const Trace trace = parsed(
      "from,to,scope,time_s,latency_ms,basis,gbit_per_s,streams,loss,jitter_ms,origin,source\n"
      "\"St. John's, NL\",\"#2\",site_pair,12.5,69.81,rtt,0.523,4,0.01,1.5,modelled,\"the "
      "\"\"big\"\" one\"\n"
      "b,c,node,,48,one_way,,,,,measured,\n"
      "c,c,node,,,,7.69558550284,64,,,measured,x\n");
  EXPECT_EQ(
      trace_csv(trace, {"first", "second\nline"}),
      "# first\n"
      "# second?line\n"
      "from,to,scope,time_s,latency_ms,basis,gbit_per_s,streams,loss,jitter_ms,origin,source\n"
      "\"St. John's, NL\",\"#2\",site_pair,12.5,69.81,rtt,0.523,4,0.01,1.5,modelled,"
      "\"the \"\"big\"\" one\"\n"
      "b,c,node,,48,one_way,,,,,measured,\n"
      "c,c,node,,,,7.69558550284,64,,,measured,x\n");
}

TEST(TraceCsv, columns_that_say_nothing_are_left_out) {
  const Trace trace = parsed("from,to,latency_ms,basis\na,b,67,rtt\n");
  EXPECT_EQ(trace_csv(trace, {}), "from,to,latency_ms,basis\na,b,67,rtt\n");
}

TEST(Summarise, latency_and_rate_have_the_origin_of_the_last_row_that_says_them) {
  const Trace trace = parsed(
      "from,to,latency_ms,basis,gbit_per_s,origin\n"
      "a,b,10,one_way,,measured\n"
      "a,b,,,2,modelled\n");
  const PairSummary pair = summarise(trace, 50)[1];
  EXPECT_EQ(pair.latency_origin, Origin::kMeasured);
  EXPECT_EQ(pair.rate_origin, Origin::kModelled);
  EXPECT_EQ(pair.rows, 2u);
}

// ---- For people.

TEST(TraceTable, two_places) {
  const Trace trace = parsed(
      "from,to,latency_ms,basis,gbit_per_s\n"
      "tokyo,oregon,96,rtt,0.523\n"
      "oregon,tokyo,97,rtt,\n"
      "oregon,oregon,0.5,rtt,5\n");
  EXPECT_EQ(trace_table(trace, 50),
            "t.csv: 2 places, 3 rows, percentile 50\n"
            "\n"
            "one-way latency, ms (row to column; - = not measured)\n"
            "               tokyo     oregon\n"
            "tokyo              -         48\n"
            "oregon          48.5       0.25\n"
            "\n"
            "rate, Gbit/s (row to column; - = not measured)\n"
            "               tokyo     oregon\n"
            "tokyo              -      0.523\n"
            "oregon             -          5\n");
}

// ---- The traces that are shipped. Expected numbers: DT-FM's table (commit cda948f), by hand.

Trace shipped(const std::string& name) {
  Result<Trace> trace = load_trace(std::string(LONGHAUL_SOURCE_DIR) + "/traces/" + name + ".csv");
  EXPECT_TRUE(trace) << trace.error().text();
  return std::move(trace).value();  // throws, which ends the test
}

constexpr std::array<std::string_view, 10> kCities = {"oregon",    "virginia",  "ohio",   "tokyo",
                                                      "seoul",     "singapore", "sydney", "london",
                                                      "frankfurt", "ireland"};
constexpr double kCityMs[10][10] = {
    {0, 67, 49, 96, 124, 163, 139, 136, 143, 124},    // oregon
    {67, 0, 11, 143, 172, 230, 197, 76, 90, 67},      // virginia
    {49, 11, 0, 130, 159, 197, 185, 86, 99, 77},      // ohio
    {96, 143, 130, 0, 34, 73, 100, 210, 223, 199},    // tokyo
    {124, 172, 159, 34, 0, 74, 148, 238, 235, 228},   // seoul
    {163, 230, 197, 73, 74, 0, 92, 169, 155, 179},    // singapore
    {139, 197, 185, 100, 148, 92, 0, 262, 265, 254},  // sydney
    {136, 76, 86, 210, 238, 169, 262, 0, 14, 12},     // london
    {143, 90, 99, 223, 235, 155, 265, 14, 0, 24},     // frankfurt
    {124, 67, 77, 199, 228, 179, 254, 12, 24, 0},     // ireland
};
constexpr double kCityGbit[10][10] = {
    {0, 0.79, 1.1, 0.523, 0.46, 0.341, 0.36, 0.42, 0.404, 0.482},      // oregon
    {0.79, 0, 1.12, 0.524, 0.5, 0.364, 0.383, 1.16, 1.02, 1.05},       // virginia
    {1.1, 1.12, 0, 0.694, 0.529, 0.452, 0.484, 1.05, 0.799, 1.14},     // ohio
    {0.523, 0.524, 0.694, 0, 1.1, 1.01, 0.761, 0.366, 0.36, 0.465},    // tokyo
    {0.46, 0.5, 0.529, 1.1, 0, 1.14, 0.58, 0.342, 0.358, 0.335},       // seoul
    {0.341, 0.364, 0.452, 1.01, 1.14, 0, 0.816, 0.5, 0.535, 0.492},    // singapore
    {0.36, 0.383, 0.484, 0.761, 0.58, 0.816, 0, 0.326, 0.328, 0.344},  // sydney
    {0.42, 1.16, 1.05, 0.366, 0.342, 0.5, 0.326, 0, 1.14, 1.09},       // london
    {0.404, 1.02, 0.799, 0.36, 0.358, 0.535, 0.328, 1.14, 0, 1.08},    // frankfurt
    {0.482, 1.05, 1.14, 0.465, 0.335, 0.492, 0.344, 1.09, 1.08, 0},    // ireland
};

/// Every pair of the trace's places against the table; inside a place, against the given numbers.
void expect_cities(const Trace& trace, double ms_factor, double inside_ms, double inside_gbit) {
  const std::vector<PairSummary> summaries = summarise(trace, 50);
  for (std::size_t i = 0; i < kCities.size(); ++i) {
    if (trace.find_place(kCities[i]) < 0) continue;
    for (std::size_t j = 0; j < kCities.size(); ++j) {
      if (trace.find_place(kCities[j]) < 0) continue;
      const PairSummary& pair = pair_of(trace, summaries, kCities[i], kCities[j]);
      ASSERT_EQ(pair.rows, 1u) << kCities[i] << " " << kCities[j];
      EXPECT_EQ(pair.latency, milliseconds(i == j ? inside_ms : ms_factor * kCityMs[i][j]));
      EXPECT_EQ(pair.rate, gigabits_per_second(i == j ? inside_gbit : kCityGbit[i][j]));
      EXPECT_EQ(pair.latency_origin, i == j  ? Origin::kAssumed
                                     : i < j ? Origin::kMeasured
                                             : Origin::kMirrored);
    }
  }
}

TEST(ShippedTraces, ten_regions_are_round_trips) {
  const Trace trace = shipped("aws-ten-regions");
  EXPECT_EQ(trace.places.size(), 10u);
  EXPECT_EQ(trace.rows.size(), 100u);
  expect_cities(trace, 0.5, 0.25, 5);
}

TEST(ShippedTraces, dtfm_worldwide_reads_the_same_table_one_way) {
  const Trace trace = shipped("dtfm-5-worldwide");
  EXPECT_EQ(trace.places.size(), 8u);
  EXPECT_EQ(trace.rows.size(), 64u);
  expect_cities(trace, 1, 5, 2);
}

TEST(ShippedTraces, dtfm_regional) {
  const Trace trace = shipped("dtfm-4-regional");
  EXPECT_EQ(trace.places, (std::vector<std::string>{"virginia", "oregon", "california", "ohio"}));
  EXPECT_EQ(trace.rows.size(), 16u);
  const double ms[4][4] = {{5, 67, 59, 11}, {67, 5, 12, 49}, {59, 12, 5, 52}, {11, 49, 52, 5}};
  const double gbit[4][4] = {
      {2, 1.15, 1.05, 1.12}, {1.15, 2, 1.25, 1.1}, {1.05, 1.25, 2, 1.02}, {1.12, 1.1, 1.02, 2}};
  const std::vector<PairSummary> summaries = summarise(trace, 50);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      EXPECT_EQ(summaries[i * 4 + j].latency, milliseconds(ms[i][j]));
      EXPECT_EQ(summaries[i * 4 + j].rate, gigabits_per_second(gbit[i][j]));
    }
  }
}

TEST(ShippedTraces, dtfm_multi_datacenter) {
  const Trace trace = shipped("dtfm-3-multi-datacenter");
  const std::vector<PairSummary> summaries = summarise(trace, 50);
  ASSERT_EQ(summaries.size(), 4u);
  for (const std::size_t pair : {0u, 3u}) {
    EXPECT_EQ(summaries[pair].latency, milliseconds(1));
    EXPECT_EQ(summaries[pair].rate, gigabits_per_second(5));
  }
  for (const std::size_t pair : {1u, 2u}) {
    EXPECT_EQ(summaries[pair].latency, milliseconds(11));
    EXPECT_EQ(summaries[pair].rate, gigabits_per_second(1.12));
  }
}

/// Traces without distance: 100 Gbit/s inside an instance, the same elsewhere.
void expect_uniform(const Trace& trace, std::size_t places, double gbit_between) {
  ASSERT_EQ(trace.places.size(), places);
  const std::vector<PairSummary> summaries = summarise(trace, 50);
  for (std::size_t i = 0; i < places; ++i) {
    for (std::size_t j = 0; j < places; ++j) {
      const PairSummary& pair = summaries[i * places + j];
      if (i == j && trace.places[i].starts_with("standalone")) continue;  // one device: no inside
      EXPECT_EQ(pair.latency, seconds(0));
      EXPECT_EQ(pair.rate, gigabits_per_second(i == j ? 100 : gbit_between));
    }
  }
}

TEST(ShippedTraces, dtfm_datacenter_and_spot) {
  expect_uniform(shipped("dtfm-1-datacenter"), 8, 3.125);  // 25 Gbit/s for 8 devices
  expect_uniform(shipped("dtfm-2-spot"), 40, 1.25);        // 10 / 8
}

}  // namespace
}  // namespace longhaul
