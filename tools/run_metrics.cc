#include "tools/run_metrics.h"

#include <fmt/core.h>

namespace longhaul {
namespace {

/// A step takes tens of milliseconds on one machine and minutes between continents.
std::vector<double> step_bounds() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000};
}

std::vector<MetricSample> sample_of(double value) {
  return {{{}, value}};
}
/// None of what is not known.
std::vector<MetricSample> sample_of(const std::optional<double>& value) {
  return value ? sample_of(*value) : std::vector<MetricSample>();
}
std::vector<MetricSample> sample_of(std::uint64_t value) {
  return sample_of(static_cast<double>(value));
}

}  // namespace

RunMetrics::RunMetrics(const RunSpec& spec, Options options)
    : options_(std::move(options)),
      info_({{"job", spec.job.name},
             {"run", options_.run},
             {"run_id", fmt::format("{:016x}", spec.id)},
             {"term", fmt::format("{}", spec.term)},
             {"pipelines", fmt::format("{}", spec.plan.pipelines())},
             {"stages", fmt::format("{}", spec.plan.stages())}}),
      last_step_(spec.last_step),
      start_(options_.unix_start + options_.now.value()),
      step_(spec.first_step),
      step_seconds_(step_bounds()) {
  for (int cell = 0; cell < spec.cells(); ++cell) {
    const RankPlace& place = spec.place_of_cell(cell);
    workers_.push_back({{{"rank", fmt::format("{}", RunSpec::rank_of_cell(cell))},
                         {"device", place.name},
                         {"site", options_.sites.at(static_cast<std::size_t>(place.site))}},
                        0});
  }
}

void RunMetrics::record(const RunRecord& record) {
  std::visit([this](const auto& what) { add(what); }, record);
}

void RunMetrics::add(const StepRecord& step) {
  step_ = step.entry.step + 1;
  ++committed_;
  if (step.entry.decision == Decision::kSkip) ++skipped_;
  tokens_ += step.tokens;
  loss_ = step.entry.loss;
  norm_ = step.entry.norm;
  learning_rate_ = step.learning_rate;
  if (step.step_s) step_seconds_.observe(*step.step_s);
  if (step.tokens_per_s) tokens_per_s_ = step.tokens_per_s;
  if (step.parts) parts_ += *step.parts;
  if (step.histories) histories_ += *step.histories;
  for (const StepRecord::Link& link : step.links) {
    bytes_by_link_[{link.from, link.to}] += link.bytes_sent;
  }
  for (std::size_t cell = 0; cell < step.bytes_by_cell.size(); ++cell) {
    workers_.at(cell).bytes += step.bytes_by_cell[cell];
  }
}

void RunMetrics::add(const ValidationRecord& validation) {
  validation_loss_ = validation.loss;
}

void RunMetrics::add(const CheckpointRecord& checkpoint) {
  checkpoint_ = {checkpoint.id.step, options_.unix_start + checkpoint.when.value()};
}

void RunMetrics::add(const CodecRecord& record) {
  ++recoded_[{record.from_site, record.to_site}];
}

std::string RunMetrics::text(MetricFormat format) const {
  std::vector<MetricFamily> all = families();
  for (MetricFamily& family : traffic()) all.push_back(std::move(family));
  return metrics_text(all, format);
}

std::vector<MetricFamily> RunMetrics::families() const {
  using enum MetricKind;
  std::vector<MetricFamily> all = {
      {"longhaul_run", kInfo, "The run and its grid.", {{info_, 1}}},
      {"longhaul_start_time_seconds", kGauge, "When this launch began, since 1970.",
       sample_of(start_)},
      {"longhaul_step", kGauge, "Steps done, those before a resume too.", sample_of(step_)},
      {"longhaul_last_step", kGauge, "Steps after which the run ends.", sample_of(last_step_)},
      {"longhaul_steps", kCounter, "Steps that this launch committed.", sample_of(committed_)},
      {"longhaul_skipped_steps", kCounter, "Of those, steps whose gradient was not finite.",
       sample_of(skipped_)},
      {"longhaul_tokens", kCounter, "Target tokens of committed steps.", sample_of(tokens_)},
      {"longhaul_train_loss", kGauge, "Mean loss of the last step, nats a token.",
       sample_of(loss_)},
      {"longhaul_validation_loss", kGauge, "Mean loss of the last validation, nats a token.",
       sample_of(validation_loss_)},
      {"longhaul_gradient_norm", kGauge, "Norm of the last step's gradient before clipping.",
       sample_of(norm_)},
      {"longhaul_learning_rate", kGauge, "Of the last step.", sample_of(learning_rate_)},
      {"longhaul_tokens_per_second", kGauge, "Of the last step.", sample_of(tokens_per_s_)},
  };
  all.push_back(
      {"longhaul_step_seconds", kHistogram, "From one commit to the next.", {}, &step_seconds_});
  all.push_back({"longhaul_part_seconds",
                 kCounter,
                 "Where the steps went, means over the workers.",
                 {{{{"part", "compute"}}, parts_.compute},
                  {{{"part", "wait"}}, parts_.wait},
                  {{{"part", "reduce"}}, parts_.reduce},
                  {{{"part", "commit"}}, parts_.commit},
                  {{{"part", "update"}}, parts_.update}}});
  if (checkpoint_) {
    all.push_back({"longhaul_checkpoint_step", kGauge, "Steps behind the newest checkpoint.",
                   sample_of(checkpoint_->step)});
    all.push_back({"longhaul_checkpoint_time_seconds", kGauge,
                   "When the newest checkpoint was complete, since 1970.",
                   sample_of(checkpoint_->unix_time)});
  }
  return all;
}

std::vector<MetricFamily> RunMetrics::traffic() const {
  using enum MetricKind;
  MetricFamily links = {"longhaul_link_sent_bytes",
                        kCounter,
                        "Bytes that workers sent from one site to another or inside one.",
                        {}};
  for (const auto& [pair, bytes] : bytes_by_link_) {
    links.samples.push_back(
        {{{"from", pair.first}, {"to", pair.second}}, static_cast<double>(bytes)});
  }
  MetricFamily workers = {"longhaul_worker_sent_bytes", kCounter, "Bytes that a worker sent.", {}};
  for (const Worker& worker : workers_) {
    workers.samples.push_back({worker.labels, static_cast<double>(worker.bytes)});
  }
  MetricFamily recoded = {"longhaul_codec_changes",
                          kCounter,
                          "Times that codecs of boundary tensors followed a link's rate.",
                          {}};
  for (const auto& [pair, times] : recoded_) {
    recoded.samples.push_back(
        {{{"from", pair.first}, {"to", pair.second}}, static_cast<double>(times)});
  }
  MetricFamily histories = {"longhaul_history_sequences",
                            kCounter,
                            "Sequences whose activations have a history, by how they were sent; "
                            "healed ones are deltas that were asked for again.",
                            {}};
  if (histories_.sequences() > 0) {
    for (const auto& [how, count] :
         {std::pair("first", histories_.first), std::pair("delta", histories_.deltas),
          std::pair("whole", histories_.whole), std::pair("healed", histories_.healed)}) {
      histories.samples.push_back({{{"sent", how}}, static_cast<double>(count)});
    }
  }
  return {std::move(links),
          std::move(workers),
          std::move(histories),
          std::move(recoded),
          {"longhaul_workers", kGauge, "Workers that the plan has.", sample_of(workers_.size())},
          {"longhaul_connected_workers", kGauge, "Workers that are connected.",
           sample_of(static_cast<std::uint64_t>(connected_))}};
}

}  // namespace longhaul
