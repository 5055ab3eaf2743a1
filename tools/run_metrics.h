// What Prometheus is told of a run: figures made of the run's records (run_record.h), as families
// of metrics (executor/metrics/prometheus_text.h). docs/formats.md lists them.
//
// Counters count what this launch did; a resumed run's begin at 0 again, which Prometheus knows how
// to take. Belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.h"
#include "executor/metrics/prometheus_text.h"
#include "executor/run/run_spec.h"
#include "tools/run_record.h"

namespace longhaul {

class RunMetrics {
 public:
  struct Options {
    std::string run;                 // its folder's name
    double unix_start = 0;           // seconds since 1970 when the records' clock was at 0
    Seconds now;                     // on that clock
    std::vector<std::string> sites;  // names, by number
  };
  RunMetrics(const RunSpec& spec, Options options);

  void record(const RunRecord& record);
  /// Workers that are connected now.
  void set_connected(int workers) { connected_ = workers; }

  std::string text(MetricFormat format) const;

 private:
  void add(const StepRecord& step);
  void add(const ValidationRecord& validation);
  void add(const CheckpointRecord& checkpoint);
  void add(const CodecRecord& record);
  std::vector<MetricFamily> families() const;
  std::vector<MetricFamily> traffic() const;

  struct Worker {
    MetricLabels labels;
    std::uint64_t bytes = 0;  // sent
  };
  struct Checkpoint {
    std::uint64_t step = 0;
    double unix_time = 0;
  };

  const Options options_;
  MetricLabels info_;
  const std::uint64_t last_step_;
  double start_;  // seconds since 1970
  std::uint64_t step_;
  std::uint64_t committed_ = 0, skipped_ = 0;
  double tokens_ = 0;
  std::optional<double> loss_, validation_loss_, norm_, learning_rate_, tokens_per_s_;
  MetricHistogram step_seconds_;
  StepParts parts_;  // sums
  HistoryVisits histories_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> bytes_by_link_;
  std::vector<Worker> workers_;  // by cell
  /// Times that tensors of two sites were written otherwise from then on.
  std::map<std::pair<std::string, std::string>, std::uint64_t> recoded_;
  int connected_ = 0;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace longhaul
