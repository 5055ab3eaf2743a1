// The logs that a run writes into its folder as it goes: metrics.jsonl, and a TensorBoard event
// file in tensorboard/ (executor/metrics/tensorboard.h), both from the same records.
//
// TensorBoard's steps are steps done, so that the loss of step 0 stands at 1, and the validation
// after it, too. A resumed run starts a file of its own, in which it says from which step on
// earlier files are void. Every record is in the file when write() answers: a TensorBoard that is
// open follows.
//
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "executor/metrics/tensorboard.h"
#include "executor/storage/storage.h"
#include "tools/run_record.h"

namespace longhaul {

class RunLogs {
 public:
  struct Options {
    std::string folder;  // of the run; it is there
    std::string host;    // of this machine, for the file's name
    std::uint32_t term = 1;
    std::uint64_t first_step = 0;
    double unix_start = 0;  // seconds since 1970 when the records' clock was at 0
    Seconds now;            // on that clock
  };
  static Result<RunLogs> open(Storage& storage, const Options& options);

  /// A log that cannot be written any more is given up, which the error says once; the other goes
  /// on.
  Result<void> write(const RunRecord& record);

 private:
  RunLogs(double unix_start, std::unique_ptr<WritableFile> metrics,
          std::unique_ptr<WritableFile> tensorboard)
      : unix_start_(unix_start),
        metrics_(std::move(metrics)),
        tensorboard_(std::move(tensorboard)) {}

  double unix_start_;
  std::unique_ptr<WritableFile> metrics_;      // null: given up
  std::unique_ptr<WritableFile> tensorboard_;  // null: given up
};

/// What a record shows in TensorBoard; may be nothing.
std::vector<TensorboardScalar> tensorboard_scalars_of(const RunRecord& record);

}  // namespace longhaul
