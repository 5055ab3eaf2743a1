// What a run came to: `result.json` of its folder, and the summary of one run or of two that are
// compared. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace longhaul {

/// What is not known, or is not a finite number, has no value, and is `null` in files. Times of an
/// emulated run are emulated time, so its tokens a second are those of the emulated machines.
struct RunResult {
  std::uint64_t steps = 0;  // that this run committed
  std::uint64_t parameters = 0;
  std::optional<double> loss_first;  // of its first step, nats a target
  std::optional<double> loss_last;
  std::optional<double> validation_loss;  // the last one
  std::optional<double> bigram_loss;
  std::optional<double> tokens_per_s;
  std::optional<double> step_predicted_s;
  std::optional<double> step_measured_s;
  /// Of an emulated run: the share of what was emulated that this machine was too slow for.
  std::optional<double> late_fraction;

  /// From one site to another, or inside one; the total of the run, without frame headers.
  struct LinkTotal {
    std::string from;
    std::string to;
    std::uint64_t bytes_raw = 0;   // before codecs
    std::uint64_t bytes_sent = 0;  // after
    bool operator==(const LinkTotal&) const = default;
  };
  std::vector<LinkTotal> links;

  bool operator==(const RunResult&) const = default;
};

/// result.json, and back. `name` stands for the file in errors (kInvalid).
std::string result_text(const RunResult& result);
Result<RunResult> parse_result(std::string_view text, const std::string& name);

/// summary.json: the result of `plan`, its step beside that of `rank_order` (the same job with
/// devices taken in their order) where there is one. The late fraction is the larger of the two:
/// the comparison is as good as the worse run.
std::string summary_text(const RunResult& plan, const RunResult* rank_order);

}  // namespace longhaul
