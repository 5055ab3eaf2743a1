#include "netsim/trace_check.h"

#include <gtest/gtest.h>

#include <string>

namespace longhaul {
namespace {

using Weight = TraceFinding::Weight;

TraceCheck checked(const std::string& text) {
  const Result<Trace> trace = parse_trace(text, "t.csv");
  EXPECT_TRUE(trace) << trace.error().text();
  return check_trace(trace.value());  // throws, which ends the test
}

/// The first finding of that kind and weight whose message has the text.
bool finds(const TraceCheck& check, Weight weight, std::string_view kind, std::string_view text) {
  for (const TraceFinding& one : check.findings) {
    if (one.weight == weight && one.kind == kind && one.message.contains(text)) return true;
  }
  return false;
}

std::string all(const TraceCheck& check) {
  std::string out;
  for (const TraceFinding& one : check.findings) out += one.message + "\n";
  return out;
}

constexpr std::string_view kWhole =
    "from,to,latency_ms,basis,gbit_per_s\n"
    "a,a,0.5,rtt,10\nb,b,0.5,rtt,10\na,b,20,rtt,1\nb,a,20,rtt,1\n";

TEST(TraceCheck, a_whole_trace_has_nothing_to_say) {
  const TraceCheck check = checked(std::string(kWhole));
  EXPECT_TRUE(check.findings.empty()) << all(check);
  EXPECT_TRUE(check.assumptions.empty());
}

TEST(TraceCheck, gaps_say_what_a_cluster_would_do) {
  const TraceCheck check =
      checked("from,to,latency_ms,basis,gbit_per_s\na,b,20,rtt,1\nc,c,0.5,rtt,10\nb,b,1,rtt,5\n");
  EXPECT_TRUE(finds(check, Weight::kWarning, "gap",
                    "2 pairs of places have no latency in either direction (a - c, b - c)"));
  EXPECT_TRUE(finds(check, Weight::kNote, "gap", "1 directions have no latency (b -> a)"));
  EXPECT_TRUE(finds(check, Weight::kNote, "gap", "1 directions have no rate (b -> a)"));
  EXPECT_TRUE(finds(check, Weight::kNote, "gap", "1 places have no latency or no rate inside (a)"));
  EXPECT_EQ(check.findings[0].weight, Weight::kWarning);  // they come first
  EXPECT_EQ(check.assumptions.size(), 2u);
  EXPECT_TRUE(check.assumptions[0].contains("1 directions without a measurement mirror"));
}

TEST(TraceCheck, directions_that_differ_are_named_beyond_the_limits) {
  const auto differing = [](const std::string& ms, const std::string& gbit) {
    return checked("from,to,latency_ms,basis,gbit_per_s\na,b,20,rtt,1\nb,a," + ms + ",rtt," + gbit +
                   "\n");
  };
  // 5 % of 20 ms is 1 ms; 20 % of 1 Gbit/s is 0.2.
  EXPECT_FALSE(finds(differing("20.9", "1.19"), Weight::kNote, "asymmetry", ""));
  EXPECT_TRUE(finds(differing("21.1", "1"), Weight::kNote, "asymmetry",
                    "a -> b: one-way latency 10 ms there, 10.55 ms back"));
  EXPECT_TRUE(finds(differing("20", "1.21"), Weight::kNote, "asymmetry",
                    "rate 1 Gbit/s there, 1.21 Gbit/s back"));
}

TEST(TraceCheck, a_detour_of_less_than_half_is_a_warning) {
  const auto triangle = [](const std::string& direct) {
    return checked("from,to,latency_ms,basis\na,b," + direct +
                   ",one_way\na,c,10,one_way\nc,b,10,one_way\n");
  };
  EXPECT_FALSE(finds(triangle("40"), Weight::kWarning, "outlier", ""));
  EXPECT_TRUE(finds(triangle("41"), Weight::kWarning, "outlier",
                    "a -> b: one-way latency 41 ms, but 20 ms by way of c"));
}

TEST(TraceCheck, latencies_are_compared_with_light_in_fibre) {
  // Tokyo - Oregon is about 7,990 km: 39 ms in fibre.
  const auto between = [](const std::string& ms, const std::string& basis) {
    return checked("from,to,latency_ms,basis\ntokyo,oregon," + ms + "," + basis + "\n");
  };
  EXPECT_TRUE(finds(between("48", "rtt"), Weight::kWarning, "unit", "light in fibre"));
  EXPECT_FALSE(finds(between("96", "rtt"), Weight::kWarning, "unit", ""));
  EXPECT_FALSE(finds(between("96", "one_way"), Weight::kWarning, "unit", ""));  // 2.4 times
  EXPECT_TRUE(finds(between("150", "one_way"), Weight::kWarning, "unit", "look like round trips"));
}

TEST(TraceCheck, rates_that_tcp_cannot_reach_are_told) {
  const auto rate = [](const std::string& gbit, const std::string& streams) {
    return checked("from,to,latency_ms,basis,gbit_per_s,streams\na,b,100,rtt," + gbit + "," +
                   streams + "\n");
  };
  // 64 MiB in 100 ms are 5.37 Gbit/s.
  EXPECT_FALSE(finds(rate("5.3", "1"), Weight::kWarning, "unit", ""));
  EXPECT_TRUE(finds(rate("5.4", "1"), Weight::kWarning, "unit", "64.37 MiB in flight"));
  EXPECT_FALSE(finds(rate("5.4", "2"), Weight::kWarning, "unit", ""));
  EXPECT_TRUE(finds(rate("401", "4096"), Weight::kWarning, "unit", "bytes taken for bits"));
  EXPECT_TRUE(finds(rate("0.0009", "1"), Weight::kWarning, "unit", "bits taken for bytes"));
}

TEST(TraceCheck, series_have_gaps_and_outliers) {
  std::string text = "from,to,time_s,latency_ms,basis\n";
  for (int i = 0; i < 20; ++i) {
    // Every 60 s, but for one gap of ten minutes; 10 or 11 ms, but once 80 ms at second 300.
    const int time = 60 * i + (i >= 10 ? 540 : 0);
    text += "a,b," + std::to_string(time) + "," +
            (i == 5       ? "80"
             : i % 2 == 0 ? "10"
                          : "11") +
            ",one_way\n";
  }
  const TraceCheck check = checked(text);
  EXPECT_TRUE(finds(check, Weight::kNote, "series", "a -> b: 1 gap in the latencies"))
      << all(check);
  EXPECT_TRUE(finds(check, Weight::kNote, "series", "600 s from second 540 on"));
  EXPECT_TRUE(finds(check, Weight::kNote, "outlier", "1 of 20 latencies lie far")) << all(check);
  EXPECT_TRUE(finds(check, Weight::kNote, "outlier", "80 ms at second 300"));
}

TEST(TraceCheck, much_loss_and_no_latency_are_warnings) {
  EXPECT_TRUE(finds(checked("from,to,latency_ms,basis,loss\na,b,10,rtt,0.06\n"), Weight::kWarning,
                    "outlier", "6.0 % of the packets are lost"));
  EXPECT_TRUE(finds(checked("from,to,latency_ms,basis\na,b,0,rtt\n"), Weight::kWarning, "outlier",
                    "latency 0 between two places"));
}

TEST(TraceCheck, text_and_json_say_the_same) {
  const Result<Trace> trace = parse_trace("from,to,latency_ms,basis\na,b,0,rtt\n", "t.csv");
  const TraceCheck check = check_trace(*trace);
  EXPECT_TRUE(trace_check_text(*trace, check)
                  .starts_with("t.csv: 2 places, 1 rows\nwarning: outlier: a -> b"));
  EXPECT_TRUE(trace_check_text(*trace, check).ends_with("1 warning, 3 notes\n"));
  const std::string json = trace_check_json(*trace, check);
  EXPECT_TRUE(json.contains("\"version\": 1")) << json;
  EXPECT_TRUE(json.contains("\"warnings\": 1")) << json;
}

}  // namespace
}  // namespace longhaul
