#include "executor/pipeline/stage_storage.h"

#include <utility>

namespace longhaul {
namespace {

/// The last one given back, which is the likeliest to be in a cache; null when there is none.
template <class T>
std::shared_ptr<T> take_last(std::vector<std::shared_ptr<T>>& free) {
  if (free.empty()) return nullptr;
  std::shared_ptr<T> taken = std::move(free.back());
  free.pop_back();
  return taken;
}

}  // namespace

std::size_t StageStorage::rows() const {
  return static_cast<std::size_t>(sequences_) * static_cast<std::size_t>(stage_.model().context);
}

std::shared_ptr<StageBatch> StageStorage::take_micro_batch() {
  if (auto taken = take_last(micro_batches_)) return taken;
  ++micro_batches_made_;
  return std::make_shared<StageBatch>(stage_, sequences_);
}

std::shared_ptr<StageTokens> StageStorage::take_tokens() {
  if (auto taken = take_last(tokens_)) return taken;
  auto made = std::make_shared<StageTokens>();
  if (stage_.slice().has_embedding) made->inputs.resize(rows());
  if (stage_.slice().has_head) made->targets.resize(rows());
  return made;
}

Result<StageStorage::Wire> StageStorage::take_wire() {
  if (Wire taken = take_last(wires_)) return taken;
  LH_ASSIGN(ComputeBuffer buffer, queue_.allocate_staging(wire_bytes_));
  ++wires_made_;
  return std::make_shared<ComputeBuffer>(std::move(buffer));
}

void StageStorage::give_back(std::shared_ptr<StageBatch>&& batch) {
  micro_batches_.push_back(std::move(batch));
}
void StageStorage::give_back(std::shared_ptr<StageTokens>&& tokens) {
  tokens_.push_back(std::move(tokens));
}
void StageStorage::give_back(Wire&& wire) {
  wires_.push_back(std::move(wire));
}

}  // namespace longhaul
