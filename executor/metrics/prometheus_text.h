// Metrics as Prometheus scrapes them: the text format 0.0.4, and OpenMetrics 1.0.0.
//
//   # HELP longhaul_tokens_total Target tokens of committed steps.
//   # TYPE longhaul_tokens_total counter
//   longhaul_tokens_total 49152
//
// A family is a name with samples, each told apart by its labels. Names are in base units (seconds,
// bytes) with the unit last; a counter's name is given without `_total`, which its samples have in
// both formats, and an info's without `_info`. Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul {

enum class MetricKind { kGauge, kCounter, kHistogram, kInfo };

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

struct MetricSample {
  MetricLabels labels;
  double value = 0;
};

/// Counts of observations by upper bounds.
class MetricHistogram {
 public:
  /// `bounds` ascend; what lies above the last is counted, too.
  explicit MetricHistogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  /// Of observations above the bound before and up to bound i; the last one has no bound.
  const std::vector<std::uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
};

struct MetricFamily {
  std::string name;
  MetricKind kind = MetricKind::kGauge;
  std::string help;  // one line
  std::vector<MetricSample> samples;
  const MetricHistogram* histogram = nullptr;  // of kHistogram, which has no samples
};

enum class MetricFormat { kPrometheus, kOpenMetrics };

/// The format that an HTTP `Accept` header asks for.
MetricFormat metric_format_for(std::string_view accept);
std::string_view content_type_of(MetricFormat format);

/// Families without samples are left out.
std::string metrics_text(std::span<const MetricFamily> families, MetricFormat format);

}  // namespace longhaul
