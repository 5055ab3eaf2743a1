// What a run tells of itself while it goes: a record for each committed step, each validation and
// each checkpoint. RunReport makes them; metrics.jsonl (metrics_line), TensorBoard's files
// (run_logs.h) and Prometheus (run_metrics.h) are all made of them, so they cannot disagree.
//
// Durations and rates are the run's own time: emulated time where the run is emulated. `when` is
// the wall's, on the clock of RunReport's `now`. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/units.h"
#include "executor/checkpoint/manifest.h"
#include "executor/control/journal.h"

namespace longhaul {

/// Where a worker's step went; seconds, as in Measured (executor/control/messages.h).
struct StepParts {
  double compute = 0, wait = 0, reduce = 0, commit = 0, update = 0;
  StepParts& operator+=(const StepParts& other);
  StepParts operator/(double divisor) const;
};

struct StepRecord {
  JournalEntry entry;
  Seconds when;  // of the commit
  double learning_rate = 0;
  double time_s = 0;             // since the run began
  std::optional<double> step_s;  // not of the first step
  std::optional<double> tokens_per_s;
  double tokens = 0;       // targets of this step
  double tokens_seen = 0;  // of all steps of the run up to this one, those before a resume too

  /// From one site to another, or inside one.
  struct Link {
    std::string from;
    std::string to;
    std::uint64_t bytes_sent = 0;  // after codecs
    std::uint64_t bytes_raw = 0;   // before
  };
  std::vector<Link> links;
  std::vector<std::uint64_t> bytes_by_cell;  // what each worker sent
  std::optional<StepParts> parts;            // means of the workers that told theirs
};

struct ValidationRecord {
  std::uint64_t steps_done = 0;
  double loss = 0;  // nats a target
  Seconds when;
};

struct CheckpointRecord {
  CheckpointId id;
  Seconds when;
};

using RunRecord = std::variant<StepRecord, ValidationRecord, CheckpointRecord>;

/// Its line of metrics.jsonl, with the line's end.
/// {"step","loss","norm","learning_rate","decision","time_s","step_s","tokens_per_s","links":
/// [{"from","to","bytes_sent","bytes_raw"}],"compute","wait","reduce","commit","update"}: `step`
/// counts from 0; what is not known or not finite is null. {"step","validation_loss"} and
/// {"step","checkpoint"} count the steps done.
std::string metrics_line(const RunRecord& record);

}  // namespace longhaul
