#include "executor/metrics/prometheus_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/result.h"

namespace longhaul {
namespace {

/// Shortest digits that read back the same; the formats' own words for what is not finite.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// Bounds are floating-point numbers in OpenMetrics: 1 is written 1.0.
std::string bound_text(double bound) {
  std::string text = number_text(bound);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string escaped(std::string_view text, bool is_label) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\\') {
      out += "\\\\";
    } else if (letter == '\n') {
      out += "\\n";
    } else if (letter == '"' && is_label) {
      out += "\\\"";
    } else {
      out += letter;
    }
  }
  return out;
}

std::string labels_text(const MetricLabels& labels) {
  if (labels.empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : labels) {
    if (out.size() > 1) out += ",";
    out += fmt::format("{}=\"{}\"", name, escaped(value, true));
  }
  return out + "}";
}

std::string_view suffix_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "_total";
    case MetricKind::kInfo:
      return "_info";
    case MetricKind::kGauge:
    case MetricKind::kHistogram:
      return "";
  }
  LH_CHECK(false, "all kinds are above");
}

std::string_view type_of(MetricKind kind, MetricFormat format) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kHistogram:
      return "histogram";
    case MetricKind::kInfo:  // the older format does not know it
      return format == MetricFormat::kOpenMetrics ? "info" : "gauge";
    case MetricKind::kGauge:
      return "gauge";
  }
  LH_CHECK(false, "all kinds are above");
}

void add_histogram(const std::string& name, const MetricHistogram& histogram, std::string& out) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    count += histogram.counts()[i];
    const std::string bound =
        i < histogram.bounds().size() ? bound_text(histogram.bounds()[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
  }
  out += fmt::format("{}_sum {}\n{}_count {}\n", name, number_text(histogram.sum()), name, count);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes what stands before the next `separator`, and that, off the front.
std::string_view next_piece(std::string_view& text, char separator) {
  const std::string_view piece = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), piece.size() + 1));
  return trimmed(piece);
}

/// Of `q=0.5`; what cannot be read is taken for 1, as if it were not there.
double weight_of(std::string_view parameter) {
  double weight = 1;
  std::from_chars(parameter.data() + 2, parameter.data() + parameter.size(), weight);
  return weight;
}

}  // namespace

void MetricHistogram::observe(double value) {
  const auto at = std::ranges::lower_bound(bounds_, value);
  ++counts_[static_cast<std::size_t>(at - bounds_.begin())];
  sum_ += value;
}

MetricFormat metric_format_for(std::string_view accept) {
  double open_metrics = 0;
  std::optional<double> plain, any;
  while (!accept.empty()) {
    std::string_view range = next_piece(accept, ',');
    const std::string_view type = next_piece(range, ';');
    double weight = 1;
    while (!range.empty()) {
      const std::string_view parameter = next_piece(range, ';');
      if (parameter.starts_with("q=")) weight = weight_of(parameter);
    }
    if (type == "application/openmetrics-text") open_metrics = std::max(open_metrics, weight);
    if (type == "text/plain") plain = std::max(plain.value_or(0), weight);
    if (type == "*/*" || type == "text/*") any = std::max(any.value_or(0), weight);
  }
  const double other = plain.value_or(any.value_or(0));
  return open_metrics > 0 && open_metrics >= other ? MetricFormat::kOpenMetrics
                                                   : MetricFormat::kPrometheus;
}

std::string_view content_type_of(MetricFormat format) {
  return format == MetricFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string metrics_text(std::span<const MetricFamily> families, MetricFormat format) {
  const bool is_open = format == MetricFormat::kOpenMetrics;
  std::string out;
  for (const MetricFamily& family : families) {
    if (family.samples.empty() && family.histogram == nullptr) continue;
    const std::string sample = family.name + std::string(suffix_of(family.kind));
    // OpenMetrics names the family, the older format the samples.
    const std::string& name = is_open ? family.name : sample;
    out += fmt::format("# HELP {} {}\n", name, escaped(family.help, is_open));
    out += fmt::format("# TYPE {} {}\n", name, type_of(family.kind, format));
    for (const char* unit : {"seconds", "bytes"}) {
      if (is_open && family.name.ends_with(fmt::format("_{}", unit))) {
        out += fmt::format("# UNIT {} {}\n", family.name, unit);
      }
    }
    if (family.histogram != nullptr) add_histogram(family.name, *family.histogram, out);
    for (const MetricSample& one : family.samples) {
      out += fmt::format("{}{} {}\n", sample, labels_text(one.labels), number_text(one.value));
    }
  }
  if (is_open) out += "# EOF\n";
  return out;
}

}  // namespace longhaul
