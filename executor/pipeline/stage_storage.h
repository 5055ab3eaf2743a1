// The memory that a stage's micro-batches and messages live in, kept from step to step: after the
// first step nothing is allocated for a tensor. Belongs to the loop's thread.
//
// What is taken is shared by the step that took it and by the work, mesh task or fetch that uses
// it: whoever is last frees it, so that a step can be abandoned while others still read or write.
// give_back is for what nobody else will touch any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/result.h"
#include "kernels/compute_queue.h"
#include "kernels/model_stage.h"

namespace longhaul {

/// Tokens of one micro-batch; a part that the stage does not need is empty.
struct StageTokens {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

class StageStorage {
 public:
  using Wire = std::shared_ptr<ComputeBuffer>;

  /// For micro-batches of `sequences` and messages of `wire_bytes`. Stage and queue outlive the
  /// storage and everything taken from it.
  StageStorage(const ModelStage& stage, ComputeQueue& queue, int sequences, std::size_t wire_bytes)
      : stage_(stage), queue_(queue), sequences_(sequences), wire_bytes_(wire_bytes) {}

  std::shared_ptr<StageBatch> take_micro_batch();
  std::shared_ptr<StageTokens> take_tokens();
  /// Host memory that the device can reach. Fails when memory is out.
  Result<Wire> take_wire();

  void give_back(std::shared_ptr<StageBatch>&& batch);
  void give_back(std::shared_ptr<StageTokens>&& tokens);
  void give_back(Wire&& wire);

  /// Rows of a micro-batch.
  std::size_t rows() const;
  /// Ever allocated.
  std::size_t micro_batches_made() const { return micro_batches_made_; }
  std::size_t wires_made() const { return wires_made_; }

 private:
  const ModelStage& stage_;
  ComputeQueue& queue_;
  const int sequences_;
  const std::size_t wire_bytes_;
  std::vector<std::shared_ptr<StageBatch>> micro_batches_;
  std::vector<std::shared_ptr<StageTokens>> tokens_;
  std::vector<Wire> wires_;
  std::size_t micro_batches_made_ = 0;
  std::size_t wires_made_ = 0;
};

}  // namespace longhaul
