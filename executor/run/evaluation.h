// The loss of a trained model on data: windows of the model's context that do not overlap, as a
// run's validation has them (data/slots.h, sequences_in). The sum runs over the targets in the
// order of the data, in fp64, so it does not depend on the size of a micro-batch, and it is to the
// bit what a run of one pipeline calls its validation loss on the same sequences; a run of several
// pipelines adds up theirs, which may change the last bit.
//
// Calls block; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "executor/data/sequence_source.h"
#include "kernels/model_stage.h"

namespace longhaul {

struct Evaluation {
  std::int64_t sequences = 0;
  std::uint64_t targets = 0;
  double loss_sum = 0;      // nats
  std::uint64_t bytes = 0;  // of text that the targets stand for; 0 when nobody told

  double loss() const { return loss_sum / static_cast<double>(targets); }  // nats a target
};

class ModelEvaluator {
 public:
  /// `bytes_of_token`: of each id of the data's vocabulary; may be empty. The stage is the whole
  /// model, and outlives this.
  ModelEvaluator(ModelStage& stage, int micro_batch, std::vector<std::uint32_t> bytes_of_token);

  /// Adds sequences first .. first + count - 1, at most a micro-batch. The source must be one that
  /// answers before `fetch` returns (open_local_sequences), of the model's context, with no id
  /// outside its vocabulary. kFailed when a loss is not finite.
  Result<void> add(SequenceSource& source, std::int64_t first, std::int64_t count);

  int micro_batch() const { return micro_batch_; }
  const Evaluation& result() const { return result_; }

 private:
  ModelStage& stage_;
  const int micro_batch_;
  const std::vector<std::uint32_t> bytes_of_token_;
  StageBatch batch_;
  Evaluation result_;
};

}  // namespace longhaul
