#include "tools/run_logs.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul {
namespace {

using Scalars = std::vector<TensorboardScalar>;

struct Moment {
  std::uint64_t steps_done = 0;
  Seconds when;
};

Moment moment_of(const StepRecord& step) {
  return {step.entry.step + 1, step.when};
}
Moment moment_of(const ValidationRecord& validation) {
  return {validation.steps_done, validation.when};
}
Moment moment_of(const CheckpointRecord& checkpoint) {
  return {checkpoint.id.step, checkpoint.when};
}
Moment moment_of(const CodecRecord& record) {
  return {record.step, record.when};
}

Scalars scalars_of(const StepRecord& step) {
  Scalars scalars = {{"loss/train", step.entry.loss},
                     {"grad_norm", step.entry.norm},
                     {"learning_rate", step.learning_rate},
                     {"tokens_seen", step.tokens_seen}};
  if (step.step_s) scalars.push_back({"step_seconds", *step.step_s});
  if (step.tokens_per_s) scalars.push_back({"tokens_per_second", *step.tokens_per_s});
  if (step.parts) {
    scalars.push_back({"time/compute", step.parts->compute});
    scalars.push_back({"time/wait", step.parts->wait});
    scalars.push_back({"time/reduce", step.parts->reduce});
    scalars.push_back({"time/commit", step.parts->commit});
    scalars.push_back({"time/update", step.parts->update});
  }
  for (const StepRecord::Link& link : step.links) {
    scalars.push_back(
        {fmt::format("bytes/{} to {}", link.from, link.to), static_cast<double>(link.bytes_sent)});
  }
  return scalars;
}

Scalars scalars_of(const ValidationRecord& validation) {
  return {{"loss/validation", validation.loss}};
}

Scalars scalars_of(const CheckpointRecord&) {
  return {};
}
Scalars scalars_of(const CodecRecord&) {
  return {};
}

/// Nothing is appended to a log that was given up.
Result<void> append(std::unique_ptr<WritableFile>& file, std::string_view bytes) {
  if (!file || bytes.empty()) return {};
  Result<void> written = file->append(std::as_bytes(std::span(bytes)));
  if (!written) file = nullptr;
  return written;
}

}  // namespace

std::vector<TensorboardScalar> tensorboard_scalars_of(const RunRecord& record) {
  return std::visit([](const auto& what) { return scalars_of(what); }, record);
}

Result<RunLogs> RunLogs::open(Storage& storage, const Options& options) {
  LH_ASSIGN(auto metrics, storage.extend(options.folder + "/metrics.jsonl"));
  const std::string folder = options.folder + "/tensorboard";
  LH_TRY(make_folders(storage, folder));
  const double wall_time = options.unix_start + options.now.value();
  const std::string name = tensorboard_file_name(
      static_cast<std::uint64_t>(wall_time), options.host, fmt::format("term-{}", options.term));
  LH_ASSIGN(auto tensorboard, storage.create(folder + "/" + name));
  std::string begin = tensorboard_start(wall_time);
  if (options.term > 1) begin += tensorboard_restart(wall_time, options.first_step + 1);
  LH_TRY(append(tensorboard, begin));
  return RunLogs(options.unix_start, std::move(metrics), std::move(tensorboard));
}

Result<void> RunLogs::write(const RunRecord& record) {
  const Result<void> metrics = append(metrics_, metrics_line(record));
  const Moment at = std::visit([](const auto& what) { return moment_of(what); }, record);
  const Scalars scalars = tensorboard_scalars_of(record);
  std::string event;
  if (!scalars.empty()) {
    event = tensorboard_scalars(unix_start_ + at.when.value(), at.steps_done, scalars);
  }
  const Result<void> tensorboard = append(tensorboard_, event);
  return metrics ? tensorboard : metrics;
}

}  // namespace longhaul
