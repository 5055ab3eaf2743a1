// What a worker's stage is made of, between steps: weights, AdamW's m and v, and what is done with
// all of them together. Belongs to the compute thread, as the ModelStage inside does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/result.h"
#include "executor/checkpoint/layer_files.h"
#include "executor/control/messages.h"
#include "executor/control/participant.h"
#include "executor/storage/storage.h"
#include "kernels/model_stage.h"

namespace longhaul {

class StageState {
 public:
  static Result<StageState> create(const ModelShape& model, const ModelSlice& slice,
                                   Precision precision = Precision::kFp32);

  ModelStage& stage() { return stage_; }

  /// Parts whose files the stage writes: those of its slice.
  std::vector<CheckpointPart> own_parts() const;
  /// Parts whose files it reads: its own, and the embedding where it has a tied head only.
  std::vector<CheckpointPart> needed_parts() const;
  Result<std::vector<CheckpointFile>> write(Storage& storage, const std::string& folder);
  Result<void> read(Storage& storage, const std::string& folder,
                    std::span<const CheckpointFile> files);

  /// All of PREPARED but the loss, from the reduced gradient.
  Prepared prepared(std::uint64_t step);
  /// AdamW, or nothing for a step that is skipped. `updates`: how many were applied before.
  void update(const StepUpdate& update, const Training& training, std::uint64_t updates);

 private:
  StageState(ModelStage stage)
      : stage_(std::move(stage)), m_(stage_.weights().size()), v_(m_.size()) {}
  /// A part's tensors where the stage has them; for others `scratch` is made to fit.
  PartState<float> view(CheckpointPart part, std::vector<std::vector<float>>& scratch);

  ModelStage stage_;
  TensorStorage m_;
  TensorStorage v_;
};

}  // namespace longhaul
