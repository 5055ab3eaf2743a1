// The memory that a stage's micro-batches and messages live in, kept from step to step: after the
// first step nothing is allocated for a tensor. Belongs to the loop's thread.
//
// What is taken is shared by the step that took it and by the work, mesh task or fetch that uses
// it: whoever is last frees it, so that a step can be abandoned while others still read or write.
// give_back is for what nobody else will touch any more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "executor/pipeline/boundary_format.h"
#include "kernels/compute_queue.h"
#include "kernels/model_stage.h"

namespace longhaul {

/// Tokens of one micro-batch; a part that the stage does not need is empty.
struct StageTokens {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

/// A boundary tensor on its way in or out, with what encodes or decodes it. Not plain: the tensor
/// is here from its last use by the sender's stage until it is encoded, or from its first decoded
/// piece until its last use. Plain: the stage's own memory holds it.
struct StageMessage {
  enum class Kind { kIncoming, kOutgoing, kPlain };
  Kind kind = Kind::kPlain;
  ComputeBuffer wire;
  std::vector<float> tensor;               // not plain
  std::unique_ptr<BoundaryWriter> writer;  // not incoming
  std::unique_ptr<BoundaryReader> reader;  // not outgoing

  // What the work at it says, for whom is told when it is over.
  Result<void> status;
  std::size_t size = 0, final_bytes = 0;  // outgoing
  bool is_whole = false;                  // incoming
  std::vector<int> missing;               // incoming, sequences
};

class StageStorage {
 public:
  using Message = std::shared_ptr<StageMessage>;

  /// For micro-batches of `sequences` and messages of `wire_bytes`. What it is given outlives the
  /// storage and everything taken from it.
  StageStorage(const ModelStage& stage, ComputeQueue& queue, BoundaryFormat& format, int sequences,
               std::size_t wire_bytes)
      : stage_(stage),
        queue_(queue),
        format_(format),
        sequences_(sequences),
        wire_bytes_(wire_bytes) {}

  std::shared_ptr<StageBatch> take_micro_batch();
  std::shared_ptr<StageTokens> take_tokens();
  /// The wire is host memory that the device can reach. Fails when memory is out.
  Result<Message> take_message(StageMessage::Kind kind);

  void give_back(std::shared_ptr<StageBatch>&& batch);
  void give_back(std::shared_ptr<StageTokens>&& tokens);
  void give_back(Message&& message);

  /// Rows of a micro-batch.
  std::size_t rows() const;
  /// Ever allocated.
  std::size_t micro_batches_made() const { return micro_batches_made_; }
  std::size_t messages_made() const { return messages_made_; }
  /// The elements of a boundary tensor.
  std::size_t elements() const;

 private:
  const ModelStage& stage_;
  ComputeQueue& queue_;
  BoundaryFormat& format_;
  const int sequences_;
  const std::size_t wire_bytes_;
  std::vector<std::shared_ptr<StageBatch>> micro_batches_;
  std::vector<std::shared_ptr<StageTokens>> tokens_;
  std::array<std::vector<Message>, 3> messages_;  // by kind
  std::size_t micro_batches_made_ = 0;
  std::size_t messages_made_ = 0;
};

}  // namespace longhaul
