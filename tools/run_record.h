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
#include <string_view>
#include <variant>
#include <vector>

#include "core/codec.h"
#include "core/units.h"
#include "executor/checkpoint/manifest.h"
#include "executor/control/journal.h"
#include "executor/control/messages.h"

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
  std::optional<HistoryVisits> histories;    // sums over those whose activations have some
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

/// What one device sends to another is written otherwise from the next step on.
struct CodecRecord {
  std::uint64_t step = 0;
  std::string from{}, to{};            // devices
  std::string from_site{}, to_site{};  // and their sites
  std::string_view tensors{};          // activations or gradients
  Codec before = Codec::kNone, after = Codec::kNone;
  double busy = 0, compute = 0;  // s of that step: sending them, and the sender's own work
  Seconds when{};
};
/// `step 12: oregon-1/0 sends activations to paris-1/0 in int4 instead of int8: sending took 1.3 s
/// beside 0.9 s of computing`.
std::string codec_sentence(const CodecRecord& record);

using RunRecord = std::variant<StepRecord, ValidationRecord, CheckpointRecord, CodecRecord>;

/// Its line of metrics.jsonl, with the line's end.
/// {"step","loss","norm","learning_rate","decision","time_s","step_s","tokens_per_s","links":
/// [{"from","to","bytes_sent","bytes_raw"}],"compute","wait","reduce","commit","update"[,"histories":{"first",
/// "deltas","whole","healed"}]}: `step`
/// counts from 0; what is not known or not finite is null. {"step","validation_loss"} and
/// {"step","checkpoint"} count the steps done. {"step","recoded":{"from","to","tensors","before",
/// "after","busy","compute"}}: `step` is the last one of before.
std::string metrics_line(const RunRecord& record);

}  // namespace longhaul
