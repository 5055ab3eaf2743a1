#include "executor/metrics/prometheus_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace longhaul {
namespace {

using enum MetricKind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<MetricFamily> families(const MetricHistogram& histogram) {
  return {
      {"run", kInfo, "Which run.", {{{{"job", "gpt"}, {"run", "a\"b\\c\nd"}}, 1}}},
      {"sent_bytes", kCounter, "Both\nlines.", {{{{"to", "oslo"}}, 3e9}, {{{"to", "riga"}}, 0}}},
      {"loss", kGauge, "A \"loss\".", {{{}, 2.5}}},
      {"absent", kGauge, "Not known yet.", {}},
      {"step_seconds", kHistogram, "Of a step.", {}, &histogram}};
}

MetricHistogram three_steps() {
  MetricHistogram histogram({0.5, 1, 20});
  for (const double step : {0.25, 1.0, 30.0}) histogram.observe(step);
  return histogram;
}

TEST(MetricsPrometheus, the_text_format_names_samples) {
  const MetricHistogram histogram = three_steps();
  EXPECT_EQ(metrics_text(families(histogram), MetricFormat::kPrometheus),
            "# HELP run_info Which run.\n"
            "# TYPE run_info gauge\n"
            "run_info{job=\"gpt\",run=\"a\\\"b\\\\c\\nd\"} 1\n"
            "# HELP sent_bytes_total Both\\nlines.\n"
            "# TYPE sent_bytes_total counter\n"
            "sent_bytes_total{to=\"oslo\"} 3000000000\n"
            "sent_bytes_total{to=\"riga\"} 0\n"
            "# HELP loss A \"loss\".\n"
            "# TYPE loss gauge\n"
            "loss 2.5\n"
            "# HELP step_seconds Of a step.\n"
            "# TYPE step_seconds histogram\n"
            "step_seconds_bucket{le=\"0.5\"} 1\n"
            "step_seconds_bucket{le=\"1.0\"} 2\n"
            "step_seconds_bucket{le=\"20.0\"} 2\n"
            "step_seconds_bucket{le=\"+Inf\"} 3\n"
            "step_seconds_sum 31.25\n"
            "step_seconds_count 3\n");
}

TEST(MetricsPrometheus, open_metrics_names_families_and_has_an_end) {
  const MetricHistogram histogram = three_steps();
  const std::string text = metrics_text(families(histogram), MetricFormat::kOpenMetrics);
  for (const char* line : {"# TYPE run info\n", "run_info{", "# TYPE sent_bytes counter\n",
                           "# UNIT sent_bytes bytes\n", "sent_bytes_total{to=\"riga\"} 0\n",
                           "# HELP loss A \\\"loss\\\".\n", "# UNIT step_seconds seconds\n",
                           "step_seconds_bucket{le=\"1.0\"} 2\n"}) {
    EXPECT_TRUE(text.contains(line)) << line << text;
  }
  EXPECT_FALSE(text.contains("UNIT loss"));
  EXPECT_TRUE(text.ends_with("step_seconds_count 3\n# EOF\n"));
}

TEST(MetricsPrometheus, what_is_not_finite_has_the_formats_words) {
  const std::vector<MetricFamily> all = {
      {"x",
       kGauge,
       "X.",
       {{{{"n", "1"}}, kInfinity},
        {{{"n", "2"}}, -kInfinity},
        {{{"n", "3"}}, std::numeric_limits<double>::quiet_NaN()}}}};
  const std::string text = metrics_text(all, MetricFormat::kPrometheus);
  EXPECT_TRUE(text.ends_with("x{n=\"1\"} +Inf\nx{n=\"2\"} -Inf\nx{n=\"3\"} NaN\n")) << text;
}

TEST(MetricsPrometheus, a_bound_belongs_to_its_bucket) {
  MetricHistogram histogram({1, 2});
  for (const double value : {-5.0, 1.0, 1.0000001, 2.0, 2.0000001}) histogram.observe(value);
  EXPECT_EQ(histogram.counts(), (std::vector<std::uint64_t>{2, 2, 1}));
}

TEST(MetricsPrometheus, the_format_is_what_the_reader_prefers) {
  const struct {
    const char* accept;
    bool is_open;
  } cases[] = {
      {"", false},
      {"*/*", false},
      {"text/plain", false},
      {"application/json", false},
      {"application/openmetrics-text", true},
      {" application/openmetrics-text ; version=1.0.0 ", true},
      // Prometheus 2 and 3.
      {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
       "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
       true},
      {"application/openmetrics-text;q=0.5,text/plain;q=0.4", true},
      {"application/openmetrics-text;q=0.5,text/plain;q=0.6", false},
      {"application/openmetrics-text;q=0.5,*/*;q=0.6", false},
      {"application/openmetrics-text;q=0", false},
      {"application/openmetrics-text;q=", true},
      {";,;q=;,=", false},
  };
  for (const auto& [accept, is_open] : cases) {
    EXPECT_EQ(metric_format_for(accept) == MetricFormat::kOpenMetrics, is_open) << accept;
  }
}

}  // namespace
}  // namespace longhaul
