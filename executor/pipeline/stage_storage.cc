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

std::size_t StageStorage::elements() const {
  return rows() * static_cast<std::size_t>(stage_.model().width);
}

Result<StageStorage::Message> StageStorage::take_message(StageMessage::Kind kind) {
  using Kind = StageMessage::Kind;
  if (Message taken = take_last(messages_[static_cast<std::size_t>(kind)])) return taken;
  LH_ASSIGN(ComputeBuffer wire, queue_.allocate_staging(wire_bytes_));
  ++messages_made_;
  auto made = std::make_shared<StageMessage>();
  made->kind = kind;
  made->wire = std::move(wire);
  if (kind != Kind::kPlain) made->tensor.resize(elements());
  if (kind != Kind::kIncoming) made->writer = format_.make_writer();
  if (kind != Kind::kOutgoing) made->reader = format_.make_reader();
  return made;
}

void StageStorage::give_back(std::shared_ptr<StageBatch>&& batch) {
  micro_batches_.push_back(std::move(batch));
}
void StageStorage::give_back(std::shared_ptr<StageTokens>&& tokens) {
  tokens_.push_back(std::move(tokens));
}
void StageStorage::give_back(Message&& message) {
  messages_[static_cast<std::size_t>(message->kind)].push_back(std::move(message));
}

}  // namespace longhaul
